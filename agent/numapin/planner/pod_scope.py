"""
Pod scope for containers that arrive one by one: one set of nodes for all containers of a pod.

Owns: what the first container's decision means for the pod. Must never: change its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from numapin.model.memory import Books, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules
from numapin.planner.placement import nodes_for, place


def pod_nodes(books: Books, request: Request) -> NodeSet | None:
    """Nodes that the pod of *request* has already, of its living and ended containers; ``None`` when none."""
    nodes = NodeSet()
    for owner, blocks in books.assignments.items():
        if owner.pod == request.owner.pod:
            for block in blocks:
                nodes |= block.affinity
    return nodes or None


def place_in_pod(
    books: Books, request: Request, rules: Rules, *, pod_sizes: Mapping[MemoryType, int]
) -> Plan | Refusal:
    """
    As `place`, for a container of a pod under pod scope.

    The first container's nodes are those that hold *pod_sizes* (the pod cgroup's limits, bytes per type; empty when
    the pod has none); every later container of the pod gets exactly these. A pod that cannot be placed as a whole
    is refused with its first container. Without *pod_sizes* the first container's own size decides, which is all
    that is known then.
    """
    nodes = pod_nodes(books, request)
    if nodes is None and pod_sizes:
        whole = {kind: max(pod_sizes.get(kind, 0), size) for kind, size in request.sizes.items()}
        whole |= {kind: size for kind, size in pod_sizes.items() if kind not in whole}
        for_pod = replace(request, owner=Owner(request.owner.pod, ""), sizes=whole, reusable=())
        answer = nodes_for(books, for_pod, rules)
        if isinstance(answer, Refusal):
            return replace(answer, owner=request.owner, message=f"its pod as a whole {answer.message}")
        nodes = answer
    return place(books, replace(request, affinity=nodes), rules)

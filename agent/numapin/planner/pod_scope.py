"""
Pod scope for containers that arrive one by one: one set of nodes for all containers of a pod.

Owns: what the first container's decision means for the pod, and what stays reserved for those that are still to come.
Must never: change its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from numapin.model.memory import Block, Books, MemoryType, rest_of
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules
from numapin.planner.accounting import release, reserve
from numapin.planner.placement import place
from numapin.planner.pod_shared import beside, split, with_own

_NOTHING: Mapping[MemoryType, int] = {}


def pod_nodes(books: Books, request: Request) -> NodeSet | None:
    """Nodes that the pod of *request* has already, of its living and ended containers; ``None`` when none."""
    return books.nodes_of(*(owner for owner in books.assignments if owner.pod == request.owner.pod)) or None


def place_in_pod(
    books: Books,
    request: Request,
    rules: Rules,
    *,
    pod_sizes: Mapping[MemoryType, int],
    borrowed: frozenset[MemoryType] = frozenset(),
) -> Plan | Refusal:
    """
    As `place`, for a container of a pod under pod scope.

    The first container's nodes are those that hold *pod_sizes* (the pod cgroup's limits, bytes per type; empty when
    the pod has none); every later container of the pod gets exactly these, and what they have not taken yet is kept
    for them (`rest_of`). A pod that cannot be placed as a whole is refused with its first container. Without
    *pod_sizes* the first container's own size decides, which is all that is known then. A request with an affinity
    is for these nodes, whatever others of the pod have. Sizes of the *borrowed* types are the pod's, and stay with
    what is kept for it (`pod_shared`); ``request.owner`` is `rest_of` its pod when it has no other.
    """
    nodes = pod_nodes(books, request) if request.affinity is None else request.affinity
    rest = rest_of(request.owner.pod)
    own, sizes = split(books, request, borrowed, rest)
    if nodes is None and pod_sizes:
        return _place_whole(books, request, rules, pod_sizes, own)
    if not sizes:
        return beside(books, request, rules)
    kept = (rest,) if nodes is not None else ()
    wanted = replace(request, sizes=sizes, affinity=nodes, reusable=(*request.reusable, *kept))
    answer = place(books, wanted, rules)
    if isinstance(answer, Refusal):
        return answer
    before = {b.type: b.size_bytes for b in books.assignments.get(rest, ()) if b.affinity == answer.nodes}
    return keep_rest(with_own(answer, own, rest, ()) if borrowed else answer, pod_sizes, before)


def _place_whole(
    books: Books,
    request: Request,
    rules: Rules,
    pod_sizes: Mapping[MemoryType, int],
    own: Mapping[MemoryType, int],
) -> Plan | Refusal:
    sizes = {kind: max(pod_sizes.get(kind, 0), size) for kind, size in request.sizes.items()}
    sizes |= {kind: size for kind, size in pod_sizes.items() if kind not in sizes}
    whole = replace(request, owner=rest_of(request.owner.pod), sizes=sizes, reusable=())
    answer = place(books, whole, rules)
    explanation = replace(answer.explanation, whole_pod=True)
    if isinstance(answer, Refusal):
        message = f"its pod as a whole {answer.message}"
        return replace(answer, owner=request.owner, message=message, explanation=explanation)
    blocks = tuple(Block(answer.nodes, kind, size) for kind, size in sorted(own.items()) if size)
    booked = release(answer.books, whole.owner)
    booked = reserve(booked, request.owner, blocks) if blocks else booked
    return keep_rest(Plan(request.owner, answer.nodes, blocks, booked, explanation), sizes)


def keep_rest(plan: Plan, pod_sizes: Mapping[MemoryType, int], before: Mapping[MemoryType, int] = _NOTHING) -> Plan:
    """
    *plan*, with what its pod may have and none of its containers holds yet reserved on its nodes.

    That is as much as is free there, or was kept there *before*: a node that loses memory takes nobody's share along.
    Containers that ended and whose memory waits count among those that hold some.
    """
    rest = rest_of(plan.owner.pod)
    books = release(plan.books, rest)
    left = dict(pod_sizes)
    for owner, blocks in books.assignments.items():
        if owner.pod == rest.pod:
            for block in blocks:
                left[block.type] = left.get(block.type, 0) - block.size_bytes
    states = [books.node_map.nodes[n] for n in plan.nodes if n in books.node_map.nodes]
    kept = []
    for kind, size in sorted(left.items()):
        free = sum(s.memory_map[kind].free for s in states if kind in s.memory_map)
        if (part := min(size, max(free, before.get(kind, 0)))) > 0:
            kept.append(Block(plan.nodes, kind, part))
    return replace(plan, books=reserve(books, rest, tuple(kept)) if kept else books)

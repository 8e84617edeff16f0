"""
What would happen to a container or a pod, answered without changing anything.

Owns: the questions of ``plan`` and the documents that answer them. Must never: write, or decide by rules of its own:
containers go through `planner.placement` as the daemon's do, pods through `planner.kubelet`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from numapin import API_VERSION
from numapin.daemon.basis import Basis
from numapin.daemon.explain import decision_part, refusal_part
from numapin.model.errors import ExitStatus, RequestFailed
from numapin.model.memory import Books, MemoryType, NodeMap, Owner
from numapin.model.nodeset import CpuSet, NodeSet
from numapin.model.plan import Plan, ProviderHints, Refusal, Request, Scope, TopologyPolicy
from numapin.planner.accounting import build_node_map
from numapin.planner.explain import kubelet_clause, remedies, why_sentences
from numapin.planner.kernel_free import spend
from numapin.planner.kubelet.bounds import KUBELET_NODES, TooManyNodes
from numapin.planner.kubelet.manifest import Manifest
from numapin.planner.kubelet.node import Admission
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer
from numapin.planner.kubelet.rejection import Situation, record, rejected
from numapin.planner.kubelet.remedies import remedies as remedies_of_pod
from numapin.planner.placement import place
from numapin.planner.providers import cpu_hints

SPOKEN_PLACES = 4
"""More sets of nodes than this are not listed one by one."""
WAITED_NODES = 20
"""Under the policy none a kubelet needs two seconds for a container on so many nodes, and twice that on each more."""
PLANNED = "numapin-plan"
"""Owner of what is planned; no container has such an id."""


@dataclass(frozen=True, slots=True)
class Question:
    """
    *count* containers of these sizes (bytes by type), one after the other.

    ``policy`` ``None`` is the configured one; ``cpus`` ``None`` all CPUs; ``nodes_allowed`` ``None`` all nodes.
    """

    sizes: Mapping[MemoryType, int]
    count: int = 1
    policy: TopologyPolicy | None = None
    cpus: CpuSet | None = None
    nodes_allowed: NodeSet | None = None


def container_plan(basis: Basis, question: Question) -> dict[str, object]:
    """
    The document that answers *question*; the last decision in it is the first refusal, if there is one.

    Raises:
        RequestFailed: A node or CPU that is not there, or CPUs where nobody knows them (``bad-plan``, exit 2).
    """
    rules = basis.rules if question.policy is None else replace(basis.rules, policy=question.policy)
    request = Request(
        owner=Owner(PLANNED, PLANNED),
        sizes=question.sizes,
        allowed=_allowed(basis, question.nodes_allowed),
        normal=basis.normal,
        ceilings={n: {t: v for t, v in f.items() if t in question.sizes} for n, f in basis.ceilings.items()},
        hints=_cpu_hints(basis, question.cpus),
    )
    books, plans, refusal = basis.books, list[Plan](), None
    while len(plans) < question.count and refusal is None:
        answer = place(books, replace(request, owner=Owner(PLANNED, f"{PLANNED}-{len(plans) + 1}")), rules)
        if isinstance(answer, Refusal):
            refusal = answer
        else:
            plans.append(answer)
            books = answer.books
            taken = ((block.affinity, block.type, block.size_bytes) for block in answer.blocks)
            request = replace(request, ceilings=spend(request.ceilings, taken))
    record = refusal.explanation if refusal is not None else plans[-1].explanation
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "source": dict(basis.source),
        "policy": rules.policy.value,
        "request": dict(sorted(question.sizes.items())),
        "cpus": None if question.cpus is None else str(question.cpus),
        "nodes_allowed": None if question.nodes_allowed is None else list(question.nodes_allowed),
        "count": question.count,
        "fits": len(plans),
        "admitted": refusal is None,
        "placements": [
            {"nodes": list(p.nodes), "preferred": p.explanation.preferred, "tie_break": p.explanation.tie_break}
            for p in plans
        ],
        "sentences": [_headline(question, plans, refusal), *why_sentences(record)],
        "remedies": list(remedies(record)),
        "refusal": None if refusal is None else refusal_part(refusal),
        "decision": decision_part(record),
    }


def pod_plan(
    basis: Basis, manifest: Manifest, *, policy: TopologyPolicy | None = None, scope: Scope | None = None
) -> dict[str, object]:
    """
    The document with the kubelet's answer about one pod, per container.

    ``notes`` are sentences about what the answer assumes; ``asked`` are the bytes of what was rejected.

    Raises:
        RequestFailed: The answer takes too long to work out on so many nodes (``too-many-nodes``).
    """
    pod, books = manifest.pod, _kubelet_books(basis)
    situation = Situation(
        books,
        pod,
        policy or basis.rules.policy,
        scope or basis.scope,
        basis.rules.distances if basis.rules.prefer_closest else None,
        max(KUBELET_NODES, len(books.node_map.nodes)),
    )
    try:
        kubelet = situation.kubelet()
        answer = kubelet.admit(pod)
    except TooManyNodes as exc:
        raise RequestFailed("too-many-nodes", str(exc)) from exc
    failed = None if answer.admitted or situation.asks_whole_pod else _failed(pod, answer)
    said = None if answer.admitted else rejected(situation, kubelet, failed)
    return {
        "apiVersion": API_VERSION,
        "kind": "PodPlan",
        "source": dict(basis.source),
        "policy": situation.policy.value,
        "scope": situation.scope.value,
        "pod": manifest.name,
        "qos": pod.qos_class().value,
        "admitted": answer.admitted,
        "placed": answer.admitted and pod.is_managed(),
        "reason": answer.reason,
        "detail": answer.detail,
        "verdict": _pod_verdict(pod, answer),
        "notes": list(_notes(basis, books, situation.policy)),
        "containers": [_container_row(pod, container, answer, failed) for container in pod.containers],
        "asked": None if said is None else {"container": failed.name if failed else None, "sizes": dict(said.sizes)},
        "remedies": [] if said is None else list(remedies_of_pod(said)),
        "decision": None if said is None else decision_part(record(said)),
    }


def _kubelet_books(basis: Basis) -> Books:
    """The books as a kubelet has them: with the nodes that numapin does not use, where they are known."""
    others = _unused(basis)
    if not others or basis.source.get("from") != "machine" or basis.topology is None:
        return basis.books
    nodes = {**build_node_map(basis.topology, {}, others).nodes, **basis.books.node_map.nodes}
    return Books(NodeMap(dict(sorted(nodes.items()))), basis.books.assignments)


def _unused(basis: Basis) -> NodeSet:
    """Online nodes that are not in the books."""
    known = NodeSet.from_ids(basis.books.node_map.nodes)
    return NodeSet() if basis.topology is None else basis.topology.online - known


def _notes(basis: Basis, books: Books, policy: TopologyPolicy) -> Iterator[str]:
    """What the answer assumes, where a kubelet's could be another."""
    left_out = _unused(basis) - NodeSet.from_ids(books.node_map.nodes)
    if left_out:
        yield (
            f"{left_out.named} {'is' if len(left_out) == 1 else 'are'} left out, because numapin uses no nodes "
            "without CPUs or memory; a kubelet does, and --root has them"
        )
    if basis.topology is None:
        yield "a checkpoint has only the nodes that numapin uses; a kubelet has those without CPUs or memory too"
    count = len(books.node_map.nodes) + len(left_out)
    if count <= KUBELET_NODES:
        return
    if policy is not TopologyPolicy.NONE:
        yield (
            f"a kubelet with the policy {policy.value} does not start on {count} nodes, unless its option "
            f"max-allowable-numa-nodes is raised to {count} or more, as is assumed here"
        )
    elif count > WAITED_NODES:
        yield f"a kubelet tries every set of {count} nodes for each container, and may never come to this answer"


def _allowed(basis: Basis, asked: NodeSet | None) -> NodeSet | None:
    if asked is None:
        return basis.usable
    known = NodeSet.from_ids(basis.books.node_map.nodes)
    if unknown := asked - known:
        named = f"{unknown.named} is not one" if len(unknown) == 1 else f"{unknown.named} are none"
        _bad(f"--nodes-allowed: {named} of the nodes in the books ({known})")
    return asked if basis.usable is None else asked & basis.usable


def _cpu_hints(basis: Basis, cpus: CpuSet | None) -> tuple[ProviderHints, ...]:
    if cpus is None:
        return ()
    if basis.topology is None:
        _bad("--cpus needs the nodes' CPUs, which a checkpoint does not hold; ask the daemon, or give --root")
    known = CpuSet.from_ids(c for n in basis.topology.nodes.values() for c in n.cpus)
    if unknown := cpus - known:
        _bad(f"--cpus: {unknown} are not CPUs of this machine ({known})")
    hints = cpu_hints(cpus, basis.topology, basis.topology.online if basis.usable is None else basis.usable)
    return () if hints is None else (hints,)


def _bad(sentence: str) -> NoReturn:
    raise RequestFailed("bad-plan", sentence, ExitStatus.USAGE)


def _headline(question: Question, plans: list[Plan], refusal: Refusal | None) -> str:
    why = ""
    if refusal is not None:
        why = f"{refusal.message} ({kubelet_clause(refusal.kubelet_reason, refusal.explanation)})"
    if question.count == 1:
        return f"It would be refused: {why}." if why else f"It would be pinned to {plans[0].nodes.named}."
    where = _spread(plans)
    if not why:
        return f"All {question.count} would fit: {where}."
    fit, next_one = (
        (f"{len(plans)} of {question.count} would fit: {where}", "next")
        if plans
        else (f"None of {question.count} would fit", "first")
    )
    return f"{fit}; the {next_one} would be refused: {why}."


def _spread(plans: Sequence[Plan]) -> str:
    """``2 on node 0, 2 on node 1``; beyond a few, nodes with equally many together: ``1 on each of nodes 0-63``."""
    spread = Counter(plan.nodes for plan in plans)
    if len(spread) <= SPOKEN_PLACES:
        return ", ".join(f"{n} on {nodes.named}" for nodes, n in spread.items())
    said = []
    for count in dict.fromkeys(spread.values()):
        alike = [nodes for nodes, n in spread.items() if n == count]
        single = NodeSet.from_ids(n for nodes in alike if len(nodes) == 1 for n in nodes)
        groups = [nodes for nodes in alike if len(nodes) > 1]
        if single:
            said.append(f"{count} on {'each of ' if len(single) > 1 else ''}{single.named}")
        if len(groups) > SPOKEN_PLACES:
            said.append(f"{count} on each of {len(groups)} groups ({groups[0]} to {groups[-1]})")
        else:
            said += [f"{count} on {nodes.named}" for nodes in groups]
    return ", ".join(said)


def _pod_verdict(pod: Pod, answer: Admission) -> str:
    if not answer.admitted:
        return answer.reason
    if pod.is_managed():
        return "admitted"
    why = "resources are set on the pod as a whole" if pod.has_pod_resources else pod.qos_class().value
    return f"admitted, not placed: {why}"


def _failed(pod: Pod, answer: Admission) -> PodContainer | None:
    """The container at which admission ended."""
    return next((c for c in pod.containers if c.name not in answer.mems), None)


def _container_row(
    pod: Pod, container: PodContainer, answer: Admission, failed: PodContainer | None
) -> dict[str, object]:
    if answer.admitted:
        verdict = "admitted" if pod.is_managed() else "not placed"
    elif failed is None or container is failed:
        verdict = answer.reason
    else:
        order = [c.name for c in pod.containers]
        verdict = "not reached" if order.index(container.name) > order.index(failed.name) else "fits"
    kind = "sidecar" if container.restartable else "init" if container.init else "app"
    nodes = answer.mems.get(container.name) if answer.admitted else None
    return {
        "name": container.name,
        "kind": kind,
        "request": _request_of(container),
        "verdict": verdict,
        "nodes": None if nodes is None else list(nodes),
    }


def _request_of(container: PodContainer) -> dict[MemoryType, int] | None:
    """Bytes by type; ``None`` where one is no whole number of bytes."""
    try:
        return container.memory_requests()
    except NotWholeBytes:
        return None

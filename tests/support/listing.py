"""
The kubelet's way to its answers, set by set: every set of nodes is listed, and every combination of hints formed.

Naive and exponential, for a few nodes; the planner's kubelet, which searches instead, is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.merge import Distances
from numapin.planner.kubelet.node import Asked, Kubelet
from numapin.planner.kubelet.pods import Pod
from numapin.planner.kubelet.sets import Hints, Sets
from numapin.planner.kubelet.static import StaticPolicy

Again = Mapping[tuple[int, MemoryType], int]
Combined = tuple[NodeSet, bool, NodeSet | None, bool]
"""What a combination leaves of all nodes, whether all of it is preferred, the set it names, whether it names one."""


def listed(ledger: Ledger, asked: Mapping[MemoryType, int], again: Again) -> tuple[Hint, ...]:
    """Every set that may take *asked*, by size and then by ids."""
    found: list[NodeSet] = []
    least = len(ledger.nodes)
    for nodes in _every(list(ledger.nodes)):
        if any(_sum(ledger, nodes, kind, "allocatable") < size for kind, size in asked.items()):
            continue
        least = min(least, len(nodes))
        states = [ledger.nodes[n] for n in nodes]
        if len(nodes) == 1 and states[0].cells.bit_count() > 1:
            continue
        if len(nodes) > 1 and any(s.count > 0 and s.cells != nodes.mask for s in states):
            continue
        if all(_sum(ledger, nodes, k, "free") + again.get((nodes.mask, k), 0) >= size for k, size in asked.items()):
            found.append(nodes)
    return tuple(Hint(nodes, len(nodes) == least) for nodes in found)


def _every(ids: Sequence[NodeId]) -> Iterator[NodeSet]:
    for size in range(1, len(ids) + 1):
        yield from map(NodeSet.from_ids, combinations(ids, size))


def _sum(ledger: Ledger, nodes: NodeSet, kind: MemoryType, amount: str) -> int:
    tables = [ledger.nodes[n].tables.get(kind) for n in nodes]
    return sum(int(getattr(table, amount)) for table in tables if table is not None)


def merged(
    providers: Sequence[ProviderHints], nodes: NodeSet, policy: TopologyPolicy, distances: Distances | None
) -> Hint:
    """The topology manager's best combination of one hint per list."""
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    combined: set[Combined] = {(nodes, True, None, True)}
    floor = 0
    for provider in providers:
        hints = (Hint(None, True),) if provider.hints is None else provider.hints or (Hint(None, False),)
        if single:
            hints = tuple(h for h in hints if h.preferred and (h.affinity is None or len(h.affinity) == 1))
        floor = max(floor, min((len(h.affinity) for h in hints if h.affinity is not None), default=0))
        combined = {_with(have, hint) for have in combined for hint in hints}
    results = {(left, preferred and alike) for left, preferred, _, alike in combined if left}
    best = min(results, key=lambda r: _order(r, floor, {} if single else distances or {}), default=(nodes, False))
    return Hint(None if single and best[0] == nodes else best[0], best[1])


def _with(have: Combined, hint: Hint) -> Combined:
    left, preferred, named, alike = have
    if hint.affinity is None:
        return left, preferred and hint.preferred, named, alike
    return left & hint.affinity, preferred and hint.preferred, hint.affinity, alike and named in (None, hint.affinity)


def _order(result: tuple[NodeSet, bool], floor: int, distances: Distances) -> tuple[int, ...]:
    nodes, preferred = result
    size = len(nodes)
    far = sum(distances.get(a, {}).get(b, 255) for a in nodes for b in nodes) if distances else 0
    if preferred:
        return 0, size, far, nodes.mask
    if size == floor:
        return 1, 0, far, nodes.mask
    return (2, -size, far, nodes.mask) if size < floor else (3, size, far, nodes.mask)


class ListingPolicy(StaticPolicy):
    """The Static policy that takes its own choice from the list."""

    __slots__ = ()

    def _choice(self, pod: Pod, asked: Mapping[MemoryType, int], around: int = 0) -> Hint | None:
        hints = listed(self.ledger, asked, self.reusable.get(pod.uid, {})) if MEMORY in asked else ()
        inside = [h.affinity for h in hints if h.affinity is not None and h.affinity.mask & around == around]
        best = min(inside, key=lambda nodes: (len(nodes), nodes), default=None)
        return next((h for h in hints if h.affinity == best), None)


class ListingKubelet(Kubelet):
    """The kubelet that merges the whole lists; made as any other, over books or not."""

    def use_lists(self) -> ListingKubelet:
        """The policy's own choices come from the lists too, from now on."""
        self.static = ListingPolicy(self.ledger)
        return self

    def _ask(self, asked: list[Asked], name: str, own: Sets | Hints | None, others: Sequence[ProviderHints]) -> Hint:
        if isinstance(own, Sets):
            found = listed(own.ledger, own.asked, own.again)
            own = dict.fromkeys(own.asked, found) if found else {}
        asked.append(Asked(name, own))
        lists = [ProviderHints(kind, hints) for kind, hints in (own or {}).items()]
        return merged([*others, *(lists or [ProviderHints("memory", None)])], self.nodes, self.policy, self.distances)

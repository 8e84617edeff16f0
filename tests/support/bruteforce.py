"""
What `place` must answer, found by listing every set of nodes: naive, exponential, and written apart from the planner.

It shares nothing with it but the model's values. It works on plain facts, taken either from the books and the
request, or from the record of a decision alone. It is itself checked against the kubelet's recorded answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from numapin.model.memory import Books, MemoryType
from numapin.model.nodeset import NodeId
from numapin.model.plan import Exclusion, Explanation, ProviderHints, Request, Rules, TopologyPolicy

Nodes = frozenset[NodeId]
HintList = list[tuple[Nodes | None, bool]]
CLOSEST = (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED)
"""Where distances count, if they are to."""


@dataclass(frozen=True)
class Verdict:
    """Nodes (``None``: refused) and whether they are as few as could ever do."""

    nodes: Nodes | None
    preferred: bool = False


@dataclass(frozen=True)
class Fact:
    """One node: bytes per type (``free`` only makes sense summed over a group), and what it is tied to."""

    allocatable: Mapping[MemoryType, int]
    free: Mapping[MemoryType, int]
    kernel: Mapping[MemoryType, int]
    group: Nodes
    used: bool
    normal: bool
    wanted: tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """One decision's whole input."""

    facts: Mapping[NodeId, Fact]
    sizes: Mapping[MemoryType, int]
    hints: tuple[ProviderHints, ...]
    policy: TopologyPolicy
    distances: Mapping[NodeId, Mapping[NodeId, int]]


def case_of(books: Books, request: Request, rules: Rules) -> Case:
    """The input as given to `place`; free and groups are worked out from the assignments, not from the tables."""
    gone = {request.owner, *request.reusable}
    blocks = [b for owner, held in books.assignments.items() if owner not in gone for b in held]

    def wanted(node: NodeId) -> tuple[int, int, int]:
        own = any(node in b.affinity for b in books.assignments.get(request.owner, ()))
        ended = any(node in b.affinity for o in request.reusable for b in books.assignments.get(o, ()))
        return int(own), max(0, request.resident.get(node, 0)), int(ended)

    facts = {}
    for node, state in books.node_map.nodes.items():
        if (request.allowed is not None and node not in request.allowed) or not any(
            t.total for t in state.memory_map.values()
        ):
            continue
        mine = [b for b in blocks if node in b.affinity]
        group = frozenset({node}).union(*(frozenset(b.affinity) for b in mine))
        free = {k: t.allocatable for k, t in state.memory_map.items()}
        for block in blocks:
            if min(block.affinity) == node:  # the whole block is charged here; only sums are used
                free[block.type] = free.get(block.type, 0) - block.size_bytes
        normal = request.normal is None or node in request.normal
        allocatable = {k: t.allocatable for k, t in state.memory_map.items()}
        facts[node] = Fact(allocatable, free, request.ceilings.get(node, {}), group, bool(mine), normal, wanted(node))
    sizes = {k: s for k, s in request.sizes.items() if s}
    return Case(facts, sizes, request.hints, rules.policy, rules.distances if rules.prefer_closest else {})


def case_of_record(record: Explanation) -> Case:
    """The input as the record of a decision tells it."""
    facts = {
        view.node: Fact(
            view.allocatable,
            view.free,
            view.kernel_free,
            frozenset(view.cells),
            view.assignments > 0,
            view.normal,
            (int(view.own), view.resident, int(view.ended)),
        )
        for view in record.nodes
        if view.exclusion not in (Exclusion.NOT_ALLOWED, Exclusion.MEMORYLESS)
    }
    return Case(facts, record.sizes, record.hints, record.policy, record.distances)


def verdict(case: Case) -> Verdict:
    """The answer that `place` has to give."""
    return _Search(case).verdict()


def merged(
    nodes: Iterable[NodeId],
    hints: Iterable[ProviderHints],
    policy: TopologyPolicy,
    distances: Mapping[NodeId, Mapping[NodeId, int]],
) -> tuple[Nodes | None, bool]:
    """The search's own merge of these hints alone: nodes (``None``: none in common), and whether all prefer them."""
    facts = {n: Fact({}, {}, {}, frozenset({n}), False, True, (0, 0, 0)) for n in nodes}
    case = Case(facts, {}, (), policy, distances)
    return _Search(case).merge([_hint_list(p) for p in hints])


class _Search:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.facts = case.facts
        self.sizes = case.sizes

    def _possible(self, nodes: Nodes) -> bool:
        """Could these hold the request when empty?"""
        return any(self.facts[n].normal for n in nodes) and all(
            sum(self.facts[n].allocatable.get(k, 0) for n in nodes) >= size for k, size in self.sizes.items()
        )

    def _offered(self, nodes: Nodes, kind: MemoryType) -> int:
        """Free in the books, over whole groups, and never more than the kernel has."""
        facts = [self.facts[n] for n in nodes]
        if len(nodes) > 1 and any(f.used for f in facts):
            room = sum(f.kernel.get(kind, f.allocatable.get(kind, 0)) for f in facts)
            return min(sum(f.free.get(kind, 0) for f in facts), room)
        return sum(min(f.free.get(kind, 0), f.kernel.get(kind, f.free.get(kind, 0))) for f in facts)

    def takes(self, nodes: Nodes) -> bool:
        """May exactly these nodes take the request now?"""
        groups = {self.facts[n].group for n in nodes}
        unused = len(nodes) > 1 and not any(self.facts[n].used for n in nodes)
        if not unused and groups != {nodes}:
            return False
        return self._possible(nodes) and all(self._offered(nodes, k) >= size for k, size in self.sizes.items())

    def _all_sets(self) -> Iterator[Nodes]:
        for size in range(1, len(self.facts) + 1):
            yield from map(frozenset, combinations(self.facts, size))

    def _key(self, nodes: Nodes, *, closest: bool) -> tuple[int, int, int, int, int]:
        """Order among sets of one size."""
        distance = 0
        if closest and self.case.distances:
            distance = sum(self.case.distances.get(a, {}).get(b, 255) for a in nodes for b in nodes)
        own, resident, ended = (sum(self.facts[n].wanted[i] for n in nodes) for i in range(3))
        return distance, -own, -resident, -ended, sum(1 << n for n in nodes)

    def verdict(self) -> Verdict:
        possible = [s for s in self._all_sets() if self._possible(s)]
        found = [s for s in possible if self.takes(s)]
        if not found:
            return Verdict(None)
        width = min(map(len, possible))
        policy = self.case.policy
        closest = policy in CLOSEST
        if policy is TopologyPolicy.NONE:
            return self._own(found, width, closest=False)
        lists = [_hint_list(p) for p in self.case.hints]
        lists.append([(s, len(s) == width) for s in found])
        merged, preferred = self.merge(lists)
        if policy is not TopologyPolicy.BEST_EFFORT:
            return Verdict(merged, True) if preferred else Verdict(None)
        if merged is None:
            return Verdict(self._own(found, width, closest=closest).nodes, False)
        if self.takes(merged):
            return Verdict(merged, preferred)
        around = [s for s in found if merged <= s]
        return Verdict(self._own(around, width, closest=False).nodes, False)

    def _own(self, found: Iterable[Nodes], width: int, *, closest: bool) -> Verdict:
        best = min(found, key=lambda s: (len(s), self._key(s, closest=closest)))
        return Verdict(best, len(best) == width)

    def merge(self, lists: list[HintList]) -> tuple[Nodes | None, bool]:
        """The topology manager's merge over every combination."""
        closest = self.case.policy in CLOSEST
        if self.case.policy is TopologyPolicy.SINGLE_NUMA_NODE:
            lists = [[h for h in hints if h[1] and (h[0] is None or len(h[0]) == 1)] for hints in lists]
        results: set[tuple[Nodes, bool]] = set()
        for combination in product(*lists):
            sets = [nodes for nodes, _ in combination if nodes is not None]
            merged = frozenset(self.facts).intersection(*sets)
            if merged:
                results.add((merged, all(p for _, p in combination) and len(set(sets)) <= 1))
        good = [nodes for nodes, preferred in results if preferred]
        if good:
            return min(good, key=lambda s: (len(s), self._key(s, closest=closest))), True
        if not results:
            return None, False
        wanted = max(min((len(nodes) for nodes, _ in hints if nodes is not None), default=0) for hints in lists)
        ranks = {nodes: _rank(len(nodes), wanted) for nodes, _ in results}
        return min(ranks, key=lambda s: (ranks[s], self._key(s, closest=closest))), False


def _hint_list(provider: ProviderHints) -> HintList:
    if provider.hints is None:
        return [(None, True)]
    if not provider.hints:
        return [(None, False)]
    return [(None if h.affinity is None else frozenset(h.affinity), h.preferred) for h in provider.hints]


def _rank(size: int, wanted: int) -> tuple[int, int]:
    if size == wanted:
        return 0, 0
    return (1, -size) if size < wanted else (2, size)

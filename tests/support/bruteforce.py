"""
What `place` must answer, found by listing every set of nodes: naive, exponential, and written apart from the planner.

It shares nothing with it but the model's values. It is itself checked against the kubelet's recorded answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from numapin.model.memory import Books, MemoryType, Owner
from numapin.model.nodeset import NodeId
from numapin.model.plan import ProviderHints, Request, Rules, TopologyPolicy

Nodes = frozenset[NodeId]


@dataclass(frozen=True)
class Verdict:
    """Nodes (``None``: refused) and whether they are as few as could ever do."""

    nodes: Nodes | None
    preferred: bool = False


@dataclass(frozen=True)
class _Set:
    nodes: Nodes
    preferred: bool


class BruteForce:
    """One request on one machine, every set of nodes listed."""

    def __init__(self, books: Books, request: Request, rules: Rules) -> None:
        self.books = books
        self.request = request
        self.rules = rules
        self.sizes = {k: s for k, s in request.sizes.items() if s}
        self.gone = {request.owner, *request.reusable}
        nodes = books.node_map.nodes
        self.ids = [
            n
            for n in nodes
            if (request.allowed is None or n in request.allowed)
            and any(t.total for t in nodes[n].memory_map.values())
        ]
        self.used = {n: self._users(n) for n in nodes}

    def _users(self, node: NodeId) -> list[Nodes]:
        """Node sets of all blocks on *node*, those of the request's own and ended containers left out."""
        return [
            frozenset(b.affinity)
            for owner, blocks in self.books.assignments.items()
            if owner not in self.gone
            for b in blocks
            if node in b.affinity
        ]

    def _group(self, node: NodeId) -> Nodes:
        return frozenset({node}).union(*self.used[node])

    def _allocatable(self, nodes: Iterable[NodeId], kind: MemoryType) -> int:
        tables = (self.books.node_map.nodes[n].memory_map.get(kind) for n in nodes)
        return sum(t.allocatable for t in tables if t is not None)

    def _offered(self, nodes: Nodes, kind: MemoryType) -> int:
        """Free in the books over whole groups, never more than the kernel has."""
        taken = sum(
            b.size_bytes
            for owner, blocks in self.books.assignments.items()
            if owner not in self.gone
            for b in blocks
            if b.type == kind and b.affinity and frozenset(b.affinity) <= nodes
        )
        kernel = {n: self.request.ceilings.get(n, {}).get(kind) for n in nodes}
        if any(self.used[n] for n in nodes):
            room = sum(self._allocatable([n], kind) if k is None else k for n, k in kernel.items())
            return min(self._allocatable(nodes, kind) - taken, room)
        own = {n: self._allocatable([n], kind) for n in nodes}
        return sum(own[n] if k is None else min(own[n], k) for n, k in kernel.items())

    def _possible(self, nodes: Nodes) -> bool:
        """Could these hold the request when empty?"""
        normal = self.request.normal
        return all(self._allocatable(nodes, k) >= s for k, s in self.sizes.items()) and (
            normal is None or any(n in normal for n in nodes)
        )

    def takes(self, nodes: Nodes) -> bool:
        """May exactly these nodes take the request now?"""
        groups = {self._group(n) for n in nodes}
        unused = len(nodes) > 1 and not any(self.used[n] for n in nodes)
        return (
            (unused or groups == {nodes})
            and self._possible(nodes)
            and all(self._offered(nodes, k) >= s for k, s in self.sizes.items())
        )

    def _all_sets(self) -> Iterator[Nodes]:
        for size in range(1, len(self.ids) + 1):
            yield from map(frozenset, combinations(self.ids, size))

    def _key(self, nodes: Nodes, *, closest: bool) -> tuple[int, int, int, int, int]:
        """Order among sets of one size."""
        distance = 0
        if closest and self.rules.distances:
            distance = sum(self.rules.distances.get(a, {}).get(b, 255) for a in nodes for b in nodes)
        own = self._weight(nodes, [self.request.owner])
        resident = sum(max(0, self.request.resident.get(n, 0)) for n in nodes)
        ended = self._weight(nodes, self.request.reusable)
        return distance, -own, -resident, -ended, sum(1 << n for n in nodes)

    def _weight(self, nodes: Nodes, owners: Iterable[Owner]) -> int:
        had = {n for o in owners for b in self.books.assignments.get(o, ()) for n in b.affinity}
        return len(nodes & had)

    def verdict(self) -> Verdict:
        """The answer that `place` has to give."""
        possible = [s for s in self._all_sets() if self._possible(s)]
        if not possible:
            return Verdict(None)
        width = min(map(len, possible))
        found = [_Set(s, len(s) == width) for s in possible if self.takes(s)]
        if not found:
            return Verdict(None)
        policy = self.rules.policy
        closest = self.rules.prefer_closest and policy in (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED)
        if policy is TopologyPolicy.NONE:
            return self._own(found, closest=False)
        lists = [self._hints(p) for p in self.request.hints]
        lists.append([(s.nodes, s.preferred) for s in found])
        merged, preferred = self._merge(lists, closest=closest)
        if policy is not TopologyPolicy.BEST_EFFORT:
            return Verdict(merged, True) if preferred else Verdict(None)
        if merged is None:
            return Verdict(self._own(found, closest=closest).nodes, False)
        if self.takes(merged):
            return Verdict(merged, preferred)
        around = [s for s in found if merged <= s.nodes]
        return Verdict(self._own(around, closest=False).nodes, False)

    def _own(self, found: list[_Set], *, closest: bool) -> Verdict:
        best = min(found, key=lambda s: (len(s.nodes), self._key(s.nodes, closest=closest)))
        return Verdict(best.nodes, best.preferred)

    @staticmethod
    def _hints(provider: ProviderHints) -> list[tuple[Nodes | None, bool]]:
        if provider.hints is None:
            return [(None, True)]
        if not provider.hints:
            return [(None, False)]
        return [(None if h.affinity is None else frozenset(h.affinity), h.preferred) for h in provider.hints]

    def _merge(self, lists: list[list[tuple[Nodes | None, bool]]], *, closest: bool) -> tuple[Nodes | None, bool]:
        """The topology manager's merge over every combination."""
        single = self.rules.policy is TopologyPolicy.SINGLE_NUMA_NODE
        if single:
            lists = [[h for h in hints if h[1] and (h[0] is None or len(h[0]) == 1)] for hints in lists]
        results: set[tuple[Nodes, bool]] = set()
        for combination in product(*lists):
            sets = [nodes for nodes, _ in combination if nodes is not None]
            merged = frozenset(self.ids).intersection(*sets)
            if merged:
                results.add((merged, all(p for _, p in combination) and len(set(sets)) <= 1))
        good = [nodes for nodes, preferred in results if preferred]
        if good:
            return min(good, key=lambda s: (len(s), self._key(s, closest=closest))), True
        if not results:
            return None, False
        wanted = max(min((len(nodes) for nodes, _ in hints if nodes is not None), default=0) for hints in lists)
        ranks = {nodes: self._rank(len(nodes), wanted) for nodes, _ in results}
        return min(ranks, key=lambda s: (ranks[s], self._key(s, closest=closest))), False

    @staticmethod
    def _rank(size: int, wanted: int) -> tuple[int, int]:
        if size == wanted:
            return 0, 0
        return (1, -size) if size < wanted else (2, size)

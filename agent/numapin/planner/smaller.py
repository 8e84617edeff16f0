"""
The largest size that a refused request could have now, on one node and on several.

Owns: which sets are tried, and whether the policy would take them for that size. Must never: name a size that would
be refused again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Explanation, NodeView, TopologyPolicy
from numapin.model.quantity import at_most_bytes
from numapin.planner.ways import LAX, OUTSIDE, POD_AFFINITY, free_of, may_serve, members_of, offered
from numapin.planner.witness import EXHAUSTIVE_NODES


@dataclass(frozen=True, slots=True)
class Smaller:
    """
    *size_bytes* of memory would fit on *nodes* now, also as a sentence rounds it down; the other types as asked.

    ``or_less``: so would anything smaller, there or elsewhere. Under restricted that is not so on several nodes: what
    fewer nodes could hold when empty must fit on fewer.
    """

    nodes: NodeSet
    size_bytes: int
    or_less: bool


def largest_at_once(record: Explanation) -> tuple[Smaller, ...]:
    """
    The most memory that this request could ask for and be admitted; where that takes several nodes, one node's after
    it.

    Where its nodes are given, it is these. Empty when memory is not asked for, nothing smaller fits, or other
    providers have a say. With several types on more than ten unused nodes not all sets of them are tried.
    """
    given = record.candidates[0] if record.tie_break == POD_AFFINITY and record.candidates else None
    if MEMORY not in record.sizes or (given is None and any(p.hints is not None for p in record.hints)):
        return ()
    tried = _Tried(record)
    if given is not None:
        found = [s for s in (tried.on(given, or_less=True),) if s is not None]
    else:
        found = list(tried.every())
    best = _largest(found)
    alone = _largest([s for s in found if len(s.nodes) == 1])
    return tuple(dict.fromkeys(s for s in (best, alone) if s is not None))


def _largest(found: Sequence[Smaller]) -> Smaller | None:
    """The largest, on the fewest nodes with the lowest ids."""
    return min(found, key=lambda s: (-at_most_bytes(s.size_bytes), len(s.nodes), s.nodes), default=None)


class _Tried:
    """The sets of one record, each asked how much memory it could take."""

    def __init__(self, record: Explanation) -> None:
        self._policy = record.policy
        self._asked = record.sizes[MEMORY]
        self._others = {kind: size for kind, size in record.sizes.items() if kind != MEMORY}
        self._by_node = {view.node: view for view in record.nodes}
        allowed = [view for view in record.nodes if view.exclusion not in OUTSIDE]
        self._most = {k: _sums_of_largest(allowed, k) for k in record.sizes}
        self._unused = [v for v in allowed if len(v.cells) == 1 and not v.assignments and self._offers(v)]

    def every(self) -> Iterator[Smaller]:
        """What fits on single nodes, in the groups that there are, and on unused nodes, which would become one."""
        there = dict.fromkeys(v.cells if len(v.cells) > 1 else NodeSet(1 << v.node) for v in self._by_node.values())
        several = () if self._policy is TopologyPolicy.SINGLE_NUMA_NODE else self._of_unused()
        for nodes in (*there, *several):
            found = self.on(nodes, or_less=self._policy in LAX or len(nodes) == 1)
            if found is not None:
                yield found

    def on(self, nodes: NodeSet, *, or_less: bool) -> Smaller | None:
        """The most that *nodes* could take, if that is less than what was asked and would be admitted."""
        members = members_of(self._by_node, nodes)
        if not may_serve(members, nodes) or any(free_of(members, k) < size for k, size in self._others.items()):
            return None
        size = free_of(members, MEMORY)
        told = at_most_bytes(size)
        admitted = or_less or (self._policy is TopologyPolicy.RESTRICTED and self._width(told) >= len(nodes))
        return Smaller(nodes, size, or_less) if 0 < size < self._asked and admitted else None

    def _of_unused(self) -> Iterator[NodeSet]:
        """Sets of several unused nodes that offer most for their number."""
        unused = sorted(self._unused, key=lambda v: (-offered(v, MEMORY), v.node))
        counts = range(2, len(unused) + 1)
        if self._others and len(unused) <= EXHAUSTIVE_NODES:
            yield from (_set(some) for count in counts for some in combinations(unused, count))
            return
        for count in counts:
            some = unused[:count]
            if not any(v.normal for v in some):
                some = [*some[:-1], *[v for v in unused[count:] if v.normal][:1]]
            yield _set(some)

    def _width(self, size: int) -> int:
        """At least so many nodes are needed for *size* and the other types, even when empty."""
        wanted = {MEMORY: size, **self._others}
        return max(bisect_left(self._most[kind], amount) + 1 for kind, amount in wanted.items())

    def _offers(self, view: NodeView) -> bool:
        return any(offered(view, kind) for kind in (MEMORY, *self._others))


def _set(views: Sequence[NodeView]) -> NodeSet:
    return NodeSet.from_ids(v.node for v in views)


def _sums_of_largest(views: Sequence[NodeView], kind: MemoryType) -> list[int]:
    """What the k nodes with most of *kind* could hold when empty, for k from one up."""
    return list(accumulate(sorted((max(0, v.allocatable.get(kind, 0)) for v in views), reverse=True)))

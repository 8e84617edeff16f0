"""
What the nodes offer to one request, and which sets of nodes may take it.

Owns: the disjoint-group rule. A request goes to one node that is in no group; or to exactly one existing group; or to
several nodes that are all unused, which become a group. Must never: list all sets of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from numapin.model.memory import Books, MemoryType, NodeState
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Request
from numapin.planner.subsets import Search
from numapin.planner.ties import Taste, best_subset
from numapin.planner.witness import EXHAUSTIVE_NODES, Steps, Vector


class Offers:
    """
    The nodes as one request sees them; ids ascending, vectors in the order of ``kinds``.

    ``allocatable`` is what a node could hold when empty, ``offered`` what the books and the kernel have free.
    Where not every node has normal memory, "one node with normal memory" is one more position of the vectors:
    1 for such a node, and 1 is needed. ``alone`` are the nodes in no group, ``fitting`` the mask of those of them
    that hold the request, ``unused`` those without an assignment. ``inexact`` is set as soon as a bounded search gave
    something up.
    """

    def __init__(self, books: Books, request: Request, kinds: Sequence[MemoryType]) -> None:
        nodes = books.node_map.nodes
        self.request = request
        self.kinds = tuple(kinds)
        allowed = request.allowed
        self.ids = [n for n, state in nodes.items() if (allowed is None or n in allowed) and _has_memory(state)]
        normal = request.normal
        self._normal = normal if normal is not None and any(n not in normal for n in self.ids) else None
        sizes = tuple(request.sizes[k] for k in self.kinds)
        self.need: Vector = sizes if self._normal is None else (*sizes, 1)
        self.all = self.unused_mask = self.fitting = 0
        self.allocatable: dict[NodeId, Vector] = {}
        self.offered: dict[NodeId, Vector] = {}
        self.alone: list[NodeId] = []
        self.unused: list[NodeId] = []
        cells: set[int] = set()
        for n in self.ids:
            self.allocatable[n], self.offered[n] = self._vectors(n, nodes[n])
            self.all |= 1 << n
            if nodes[n].cells.mask.bit_count() > 1:
                cells.add(nodes[n].cells.mask)
                continue
            self.alone.append(n)
            if self.enough(self.offered[n]):
                self.fitting |= 1 << n
            if not nodes[n].number_of_assignments:
                self.unused.append(n)
                self.unused_mask |= 1 << n
        self.groups = {g: self._group_offer(books, g) for g in sorted(cells) if not g & ~self.all}
        self.inexact = False
        self._steps = Steps(len(self.ids))
        self._searches: dict[tuple[tuple[NodeId, ...], Vector], Search] = {}
        self._known: dict[object, tuple[Taste, int | None]] = {}
        """Best sets by question; the taste is kept, because the question has its identity."""

    def _vectors(self, node: NodeId, state: NodeState) -> tuple[Vector, Vector]:
        """Allocatable, and what the books and the kernel have free."""
        tables = [state.memory_map.get(kind) for kind in self.kinds]
        could = tuple([t.allocatable if t else 0 for t in tables])
        offer = tuple([t.free if t else 0 for t in tables])
        if ceilings := self.request.ceilings.get(node):
            offer = tuple([min(o, ceilings.get(k, o)) for k, o in zip(self.kinds, offer, strict=True)])
        if self._normal is not None:
            mark = (int(node in self._normal),)
            could, offer = could + mark, offer + mark
        return could, offer

    def _group_offer(self, books: Books, group: int) -> Vector:
        """Free of a whole group: the books' sum or the kernel's, whichever is less (the split means nothing)."""
        members = list(NodeSet(group))
        free = [0] * len(self.kinds)
        kernel = [0] * len(self.kinds)
        for n in members:
            tables, ceilings = books.node_map.nodes[n].memory_map, self.request.ceilings.get(n, {})
            for t, kind in enumerate(self.kinds):
                table = tables.get(kind)
                free[t] += table.free if table else 0
                kernel[t] += ceilings.get(kind, table.allocatable if table else 0)
        values = [min(f, k) for f, k in zip(free, kernel, strict=True)]
        if self._normal is not None:
            values.append(sum(n in self._normal for n in members))
        return tuple(values)

    def enough(self, offer: Vector) -> bool:
        """True when *offer* holds the request."""
        for have, need in zip(offer, self.need, strict=True):  # noqa: SIM110 # the inner loop of every decision
            if have < need:
                return False
        return True

    def width(self) -> int | None:
        """Fewest nodes whose allocatable memory could hold the request; ``None`` when all cannot."""
        caps = list(self.allocatable.values())
        if any(map(self.enough, caps)):
            return 1
        search = Search(caps, self.need, self._steps)
        found = search.fewest()
        self.inexact |= not search.exact
        return found

    def takes(self, mask: int) -> bool:
        """True when exactly this set may take the request now: the group rule and what is free."""
        if mask in self.groups:
            return self.enough(self.groups[mask])
        if mask & ~self.all or not mask:
            return False
        if mask & (mask - 1) == 0:
            return bool(mask & self.fitting)
        return not mask & ~self.unused_mask and self.enough(self.free_of(NodeSet(mask)))

    def narrowest(self, taste: Taste, *, containing: int = 0) -> int | None:
        """The set of fewest nodes that may take the request and holds *containing*, best by *taste*."""
        singles = self.fitting & containing if containing else self.fitting
        if singles and not containing & (containing - 1):
            return singles & -singles if taste.plain else min((1 << n for n in NodeSet(singles)), key=taste.key)
        found = [g for g, offer in self.groups.items() if not containing & ~g and self.enough(offer)]
        size = min((g.bit_count() for g in found), default=len(self.ids) + 1)
        if not containing & ~self.unused_mask:
            pool = [n for n in self.unused if not containing >> n & 1]
            held = self.free_of(n for n in self.unused if containing >> n & 1)
            search = self._search(pool, held)
            rest = search.fewest()
            self.inexact |= not search.exact
            if rest is not None:
                count = max(2, rest + containing.bit_count())
                if count <= size and count <= len(self.unused):
                    size = count
                    mask = self._best(search, pool, count - containing.bit_count(), containing, taste)
                    found += [mask] if mask is not None else []
        return taste.best([m for m in found if m.bit_count() == size])

    def has_rival(self, mask: int) -> bool:
        """True when another set of as many nodes may take the request too (above ten unused nodes: perhaps)."""
        size = mask.bit_count()
        if size == 1:
            return bool(self.fitting & ~mask)
        if any(g != mask and g.bit_count() == size and self.enough(offer) for g, offer in self.groups.items()):
            return True
        pool = [n for n in self.unused if not mask >> n & 1 or mask in self.groups]
        if len(pool) < (size if mask in self.groups else 1):
            return False
        if len(self.unused) > EXHAUSTIVE_NODES:
            return True  # it may; looking for it costs more than the answer is worth
        pools = [pool] if mask in self.groups else [[n for n in self.unused if n != m] for m in NodeSet(mask)]
        return any(self._search(p, (0,) * len(self.need)).can(size) for p in pools)

    def fewest_part(self, mask: int, total: Vector) -> int:
        """Fewest unused nodes inside *mask* with which all outside it are enough; *total* is what all have."""
        search, pool = self._within(mask, total)
        low = search.fewest()
        self.inexact |= not search.exact
        return len(pool) + 1 if low is None else low

    def best_part(self, mask: int, total: Vector, size: int, taste: Taste) -> int | None:
        """The best *size* unused nodes inside *mask* with which all outside it are enough."""
        search, pool = self._within(mask, total)
        return self._best(search, pool, size, 0, taste)

    def together(self) -> int | None:
        """Fewest nodes whose free memory would do if there were no group rule; for sentences about refusals."""
        search = self._search(self.ids, (0,) * len(self.need))
        size = search.fewest()
        chosen = search.smallest(size) if size else None
        return None if chosen is None else sum(1 << self.ids[i] for i in chosen)

    def when_empty(self, width: int) -> int | None:
        """
        Some *width* nodes that could hold the request when nothing is on them; for sentences about refusals.

        Nodes in no group come first: no group has to dissolve for them.
        """
        for pool in (self.alone, self.ids):
            search = Search([self.allocatable[n] for n in pool], self.need, self._steps)
            if (chosen := search.smallest(width)) is not None:
                return sum(1 << pool[i] for i in chosen)
        return None

    def _within(self, mask: int, total: Vector) -> tuple[Search, list[NodeId]]:
        pool = [n for n in self.unused if mask >> n & 1]
        inside = self.free_of(pool)
        return self._search(pool, tuple(t - i for t, i in zip(total, inside, strict=True))), pool

    def _search(self, pool: Sequence[NodeId], held: Vector) -> Search:
        missing = tuple(n - h for n, h in zip(self.need, held, strict=True))
        key = (tuple(pool), missing)
        if key not in self._searches:
            self._searches[key] = Search([self.offered[n] for n in pool], missing, self._steps)
        return self._searches[key]

    def _best(self, search: Search, pool: Sequence[NodeId], k: int, base: int, taste: Taste) -> int | None:
        key = (tuple(pool), search.need, k, base, id(taste))
        if key not in self._known:
            self._known[key] = taste, best_subset(search, pool, k, base, taste, self._steps)
            self.inexact |= not search.exact
        return self._known[key][1]

    def free_of(self, nodes: Iterable[NodeId]) -> Vector:
        """What the nodes offer together."""
        total = [0] * len(self.need)
        for n in nodes:
            for t, value in enumerate(self.offered[n]):
                total[t] += value
        return tuple(total)


def _has_memory(state: NodeState) -> bool:
    """True when the node has memory of any type."""
    for table in state.memory_map.values():  # noqa: SIM110 # once for every node of every decision
        if table.total:
            return True
    return False

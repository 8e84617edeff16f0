"""
What memory's sets leave inside the sets that other providers allow, for all of these in one pass.

Owns: the Topology Manager's results that are not preferred. An overlap is (a set that may take the request) ∩ (a
mask), when it is not empty. Must never: start a search for a mask where a sum answers, or list memory's sets.

Three families of sets leave overlaps. Single nodes and groups that fit are known. Sets of unused nodes leave, inside
a mask, every number of nodes from a least one up to all its unused ones, because whatever lies outside may lend all
it has. So a mask of one node needs no search, nor does one with just as many unused nodes as are wanted; and where
masks share parts, as all subsets of eight nodes do, a part is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from numapin.model.nodeset import NodeSet
from numapin.planner.offers import Offers
from numapin.planner.ties import Key, Taste
from numapin.planner.witness import EXHAUSTIVE_NODES


class Overlaps:
    """
    Overlaps of what *offers* allows with *masks* (every bit set: any node).

    ``_single`` are the masks of one node joined, ``_masks`` the others, ascending by nodes. ``_ones`` are the
    overlaps of one node that are known without a search; for a mask of one node that is all there can be.
    """

    def __init__(self, offers: Offers, masks: Iterable[int]) -> None:
        self._offers = offers
        found = {mask & offers.all for mask in masks} - {0}
        self._single = sum(mask for mask in found if mask & (mask - 1) == 0)
        self._masks = sorted((m for m in found if m & (m - 1)), key=lambda m: (m.bit_count(), m))
        union = self._single
        for mask in self._masks:
            union |= mask
        self._groups = [g for g, offer in offers.groups.items() if g & union and offers.enough(offer)]
        self._total = offers.free_of(offers.unused)
        self._lendable = len(offers.unused) > 1 and offers.enough(self._total)
        """All unused nodes together are enough, so each of them is part of a set that may take the request."""
        self._ones = offers.fitting & union
        for group in self._groups:
            self._ones |= group & self._single
        if self._lendable:
            self._ones |= offers.unused_mask & self._single
        self._lows: dict[int, int] = {}

    def best(self, wanted: int, taste: Taste) -> int | None:
        """Best overlap by *taste* of *wanted* nodes, else of as many as there are below, else of the fewest above."""
        size = self._size(wanted)
        if size is None:
            return None
        keys: dict[int, Key] = {}
        best: int | None = None

        def wins(part: int) -> bool:
            if best is None or part == best:
                return best is None
            for one in (part, best):
                if one not in keys:
                    keys[one] = taste.key(one)
            return keys[part] < keys[best]

        for part in self._known(size):
            if wins(part):
                best = part
        for mask in self._masks if self._lendable else ():
            for part in self._spanned(mask, size, taste):
                if wins(part) and self._may_be_left(mask, part):
                    best = part
        return best

    def _size(self, wanted: int) -> int | None:
        """Size of the overlaps to choose among; ``None`` when there are none."""
        exact = {(g & mask).bit_count() for mask in self._masks for g in self._groups if g & mask}
        if self._ones:
            exact.add(1)
        unused = self._offers.unused_mask
        spans = {m: high for m in self._masks if (high := (m & unused).bit_count()) >= self._floor(m)}
        if not self._lendable:
            spans = {}
        if wanted in exact or wanted in spans.values():
            return wanted
        if any(high > wanted and self._low(mask) <= wanted for mask, high in spans.items()):
            return wanted
        below = max((s for s in (*exact, *spans.values()) if s < wanted), default=None)
        if below is not None:
            return below
        return min((*exact, *(self._low(mask) for mask in spans)), default=None)

    def _known(self, size: int) -> Iterator[int]:
        """Overlaps of *size* nodes of single nodes and groups."""
        if size == 1:
            yield from (1 << n for n in NodeSet(self._ones))
        for mask in self._masks:
            yield from (g & mask for g in self._groups if (g & mask).bit_count() == size)

    def _spanned(self, mask: int, size: int, taste: Taste) -> Iterable[int]:
        """Parts of *size* unused nodes of *mask* that may be overlaps: all of a few nodes, else the best alone."""
        pool = mask & self._offers.unused_mask
        count = pool.bit_count()
        if size > count or size < self._floor(mask):
            return ()
        if size == count:
            return (pool,)
        if count <= EXHAUSTIVE_NODES:
            return map(sum, combinations([1 << n for n in NodeSet(pool)], size))
        if self._low(mask) > size:
            return ()
        best = self._offers.best_part(mask, self._total, size, taste)
        return () if best is None else (best,)

    def _may_be_left(self, mask: int, part: int) -> bool:
        """True when *part* and all unused nodes outside *mask* are enough."""
        left_out = mask & self._offers.unused_mask & ~part
        if not left_out:
            return True
        lost = self._offers.free_of(NodeSet(left_out))
        return self._offers.enough(tuple(t - out for t, out in zip(self._total, lost, strict=True)))

    def _floor(self, mask: int) -> int:
        """Fewest nodes a part of unused nodes may have: with none to lend outside it is a whole set, so two."""
        return 1 if self._offers.unused_mask & ~mask else 2

    def _low(self, mask: int) -> int:
        """Fewest unused nodes of *mask* in any set that may take the request."""
        if mask not in self._lows:
            self._lows[mask] = max(self._offers.fewest_part(mask, self._total), self._floor(mask))
        return self._lows[mask]

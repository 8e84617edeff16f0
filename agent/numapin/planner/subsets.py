"""
Choosing k nodes whose memory sums are enough: the search under every placement.

Owns: the fewest nodes and, among equally many, the numerically smallest set (the one whose highest id is lowest, then
the next highest, and so on). Must never: visit all subsets of more than ten nodes, or give a set that is not enough.

One memory type is exact for any number of nodes: going from the highest id down, a node is left out whenever the
largest of the rest still suffice. Several types make the question NP-hard (it contains the partition problem); then
the same walk asks a search with bounds for each node. That search is exhaustive up to ten nodes; above, it stops
after a number of steps, and what it gives up is then only the tie-break (a higher id than needed) or, more rarely,
the width (a few nodes more than needed). `Search.exact` says whether that happened. Units are the caller's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from typing import Literal

from numapin.planner.witness import Steps, Vector, Witness


class Search:
    """
    Which k of these nodes together have at least *need*, position by position?

    *caps* are the nodes' vectors in ascending order of their ids, as long as *need*; results are positions in it.
    Needs of zero or less are met by nothing at all.
    """

    __slots__ = ("_fewest", "_found", "_most", "_rising", "_smallest", "_witness", "caps", "need", "size")

    def __init__(self, caps: Sequence[Vector], need: Vector, steps: Steps) -> None:
        columns: list[list[int]] = []
        for n, column in zip(need, zip(*caps, strict=True), strict=True) if caps else ():
            if n > 0:
                # More than the need is worth no more than the need; this sharpens every bound below.
                columns.append([n if c > n else c if c > 0 else 0 for c in column])
        self.need = tuple([n for n in need if n > 0])
        self.caps: list[Vector] = list(zip(*columns, strict=True)) if columns else [()] * len(caps)
        self.size = len(self.caps)
        self._rising = [sorted(column) for column in columns]
        self._most = [list(accumulate(reversed(values), initial=0)) for values in self._rising]
        """Per type, at position k: the sum of the k largest."""
        self._witness = Witness(self.caps, columns, self.need, steps)
        self._found: dict[int, Sequence[int]] = {}
        self._smallest: dict[int, tuple[int, ...] | None] = {}
        self._fewest: int | Literal[False] | None = False

    @property
    def exact(self) -> bool:
        """False as soon as an answer could have been better with more steps."""
        return self._witness.exact

    def give_up(self) -> None:
        """Note that the caller's answer could have been better with more steps."""
        self._witness.exact = False

    def fewest(self) -> int | None:
        """Smallest number of nodes that is enough; ``None`` when all together are not."""
        if self._fewest is False:
            self._fewest = self._find_fewest()
        return self._fewest

    def _find_fewest(self) -> int | None:
        lower = 0
        for need, most in zip(self.need, self._most or [[0]] * len(self.need), strict=True):
            if most[-1] < need:
                return None
            lower = max(lower, bisect_left(most, need))
        if len(self.need) < 2 or lower == self.size:
            return lower
        # One order of worth, cut where all needs are met, is an upper end; the least k lies between.
        order = self._witness.order(self.size, [1.0] * len(self.need))
        missing, upper = list(self.need), 0
        while max(missing) > 0:
            missing = [m - c for m, c in zip(missing, self.caps[order[upper]], strict=True)]
            upper += 1
        self._found[upper] = order[:upper]
        while lower < upper:
            middle = (lower + upper) // 2
            if self.can(middle):
                upper = middle
            else:
                lower = middle + 1
        return upper

    def can(self, k: int) -> bool:
        """True when some *k* nodes are enough (false may be wrong when not `exact`)."""
        if k > self.size:
            return False
        dims = self._binding(k)
        if not dims:
            return True
        if k == 0 or any(self._most[t][k] < self.need[t] for t in dims):
            return False
        return len(dims) == 1 or self._first(k) is not None

    def smallest(self, k: int) -> tuple[int, ...] | None:
        """The numerically smallest *k* nodes that are enough, ascending; ``None`` when there are none."""
        if k not in self._smallest:
            self._smallest[k] = self._find_smallest(k)
        return self._smallest[k]

    def _find_smallest(self, k: int) -> tuple[int, ...] | None:
        if k > self.size:
            return None
        dims = self._binding(k)
        if not dims:
            return tuple(range(k))
        if k == 0:
            return None
        best: tuple[int, ...] | None = None
        for t in dims:
            best = self._walk(k, (t,), None)
            if best is None:
                return None  # one type alone rules it out
            if self._enough(best):
                return best  # smallest for one type alone, and enough for all
        witness = self._first(k)
        return None if witness is None else self._walk(k, dims, set(witness))

    def _binding(self, k: int) -> tuple[int, ...]:
        """Types that not just any *k* nodes satisfy."""
        return tuple([t for t, need in enumerate(self.need) if k == 0 or sum(self._rising[t][:k]) < need])

    def _enough(self, chosen: Sequence[int]) -> bool:
        return all(sum(self.caps[i][t] for i in chosen) >= need for t, need in enumerate(self.need))

    def _walk(self, k: int, dims: tuple[int, ...], witness: set[int] | None) -> tuple[int, ...] | None:
        """From the highest position down, leave out what can be left out; exact for one type."""
        end = 1 + max(_reach([cap[t] for cap in self.caps], self.need[t], k) for t in dims)
        if end > self.size:
            return None
        while witness is not None and (highest := max(witness)) >= end:
            other = self._witness.find(highest, self.need, k)
            if other is None:
                end = highest + 1
            else:
                witness = set(other)
        tops = [_Top([cap[t] for cap in self.caps[:end]], k, self.need[t]) for t in dims]
        kept: list[int] = []
        missing = list(self.need)
        for i in range(end - 1, -1, -1):
            cap = self.caps[i]
            # the first one is known to be needed
            can_drop = i < end - 1 and i >= k - len(kept)
            if can_drop:
                for top, t in zip(tops, dims, strict=True):
                    can_drop &= top.can_drop(cap[t])
            if can_drop and witness is not None and i in witness:
                other = self._witness.find(i, missing, k - len(kept))
                can_drop = other is not None
                if other is not None:
                    witness = set(other)
            for top, t in zip(tops, dims, strict=True):
                if can_drop:
                    top.drop(cap[t])
                else:
                    top.take(cap[t])
            if not can_drop:
                kept.append(i)
                missing = [m - c for m, c in zip(missing, cap, strict=True)]
                if len(kept) == k:
                    break
        return tuple(reversed(kept))

    def _first(self, k: int) -> Sequence[int] | None:
        """Some *k* of all nodes that are enough, remembered."""
        if k not in self._found and (found := self._witness.find(self.size, self.need, k)) is not None:
            self._found[k] = found
        return self._found.get(k)


def _reach(values: list[int], need: int, k: int) -> int:
    """First position up to which the *k* largest are enough; the number of values when there is none."""
    best = values[:k]
    total = sum(best)
    if total >= need:
        return k - 1
    heapify(best)
    for i in range(k, len(values)):
        if values[i] > best[0]:
            total += values[i] - heapreplace(best, values[i])
            if total >= need:
                return i
    return len(values)


class _Top:
    """Sum of the *count* largest of a shrinking bag of numbers; *need* shrinks with what is taken."""

    __slots__ = ("count", "need", "total", "values")

    def __init__(self, values: list[int], count: int, need: int) -> None:
        self.values = sorted(values)
        self.count = count
        self.need = need
        self.total = sum(self.values[-count:]) if count else 0

    def can_drop(self, value: int) -> bool:
        """True when the sum is still enough if one *value* is not there."""
        return self._without(value) >= self.need

    def drop(self, value: int) -> None:
        """Remove one *value*."""
        self.total = self._without(value)
        del self.values[bisect_left(self.values, value)]

    def _without(self, value: int) -> int:
        values = self.values
        edge = len(values) - self.count
        if value < values[edge]:
            return self.total
        return self.total - value + (values[edge - 1] if edge else 0)

    def take(self, value: int) -> None:
        """Remove one *value*, choose it, and want one less."""
        edge = self.values[len(self.values) - self.count]
        self.total -= max(value, edge) if value >= edge else edge
        self.need -= value
        self.count -= 1
        del self.values[bisect_left(self.values, value)]

"""
Choosing k nodes whose memory sums are enough: the search under every placement.

Owns: the fewest nodes and, among equally many, the numerically smallest set (the one whose highest id is lowest, then
the next highest, and so on). Must never: visit all subsets of more than ten nodes, or give a set that is not enough.

One memory type is exact for any number of nodes: going from the highest id down, a node is left out whenever the
largest of the rest still suffice. Several types make the question NP-hard (it contains the partition problem); then
the same walk asks a search with bounds for each node. That search is exhaustive up to ten nodes; above, it stops
after a number of steps, and what it gives up is then only the tie-break (a higher id than needed) or, more rarely,
the width (a node more than needed). `Search.exact` says whether that happened. Units are the caller's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import mul

Vector = tuple[int, ...]

EXHAUSTIVE_NODES = 10
"""Up to here every search runs to its end."""
DEEPEST = 200
"""Most nodes the exhaustive search picks one inside the other (the interpreter's stack)."""


class Steps:
    """What one decision may still spend on searches of more than ten nodes; about a microsecond each."""

    __slots__ = ("left",)

    def __init__(self, nodes: int) -> None:
        self.left = 1_500 + 30 * nodes


class Search:
    """
    Which k of these nodes together have at least *need*, position by position?

    *caps* are the nodes' vectors in ascending order of their ids, as long as *need*; results are positions in it.
    Needs of zero or less are met by nothing at all.
    """

    __slots__ = ("_found", "_shares", "_steps", "caps", "exact", "need", "size")

    def __init__(self, caps: Sequence[Vector], need: Vector, steps: Steps) -> None:
        wanted = [t for t, n in enumerate(need) if n > 0]
        self.need = tuple(need[t] for t in wanted)
        # More than the need is worth no more than the need; this sharpens every bound below.
        self.caps = [tuple(min(cap[t], need[t]) if cap[t] > 0 else 0 for t in wanted) for cap in caps]
        self.size = len(self.caps)
        self.exact = True
        self._steps = steps
        self._found: dict[int, Sequence[int]] = {}
        self._shares: list[tuple[float, ...]] | None = None

    def fewest(self) -> int | None:
        """Smallest number of nodes that is enough; ``None`` when all together are not."""
        lower = 0
        for t, need in enumerate(self.need):
            total = 0
            for count, value in enumerate(sorted((cap[t] for cap in self.caps), reverse=True), 1):
                total += value
                if total >= need:
                    lower = max(lower, count)
                    break
            else:
                return None
        if len(self.need) < 2 or lower == self.size:
            return lower
        # One order of worth, cut where all needs are met, is an upper end; from there down each k is tried.
        order = self._order(range(self.size), [1.0] * len(self.need))
        missing, upper = list(self.need), 0
        while max(missing) > 0:
            missing = [m - c for m, c in zip(missing, self.caps[order[upper]], strict=True)]
            upper += 1
        self._found[upper] = order[:upper]
        while upper > lower and self.can(upper - 1):
            upper -= 1
        return upper

    def can(self, k: int) -> bool:
        """True when some *k* nodes are enough (false may be wrong when not `exact`)."""
        if k > self.size:
            return False
        dims = self._binding(k)
        if not dims:
            return True
        if k == 0 or any(sum(sorted((c[t] for c in self.caps), reverse=True)[:k]) < self.need[t] for t in dims):
            return False
        return len(dims) == 1 or self._first(k) is not None

    def smallest(self, k: int) -> tuple[int, ...] | None:
        """The numerically smallest *k* nodes that are enough, ascending; ``None`` when there are none."""
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
        return tuple(
            t for t, need in enumerate(self.need) if k == 0 or sum(sorted(cap[t] for cap in self.caps)[:k]) < need
        )

    def _enough(self, chosen: Sequence[int]) -> bool:
        return all(sum(self.caps[i][t] for i in chosen) >= need for t, need in enumerate(self.need))

    def _walk(self, k: int, dims: tuple[int, ...], witness: set[int] | None) -> tuple[int, ...] | None:
        """From the highest position down, leave out what can be left out; exact for one type."""
        tops = [_Top([cap[t] for cap in self.caps], k, self.need[t]) for t in dims]
        if any(top.total < top.need for top in tops):
            return None
        kept: list[int] = []
        missing = list(self.need)
        for i in range(self.size - 1, -1, -1):
            cap = self.caps[i]
            can_drop = i >= k - len(kept) and all(
                top.without(cap[t]) >= top.need for top, t in zip(tops, dims, strict=True)
            )
            if can_drop and witness is not None and i in witness:
                other = self._witness(range(i), missing, k - len(kept))
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
        if k not in self._found and (found := self._witness(range(self.size), self.need, k)) is not None:
            self._found[k] = found
        return self._found.get(k)

    def _order(self, among: Sequence[int], weights: Sequence[float]) -> list[int]:
        """*among* by weighted share of the needs, best first."""
        if self._shares is None:
            self._shares = [tuple(c / n for c, n in zip(cap, self.need, strict=True)) for cap in self.caps]
        shares = self._shares
        self._steps.left -= len(among) * (1 + len(weights)) // 3
        worth = {i: sum(map(mul, shares[i], weights)) for i in among}
        return sorted(among, key=worth.__getitem__, reverse=True)

    def _witness(self, among: Sequence[int], need: Sequence[int], k: int) -> Sequence[int] | None:
        """Some *k* of *among* that are enough; ``None`` when there are none or the steps ran out."""
        dims = [t for t, n in enumerate(need) if n > 0]
        if not dims:
            return among[:k]
        if k == 0:
            return None
        small = len(among) <= EXHAUSTIVE_NODES
        weights = [full / n if n > 0 else 0.0 for full, n in zip(self.need, need, strict=True)]
        order: list[int] = []
        for _ in range(4):
            if self._steps.left < 0 and not small:
                self.exact = False
                return None
            order = self._order(among, weights)
            sums = [sum(self.caps[i][t] for i in order[:k]) for t in range(len(need))]
            if all(got >= n for got, n in zip(sums, need, strict=True)):
                return order[:k]
            reached = sum(w * got / full for w, got, full in zip(weights, sums, self.need, strict=True))
            wanted = sum(w * max(n, 0) / full for w, n, full in zip(weights, need, self.need, strict=True))
            if reached < wanted * (1 - 1e-9):
                return None  # the best k by this measure fall short of it, so no k reach every need
            # Weigh more what is short.
            weights = [
                w * min(4.0, max(0.25, n / max(got, 1))) for w, n, got in zip(weights, need, sums, strict=True)
            ]
        if k > DEEPEST:
            self.exact = False
            return None
        items = [tuple(self.caps[i][t] for t in dims) for i in order]
        return self._exhaust(order, items, [need[t] for t in dims], k)

    def _exhaust(self, order: list[int], items: list[Vector], need: list[int], k: int) -> list[int] | None:
        """Depth first over *items*, with bounds; equal nodes are tried once."""
        size, dims = len(items), range(len(need))
        most = [[0] * len(need) for _ in range(size + 1)]
        for i in range(size - 1, -1, -1):
            most[i] = [max(most[i + 1][t], items[i][t]) for t in dims]
        # A quarter of what is left, so that later questions of the same decision get their share.
        floor = self._steps.left - self._steps.left // 4 if size > EXHAUSTIVE_NODES else None
        chosen: list[int] = []

        def extend(start: int, missing: list[int], picks: int) -> bool:
            if max(missing) <= 0:
                chosen.extend(range(start, start + picks))
                return True
            if picks == 0:
                return False
            tried: Vector | None = None
            for i in range(start, size - picks + 1):
                if any(most[i][t] * picks < missing[t] for t in dims):
                    return False
                if items[i] == tried:
                    continue
                self._steps.left -= 2
                if floor is not None and self._steps.left < floor:
                    self.exact = False
                    return False
                tried = items[i]
                chosen.append(i)
                if extend(i + 1, [m - c for m, c in zip(missing, tried, strict=True)], picks - 1):
                    return True
                chosen.pop()
            return False

        return [order[i] for i in chosen] if extend(0, need, k) else None


class _Top:
    """Sum of the *count* largest of a shrinking bag of numbers; *need* shrinks with what is taken."""

    __slots__ = ("count", "need", "total", "values")

    def __init__(self, values: list[int], count: int, need: int) -> None:
        self.values = sorted(values)
        self.count = count
        self.need = need
        self.total = sum(self.values[-count:]) if count else 0

    def without(self, value: int) -> int:
        """The sum if one *value* were not there."""
        edge = len(self.values) - self.count
        if value < self.values[edge]:
            return self.total
        return self.total - value + (self.values[edge - 1] if edge else 0)

    def drop(self, value: int) -> None:
        """Remove one *value*."""
        self.total = self.without(value)
        del self.values[bisect_left(self.values, value)]

    def take(self, value: int) -> None:
        """Remove one *value*, choose it, and want one less."""
        edge = self.values[len(self.values) - self.count]
        self.total -= max(value, edge) if value >= edge else edge
        self.need -= value
        self.count -= 1
        del self.values[bisect_left(self.values, value)]

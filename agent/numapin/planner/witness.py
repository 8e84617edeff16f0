"""
Finding some k nodes that are enough for several memory types at once.

Owns: the search with bounds under `numapin.planner.subsets`: orders by weighted worth, growing and exchanging, then
depth first. Must never: answer "there are none" without proof while `Witness.exact` stays true.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add, mul

Vector = tuple[int, ...]

EXHAUSTIVE_NODES = 10
"""Up to here every search runs to its end."""
DEEPEST = 200
"""Most nodes the exhaustive search picks one inside the other (the interpreter's stack)."""


REWEIGHTINGS = 4
"""How often the types are weighed anew before exchanging single nodes."""
GROWN_ONE_BY_ONE = 4_096
"""Up to this many nodes times picks, a set is also grown node by node."""
SWAP_SAMPLE = 12
"""Nodes on either side that are looked at for one exchange."""


class Steps:
    """What one decision may still spend on searches of more than ten nodes; about a microsecond each."""

    __slots__ = ("left",)

    def __init__(self, nodes: int) -> None:
        self.left = 2_500 + 12 * nodes

    @classmethod
    def of(cls, left: int) -> Steps:
        """So many steps, whatever the number of nodes."""
        steps = cls(0)
        steps.left = left
        return steps

    def share(self) -> int:
        """What is left after one question took its quarter: later ones of the same decision get theirs."""
        return self.left - self.left // 4


class Witness:
    """
    Nodes' vectors, cut to the whole *need* (all above zero), and what may still be spent on questions.

    *columns* are the vectors type by type.
    """

    __slots__ = ("_columns", "_shares", "caps", "exact", "need", "steps")

    def __init__(self, caps: list[Vector], columns: list[list[int]], need: Vector, steps: Steps) -> None:
        self.caps = caps
        self._columns = columns
        self.need = need
        self.steps = steps
        self.exact = True
        self._shares: list[list[float]] | None = None

    def order(self, first: int, weights: Sequence[float]) -> list[int]:
        """The *first* nodes by weighted share of the needs, best first."""
        if self._shares is None:
            self._shares = [[c / n for c in column] for column, n in zip(self._columns, self.need, strict=True)]
        self.steps.left -= first * (1 + len(weights)) // 2
        return sorted(range(first), key=_weighed(self._shares, weights, first).__getitem__, reverse=True)

    def find(self, first: int, need: Sequence[int], k: int) -> Sequence[int] | None:
        """Some *k* of the *first* nodes that are enough; ``None`` when there are none or the steps ran out."""
        dims = [t for t, n in enumerate(need) if n > 0]
        if not dims:
            return range(k)
        if k == 0:
            return None
        small = first <= EXHAUSTIVE_NODES
        weights = [full / n if n > 0 else 0.0 for full, n in zip(self.need, need, strict=True)]
        order: list[int] = []
        best = (float("inf"), order)
        for _ in range(REWEIGHTINGS):
            if self.steps.left < 0 and not small:
                self.exact = False
                return None
            order = self.order(first, weights)
            sums = self._sums(order[:k])
            if all(got >= n for got, n in zip(sums, need, strict=True)):
                return order[:k]
            best = min(best, (self._short(sums, need), order))
            reached = sum(w * got / full for w, got, full in zip(weights, sums, self.need, strict=True))
            wanted = sum(w * max(n, 0) / full for w, n, full in zip(weights, need, self.need, strict=True))
            if reached < wanted * (1 - 1e-9):
                return None  # the best k by this measure fall short of it, so no k reach every need
            # Weigh more what is short.
            weights = [
                w * min(4.0, max(0.25, n / max(got, 1))) for w, n, got in zip(weights, need, sums, strict=True)
            ]
        if not small and (found := self._swapped(best[1], need, k)) is not None:
            return found
        if k > DEEPEST:
            self.exact = False
            return None
        items = [tuple(self.caps[i][t] for t in dims) for i in order]
        return self._exhaust(order, items, [need[t] for t in dims], k)

    def _sums(self, chosen: Sequence[int]) -> list[int]:
        return [sum(map(column.__getitem__, chosen)) for column in self._columns]

    def _short(self, sums: Sequence[int], need: Sequence[int]) -> float:
        """How much is missing, as a sum of shares of the whole needs."""
        short = 0.0
        for got, n, full in zip(sums, need, self.need, strict=True):
            if got < n:
                short += (n - got) / full
        return short

    def _swapped(self, order: Sequence[int], need: Sequence[int], k: int) -> list[int] | None:
        """The first *k* of *order* with some nodes exchanged, if that makes them enough."""
        if k * len(order) <= GROWN_ONE_BY_ONE:
            order = self._grown(order, need, k)
        inside, outside = list(order[:k]), list(order[k:])
        sums = self._sums(inside)
        floor, vain, turn = self.steps.share(), 0, 0
        while self.steps.left > floor and vain < 3:
            short = self._short(sums, need)
            if not short:
                return inside
            ins, outs = _sample(len(inside), turn), _sample(len(outside), turn)
            best = (short, -1, -1)
            for i in ins:
                left = [s - c for s, c in zip(sums, self.caps[inside[i]], strict=True)]
                for o in outs:
                    missing = self._short(list(map(add, left, self.caps[outside[o]])), need)
                    best = min(best, (missing, i, o))
            self.steps.left -= 2 * len(ins) * len(outs)
            turn += 1
            _, i, o = best
            vain = vain + 1 if i < 0 else 0
            if i >= 0:
                inside[i], outside[o] = outside[o], inside[i]
                sums = self._sums(inside)
        return None

    def _grown(self, order: Sequence[int], need: Sequence[int], k: int) -> list[int]:
        """*order* with *k* nodes first, each the one that brings most of what was missing then."""
        columns = [[column[i] for i in order] for column in self._columns]
        taken: list[int] = []
        missing = list(need)
        for _ in range(k):
            worth = _weighed(columns, [1 / m if m > 0 else 0.0 for m in missing], len(order))
            for at in taken:
                worth[at] = -1.0
            taken.append(worth.index(max(worth)))
            missing = [m - column[taken[-1]] for m, column in zip(missing, columns, strict=True)]
        self.steps.left -= 2 * k * len(order) // 3
        chosen = set(taken)
        return [order[at] for at in taken] + [i for at, i in enumerate(order) if at not in chosen]

    def _exhaust(self, order: list[int], items: list[Vector], need: list[int], k: int) -> list[int] | None:
        """Depth first over *items*, with bounds; equal nodes are tried once."""
        size, dims = len(items), range(len(need))
        most = [[0] * len(need) for _ in range(size + 1)]
        unlike = [size] * size
        """Of each position: the next one with another vector."""
        for i in range(size - 1, -1, -1):
            most[i] = [max(most[i + 1][t], items[i][t]) for t in dims]
            if i + 1 < size:
                unlike[i] = unlike[i + 1] if items[i] == items[i + 1] else i + 1
        floor = self.steps.share() if size > EXHAUSTIVE_NODES else None
        chosen: list[int] = []

        def extend(start: int, missing: list[int], picks: int) -> bool:
            if max(missing) <= 0:
                chosen.extend(range(start, start + picks))
                return True
            if picks == 0:
                return False
            i = start
            while i <= size - picks:
                if any(most[i][t] * picks < missing[t] for t in dims):
                    return False
                self.steps.left -= 4
                if floor is not None and self.steps.left < floor:
                    self.exact = False
                    return False
                chosen.append(i)
                if extend(i + 1, [m - c for m, c in zip(missing, items[i], strict=True)], picks - 1):
                    return True
                chosen.pop()
                i = unlike[i]
            return False

        return [order[i] for i in chosen] if extend(0, need, k) else None


def _weighed(columns: Sequence[Sequence[float]], weights: Sequence[float], first: int) -> list[float]:
    """Weighted sum over the types for each of the *first* nodes."""
    worth = [0.0] * first
    for column, weight in zip(columns, weights, strict=True):
        worth = list(map(add, worth, map(mul, column, repeat(weight))))
    return worth


def _sample(size: int, turn: int) -> range:
    """About `SWAP_SAMPLE` positions spread over *size*, others at each turn."""
    step = max(1, -(-size // SWAP_SAMPLE))
    return range(turn % step, size, step)

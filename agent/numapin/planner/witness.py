"""
Finding some k nodes that are enough for several memory types at once.

Owns: the search with bounds under `numapin.planner.subsets`: orders by weighted worth, growing and exchanging, then
depth first. Must never: answer "there are none" without proof while `Witness.exact` stays true.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def share(self) -> int:
        """What is left after one question took its quarter: later ones of the same decision get theirs."""
        return self.left - self.left // 4


class Witness:
    """Nodes' vectors, cut to the whole *need* (all above zero), and what may still be spent on questions."""

    __slots__ = ("_shares", "caps", "exact", "need", "steps")

    def __init__(self, caps: list[Vector], need: Vector, steps: Steps) -> None:
        self.caps = caps
        self.need = need
        self.steps = steps
        self.exact = True
        self._shares: list[tuple[float, ...]] | None = None

    def order(self, among: Sequence[int], weights: Sequence[float]) -> list[int]:
        """*among* by weighted share of the needs, best first."""
        if self._shares is None:
            self._shares = [tuple(c / n for c, n in zip(cap, self.need, strict=True)) for cap in self.caps]
        shares = self._shares
        self.steps.left -= len(among) * (1 + len(weights)) // 2
        worth = {i: sum(map(mul, shares[i], weights)) for i in among}
        return sorted(among, key=worth.__getitem__, reverse=True)

    def find(self, among: Sequence[int], need: Sequence[int], k: int) -> Sequence[int] | None:
        """Some *k* of *among* that are enough; ``None`` when there are none or the steps ran out."""
        dims = [t for t, n in enumerate(need) if n > 0]
        if not dims:
            return among[:k]
        if k == 0:
            return None
        small = len(among) <= EXHAUSTIVE_NODES
        weights = [full / n if n > 0 else 0.0 for full, n in zip(self.need, need, strict=True)]
        order: list[int] = []
        best = (float("inf"), order)
        for _ in range(REWEIGHTINGS):
            if self.steps.left < 0 and not small:
                self.exact = False
                return None
            order = self.order(among, weights)
            sums = [sum(self.caps[i][t] for i in order[:k]) for t in range(len(need))]
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

    def _short(self, sums: Sequence[int], need: Sequence[int]) -> float:
        """How much is missing, as a sum of shares of the whole needs."""
        return sum(max(0, n - got) / full for n, got, full in zip(need, sums, self.need, strict=True))

    def _swapped(self, order: Sequence[int], need: Sequence[int], k: int) -> list[int] | None:
        """The first *k* of *order* with some nodes exchanged, if that makes them enough."""
        if k * len(order) <= GROWN_ONE_BY_ONE:
            order = self._grown(order, need, k)
        inside, outside = list(order[:k]), list(order[k:])
        sums = [sum(self.caps[i][t] for i in inside) for t in range(len(need))]
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
                sums = [sum(self.caps[i][t] for i in inside) for t in range(len(need))]
        return None

    def _grown(self, order: Sequence[int], need: Sequence[int], k: int) -> list[int]:
        """*order* with *k* nodes first, each the one that brings most of what was missing then."""
        rest, first, missing = list(order), [], list(need)
        for _ in range(k):
            scale = [1 / m if m > 0 else 0.0 for m in missing]
            best = max(rest, key=lambda i: sum(map(mul, self.caps[i], scale)))
            rest.remove(best)
            first.append(best)
            missing = [m - c for m, c in zip(missing, self.caps[best], strict=True)]
        self.steps.left -= 2 * k * len(order) // 3
        return first + rest

    def _exhaust(self, order: list[int], items: list[Vector], need: list[int], k: int) -> list[int] | None:
        """Depth first over *items*, with bounds; equal nodes are tried once."""
        size, dims = len(items), range(len(need))
        most = [[0] * len(need) for _ in range(size + 1)]
        for i in range(size - 1, -1, -1):
            most[i] = [max(most[i + 1][t], items[i][t]) for t in dims]
        floor = self.steps.share() if size > EXHAUSTIVE_NODES else None
        most = [[0] * len(need) for _ in range(size + 1)]
        for i in range(size - 1, -1, -1):
            most[i] = [max(most[i + 1][t], items[i][t]) for t in dims]
        # A quarter of what is left, so that later questions of the same decision get their share.
        floor = self.steps.left - self.steps.left // 4 if size > EXHAUSTIVE_NODES else None
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
                self.steps.left -= 4
                if floor is not None and self.steps.left < floor:
                    self.exact = False
                    return False
                tried = items[i]
                chosen.append(i)
                if extend(i + 1, [m - c for m, c in zip(missing, tried, strict=True)], picks - 1):
                    return True
                chosen.pop()
            return False

        return [order[i] for i in chosen] if extend(0, need, k) else None


def _sample(size: int, turn: int) -> range:
    """About `SWAP_SAMPLE` positions spread over *size*, others at each turn."""
    step = max(1, -(-size // SWAP_SAMPLE))
    return range(turn % step, size, step)

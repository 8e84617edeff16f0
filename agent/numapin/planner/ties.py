"""
Which of several equal node sets is taken.

Owns: the order among sets of equally many nodes: closest (when asked for), then the nodes the container or its pod
already uses, then the numerically smallest set. Must never: prefer a set of more nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from math import comb
from operator import add, itemgetter, sub

from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.subsets import Search
from numapin.planner.witness import EXHAUSTIVE_NODES, Steps, Vector

COMPARED_PAIRS = 34_000
"""Sets are compared one by one while they have no more pairs than this: 2 of 90 nodes, 3 of 29, 5 of 13."""
SEED_LOOK_UPS = 3_000
"""Distances looked up around starting nodes; for more than about 50 nodes in a set closeness is not weighed."""
SEARCHED_SEEDS = 2
"""Around so many of them a search looks for a set where the most ample nodes are not enough."""
KEPT_WANTED = 12
"""So many wanted nodes are tried one after the other."""
UNREACHABLE = 255
"""Distance of a pair the kernel gives no distance for: its own word for unreachable."""

Weight = tuple[int, int, int]
Key = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Taste:
    """
    The tie-breaks of one decision. ``weights`` per node: own assignment (0 or 1), bytes resident, ended
    assignments of the pod (0 or 1). ``distances`` empty means that distance does not matter.
    """

    weights: Mapping[NodeId, Weight] = field(default_factory=dict)
    distances: Mapping[NodeId, Mapping[NodeId, int]] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """True when only the ids decide."""
        return not self.weights and not self.distances

    def distance(self, mask: int) -> int:
        """Sum of the distances of all ordered pairs, a node with itself included: compares sets of one size."""
        if not self.distances:
            return 0
        if mask & (mask - 1) == 0:
            node = NodeId(mask.bit_length() - 1)
            return self.distances.get(node, {}).get(node, UNREACHABLE) if mask else 0
        ids = list(NodeSet(mask))
        return sum(map(sum, _rows(self.distances, ids)))

    def wanted(self, mask: int) -> Weight:
        """The set's weights, negative: the smallest wins."""
        own = resident = ended = 0
        for node in NodeSet(mask) if self.weights else ():
            if weight := self.weights.get(node):
                own, resident, ended = own - weight[0], resident - weight[1], ended - weight[2]
        return own, resident, ended

    def key(self, mask: int) -> Key:
        """Sort key of a set among equally large ones; the smallest wins."""
        return self.distance(mask), *self.wanted(mask), mask

    def best(self, masks: Sequence[int]) -> int | None:
        """The set with the smallest key; a lone one is not looked at."""
        return masks[0] if len(masks) == 1 else min(masks, key=self.key, default=None)

    def deciding(self, winner: int, plainest: int) -> str:
        """Name of the rule that put *winner* before *plainest*, the set that the ids alone would give."""
        if winner == plainest:
            return "lowest-node-ids"
        names = ("closest-nodes", "own-nodes", "resident-pages", "memory-of-ended-containers")
        for name, mine, other in zip(names, self.key(winner), self.key(plainest), strict=False):
            if mine != other:
                return name
        return "lowest-node-ids"


def _rows(distances: Mapping[NodeId, Mapping[NodeId, int]], ids: Sequence[NodeId]) -> Iterable[tuple[int, ...]]:
    """Distances of every one of *ids* (two at least) to all of them, in this order."""
    try:
        pick = itemgetter(*ids)
        return [pick(row) for row in pick(distances)]
    except KeyError:
        nothing: Mapping[NodeId, int] = {}
        return [tuple([distances.get(a, nothing).get(b, UNREACHABLE) for b in ids]) for a in ids]


def _compared(search: Search, ids: Sequence[int], k: int, base: int, taste: Taste) -> int | None:
    """The best of all sets of *k*; one that is further apart than the best so far is left before it is complete."""
    size, bits, caps = len(ids), [1 << n for n in ids], search.caps
    apart: list[list[int]] = []
    if taste.distances and k > 1:
        rows = _rows(taste.distances, [NodeId(n) for n in ids])
        apart = [list(map(add, row, column)) for row, column in zip(rows, zip(*rows, strict=True), strict=True)]
    ranks = _ranks(ids, taste)
    best: tuple[int, int, int] | None = None

    def extend(first: int, picks: int, so_far: tuple[int, int, int], adds: Sequence[int], missing: Vector) -> None:
        """*so_far* is distance, rank and mask; *adds* is what each node would add to the distance."""
        nonlocal best
        far, rank, mask = so_far
        for i in range(first, size - picks + 1):
            then = far + adds[i], rank + ranks[i], mask | bits[i]
            if best is not None and (then[0] > best[0] or (picks == 1 and then > best)):
                continue
            left = tuple(map(sub, missing, caps[i]))
            if picks > 1:
                extend(i + 1, picks - 1, then, list(map(add, adds, apart[i])) if apart else adds, left)
            elif max(left, default=0) <= 0:
                best = then

    if k == 0:
        return None if search.need else base
    start = taste.distance(base)
    extend(0, k, (start, 0, base), [taste.distance(base | bit) - start for bit in bits], search.need)
    return None if best is None else best[2]


def _ranks(ids: Sequence[int], taste: Taste) -> list[int]:
    """The weights of each node as one number whose sums compare as the sums of the weights do; less is better."""
    weights = [taste.weights.get(NodeId(n), (0, 0, 0)) for n in ids]
    ended = 1 + sum(w[2] for w in weights)
    resident = 1 + sum(w[1] for w in weights)
    return [-((w[0] * resident + w[1]) * ended + w[2]) for w in weights]


def best_subset(
    search: Search,
    ids: Sequence[int],
    k: int,
    base: int,
    taste: Taste,
    steps: Steps,
    *,
    pairs: int = COMPARED_PAIRS,
) -> int | None:
    """
    The best set of *k* of *ids* that is enough, as a mask with *base* added to it; ``None`` when there is none.

    Exact when only ids decide (as far as *search* is), and while the sets have no more than *pairs* of nodes
    otherwise. Above, distance is minimised around a limited number of starting nodes, and the most wanted nodes are
    kept one after the other; ``search.exact`` is then false.
    """
    size = len(ids)
    if taste.plain:
        found = search.smallest(k)
        return None if found is None else base | _mask(ids, found)
    if k > size:
        return None
    if size <= EXHAUSTIVE_NODES or comb(size, k) * k * k <= pairs:
        return _compared(search, ids, k, base, taste)
    plainest = search.smallest(k)
    if plainest is None:
        return None
    search.give_up()
    found_masks = [base | _mask(ids, plainest)]
    if taste.distances:
        found_masks += _around_seeds(search, ids, k, base, taste, steps)
    else:
        found_masks.append(_keep_wanted(search, ids, k, base, taste, steps))
    return taste.best(found_masks)


def _mask(ids: Sequence[int], positions: Sequence[int]) -> int:
    mask = 0
    for i in positions:
        mask |= 1 << ids[i]
    return mask


def _around_seeds(search: Search, ids: Sequence[int], k: int, base: int, taste: Taste, steps: Steps) -> list[int]:
    """For some starting nodes: the k most ample of the nearest nodes, as few of these as are enough."""
    size = len(ids)
    seeds = min(size, SEED_LOOK_UPS // (k * k + size))
    if not seeds:
        return []
    starts = range(0, size, -(-size // seeds))
    worth = _worth(search)
    found: list[Sequence[int]] = []
    for seed in starts:
        chosen = _grown_until_enough(search, _nearest(ids, seed, taste), worth, k)
        if not chosen:
            break  # the most ample of all nodes are not enough, so they are not around any other node
        found.append(chosen)
    if not found:
        found = [_searched_nearby(search, _nearest(ids, seed, taste), k, steps) for seed in starts[:SEARCHED_SEEDS]]
    return [base | _mask(ids, chosen) for chosen in found if chosen]


def _nearest(ids: Sequence[int], seed: int, taste: Taste) -> list[int]:
    """All positions by their distance from *seed*, itself first."""
    row = taste.distances.get(NodeId(ids[seed]), {})
    far = [row.get(NodeId(n), UNREACHABLE) for n in ids]
    far[seed] = -1
    return sorted(range(len(ids)), key=far.__getitem__)


def _worth(search: Search) -> list[float]:
    """How ample each node is: its shares of the needs, weighed by how scarce a type is."""
    worth = [0.0] * search.size
    for need, column in zip(search.need, zip(*search.caps, strict=True), strict=True):
        scarce = (need / sum(column)) ** 2 / need
        worth = [w + value * scarce for w, value in zip(worth, column, strict=True)]
    return worth


def _searched_nearby(search: Search, near: Sequence[int], k: int, steps: Steps) -> list[int]:
    """The smallest *k* of the first 2 k, 4 k and so on of *near* that are enough; empty when there are none."""
    reach = 2 * k
    while reach < 2 * len(near):
        inside = sorted(near[:reach])
        chosen = Search([search.caps[i] for i in inside], search.need, steps).smallest(k)
        if chosen is not None:
            return [inside[c] for c in chosen]
        reach *= 2
    return []


def _grown_until_enough(search: Search, near: Sequence[int], worth: Sequence[float], k: int) -> list[int]:
    """The *k* of most worth among the first of *near*, of as few as are enough; empty when *k* of all are not."""
    kept: list[tuple[float, int]] = []
    missing = list(search.need)
    for i in near:
        if len(kept) < k:
            heappush(kept, (worth[i], i))
            missing = list(map(sub, missing, search.caps[i]))
        elif worth[i] > kept[0][0]:
            _, out = heappushpop(kept, (worth[i], i))
            missing = list(map(add, map(sub, missing, search.caps[i]), search.caps[out]))
        if len(kept) == k and max(missing, default=0) <= 0:
            return [i for _, i in kept]
    return []


def _keep_wanted(search: Search, ids: Sequence[int], k: int, base: int, taste: Taste, steps: Steps) -> int:
    """Most wanted node first, each kept if a set of *k* with all kept so far exists."""
    wanted = sorted((i for i in range(len(ids)) if ids[i] in taste.weights), key=lambda i: (_rank(ids[i], taste), i))
    rest = list(range(len(ids)))
    kept: list[int] = []
    need: Vector = search.need
    for i in wanted[:KEPT_WANTED]:
        if len(kept) == k:
            break
        others = [j for j in rest if j != i]
        left = tuple(n - c for n, c in zip(need, search.caps[i], strict=True))
        if Search([search.caps[j] for j in others], left, steps).can(k - len(kept) - 1):
            rest, need = others, left
            kept.append(i)
    tail = Search([search.caps[j] for j in rest], need, steps).smallest(k - len(kept)) or ()
    return base | _mask(ids, [*kept, *(rest[j] for j in tail)])


def _rank(node: int, taste: Taste) -> Weight:
    own, resident, ended = taste.weights[NodeId(node)]
    return -own, -resident, -ended

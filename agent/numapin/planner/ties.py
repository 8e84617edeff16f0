"""
Which of several equal node sets is taken.

Owns: the order among sets of equally many nodes: closest (when asked for), then the nodes the container or its pod
already uses, then the numerically smallest set. Must never: prefer a set of more nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.subsets import Search
from numapin.planner.witness import EXHAUSTIVE_NODES, Steps, Vector

COMPARED_SETS = 2_100
"""So many sets are compared one by one; all pairs of 64 nodes are below it, and so are all sets of ten."""
SEED_LOOK_UPS = 5_000
"""Distances looked up around starting nodes; for more than about 70 nodes in a set closeness is not weighed."""
KEPT_WANTED = 12
"""So many wanted nodes are tried one after the other."""
UNREACHABLE = 255
"""Distance of a pair the kernel gives no distance for: its own word for unreachable."""

Weight = tuple[int, int, int]


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
        ids = list(NodeSet(mask))
        rows = [self.distances.get(n, {}) for n in ids]
        return sum(row.get(n, UNREACHABLE) for row in rows for n in ids)

    def key(self, mask: int) -> tuple[int, int, int, int, int]:
        """Sort key of a set among equally large ones; the smallest wins."""
        own = resident = ended = 0
        for node, weight in self.weights.items():
            if mask >> node & 1:
                own, resident, ended = own - weight[0], resident - weight[1], ended - weight[2]
        return self.distance(mask), own, resident, ended, mask

    def deciding(self, winner: int, plainest: int) -> str:
        """Name of the rule that put *winner* before *plainest*, the set that the ids alone would give."""
        if winner == plainest:
            return "lowest-node-ids"
        names = ("closest-nodes", "own-nodes", "resident-pages", "memory-of-ended-containers")
        for name, mine, other in zip(names, self.key(winner), self.key(plainest), strict=False):
            if mine != other:
                return name
        return "lowest-node-ids"


def best_subset(search: Search, ids: Sequence[int], k: int, base: int, taste: Taste, steps: Steps) -> int | None:
    """
    The best set of *k* of *ids* that is enough, as a mask with *base* added to it; ``None`` when there is none.

    Exact when only ids decide (as far as *search* is), and up to `COMPARED_SETS` sets otherwise. Above, distance is
    minimised around a limited number of starting nodes, and the most wanted nodes are kept one after the other;
    ``search.exact`` is then false.
    """
    size = len(ids)
    if taste.plain:
        found = search.smallest(k)
        return None if found is None else base | _mask(ids, found)
    if k > size:
        return None
    if size <= EXHAUSTIVE_NODES or comb(size, k) <= COMPARED_SETS:
        columns = [([cap[t] for cap in search.caps].__getitem__, need) for t, need in enumerate(search.need)]
        fitting = [
            base | _mask(ids, chosen)
            for chosen in combinations(range(size), k)
            if all(sum(map(column, chosen)) >= need for column, need in columns)
        ]
        return min(fitting, key=taste.key, default=None)
    plainest = search.smallest(k)
    if plainest is None:
        return None
    search.give_up()
    found_masks = [base | _mask(ids, plainest)]
    if taste.distances:
        found_masks += _around_seeds(search, ids, k, base, taste, steps)
    else:
        found_masks.append(_keep_wanted(search, ids, k, base, taste, steps))
    return min(found_masks, key=taste.key)


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
    found = []
    for seed in range(0, size, max(1, size // seeds)):
        row = taste.distances.get(NodeId(ids[seed]), {})
        near = sorted(range(size), key=lambda i: (i != seed, row.get(NodeId(ids[i]), UNREACHABLE), i))
        reach = k
        while reach < 2 * size:
            inside = sorted(near[:reach])
            part = Search([search.caps[i] for i in inside], search.need, steps)
            chosen = part.smallest(k)
            if chosen is not None:
                found.append(base | _mask(ids, [inside[c] for c in chosen]))
                break
            reach *= 2
    return found


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

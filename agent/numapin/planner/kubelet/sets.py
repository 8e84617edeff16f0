"""
The sets of nodes that may take one request, as the Memory Manager's hints name them.

Owns: which sets these are, the fewest nodes among them, and the best of those. Must never: list the sets of more than
`LISTED_NODES` nodes in order to decide, or give a set as the best one that is not known to be it.

Such a set is one node, or a group as it is, or nodes that nothing uses, or one whose memory a pod's init containers
leave to be used again. Of the unused nodes every larger set is enough where a smaller one is, so the best is searched
for (`numapin.planner.subsets`). Only where a search gives up are the sets listed, and on too many nodes that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

from numapin.model.memory import MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint
from numapin.planner.kubelet.bounds import LISTED_NODES, Budget, TooManyNodes, Unanswered
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.subsets import Search
from numapin.planner.ties import Taste, best_subset

PLAIN = Taste()
"""Among sets of equally many nodes the numerically smallest."""
COMPARED_PAIRS = 1 << 24
"""Sets are compared one by one for the closest while they have no more pairs of nodes than this."""

Hints = Mapping[MemoryType, tuple[Hint, ...]]


class Sets:
    """
    The sets for *asked*, bytes by type, on *ledger* as it is now.

    *again* are bytes to be used again, by mask and type, on exactly these nodes. Whatever is asked, finding it counts
    on *budget*.
    """

    __slots__ = ("_idle", "_when_empty", "again", "asked", "budget", "ledger")

    def __init__(
        self,
        ledger: Ledger,
        asked: Mapping[MemoryType, int],
        again: Mapping[tuple[int, MemoryType], int],
        budget: Budget,
    ) -> None:
        self.ledger = ledger
        self.asked = asked
        self.budget = budget
        self.again = again
        self._idle = [n for n, node in ledger.nodes.items() if node.count <= 0]
        self._when_empty: Search | None = None

    def fits(self, mask: int) -> bool:
        """True when exactly these nodes may take it now."""
        for kind, size in self.asked.items():
            whole, free = self.ledger.total(mask, kind)
            if whole < size or free + self.again.get((mask, kind), 0) < size:
                return False
        return self._joinable(mask)

    def exist(self) -> bool:
        """True when there is any such set."""
        return self.fits(sum(1 << n for n in self._idle)) or any(map(self.fits, self._places()))

    def single(self) -> Hint | None:
        """The lowest node that may take it alone; nothing is fewer, so it is preferred."""
        found = next((1 << n for n in self.ledger.nodes if self.fits(1 << n)), None)
        return None if found is None else Hint(NodeSet(found), True)

    def width(self) -> int | None:
        """The fewest nodes that could take it when empty, or a few more where those are not found in time."""
        found = self._empty().fewest()
        return found if found is None else max(1, found)

    def prefers(self, mask: int) -> bool:
        """
        True when exactly these nodes may take it, and no fewer could if they were empty.

        Raises:
            TooManyNodes: Not found in time.
        """
        if not self.fits(mask):
            return False
        narrow = self._is_narrowest(mask.bit_count())
        return mask.bit_count() == self._masks_to_decide(Unanswered.KINDS)[0] if narrow is None else narrow

    def best(self, taste: Taste = PLAIN, around: int = 0) -> Hint | None:
        """
        The set of fewest nodes among those that contain *around*, and of these the first in *taste*.

        It is preferred when no fewer nodes could take the request if they were empty.

        Raises:
            TooManyNodes: Not found in time.
        """
        mask, unsure = self._found(taste, around)
        if mask is None:
            return None  # a search that gives up gives a set all the same
        narrow = self._is_narrowest(mask.bit_count())
        if unsure is None and narrow is not None:
            return Hint(NodeSet(mask), narrow)
        narrowest, masks = self._masks_to_decide(unsure or Unanswered.KINDS)
        inside = [m for m in masks if m & around == around]
        size = min(m.bit_count() for m in inside)
        chosen = min((m for m in inside if m.bit_count() == size), key=taste.key)
        return Hint(NodeSet(chosen), size == narrowest)

    def some(self) -> NodeSet | None:
        """A set of few nodes: the best one, where that is found in time."""
        mask, _ = self._found(PLAIN, 0)
        return None if mask is None else NodeSet(mask)

    def _found(self, taste: Taste, around: int) -> tuple[int | None, Unanswered | None]:
        """A set of few nodes with *around*, and why it may not be the best; ``None`` only where there is none."""
        ways = [m for m in self._places() if m & around == around and self.fits(m)]
        size = min((m.bit_count() for m in ways), default=None)
        ways = [m for m in ways if m.bit_count() == size]
        unsure: Unanswered | None = None
        idle = sum(1 << n for n in self._idle)
        if size != 1 and not around & ~idle and self.fits(idle):  # every single node is among the places
            rest = [n for n in self._idle if not around >> n & 1]
            search = self._search(rest, around)
            fewest = search.fewest()
            if fewest is not None:
                fewest = max(fewest, not around)
                unsure = None if search.exact else Unanswered.KINDS
                if size is None or around.bit_count() + fewest <= size:
                    pairs = self._pairs(taste, len(rest), fewest)
                    chosen = best_subset(search, rest, fewest, around, taste, self.budget.steps, pairs=pairs)
                    if not search.exact:
                        unsure = unsure or (Unanswered.KINDS if taste.plain else Unanswered.CLOSEST)
                    if chosen is None or not self.fits(chosen):
                        chosen, unsure = idle, Unanswered.KINDS
                    ways = [chosen] if chosen.bit_count() != size else [*ways, chosen]
        return taste.best(ways), unsure

    def _places(self) -> set[int]:
        """Single nodes, groups, and sets whose memory may be used again."""
        nodes = self.ledger.nodes
        return {1 << n for n in nodes} | {n.cells for n in nodes.values() if n.count > 0} | {m for m, _ in self.again}

    def _joinable(self, mask: int) -> bool:
        """The group rule as the hints apply it."""
        ids = NodeSet(mask)
        if not mask or any(n not in self.ledger.nodes for n in ids):
            return False
        nodes = [self.ledger.nodes[n] for n in ids]
        if len(nodes) == 1:
            return nodes[0].cells.bit_count() <= 1
        return all(node.count <= 0 or node.cells == mask for node in nodes)

    # ---- searching ---------------------------------------------------------------------------------------------

    def _is_narrowest(self, size: int) -> bool | None:
        """Could no fewer take it if they were empty? ``None`` when that is not found in time."""
        if size == 1:
            return True
        search = self._empty()
        if search.can(size - 1):
            return False
        return True if search.exact else None

    def _empty(self) -> Search:
        """Which of all the nodes could take it if they were empty?"""
        if self._when_empty is None:
            tables = [node.tables for node in self.ledger.nodes.values()]
            caps = [
                tuple([0 if (t := have.get(k)) is None else t.allocatable for k in self.asked]) for have in tables
            ]
            self._when_empty = Search(caps, tuple(self.asked.values()), self.budget.steps)
        return self._when_empty

    def _search(self, ids: Sequence[NodeId], around: int) -> Search:
        """Which of *ids* have free what *around* lacks?"""
        tables = [self.ledger.nodes[n].tables for n in ids]
        caps = [tuple([0 if (t := have.get(k)) is None else t.free for k in self.asked]) for have in tables]
        need = tuple([size - self.ledger.total(around, k)[1] for k, size in self.asked.items()])
        return Search(caps, need, self.budget.steps)

    def _pairs(self, taste: Taste, nodes: int, picks: int) -> int:
        """Pairs of nodes up to which the sets are compared one by one."""
        if taste.plain:
            return 0
        sets = comb(nodes, picks)
        if sets * picks * picks > COMPARED_PAIRS or sets > self.budget.left:
            return 0
        self.budget.left -= sets
        return COMPARED_PAIRS

    # ---- listing -----------------------------------------------------------------------------------------------

    def hints(self) -> Hints:
        """The hints with all the sets, by size and then by ids, which are many; nothing is counted."""
        narrowest, masks = self._masks()
        listed = tuple([Hint(NodeSet(m), m.bit_count() == narrowest) for m in masks])
        return dict.fromkeys(self.asked, listed) if listed else {}

    def hints_to_decide(self) -> Hints:
        """
        `hints`, where an answer depends on every set.

        Raises:
            TooManyNodes: There are too many.
        """
        self._spend(Unanswered.ALL_COMPARED)
        return self.hints()

    def _masks_to_decide(self, why: Unanswered) -> tuple[int | None, list[int]]:
        self._spend(why)
        return self._masks()

    def _spend(self, why: Unanswered) -> None:
        """Count the sets of all nodes, twice: they are looked at, and put together with each other."""
        nodes, kinds = len(self.ledger.nodes), len(self.asked)
        if nodes > LISTED_NODES:
            raise TooManyNodes(nodes, LISTED_NODES, why, kinds)
        self.budget.left -= (kinds + 1) << nodes
        if self.budget.left < 0:
            raise TooManyNodes(nodes, LISTED_NODES, Unanswered.CONTAINERS, kinds)

    def _masks(self) -> tuple[int | None, list[int]]:
        """The width, and every set, by size and then by ids."""
        nodes = self.ledger.nodes
        masks = _sums([1 << n for n in nodes])
        tables = [(size, *self._sums_of(kind), kind) for kind, size in self.asked.items()]
        narrowest: int | None = None
        found: list[int] = []
        busy = sum(1 << n for n, node in nodes.items() if node.count > 0)
        # a set with a node in use is that node alone, or its group
        whole_groups = {m for n, node in nodes.items() for m in (1 << n, node.cells) if self._joinable(m)}
        for place in _by_size(len(nodes)):
            for size, whole, _, _ in tables:
                if whole[place] < size:
                    break
            else:
                mask = masks[place]
                if narrowest is None:
                    narrowest = mask.bit_count()
                for size, _, free, kind in tables:
                    if free[place] < size and free[place] + self.again.get((mask, kind), 0) < size:
                        break
                else:
                    if mask in whole_groups or (mask & (mask - 1) and not mask & busy):
                        found.append(mask)
        return narrowest, found

    def _sums_of(self, kind: MemoryType) -> tuple[list[int], list[int]]:
        """Allocatable and free of every set, by the bits of its nodes' positions."""
        tables = [node.tables.get(kind) for node in self.ledger.nodes.values()]
        return _sums([t.allocatable if t else 0 for t in tables]), _sums([t.free if t else 0 for t in tables])


def _sums(values: Sequence[int]) -> list[int]:
    """The sum of every subset of *values*, by the bits of their positions."""
    sums = [0]
    for value in values:
        sums += [value + have for have in sums]
    return sums


@lru_cache(maxsize=4)
def _by_size(count: int) -> tuple[int, ...]:
    """Every set of *count* positions but the empty one, by size and then by positions."""
    bits = [1 << n for n in range(count)]
    return tuple(sum(chosen) for size in range(1, count + 1) for chosen in combinations(bits, size))

"""
The Memory Manager's Static policy: hints and allocation of one container.

Owns: the table of init containers' memory that later containers of the pod may use again. Must never: list the sets
of more than `LISTED_NODES` nodes, or more than `LISTED_SETS` for one pod; where the policy takes its own best set,
that set is searched for and none is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from numapin.model.memory import MEMORY, Block, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint
from numapin.planner.kubelet.bounds import LISTED_NODES, LISTED_SETS, TooManyNodes
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer
from numapin.planner.subsets import Search
from numapin.planner.witness import Steps

Hints = Mapping[MemoryType, tuple[Hint, ...]]


class AllocationError(Exception):
    """The Memory Manager cannot allocate; the text is ours, the kubelet reports an unexpected admission error."""


class StaticPolicy:
    """Hints and allocations on one ledger."""

    __slots__ = ("_made", "ledger", "left", "reusable")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.left = LISTED_SETS
        self._made: tuple[tuple[int, ...], tuple[Hint, ...]] | None = None
        self.reusable: dict[str, dict[tuple[int, MemoryType], int]] = {}

    def container_hints(self, pod: Pod, container: PodContainer) -> Hints | None:
        """Hints per type; ``None`` is no preference, an empty mapping is that nothing fits."""
        if not pod.is_managed():
            return None
        try:
            asked = container.memory_requests()
        except NotWholeBytes:
            return None
        held = self.ledger.blocks(pod.uid, container.name)
        return _restored(held, asked) if held else self._hints(pod, asked)

    def pod_hints(self, pod: Pod) -> Hints | None:
        """Hints for the pod's whole request; the first container with blocks decides whether they are restored."""
        if not pod.is_managed():
            return None
        try:
            asked = pod.memory_requests()
        except NotWholeBytes:
            return None
        for container in pod.containers:
            held = self.ledger.blocks(pod.uid, container.name)
            if held:
                return _restored(held, asked)
        return self._hints(pod, asked)

    def _hints(self, pod: Pod, asked: Mapping[MemoryType, int]) -> Hints:
        found = self._sets(pod, asked)
        return dict.fromkeys(asked, found) if found else {}

    def _sets(self, pod: Pod, asked: Mapping[MemoryType, int]) -> tuple[Hint, ...]:
        """
        Every set that may take *asked*, by size and then by ids.

        Raises:
            TooManyNodes: There are too many sets.
        """
        nodes = self.ledger.nodes
        if len(nodes) > LISTED_NODES:
            raise TooManyNodes(len(nodes), LISTED_NODES, refused=False)
        self.spend(len(asked) << len(nodes))
        masks = _sums([1 << n for n in nodes])
        tables = [(size, *self._sums_of(kind), kind) for kind, size in asked.items()]
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
                    if free[place] < size and free[place] + self.again(pod, mask, kind) < size:
                        break
                else:
                    if mask in whole_groups or (mask & (mask - 1) and not mask & busy):
                        found.append(mask)
        key = (narrowest or 0, *found)
        if self._made is None or self._made[0] != key:
            # the next container is often offered the same sets
            self._made = key, tuple(Hint(NodeSet(mask), mask.bit_count() == narrowest) for mask in found)
        return self._made[1]

    def spend(self, sets: int) -> None:
        """
        Count sets that are looked at.

        Raises:
            TooManyNodes: They are too many for one pod.
        """
        self.left -= sets
        if self.left < 0:
            raise TooManyNodes(len(self.ledger.nodes), 0, refused=False)

    def _sums_of(self, kind: MemoryType) -> tuple[list[int], list[int]]:
        """Allocatable and free of every set, by the bits of its nodes' positions."""
        tables = [node.tables.get(kind) for node in self.ledger.nodes.values()]
        return _sums([t.allocatable if t else 0 for t in tables]), _sums([t.free if t else 0 for t in tables])

    def _joinable(self, mask: int) -> bool:
        """The group rule as the hints apply it."""
        ids = NodeSet(mask)
        if not mask or any(n not in self.ledger.nodes for n in ids):
            return False
        nodes = [self.ledger.nodes[n] for n in ids]
        if len(nodes) == 1:
            return nodes[0].cells.bit_count() <= 1
        return all(node.count <= 0 or node.cells == mask for node in nodes)

    def _fits(self, pod: Pod, mask: int, asked: Mapping[MemoryType, int]) -> bool:
        for kind, size in asked.items():
            whole, free = self.ledger.total(mask, kind)
            if whole < size or free + self.again(pod, mask, kind) < size:
                return False
        return self._joinable(mask)

    def _choice(self, pod: Pod, asked: Mapping[MemoryType, int], around: int = 0) -> Hint | None:
        """
        The best of all sets that contain *around*, as `_best` finds it in the list, without listing them.

        A set is one node, or a group as it is, or unused nodes, or one whose memory may be used again.
        """
        if MEMORY not in asked:
            return None
        nodes, used_again = self.ledger.nodes, self.reusable.get(pod.uid, {})
        places = (
            {1 << n for n in nodes} | {n.cells for n in nodes.values() if n.count > 0} | {m for m, _ in used_again}
        )
        ways = {m for m in places if m & around == around and self._fits(pod, m, asked)}
        idle = [n for n, node in nodes.items() if node.count <= 0]
        fewest = self._search(nodes, {k: (size, 0) for k, size in asked.items()})
        exact = fewest.exact
        if not around & ~sum(1 << n for n in idle):
            rest = [n for n in idle if not around >> n & 1]
            search = self._search(rest, {k: (size, 1) for k, size in asked.items()}, around)
            count = search.fewest()
            chosen = None if count is None else search.smallest(count)
            if chosen is not None:
                mask = around | sum(1 << rest[i] for i in chosen)
                exact &= self._fits(pod, mask, asked)
                ways.add(mask)
            exact &= search.exact
        narrowest = fewest.fewest()
        if not exact or not fewest.exact:
            wider = [
                h for h in self._sets(pod, asked) if h.affinity is not None and h.affinity.mask & around == around
            ]
            return self._best(wider, asked)
        best = min(ways, key=lambda m: (m.bit_count(), m), default=None)
        return None if best is None else Hint(NodeSet(best), best.bit_count() == narrowest)

    def width(self, asked: Mapping[MemoryType, int]) -> int | None:
        """The fewest nodes that could take *asked* when empty; ``None`` when all could not."""
        return self._search(self.ledger.nodes, {k: (size, 0) for k, size in asked.items()}).fewest()

    def _search(self, ids: Iterable[int], wanted: Mapping[MemoryType, tuple[int, int]], around: int = 0) -> Search:
        """Which of *ids* have the bytes wanted beside *around*; the second number: 0 allocatable, 1 free."""
        caps = [tuple(self.ledger.total(1 << n, kind)[which] for kind, (_, which) in wanted.items()) for n in ids]
        need = tuple(size - self.ledger.total(around, kind)[which] for kind, (size, which) in wanted.items())
        return Search(caps, need, Steps(len(caps)))

    def again(self, pod: Pod, mask: int, kind: MemoryType) -> int:
        """Bytes that the pod's ended init containers leave to the next ones, on exactly these nodes."""
        return self.reusable.get(pod.uid, {}).get((mask, kind), 0)

    def allocate(self, pod: Pod, container: PodContainer, stored: Hint) -> None:
        """
        Give *container* its blocks, from the topology manager's *stored* hint or by the policy's own choice.

        Raises:
            AllocationError: There is no such set, or the set breaks the group rule.
        """
        if not pod.is_managed():
            return
        held = self.ledger.blocks(pod.uid, container.name)
        if held:
            self._remember(pod, container, held)
            return
        try:
            asked = container.memory_requests()
        except NotWholeBytes as exc:
            raise AllocationError(str(exc)) from exc
        best = stored
        mask = stored.affinity
        if mask is None:
            own = self._choice(pod, asked)
            if own is None or own.affinity is None:
                raise AllocationError("no NUMA nodes have enough memory")
            if stored.preferred and not own.preferred:
                raise AllocationError("no NUMA nodes that the policy prefers have enough memory")
            best, mask = own, own.affinity
        if any(self.ledger.total(mask.mask, kind)[1] < size for kind, size in asked.items()):
            extended = self._choice(pod, asked, mask.mask)
            if extended is None or extended.affinity is None:
                raise AllocationError(f"{_too_little(mask)}, also together with others")
            if best.preferred and not extended.preferred:
                raise AllocationError(
                    f"{_too_little(mask)}, and with others it would be more nodes than the policy prefers"
                )
            mask = extended.affinity
        nodes = [self.ledger.nodes[n] for n in mask]
        if len(nodes) > 1 and any(node.count > 0 and node.cells != mask.mask for node in nodes):
            raise AllocationError(f"nodes {mask} are partly used by single-node containers or another group")
        blocks = [Block(mask, kind, size) for kind, size in asked.items()]
        for block in blocks:
            charged = max(0, block.size_bytes - self.again(pod, mask.mask, block.type))
            self.ledger.charge(mask.mask, block.type, charged)
        self.ledger.entries.setdefault(pod.uid, {})[container.name] = blocks
        self._remember(pod, container, blocks)
        self._shrink_inits(pod, container, blocks)

    @staticmethod
    def _best(hints: Sequence[Hint], asked: Mapping[MemoryType, int]) -> Hint | None:
        """Preferred first, then fewest nodes, then the smaller mask; a container without memory gets none."""
        if MEMORY not in asked:
            return None
        return min(
            (h for h in hints if h.affinity is not None),
            key=lambda h: (not h.preferred, len(h.affinity or ()), h.affinity or NodeSet()),
            default=None,
        )

    def _remember(self, pod: Pod, container: PodContainer, blocks: Sequence[Block]) -> None:
        """Keep what a regular init container had for the next ones; take out what another one uses."""
        self.reusable = {uid: table for uid, table in self.reusable.items() if uid == pod.uid}
        table = self.reusable.setdefault(pod.uid, {})
        for block in blocks:
            key = (block.affinity.mask, block.type)
            if container.is_regular_init:
                table[key] = max(table.get(key, 0), block.size_bytes)
            elif key in table:
                table[key] = max(0, table[key] - block.size_bytes)

    def _shrink_inits(self, pod: Pod, container: PodContainer, blocks: Sequence[Block]) -> None:
        """Take what was used again out of the earlier init containers' blocks, so that the sums stay true."""
        for block in blocks:
            left = block.size_bytes
            for earlier in pod.inits():
                if earlier.name == container.name or not left:
                    break
                held = self.ledger.blocks(pod.uid, earlier.name)
                if earlier.restartable:
                    continue
                for i, old in enumerate(held):
                    if old.type == block.type and old.affinity == block.affinity:
                        part = min(left, old.size_bytes)
                        held[i] = Block(old.affinity, old.type, old.size_bytes - part)
                        left -= part


def _too_little(nodes: NodeSet) -> str:
    return f"{nodes.named} {'has' if len(nodes) == 1 else 'have'} too little memory free"


def _restored(held: Sequence[Block], asked: Mapping[MemoryType, int]) -> Hints | None:
    """Hints of a container that already has its blocks; ``None`` when they are not what it asks for."""
    if len(held) != len(asked) or any(asked.get(b.type) != b.size_bytes for b in held):
        return None
    return {block.type: (Hint(block.affinity, True),) for block in held}


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

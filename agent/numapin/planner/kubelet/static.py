"""
The Memory Manager's Static policy: hints and allocation of one container.

Owns: the table of init containers' memory that later containers of the pod may use again. Must never: list the sets
of more than `LISTED_NODES` nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from numapin.model.memory import MEMORY, Block, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer

LISTED_NODES = 16
"""Sets of more nodes than this are not listed: 65,535 sets take a tenth of a second, and each node doubles it."""

MERGED_NODES = 10
"""Lists of sets of more nodes than this are not merged with each other."""
KUBELET_NODES = 8
"""The kubelet's own limit, for every policy but none, unless ``max-allowable-numa-nodes`` raises it."""

Hints = Mapping[MemoryType, tuple[Hint, ...]]


class AllocationError(Exception):
    """The Memory Manager cannot allocate; the text is ours, the kubelet reports an unexpected admission error."""


class TooManyNodes(ValueError):
    """So many nodes that the kubelet refuses to start (``refused``), or would take longer than anybody waits."""

    def __init__(self, nodes: int, limit: int, *, refused: bool) -> None:
        super().__init__(nodes, limit, refused)
        self.nodes = nodes
        self.limit = limit
        self.refused = refused

    def __str__(self) -> str:
        if self.refused:
            return (
                f"the kubelet does not start with a topology manager policy on {self.nodes} nodes: its limit is "
                f"{self.limit} (option max-allowable-numa-nodes)"
            )
        return (
            f"the kubelet tries every set of {self.nodes} nodes, which takes too long; this is answered for up to "
            f"{self.limit} nodes"
        )


class StaticPolicy:
    """Hints and allocations on one ledger."""

    __slots__ = ("ledger", "reusable")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
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
        """Every set that may take *asked*, by size and then by ids."""
        narrowest = len(self.ledger.nodes)
        found: list[int] = []
        for mask in self._masks():
            sums = {kind: self.ledger.total(mask, kind) for kind in asked}
            if any(sums[kind][0] < size for kind, size in asked.items()):
                continue
            narrowest = min(narrowest, mask.bit_count())
            if not self._joinable(mask):
                continue
            if all(sums[k][1] + self._again(pod, mask, k) >= size for k, size in asked.items()):
                found.append(mask)
        return tuple(Hint(NodeSet(mask), mask.bit_count() == narrowest) for mask in found)

    def _masks(self) -> Iterator[int]:
        ids = self.ledger.node_ids()
        for size in range(1, len(ids) + 1):
            for chosen in combinations(ids, size):
                yield sum(1 << n for n in chosen)

    def _joinable(self, mask: int) -> bool:
        """The group rule as the hints apply it."""
        nodes = [self.ledger.nodes[n] for n in NodeSet(mask)]
        if len(nodes) == 1:
            return nodes[0].cells.bit_count() <= 1
        return all(node.count <= 0 or node.cells == mask for node in nodes)

    def _again(self, pod: Pod, mask: int, kind: MemoryType) -> int:
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
            own = self._best(self._sets(pod, asked), asked)
            if own is None or own.affinity is None:
                raise AllocationError("no NUMA nodes have enough memory")
            if stored.preferred and not own.preferred:
                raise AllocationError("no NUMA nodes that the policy prefers have enough memory")
            best, mask = own, own.affinity
        if any(self.ledger.total(mask.mask, kind)[1] < size for kind, size in asked.items()):
            wider = [h for h in self._sets(pod, asked) if h.affinity is not None and mask.issubset(h.affinity)]
            extended = self._best(wider, asked)
            if extended is None or extended.affinity is None:
                raise AllocationError(f"no set of NUMA nodes around {mask} has enough memory")
            if best.preferred and not extended.preferred:
                raise AllocationError(f"no preferred set of NUMA nodes around {mask} has enough memory")
            mask = extended.affinity
        nodes = [self.ledger.nodes[n] for n in mask]
        if len(nodes) > 1 and any(node.count > 0 and node.cells != mask.mask for node in nodes):
            raise AllocationError(f"nodes {mask} are partly used by single-node containers or another group")
        blocks = [Block(mask, kind, size) for kind, size in asked.items()]
        for block in blocks:
            charged = max(0, block.size_bytes - self._again(pod, mask.mask, block.type))
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


def _restored(held: Sequence[Block], asked: Mapping[MemoryType, int]) -> Hints | None:
    """Hints of a container that already has its blocks; ``None`` when they are not what it asks for."""
    if len(held) != len(asked) or any(asked.get(b.type) != b.size_bytes for b in held):
        return None
    return {block.type: (Hint(block.affinity, True),) for block in held}

"""
The Memory Manager's Static policy: hints and allocation of one container.

Owns: the table of init containers' memory that later containers of the pod may use again. Must never: look for a set
of nodes itself; that is `numapin.planner.kubelet.sets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numapin.model.memory import MEMORY, Block, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint
from numapin.planner.kubelet.bounds import Budget
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer
from numapin.planner.kubelet.sets import PLAIN, Hints, Sets


class AllocationError(Exception):
    """The Memory Manager cannot allocate; the text is ours, the kubelet reports an unexpected admission error."""


class StaticPolicy:
    """Hints and allocations on one ledger."""

    __slots__ = ("budget", "ledger", "reusable")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.budget = Budget()
        self.reusable: dict[str, dict[tuple[int, MemoryType], int]] = {}

    def of_container(self, pod: Pod, container: PodContainer) -> Sets | Hints | None:
        """The sets that may take the container, or its restored hints; ``None`` is no preference."""
        if not pod.is_managed():
            return None
        try:
            asked = container.memory_requests()
        except NotWholeBytes:
            return None
        held = self.ledger.blocks(pod.uid, container.name)
        return _restored(held, asked) if held else self.sets(pod, asked)

    def of_pod(self, pod: Pod) -> Sets | Hints | None:
        """The same for the pod's whole request; the first container with blocks decides whether it is restored."""
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
        return self.sets(pod, asked)

    def sets(self, pod: Pod, asked: Mapping[MemoryType, int]) -> Sets:
        """The sets that may take *asked* now."""
        return Sets(self.ledger, asked, self.reusable.get(pod.uid, {}), self.budget)

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
                raise AllocationError(self._absent(asked) or "no NUMA nodes have enough memory")
            if stored.preferred and not own.preferred:
                raise AllocationError("no NUMA nodes that the policy prefers have enough memory")
            best, mask = own, own.affinity
        lacking = [kind for kind, size in asked.items() if self.ledger.total(mask.mask, kind)[1] < size]
        if lacking:
            extended = self._choice(pod, asked, mask.mask)
            if extended is None or extended.affinity is None:
                said = _too_little(mask, lacking) + (
                    ", also together with others" if len(self.ledger.nodes) > 1 else ""
                )
                raise AllocationError(self._absent(asked) or said)
            if best.preferred and not extended.preferred:
                raise AllocationError(
                    f"{_too_little(mask, lacking)}, and with others it would be more nodes than the policy prefers"
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

    def _choice(self, pod: Pod, asked: Mapping[MemoryType, int], around: int = 0) -> Hint | None:
        """The policy's own best set with *around* in it; a container without memory gets none."""
        return self.sets(pod, asked).best(PLAIN, around) if MEMORY in asked else None

    def _absent(self, asked: Mapping[MemoryType, int]) -> str:
        """The sentence about pages that no node has; empty when there are some of every size."""
        have = {kind for node in self.ledger.nodes.values() for kind, table in node.tables.items() if table.total}
        absent = [kind for kind, size in asked.items() if size and kind not in have]
        return f"no node has any {' or '.join(absent)}" if absent else ""

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


def _too_little(nodes: NodeSet, kinds: Sequence[MemoryType]) -> str:
    what = " and ".join(sorted(kinds, key=lambda k: (k != MEMORY, k)))
    return f"{nodes.named} {'has' if len(nodes) == 1 else 'have'} too little {what} free"


def _restored(held: Sequence[Block], asked: Mapping[MemoryType, int]) -> Hints | None:
    """Hints of a container that already has its blocks; ``None`` when they are not what it asks for."""
    if len(held) != len(asked) or any(asked.get(b.type) != b.size_bytes for b in held):
        return None
    return {block.type: (Hint(block.affinity, True),) for block in held}

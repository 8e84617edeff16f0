"""
Memory that is promised on a node and that somebody else uses.

The books know what managed containers were promised; what others use of a node (Burstable and BestEffort containers,
the host itself) only the kernel knows. Where it has less left than what is promised and not used yet, a pinned
container can be killed for want of memory although the books are right, and that is told.

Owns: when that is so, and the sentence. Must never: change a promise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.sysfs import read_available
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import KernelError
from numapin.model.memory import MEMORY, Books
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes

SLACK_BYTES = 16 << 20
"""Less than this is within what the kernel's own counters are wrong by."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """One node, or one group, that has fewer bytes left than it owes to containers pinned to it."""

    nodes: NodeSet
    available_bytes: int
    owed_bytes: int

    @property
    def sentence(self) -> str:
        """For people."""
        has, its = ("has", "its") if len(self.nodes) == 1 else ("have", "their")
        return (
            f"{self.nodes.named} {has} {format_available(self.available_bytes)} left, but "
            f"{format_bytes(self.owed_bytes)} are promised there and not used yet: others use {its} memory"
        )


def shortages(
    root: Path, books: Books, pins: Mapping[str, PinRecord], views: Mapping[str, Tracked]
) -> tuple[Shortage, ...]:
    """
    Every node and group below *root* that cannot give what is promised to the containers pinned there, ascending.

    A container's files are read only where its use can make a difference, the largest promise first. What cannot be
    read, of a node or of a container, tells nothing.
    """
    promised: dict[NodeSet, list[tuple[int, Tracked]]] = defaultdict(list)
    for pin in pins.values():
        view = views.get(pin.cgroup)
        if view is None or pin.phase is Phase.FOREIGN or view.state not in _WRITTEN:
            continue
        sizes: dict[NodeSet, int] = defaultdict(int)
        for block in books.assignments.get(pin.owner, ()):
            if block.type == MEMORY:
                sizes[books.node_map.nodes[min(block.affinity)].cells] += block.size_bytes
        for cells, size in sizes.items():
            promised[cells].append((size, view))
    every = NodeSet.from_ids(node for cells in promised for node in cells)
    available = read_available(root, every) if every else {}
    found = []
    for cells, sizes_here in sorted(promised.items(), key=lambda item: item[0].ids()):
        if all(node in available for node in cells):
            left = sum(available[node] for node in cells)
            owed = _owed(cells, sizes_here, left + SLACK_BYTES)
            if owed > left + SLACK_BYTES:
                found.append(Shortage(cells, left, owed))
    return tuple(found)


_WRITTEN = (ContainerState.PINNED, ContainerState.CONTESTED)
"""Of other states the row itself says what is wrong."""


def _owed(cells: NodeSet, promised: Sequence[tuple[int, Tracked]], enough: int) -> int:
    """Bytes promised on *cells* and not used yet, or some figure up to *enough* where it is not more or not known."""
    owed = sum(size for size, _ in promised)
    for size, view in sorted(promised, key=lambda item: -item[0]):
        if owed <= enough:
            break
        try:
            used = view.cgroup.read_memory_numa_used() if view.cgroup is not None else None
        except KernelError:
            used = None
        if used is None:
            return 0
        owed -= min(size, sum(used.get(node, 0) for node in cells))
    return owed

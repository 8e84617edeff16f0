"""The machine as the kernel describes it: nodes, pools, distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numapin.model.nodeset import CpuSet, NodeId, NodeSet


class NodeKind(StrEnum):
    """What a node is made of, from the kernel's node state files."""

    MEMORY = "memory"
    CPU_LESS = "cpu-less"
    MEMORYLESS = "memoryless"
    MOVABLE_ONLY = "movable-only"


@dataclass(frozen=True, slots=True)
class HugepagePool:
    """Pages of one size on one node; counts are pages, fields keep the kernel's file names."""

    size_bytes: int
    nr_hugepages: int
    free_hugepages: int
    surplus_hugepages: int

    @property
    def total_bytes(self) -> int:
        """Whole pool in bytes."""
        return self.size_bytes * self.nr_hugepages


@dataclass(frozen=True, slots=True)
class NumaNode:
    """
    One online node.

    ``distances`` is keyed by the id of each online node, unitless (10 is local), and is ``None`` when the
    kernel reports none. ``pools`` is sorted by page size. ``memory_bytes`` is the node's own MemTotal;
    ``free_bytes`` its MemFree at the time of reading.
    """

    id: NodeId
    cpus: CpuSet
    kind: NodeKind
    memory_bytes: int
    free_bytes: int = 0
    pools: tuple[HugepagePool, ...] = ()
    distances: Mapping[NodeId, int] | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """
    All online nodes, keyed by id in ascending order; never empty.

    ``synthetic`` marks the single node 0 made up on a kernel without NUMA. ``warnings`` are sentences about
    odd but usable input, one per oddity, each naming its file.
    """

    nodes: Mapping[NodeId, NumaNode]
    synthetic: bool = False
    warnings: tuple[str, ...] = field(default=())

    @property
    def online(self) -> NodeSet:
        """Ids of all online nodes."""
        return NodeSet.from_ids(self.nodes)

    @property
    def with_memory(self) -> NodeSet:
        """Ids of the nodes that have memory, of any kind."""
        return NodeSet.from_ids(n.id for n in self.nodes.values() if n.kind is not NodeKind.MEMORYLESS)

    @property
    def with_normal_memory(self) -> NodeSet:
        """Ids of the nodes that hold memory the kernel itself can use (not movable-only)."""
        outside = (NodeKind.MEMORYLESS, NodeKind.MOVABLE_ONLY)
        return NodeSet.from_ids(n.id for n in self.nodes.values() if n.kind not in outside)

"""
What a container has before anything was decided for it.

Owns: which of it counts. Must never: open a cgroup itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numapin.kernel.cgroupfs import Cgroup
from numapin.model.container import ContainerRecord
from numapin.model.memory import MemoryType, hugepages
from numapin.model.nodeset import NodeId, NodeSet

LITTLE_BYTES = 32 << 20
"""Up to here memory chooses no node: runc runs from a copy of itself, some 14 MB in the container's name."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Bytes per node: of memory, and of huge pages by type. Empty is unknown or too little to count."""

    memory: Mapping[NodeId, int] = field(default_factory=dict)
    hugepages: Mapping[NodeId, Mapping[MemoryType, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Before:
    """What our first write changes beside ``cpuset.mems`` on v1; fields as in `PinRecord`. Nothing is known on v2."""

    below: Mapping[str, NodeSet] = field(default_factory=dict)
    migrate: bool | None = None


def read_before(cgroup: Cgroup) -> Before:
    """
    Read what an undo shall bring back.

    Raises:
        KernelError: A file cannot be read or understood.
    """
    return Before(cgroup.read_masks_below(), cgroup.read_memory_migrate())


def read_holdings(cgroup: Cgroup, record: ContainerRecord) -> Holdings:
    """
    Read what the container of *record* holds.

    Little memory does not count: the first pages of a program lie where it happened to start. Huge pages always do:
    the kernel has them no more, and a container that has them already needs no others.

    Raises:
        KernelError: A file cannot be read or understood.
    """
    memory = dict(cgroup.read_memory_numa_stat() or {})
    pages: dict[NodeId, dict[MemoryType, int]] = {}
    for size in _page_sizes(record):
        for node, used in (cgroup.read_hugetlb_numa_stat(size) or {}).items():
            pages.setdefault(node, {})[hugepages(size)] = used
    return Holdings(memory if sum(memory.values()) > LITTLE_BYTES else {}, pages)


def asks_hugepages(record: ContainerRecord) -> bool:
    """True when some document limits the container's hugepages, so that the pools matter for it."""
    return bool(_page_sizes(record))


def _page_sizes(record: ContainerRecord) -> list[int]:
    told = (record.limits, record.pod_limits, record.oci.limits if record.oci is not None else None)
    return sorted({size for limits in told if limits is not None for size in limits.hugetlb})

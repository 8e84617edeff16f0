"""
The machine's NUMA nodes, from sysfs.

Owns: every read below ``/sys/devices/system/node`` and its substitutes on a kernel without NUMA. Must never:
open a node that is not online, look at the agent's own affinity, or write anything.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from numapin.kernel.files import list_dir, read_optional, read_text
from numapin.kernel.sysfs_files import (
    GONE,
    names_in,
    need_field,
    read_machine_cpus,
    read_memory,
    read_node_cpus,
    read_online,
    read_pools,
    read_state,
)
from numapin.kernel.sysfs_text import parse_count, parse_distances, parse_meminfo
from numapin.model.errors import KernelError, KernelReadError
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_GLOBAL_POOLS = "sys/kernel/mm/hugepages"
_MEMINFO = "proc/meminfo"
_PAGE_CACHE = ("Active(file)", "Inactive(file)")


def read_topology(root: Path) -> Topology:
    """
    All online nodes as the kernel shows them now, below *root* (``/`` for this machine).

    **Shape**: never empty; nodes keyed by the kernel's id, ascending, holes allowed. Without a node directory
    (a kernel without NUMA) one node 0 is made up from ``/proc/meminfo``, ``/sys/devices/system/cpu`` and
    ``/sys/kernel/mm/hugepages``, and ``synthetic`` is true.
    **Unit**: bytes; pools in pages. ``distances`` is ``None`` for a node whose table is missing or odd: distances
    are advisory and never a reason to fail.

    Raises:
        KernelReadError: A file that matters cannot be read, or there is no machine below *root* at all.
        KernelFormatError: A file that matters holds something else than it should.

    Source: drivers/base/node.c; Documentation/ABI/stable/sysfs-devices-node.
    """
    base = root / _NODES
    if names_in(base) is None:
        return _synthetic(root)
    listed = read_online(base)
    states = _States(read_state(base / "has_memory"), read_state(base / "has_normal_memory"))
    notes = _Notes(base)
    nodes: dict[NodeId, NumaNode] = {}
    for node in listed:
        try:
            nodes[node] = _read_node(base, node, listed, states, notes)
        except KernelReadError as exc:
            if exc.errno not in GONE or _directory(node) in list_dir(base):
                raise
    names = frozenset(list_dir(base))  # a node may go between two reads; half a node is none
    gone = NodeSet.from_ids(node for node in listed if _directory(node) not in names)
    if gone:
        nodes = {i: _without(value, gone) for i, value in nodes.items() if i not in gone}
        notes.lines.append(f"{base}/online names node {gone}, whose directory is gone; skipped")
    if not nodes:
        raise KernelReadError(str(base / _directory(min(listed))), errno.ENOENT)
    return Topology(nodes=nodes, warnings=notes.sentences())


def read_hugepage_pools(root: Path, node: NodeId) -> tuple[HugepagePool, ...]:
    """
    The pools of one node as they are now, sorted by page size; cheap enough for each decision.

    Empty when the node has none (a memoryless node has no such directory). On a kernel without NUMA node 0 has the
    machine-wide pools.

    Raises:
        KernelReadError: The node's directory is missing (ENOENT), or a count cannot be read.
        KernelFormatError: A count is not a number.
    """
    base = root / _NODES
    pools = read_pools(base / _directory(node) / "hugepages")
    return pools if pools or not _is_synthetic(base, node) else read_pools(root / _GLOBAL_POOLS)


def read_hugetlb(root: Path) -> int | None:
    """
    Bytes of the whole machine in hugepage pools of every size, free or not; ``None`` where the kernel does not tell.

    Source: Hugetlb of ``/proc/meminfo`` (mm/hugetlb.c, hugetlb_report_meminfo), since Linux 4.16.
    """
    try:
        return parse_meminfo(read_text(root / _MEMINFO), "Hugetlb")
    except KernelReadError:
        return None


def read_pool_pages(root: Path, topology: Topology, nodes: NodeSet) -> tuple[int, ...]:
    """
    Pages that are now in each pool that *topology* knows on *nodes*, in its order; -1 for one that cannot be read.

    A third of the files of `read_hugepage_pools`, and no directory is listed.
    """
    found = []
    for node in topology.nodes.values():
        base = _GLOBAL_POOLS if topology.synthetic else f"{_NODES}/{_directory(node.id)}/hugepages"
        for pool in node.pools if node.id in nodes else ():
            try:
                found.append(
                    parse_count(read_text(f"{root}/{base}/hugepages-{pool.size_bytes >> 10}kB/nr_hugepages"))
                )
            except (KernelReadError, ValueError):
                found.append(-1)
    return tuple(found)


def read_node_free(root: Path, node: NodeId) -> int:
    """
    Bytes of the node that nothing uses now (MemFree); on a kernel without NUMA node 0 is the whole machine.

    Raises:
        KernelReadError: The node or its meminfo is missing or unreadable.
        KernelFormatError: No MemFree line in kB.
    """
    path = _meminfo_path(root, node)
    return need_field(path, read_text(path), "MemFree")


def read_node_available(root: Path, node: NodeId) -> int:
    """
    Bytes the node could give now without swapping: MemFree and its page cache; above what really is to be had.

    Pages of the cache that are mapped, dirty or below the kernel's watermarks count in full, and reclaimable slab
    not at all (it rarely gives whole pages back). A field the kernel does not print counts as 0.

    Raises:
        KernelReadError: The node or its meminfo is missing or unreadable.
        KernelFormatError: No MemFree line in kB.

    Source: mm/show_mem.c, si_mem_available(), which does this for the whole machine.
    """
    return _available(_meminfo_path(root, node))


def read_available(root: Path, nodes: NodeSet) -> Mapping[NodeId, int]:
    """
    `read_node_available` of each of *nodes*, by its id, ascending; one that cannot be read is not there.
    """
    base = root / _NODES
    found: dict[NodeId, int] = {}
    try:
        synthetic = names_in(base) is None  # once: with many nodes it is a long directory
    except KernelReadError:
        return found
    for node in nodes:
        with contextlib.suppress(KernelError):
            found[node] = _available(root / _MEMINFO if synthetic else base / _directory(node) / "meminfo")
    return found


def _available(path: Path) -> int:
    text = read_text(path)
    return need_field(path, text, "MemFree") + sum(parse_meminfo(text, name) or 0 for name in _PAGE_CACHE)


@dataclass(frozen=True, slots=True)
class _States:
    """
    The kernel's node state files; ``None`` where the kernel has no such file.

    ``has_cpu`` is not among them: some kernels leave it empty although nodes have CPUs, so cpulist decides.
    """

    has_memory: NodeSet | None
    has_normal_memory: NodeSet | None

    def kind(self, node: NodeId, cpus: CpuSet, memory_bytes: int) -> NodeKind:
        if memory_bytes == 0 or (self.has_memory is not None and node not in self.has_memory):
            return NodeKind.MEMORYLESS
        # Without has_memory (before Linux 3.8) there is no movable-only node, and has_normal_memory of
        # such kernels was seen to disagree with the ids in use.
        if self.has_memory and self.has_normal_memory is not None and node not in self.has_normal_memory:
            return NodeKind.MOVABLE_ONLY
        return NodeKind.MEMORY if cpus else NodeKind.CPU_LESS


@dataclass(slots=True)
class _Notes:
    """Oddities met while reading; what many nodes share becomes one sentence."""

    base: Path
    lines: list[str] = field(default_factory=list)
    without_distances: list[NodeId] = field(default_factory=list)
    odd_distances: list[tuple[NodeId, str]] = field(default_factory=list)
    without_free: list[NodeId] = field(default_factory=list)

    def sentences(self) -> tuple[str, ...]:
        lines = list(self.lines)
        if nodes := self.without_distances:
            lines.append(f"{self._files(nodes, 'distance')}: missing; distances from there are unknown")
        if self.odd_distances:
            nodes = [node for node, _ in self.odd_distances]
            why = self.odd_distances[0][1]
            lines.append(f"{self._files(nodes, 'distance')}: {why}; distances from there are unknown")
        if nodes := self.without_free:
            lines.append(f"{self._files(nodes, 'meminfo')}: no MemFree; free memory is taken as 0")
        return tuple(lines)

    def _files(self, nodes: list[NodeId], name: str) -> str:
        others = NodeSet.from_ids(nodes[1:])
        return f"{self.base}/node{nodes[0]}/{name}" + (f" (and of node {others})" if others else "")


def _directory(node: NodeId) -> str:
    return f"node{node}"


def _read_node(base: Path, node: NodeId, listed: NodeSet, states: _States, notes: _Notes) -> NumaNode:
    directory = base / _directory(node)
    total, free = read_memory(directory / "meminfo")
    cpus = read_node_cpus(directory)
    pools = read_pools(directory / "hugepages")
    if free is None:
        notes.without_free.append(node)
    return NumaNode(
        id=node,
        cpus=cpus,
        kind=states.kind(node, cpus, total),
        memory_bytes=total,
        free_bytes=free or 0,
        pools=pools,
        distances=_read_distances(directory / "distance", node, listed, notes),
    )


def _read_distances(path: Path, node: NodeId, listed: NodeSet, notes: _Notes) -> dict[NodeId, int] | None:
    try:
        text = read_optional(path)
        if text is None:
            notes.without_distances.append(node)
            return None
        return parse_distances(text, listed)
    except (KernelReadError, ValueError) as exc:
        notes.odd_distances.append((node, str(exc)))
        return None


def _without(node: NumaNode, gone: NodeSet) -> NumaNode:
    if node.distances is None:
        return node
    return replace(node, distances={i: value for i, value in node.distances.items() if i not in gone})


def _is_synthetic(base: Path, node: NodeId) -> bool:
    """True for node 0 on a kernel without NUMA. Raises: KernelReadError (ENOENT) when the node does not exist."""
    names = names_in(base)
    if names is None and node == 0:
        return True
    if names is None or _directory(node) not in names:
        raise KernelReadError(str(base / _directory(node)), errno.ENOENT)
    return False


def _meminfo_path(root: Path, node: NodeId) -> Path:
    base = root / _NODES
    return root / _MEMINFO if _is_synthetic(base, node) else base / _directory(node) / "meminfo"


def _synthetic(root: Path) -> Topology:
    base, meminfo, cpu_base = root / _NODES, root / _MEMINFO, root / _CPUS
    warnings = []
    total, free = 0, None
    if read_optional(meminfo) is not None:
        total, free = read_memory(meminfo)
    elif names_in(cpu_base) is not None:
        warnings.append(f"{meminfo} is missing; the machine's memory is unknown and taken as 0")
    else:  # an empty or mistyped root is not a machine
        raise KernelReadError(str(base), errno.ENOENT)
    cpus = read_machine_cpus(cpu_base)
    if cpus is None:
        warnings.append(f"{cpu_base} is missing; the machine's CPUs are unknown")
    node = NumaNode(
        id=NodeId(0),
        cpus=cpus or CpuSet(),
        kind=NodeKind.MEMORY if total else NodeKind.MEMORYLESS,
        memory_bytes=total,
        free_bytes=free or 0,
        pools=read_pools(root / _GLOBAL_POOLS),
    )
    return Topology(nodes={node.id: node}, synthetic=True, warnings=tuple(warnings))

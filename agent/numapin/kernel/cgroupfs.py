"""The typed readers of a cgroup's files; those of the cpuset controller are `numapin.kernel.cgroup_cpuset`'s.

Owns: the formats of cgroup v1 and v2 files. Must never: write any file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from numapin.kernel.cgroup_cpuset import Cpuset
from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.files import read_optional
from numapin.model.container import Limits
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import CpuSet, NodeId

_UNLIMITED_FROM = 2**62
"""v1 prints "no limit" as 2^63 minus one page of any kind (4 KiB, 64 KiB, 1 GiB, ...)."""

_NUMBER = re.compile(r"-?[0-9]{1,20}")
_COUNT = re.compile(r"[0-9]{1,20}")
_NODE = re.compile(r"N[0-9]{1,5}")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CRUN_INNER = "container/"
"""The cgroup below a scope where crun has the processes."""


class Cgroup(Cpuset):
    """An open cgroup of the cpuset hierarchy with typed files. See `CgroupDirectory` for the handle itself."""

    __slots__ = ()

    # sizes

    def read_limits(self) -> Limits:
        """
        What the cgroup's own files limit; a controller that is not there limits nothing.

        ``memory_reservation_bytes`` is ``memory.low`` (v1: the soft limit). On v1, where every cgroup has
        CPUs, ``cpus`` is set only when they are fewer than the parent's.

        Raises:
            CgroupGone: Removed.
            KernelFormatError: A file has another shape.

        Source: Documentation/admin-guide/cgroup-v2.rst; cgroup-v1/{memory,hugetlb}.rst, sched-bwc.rst.
        """
        v2 = self._is_v2("memory")
        with self._at("memory") as fd:
            memory = self._limit(fd, "memory.max" if v2 else "memory.limit_in_bytes")
            soft = self._limit(fd, "memory.low" if v2 else "memory.soft_limit_in_bytes")
        quota, period, shares = self._cpu()
        return Limits(
            memory_bytes=memory,
            memory_reservation_bytes=soft or None,
            cpu_quota_us=quota,
            cpu_period_us=period if quota is not None else None,
            cpu_shares=shares,
            cpus=self._explicit_cpus(),
            hugetlb=self._hugetlb(),
        )

    def has_memory_limit_file(self) -> bool:
        """True when the memory controller shows this cgroup's limit, limited or not."""
        name = "memory.max" if self._is_v2("memory") else "memory.limit_in_bytes"
        with self._at("memory") as fd:
            return fd is not None and read_optional(name, dir_fd=fd) is not None

    def read_memory_current(self) -> int | None:
        """
        Bytes charged to the cgroup and all below it, of every kind; ``None`` without a memory controller.

        Raises:
            CgroupGone: Removed.
            KernelFormatError: Not a number.
        """
        name = "memory.current" if self._is_v2("memory") else "memory.usage_in_bytes"
        with self._at("memory") as fd:
            text = self._get(fd, name)
        return None if text is None else self._int(name, text)

    def read_movable(self) -> int | None:
        """
        Bytes that a change of nodes may have to move, an upper bound: all that is charged to the cgroup, and its huge
        pages, which ``memory.current`` does not have. ``None``: there is no memory controller, so nobody knows.

        Raises: as `read_memory_current`.

        Source: cgroup-v2.rst (``memory.current``, ``hugetlb.<hugepagesize>.current``); cgroup-v1/hugetlb.rst.
        """
        charged = self.read_memory_current()
        if charged is None and not self.has_memory_limit_file():
            return None
        ending = "current" if self._is_v2("hugetlb") else "usage_in_bytes"
        pages = 0
        with self._at("hugetlb") as fd:
            for size in self.hierarchy.page_sizes if fd is not None else ():
                name = f"hugetlb.{hugetlb_size_name(size)}.{ending}"
                text = self._get(fd, name)
                pages += 0 if text is None else self._int(name, text)
        return (charged or 0) + pages

    def read_memory_numa_stat(self) -> Mapping[NodeId, int] | None:
        """
        Bytes per node that a change of nodes would move: anonymous, shared and locked memory, all below included.

        Page cache is left out: it does not move and proves nothing about a pin. Every node the kernel prints is
        there, zeros too. ``None``: no memory controller, or a kernel without the file.

        Raises:
            CgroupGone: Removed.
            KernelFormatError: Another shape.

        Source: cgroup-v2.rst (``anon``, ``shmem`` in bytes); mm/memcontrol-v1.c memcg_numa_stat_show()
        (``anon``, ``unevictable`` in pages, lines ``hierarchical_`` include what is below).
        """
        return self._numa_stat(("anon", "shmem"), ("anon", "unevictable"))

    def read_memory_numa_used(self) -> Mapping[NodeId, int] | None:
        """
        Bytes per node that the cgroup and all below it use of their limit and that no reclaim of cache gives back.

        On v1, which does not tell shared memory from page cache, the cache is among them. Otherwise, and where it
        comes from, as `read_memory_numa_stat`.
        """
        kernel = ("kernel_stack", "pagetables", "slab_reclaimable", "slab_unreclaimable")
        return self._numa_stat(("anon", "shmem", *kernel), ("total",))

    def _numa_stat(self, keys_v2: tuple[str, ...], keys_v1: tuple[str, ...]) -> Mapping[NodeId, int] | None:
        v2 = self._is_v2("memory")
        with self._at("memory") as fd:
            text = self._get(fd, "memory.numa_stat")
        if text is None:
            return None
        lines: dict[str, list[str]] = {}
        for line in text.splitlines():
            words = line.replace("=", " ", 0 if v2 else 1).split()
            if words:
                lines[words[0]] = words[1:]
        if v2:
            wanted, unit = keys_v2, 1
        else:
            prefix = "hierarchical_" if "hierarchical_anon" in lines else ""
            wanted, unit = tuple(prefix + key for key in keys_v1), _PAGE_BYTES
        sizes: dict[NodeId, int] = {}
        for key in wanted:
            for word in lines.get(key, ()):
                if "=" not in word:
                    continue  # v1's sum over the nodes
                node, value = self._per_node("memory.numa_stat", text, word)
                sizes[node] = sizes.get(node, 0) + value * unit
        return dict(sorted(sizes.items()))

    def read_hugetlb_numa_stat(self, size_bytes: int) -> Mapping[NodeId, int] | None:
        """
        Bytes in huge pages of *size_bytes* that the cgroup and all below it use per node, zeros too.

        ``None``: no hugetlb controller, or a kernel without the file (before 5.17).

        Raises: as `read_memory_numa_stat`.

        Source: cgroup-v2.rst (``hugetlb.<hugepagesize>.numa_stat``); mm/hugetlb_cgroup.c
        hugetlb_cgroup_read_numa_stat(): bytes; v1 has a line for the cgroup alone, then ``hierarchical_total``.
        """
        name = f"hugetlb.{hugetlb_size_name(size_bytes)}.numa_stat"
        with self._at("hugetlb") as fd:
            text = self._get(fd, name)
        if text is None:
            return None
        words = (text.splitlines() or [""])[-1].split()
        return dict(sorted(self._per_node(name, text, word) for word in words[1:]))

    def _per_node(self, name: str, text: str, word: str) -> tuple[NodeId, int]:
        node, _, value = word.partition("=")
        if not (_NODE.fullmatch(node) and _COUNT.fullmatch(value)):
            raise KernelFormatError(self._shown(name), text, "N<node>=<number>")
        return NodeId(int(node[1:])), int(value)

    # processes

    def is_populated(self) -> bool:
        """
        True when a process lives in the cgroup or below it; a removed cgroup is not populated.

        Raises:
            KernelReadError: Unreadable.
        """
        if self.hierarchy.version is CgroupVersion.V2:
            text = read_optional("cgroup.events", dir_fd=self._fd)
            if text is not None:
                return "populated 1" in text.splitlines()
        return next(self._members(), None) is not None

    def pids(self) -> tuple[int, ...]:
        """
        Processes in the cgroup and below it, ascending; those that come and go meanwhile may be missing.

        Where a threaded cgroup refuses to list processes, the processes of its threads.

        Raises:
            KernelReadError: Unreadable.
        """
        return tuple(sorted(set(self._members())))

    def some_pids(self, count: int) -> Iterator[int]:
        """
        At most *count* of `pids`, those of the outer cgroups first. Whoever has seen enough stops: a container may
        have thousands of cgroups inside.

        Raises:
            KernelReadError: Unreadable.
        """
        return islice(self._members(), count)

    # inside

    def _int(self, name: str, text: str) -> int:
        word = text.strip()
        if not _NUMBER.fullmatch(word):
            raise KernelFormatError(self._shown(name), text, "a number")
        return int(word)

    def _limit(self, fd: int | None, name: str) -> int | None:
        """Limit in bytes; ``None`` for ``max``, v1's huge numbers and a missing file."""
        text = self._get(fd, name)
        if text is None or text.strip() == "max":
            return None
        value = self._int(name, text)
        return value if 0 <= value < _UNLIMITED_FROM else None

    def _cpu(self) -> tuple[int | None, int | None, int | None]:
        """Quota and period in microseconds, and v1's shares (a v2 weight cannot be turned back into shares)."""
        with self._at("cpu") as fd:
            if self._is_v2("cpu"):
                text = self._get(fd, "cpu.max")
                words = (text or "max 100000").split()
                if len(words) != 2:
                    raise KernelFormatError(self._shown("cpu.max"), text or "", "quota and period")
                quota = None if words[0] == "max" else self._int("cpu.max", words[0])
                return quota, self._int("cpu.max", words[1]), None
            values = [self._get(fd, n) for n in ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares")]
        quota, period, shares = (None if v is None else self._int("cpu", v) for v in values)
        return (quota if quota is not None and quota > 0 else None), period, shares

    def _explicit_cpus(self) -> CpuSet | None:
        name = self.hierarchy.cpuset_prefix + "cpus"
        text = self._get(self._fd, name)
        try:
            cpus = CpuSet.parse(text or "")
            if self.hierarchy.version is CgroupVersion.V1 and self.path != "/":
                above = CpuSet.parse(self._get(self._fd, f"../{name}") or "")
                cpus = CpuSet() if cpus == above else cpus
        except ValueError as exc:
            raise KernelFormatError(self._shown(name), text or "", "a list of CPUs") from exc
        return cpus or None

    def _hugetlb(self) -> dict[int, int]:
        """By page size. systemd knows no such limit, so crun sets it on its inner cgroup only (seen with 1.21)."""
        found = {}
        ending = "max" if self._is_v2("hugetlb") else "limit_in_bytes"
        places = ("", _CRUN_INNER) if self.path.endswith(".scope") else ("",)
        with self._at("hugetlb") as fd:
            for size in self.hierarchy.page_sizes if fd is not None else ():
                name = f"hugetlb.{hugetlb_size_name(size)}.{ending}"
                value = next((v for p in places if (v := self._limit(fd, p + name)) is not None), None)
                if value is not None:
                    found[size] = value
        return found


def open_cgroup(hierarchy: Hierarchy, path: str) -> Cgroup:
    """
    Open the cgroup at *path* below the cpuset mount, following no link and staying on that file system.

    Raises:
        CgroupGone: It does not exist.
        KernelReadError: A component is a link or a file (ENOTDIR), is ``..`` (EINVAL), or not permitted.
    """
    return Cgroup(hierarchy, path)


def hugetlb_size_name(size_bytes: int) -> str:
    """Page size as the hugetlb controller names it (``2MB``). Source: mm/hugetlb_cgroup.c, mem_fmt()."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20)):
        if size_bytes >= factor:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes >> 10}KB"

"""
One reader for each file of a node's directory.

Owns: which file holds what, and its substitute on older kernels. Must never: know which nodes there are.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import TypeVar

from numapin.kernel.files import list_dir, read_optional, read_text
from numapin.kernel.sysfs_text import meminfo_line, parse_count, parse_cpumap, parse_meminfo
from numapin.model.errors import KernelFormatError, KernelReadError
from numapin.model.nodeset import MAX_ID, CpuSet, IdSet, NodeSet
from numapin.model.topology import HugepagePool

GONE = (errno.ENOENT, errno.ENODEV)
"""What reading below a directory says when that directory went away."""

_POOL_NAME = re.compile(r"hugepages-([1-9][0-9]{0,14})kB")
_POOL_FILES = ("nr_hugepages", "free_hugepages", "surplus_hugepages")
_CPU_NAME = re.compile(r"cpu(0|[1-9][0-9]{0,4})")
_NODE_NAME = re.compile(r"node(0|[1-9][0-9]{0,4})")

_Ids = TypeVar("_Ids", bound=IdSet)


def names_in(directory: Path) -> list[str] | None:
    """Names in *directory*, sorted, or ``None`` when there is none. Raises: KernelReadError when it is unreadable."""
    try:
        return list_dir(directory)
    except KernelReadError as exc:
        if exc.errno in GONE:
            return None
        raise


def read_online(base: Path) -> NodeSet:
    """
    Ids of the online nodes, never empty; without a file ``online`` (Linux before 2.6.24) those with a directory.

    Raises:
        KernelReadError: Unreadable.
        KernelFormatError: Not a list of ids, or an empty one.
    """
    path = base / "online"
    online = read_state(path)
    if online is None:
        path = base
        online = NodeSet.from_ids(_numbered(list_dir(base), _NODE_NAME))
    if not online:
        raise KernelFormatError(str(path), "", "at least one online node")
    return online


def read_state(path: Path) -> NodeSet | None:
    """
    Nodes in one of the kernel's node state files (``has_memory``), or ``None`` when this kernel has no such file.

    Raises:
        KernelReadError: It exists and cannot be read.
        KernelFormatError: Not a list of ids.

    Source: drivers/base/node.c, node_states.
    """
    text = read_optional(path)
    return None if text is None else _ids(NodeSet, path, text)


def read_memory(path: Path) -> tuple[int, int | None]:
    """
    MemTotal and MemFree of a meminfo file in bytes; ``None`` when the second is not told.

    Raises:
        KernelReadError: Missing or unreadable.
        KernelFormatError: No MemTotal in kB.
    """
    text = read_text(path)
    return need_field(path, text, "MemTotal"), parse_meminfo(text, "MemFree")


def need_field(path: Path, text: str, name: str) -> int:
    """The field *name* of meminfo *text* in bytes. Raises: KernelFormatError when no line has it in kB."""
    value = parse_meminfo(text, name)
    if value is None:
        raise KernelFormatError(str(path), meminfo_line(text, name), f"a line {name} with a number of kB")
    return value


def read_node_cpus(directory: Path) -> CpuSet:
    """
    Online CPUs of the node, empty when it has none; from cpulist, or cpumap before Linux 2.6.26.

    Raises:
        KernelReadError: Neither file is there, or one is unreadable.
        KernelFormatError: Not a list or mask of CPUs.
    """
    path = directory / "cpulist"
    text = read_optional(path)
    if text is not None:
        return _ids(CpuSet, path, text)
    older = directory / "cpumap"
    text = read_optional(older)
    if text is None:
        raise KernelReadError(str(path), errno.ENOENT)
    try:
        return parse_cpumap(text)
    except ValueError as exc:
        raise KernelFormatError(str(older), text.strip(), "a CPU mask such as 00000000,0000000f") from exc


def read_machine_cpus(base: Path) -> CpuSet | None:
    """
    Online CPUs of the whole machine from ``/sys/devices/system/cpu``; ``None`` when it shows none at all.

    Without a file ``online`` every CPU with a directory counts: a missing file means online.

    Raises:
        KernelReadError: Unreadable.
        KernelFormatError: Not a list of CPUs.
    """
    path = base / "online"
    text = read_optional(path)
    if text is not None:
        return _ids(CpuSet, path, text)
    return CpuSet.from_ids(_numbered(names_in(base) or [], _CPU_NAME)) or None


def read_pools(directory: Path) -> tuple[HugepagePool, ...]:
    """
    Hugepage pools in a ``hugepages`` directory, sorted by page size; sizes unknown to us are carried through.

    Empty when *directory* does not exist, also when it goes away meanwhile (the node's memory taken offline).
    Only the three count files are opened: gigantic pools also carry ``demote``, which even root cannot read.

    Raises:
        KernelReadError: A count is missing or unreadable.
        KernelFormatError: A count is not a number.

    Source: mm/hugetlb.c, hugetlb_register_node().
    """
    try:
        pools = [
            HugepagePool(int(match[1]) * 1024, *(_read_count(directory / name / file) for file in _POOL_FILES))
            for name in names_in(directory) or []
            if (match := _POOL_NAME.fullmatch(name))
        ]
    except KernelReadError as exc:
        if exc.errno in GONE and names_in(directory) is None:
            return ()
        raise
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def _read_count(path: Path) -> int:
    text = read_text(path)
    try:
        return parse_count(text)
    except ValueError as exc:
        raise KernelFormatError(str(path), text.strip(), "a number of pages") from exc


def _ids(kind: type[_Ids], path: Path, text: str) -> _Ids:
    try:
        return kind.parse(text)
    except ValueError as exc:
        raise KernelFormatError(str(path), text.strip(), "a list of ids such as 0-3,8") from exc


def _numbered(names: list[str], pattern: re.Pattern[str]) -> list[int]:
    found = (pattern.fullmatch(name) for name in names)
    return [int(match[1]) for match in found if match and int(match[1]) <= MAX_ID]

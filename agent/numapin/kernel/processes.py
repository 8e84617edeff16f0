"""Processes in ``/proc``: who is in a cgroup and whether a remembered pid is still the same process.

Owns: the reading of ``/proc/<pid>``. Must never: signal or move a process.
"""

from __future__ import annotations

import re
from pathlib import Path

from numapin.kernel.files import read_optional
from numapin.model.errors import KernelFormatError, KernelReadError
from numapin.model.nodeset import NodeSet

_NUMBER = re.compile(r"[0-9]{1,19}")
_RUNTIMES = ("runc", "crun", "youki")


def _read(root: Path, pid: int, name: str) -> str | None:
    """Content of one file of a process; ``None`` when it ended (ENOENT, or ESRCH while being read)."""
    try:
        return read_optional(root / "proc" / str(pid) / name)
    except KernelReadError as exc:
        if exc.errno == 3:  # ESRCH
            return None
        raise


def read_start_ticks(root: Path, pid: int) -> int | None:
    """
    Start of a process in clock ticks since boot, ``None`` when there is no such process.

    Raises:
        KernelFormatError: The file has another shape.

    Source: proc_pid_stat(5), field 22; the command name may hold blanks and parentheses.
    """
    text = _read(root, pid, "stat")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or not _NUMBER.fullmatch(fields[19]):
        raise KernelFormatError(f"/proc/{pid}/stat", text, "at least 22 fields")
    return int(fields[19])


def read_thread_group(root: Path, tid: int) -> int | None:
    """Pid of the process that thread *tid* belongs to, ``None`` when it ended."""
    value = _status_field(root, tid, "Tgid")
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None


def read_mems_allowed(root: Path, pid: int) -> NodeSet | None:
    """
    Nodes the kernel lets a process use (``Mems_allowed_list``), ``None`` when it ended.

    Raises:
        KernelFormatError: Not a list of nodes.
    """
    value = _status_field(root, pid, "Mems_allowed_list")
    try:
        return None if value is None else NodeSet.parse(value)
    except ValueError as exc:
        raise KernelFormatError(f"/proc/{pid}/status", value or "", "a list of nodes") from exc


def is_runtime_init(root: Path, pid: int) -> bool | None:
    """
    True while a process is still the runtime's own code before the user's program; ``None`` when it ended.

    runc starts itself anew as ``/proc/self/exe`` and then from a sealed copy in memory, and is called after these
    files until it names itself; its second argument tells it from a user's program called ``exe``.
    """
    comm = _read(root, pid, "comm")
    if comm is None:
        return None
    name = comm.strip()
    if name == "exe" or name.startswith("memfd:") or name.isdecimal():
        # no arguments: it is between two programs
        return (_read(root, pid, "cmdline") or "runtime\0init").split("\0")[1:2] == ["init"]
    return name in _RUNTIMES or name.startswith("runc:[")


def _status_field(root: Path, pid: int, field: str) -> str | None:
    for line in (_read(root, pid, "status") or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name == field:
            return value.strip()
    return None

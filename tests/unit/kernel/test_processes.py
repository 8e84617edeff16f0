"""Processes below a root: `numapin.kernel.processes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.processes import is_runtime_init, read_mems_allowed, read_start_ticks, read_thread_group
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import CgroupTree, write_files


def test_a_process(tmp_path: Path) -> None:
    """Start time, thread group and allowed nodes are read, whatever the command is called."""
    CgroupTree(tmp_path).process(7, comm="a) S 1 (b", start=4711)

    assert read_start_ticks(tmp_path, 7) == 4711
    assert read_thread_group(tmp_path, 7) == 7
    assert read_mems_allowed(tmp_path, 7) == NodeSet.parse("0-3")
    assert is_runtime_init(tmp_path, 7) is False


def test_no_such_process(tmp_path: Path) -> None:
    """A process that ended is ``None``, not an error."""
    readers = (read_start_ticks, read_thread_group, read_mems_allowed, is_runtime_init)

    assert [r(tmp_path, 9) for r in readers] == [None] * 4


@pytest.mark.parametrize("comm", ["runc:[2:INIT]", "runc:[1:CHILD]", "crun"])
def test_the_runtimes_own_code(tmp_path: Path, comm: str) -> None:
    """Before the user's program runs the process is the runtime's."""
    CgroupTree(tmp_path).process(7, comm=comm)

    assert is_runtime_init(tmp_path, 7) is True


@pytest.mark.parametrize("comm", ["exe", "memfd:runc_clon", "6"])
@pytest.mark.parametrize(
    ("cmdline", "expected"), [("runc\0init\0", True), ("", True), ("exe\0--serve\0", False), ("exe\0", False)]
)
def test_the_runtime_under_a_files_name(tmp_path: Path, comm: str, cmdline: str, expected: bool) -> None:
    """While runc runs from a copy of itself its arguments tell it; none at all means that it is being started."""
    CgroupTree(tmp_path).process(7, comm=comm)
    write_files(tmp_path, {"proc/7/cmdline": cmdline})

    assert is_runtime_init(tmp_path, 7) is expected


@pytest.mark.parametrize(
    ("comm", "cmdline", "init"),
    [
        ("exe", "runc\0init\0", True),
        ("memfd:runc_clon", "/proc/self/exe\0init\0", True),
        ("6", "", True),
        ("exe", "exe\0--serve\0", False),
    ],
)
def test_runc_between_two_programs(tmp_path: Path, comm: str, cmdline: str, init: bool) -> None:
    """While runc starts itself anew it has odd names; a user's program of that name has other arguments."""
    CgroupTree(tmp_path).process(7, comm=comm)
    write_files(tmp_path, {"proc/7/cmdline": cmdline})

    assert is_runtime_init(tmp_path, 7) is init


def test_a_user_program_with_such_a_name(tmp_path: Path) -> None:
    """A name that only begins like a runtime's is the user's."""
    CgroupTree(tmp_path).process(7, comm="crunch")

    assert is_runtime_init(tmp_path, 7) is False


def test_garbled_stat(tmp_path: Path) -> None:
    """Another shape is an error with the path."""
    write_files(tmp_path, {"proc/7/stat": "7 (x) S 1"})
    with pytest.raises(KernelFormatError):
        read_start_ticks(tmp_path, 7)

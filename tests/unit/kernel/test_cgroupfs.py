"""A cgroup's files, on plain files: `numapin.kernel.cgroupfs` and `numapin.kernel.cgroup_directory`.

What only a kernel can refuse (EBUSY, ENOSPC, EACCES) is in tests/host/test_cgroup_v1.py.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import Cgroup, hugetlb_size_name, open_cgroup
from numapin.model.container import Limits
from numapin.model.errors import CgroupGone, KernelFormatError, KernelReadError, KernelWriteError
from numapin.model.nodeset import CpuSet, NodeSet
from support.cgroup_trees import GIB, MIB, CgroupTree, write_files

PATH = "/system.slice/docker-x.scope"
BOTH = pytest.mark.parametrize("version", list(CgroupVersion))


def opened(tree: CgroupTree, path: str = PATH) -> Cgroup:
    """The cgroup as the product opens it."""
    return open_cgroup(tree.hierarchy(), path)


@BOTH
def test_mems_and_effective(tmp_path: Path, version: CgroupVersion) -> None:
    """Both node sets are read from the files of the version."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH, mems="0-1", effective="1")
    with opened(tree) as cgroup:
        seen = (cgroup.read_cpuset_mems(), cgroup.read_cpuset_mems_effective())

    assert seen == (NodeSet.of(0, 1), NodeSet.of(1))


def test_empty_mems_is_inherited(tmp_path: Path) -> None:
    """On v2 an empty ``cpuset.mems`` is the empty set, and the effective one what the parent gives (B061)."""
    tree = CgroupTree(tmp_path)
    tree.add(PATH, mems="", effective="0-1")
    with opened(tree) as cgroup:
        assert not cgroup.read_cpuset_mems()
        assert cgroup.read_cpuset_mems_effective() == NodeSet.of(0, 1)


def test_noprefix_files(tmp_path: Path) -> None:
    """A v1 hierarchy mounted ``noprefix`` is read and written by its short names."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1, noprefix=True)
    directory = tree.add(PATH, mems="0-1")
    with opened(tree) as cgroup:
        cgroup.write_cpuset_mems(NodeSet.of(1, 2))

    assert (directory / "mems").read_text() == "1-2\n"


@BOTH
def test_only_cpuset_mems_is_touched(tmp_path: Path, version: CgroupVersion) -> None:
    """A write changes ``cpuset.mems`` and no other file of the machine (B115)."""
    tree = CgroupTree(tmp_path, version)
    directory = tree.add(PATH, mems="0-3", memory=GIB)
    before = contents(tmp_path)
    with opened(tree) as cgroup:
        cgroup.write_cpuset_mems(NodeSet.of(0, 1, 2))
    after = contents(tmp_path)

    assert {k for k in after if after[k] != before.get(k)} == {directory / "cpuset.mems"}
    assert before.keys() == after.keys()


def contents(root: Path) -> dict[Path, str]:
    """Every file below *root*."""
    return {p: p.read_text() for p in root.rglob("*") if p.is_file()}


def test_the_empty_set_is_written_as_a_newline(tmp_path: Path) -> None:
    """Nothing at all would be taken by the kernel as success without effect (B050)."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH, mems="3")
    with opened(tree) as cgroup:
        cgroup.write_cpuset_mems(NodeSet())

    assert (directory / "cpuset.mems").read_bytes()[:1] == b"\n"


@BOTH
def test_limits(tmp_path: Path, version: CgroupVersion) -> None:
    """Every limit is read in bytes, microseconds and sets, whatever file it is in."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH, memory=4 * GIB, low=GIB, quota=150_000, cpus="2-3", hugetlb={"2MB": 64 * MIB})
    with opened(tree) as cgroup:
        limits = cgroup.read_limits()

    assert replace(limits, cpu_shares=None) == Limits(
        memory_bytes=4 * GIB,
        memory_reservation_bytes=GIB,
        cpu_quota_us=150_000,
        cpu_period_us=100_000,
        cpus=CpuSet.of(2, 3),
        hugetlb={2 * MIB: 64 * MIB},
    )


def test_hugetlb_limit_of_crun(tmp_path: Path) -> None:
    """crun under systemd limits hugepages on the cgroup inside the scope; one of the scope itself counts first."""
    tree = CgroupTree(tmp_path)
    tree.add("/system.slice/crun-a.scope")
    tree.add("/system.slice/crun-a.scope/container", hugetlb={"2MB": 40 * MIB})
    tree.add("/system.slice/crun-b.scope", hugetlb={"2MB": 20 * MIB})
    tree.add("/system.slice/crun-b.scope/container", hugetlb={"2MB": 40 * MIB})
    tree.add("/a")
    tree.add("/a/container", hugetlb={"2MB": 40 * MIB})
    found = []
    for path in ("/system.slice/crun-a.scope", "/system.slice/crun-b.scope", "/a"):
        with opened(tree, path) as cgroup:
            found.append(cgroup.read_limits().hugetlb)

    assert found == [{2 * MIB: 40 * MIB}, {2 * MIB: 20 * MIB}, {}]


@BOTH
def test_no_limits(tmp_path: Path, version: CgroupVersion) -> None:
    """``max``, -1, v1's huge numbers and v1's inherited CPUs all mean "no limit"."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH)
    with opened(tree) as cgroup:
        limits = cgroup.read_limits()

    assert replace(limits, cpu_shares=None) == Limits()


@pytest.mark.parametrize(
    "text", ["9223372036854771712", "9223372036854710272", "9223372036854775807", "18446744073709551615"]
)
def test_every_unlimited_number_of_v1(tmp_path: Path, text: str) -> None:
    """ "Unlimited" rounded to pages of 4 KiB or 64 KiB, or not at all, is no size (B044)."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(PATH)
    write_files(tmp_path / f"sys/fs/cgroup/memory{PATH}", {"memory.limit_in_bytes": text})
    with opened(tree) as cgroup:
        assert cgroup.read_limits().memory_bytes is None
        assert cgroup.has_memory_limit_file()


@BOTH
def test_no_memory_controller(tmp_path: Path, version: CgroupVersion) -> None:
    """Missing controllers limit nothing and break nothing (B056)."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH, controllers=False)
    with opened(tree) as cgroup:
        assert cgroup.read_limits() == Limits()
        assert not cgroup.has_memory_limit_file()
        assert cgroup.read_memory_current() is None
        assert cgroup.read_movable() is None
        assert cgroup.read_memory_numa_stat() is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.max", "lots"),
        ("memory.max", ""),
        ("cpu.max", "1 2 3"),
        ("cpuset.cpus", "0-x"),
        ("cpuset.mems", "3-1"),
    ],
)
def test_garbled_files_name_themselves(tmp_path: Path, file: str, text: str) -> None:
    """Content that is no value is an error with the file's path, never a number."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH)
    write_files(directory, {file: text})
    with opened(tree) as cgroup, pytest.raises(KernelFormatError) as caught:
        cgroup.read_cpuset_mems()
        cgroup.read_limits()

    assert caught.value.path == str(directory / file)


def test_numa_stat_v2(tmp_path: Path) -> None:
    """Anonymous and shared memory count, in bytes per node; page cache does not (B070)."""
    tree = CgroupTree(tmp_path)
    text = "anon N0=4096 N2=8192\nfile N0=999999 N2=0\nshmem N0=0 N2=4096\nanon_thp N0=2097152 N2=0\n"
    text += "pagetables N0=0 N2=8\n"
    write_files(tree.add(PATH), {"memory.numa_stat": text, "memory.current": "20480\n"})
    with opened(tree) as cgroup:
        assert cgroup.read_memory_numa_stat() == {0: 4096, 2: 12288}
        assert cgroup.read_memory_numa_used() == {0: 4096, 2: 12296}
        assert cgroup.read_memory_current() == 20480


@BOTH
def test_huge_pages_move_too(tmp_path: Path, version: CgroupVersion) -> None:
    """What a change of nodes may move is the charged memory and the huge pages of every size, which are not in it."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH, memory=GIB, hugetlb={"2MB": GIB, "1GB": 2 * GIB})
    if version is CgroupVersion.V2:
        files = {"memory.current": "4096\n", "hugetlb.2MB.current": f"{GIB}\n", "hugetlb.1GB.current": f"{2 * GIB}\n"}
        write_files(tree.cpuset / PATH[1:], files)
    else:
        write_files(tmp_path / f"sys/fs/cgroup/memory{PATH}", {"memory.usage_in_bytes": "4096\n"})
        used = {"hugetlb.2MB.usage_in_bytes": f"{GIB}\n", "hugetlb.1GB.usage_in_bytes": f"{2 * GIB}\n"}
        write_files(tmp_path / f"sys/fs/cgroup/hugetlb{PATH}", used)
    with opened(tree) as cgroup:
        assert cgroup.read_movable() == 3 * GIB + 4096


def test_numa_stat_v1(tmp_path: Path) -> None:
    """v1 counts pages; the hierarchical lines include what is below."""
    page = os.sysconf("SC_PAGE_SIZE")
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(PATH)
    text = (
        "total=9 N0=9\nfile=3 N0=3\nanon=5 N0=5\nunevictable=1 N0=1\n"
        "hierarchical_total=20 N0=10 N1=10\nhierarchical_anon=12 N0=2 N1=10\nhierarchical_unevictable=1 N0=1 N1=0\n"
    )
    files = {"memory.numa_stat": text, "memory.usage_in_bytes": "81920\n"}
    write_files(tmp_path / f"sys/fs/cgroup/memory{PATH}", files)
    with opened(tree) as cgroup:
        assert cgroup.read_memory_numa_stat() == {0: 3 * page, 1: 10 * page}
        assert cgroup.read_memory_numa_used() == {0: 10 * page, 1: 10 * page}
        assert cgroup.read_memory_current() == 81920


def test_numa_stat_garbled(tmp_path: Path) -> None:
    """A value that is no number is an error with the path."""
    tree = CgroupTree(tmp_path)
    write_files(tree.add(PATH), {"memory.numa_stat": "anon N0=many\n"})
    with opened(tree) as cgroup, pytest.raises(KernelFormatError):
        cgroup.read_memory_numa_stat()


@BOTH
def test_processes_are_counted_below(tmp_path: Path, version: CgroupVersion) -> None:
    """crun's processes are in ``container`` below the scope; they are the scope's (trap 8)."""
    tree = CgroupTree(tmp_path, version)
    tree.add(PATH)
    tree.add(f"{PATH}/container", pids=(7, 3))
    tree.add(f"{PATH}/container/init.scope", pids=(9,))
    if version is CgroupVersion.V2:
        write_files(tree.cpuset / PATH[1:], {"cgroup.events": "populated 1\nfrozen 0\n"})
    with opened(tree) as cgroup:
        assert cgroup.pids() == (3, 7, 9)
        assert cgroup.is_populated()
        assert cgroup.children() == ("container",)


@BOTH
def test_an_empty_cgroup_is_not_populated(tmp_path: Path, version: CgroupVersion) -> None:
    """Without processes anywhere below it is empty."""
    tree = CgroupTree(tmp_path, version)
    tree.add(f"{PATH}/container")
    with opened(tree) as cgroup:
        assert not cgroup.is_populated()
        assert cgroup.pids() == ()


def test_a_populated_threaded_cgroup_lives(tmp_path: Path) -> None:
    """Whether a v2 cgroup lives is asked of cgroup.events, which a threaded one has too (B065)."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH)
    write_files(directory, {"cgroup.type": "threaded\n", "cgroup.events": "populated 1\nfrozen 0\n"})
    (directory / "cgroup.procs").unlink()
    with opened(tree) as cgroup:
        assert cgroup.is_populated()


@BOTH
def test_gone(tmp_path: Path, version: CgroupVersion) -> None:
    """A removed cgroup is told as gone by opening, reading and writing (B112)."""
    tree = CgroupTree(tmp_path, version)
    directory = tree.add(PATH)
    cgroup = opened(tree)
    shutil.rmtree(directory)
    with cgroup:
        for step in (cgroup.read_cpuset_mems, cgroup.read_limits, lambda: cgroup.write_cpuset_mems(NodeSet.of(0))):
            with pytest.raises(CgroupGone):
                step()
        assert not cgroup.still_same()
        assert not cgroup.is_populated()
    with pytest.raises(CgroupGone):
        opened(tree)


def test_another_cgroup_of_the_same_name(tmp_path: Path) -> None:
    """A cgroup made anew under the same path is another one, and the old handle does not write to it."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH, mems="0-3")
    with opened(tree) as cgroup:
        directory.rename(directory.with_name("moved"))
        tree.add(PATH, mems="0-3")
        assert not cgroup.still_same()
        with opened(tree) as other:
            assert other.inode != cgroup.inode


def test_a_second_handle(tmp_path: Path) -> None:
    """A duplicate is the same cgroup and outlives the first handle."""
    tree = CgroupTree(tmp_path)
    tree.add(PATH, mems="1")
    with opened(tree) as cgroup:
        twin = cgroup.duplicate()
    with twin:
        assert (twin.path, twin.inode, twin.read_cpuset_mems()) == (cgroup.path, cgroup.inode, NodeSet.of(1))


def test_a_controller_that_is_not_enabled(tmp_path: Path) -> None:
    """A living cgroup without ``cpuset.mems`` is not gone; the file is never created (B058, trap 20)."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH)
    (directory / "cpuset.mems").unlink()
    with opened(tree) as cgroup:
        with pytest.raises(KernelReadError) as read:
            cgroup.read_cpuset_mems()
        with pytest.raises(KernelWriteError) as written:
            cgroup.write_cpuset_mems(NodeSet.of(0))

    assert (read.value.errno, written.value.errno) == (errno.ENOENT, errno.ENOENT)
    assert not (directory / "cpuset.mems").exists()


@pytest.mark.parametrize("path", ["/../etc", "/a/../../etc", "/system.slice/.", "/system.slice//x", "/a\0b"])
def test_paths_that_lead_outside(tmp_path: Path, path: str) -> None:
    """No component may be ``..``, empty or no name at all (B130)."""
    tree = CgroupTree(tmp_path)
    tree.add("/system.slice/x")
    with pytest.raises(KernelReadError):
        opened(tree, path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A symbolic link in the tree is neither a directory to enter nor a file to read or write (B130)."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(PATH)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tree.cpuset / "link").symlink_to(directory)
    with pytest.raises(KernelReadError):
        opened(tree, "/link")
    (directory / "cpuset.mems").unlink()
    (directory / "cpuset.mems").symlink_to(victim)
    with opened(tree) as cgroup:
        with pytest.raises(KernelReadError):
            cgroup.read_cpuset_mems()
        with pytest.raises(KernelWriteError):
            cgroup.write_cpuset_mems(NodeSet.of(0))

    assert victim.read_text() == "untouched"


@pytest.mark.parametrize(
    ("size", "name"),
    [(65536, "64KB"), (2 * MIB, "2MB"), (32 * MIB, "32MB"), (512 * MIB, "512MB"), (GIB, "1GB"), (16 * GIB, "16GB")],
)
def test_hugetlb_names(size: int, name: str) -> None:
    """Page sizes are named with the largest unit that fits, as the kernel does (B028)."""
    assert hugetlb_size_name(size) == name

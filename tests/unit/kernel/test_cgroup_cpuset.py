"""The cpuset controller's files, on plain files: `numapin.kernel.cgroup_cpuset`.

What only a kernel can refuse (EBUSY, ENOSPC, EACCES) is in tests/host/test_cgroup_v1.py; the order of writes in a v1
subtree in test_cgroup_subtree.py; the plain reads and writes of one cgroup in test_cgroupfs.py.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import Cgroup, open_cgroup
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import CgroupTree

PATH = "/system.slice/docker-x.scope"


def opened(tree: CgroupTree) -> Cgroup:
    """The cgroup as the product opens it."""
    return open_cgroup(tree.hierarchy(), PATH)


def test_memory_migrate_is_v1s(tmp_path: Path) -> None:
    """It is switched on v1 where it is not yet so; v2 has no such file and needs none (B118)."""
    v1, v2 = CgroupTree(tmp_path / "1", CgroupVersion.V1), CgroupTree(tmp_path / "2")
    seen = []
    for tree in (v1, v2):
        tree.add(PATH)
        with opened(tree) as cgroup:
            seen.append((cgroup.read_memory_migrate(), *[cgroup.write_memory_migrate(on) for on in (True, True)]))

    assert [(False, True, False), (None, False, False)] == seen
    assert (v1.cpuset / PATH[1:] / "cpuset.memory_migrate").read_text() == "1\n"
    assert not (v2.cpuset / PATH[1:] / "cpuset.memory_migrate").exists()


def test_masks_below(tmp_path: Path) -> None:
    """On v1 children with fewer nodes than their parent, however deep; not those without any, and none on v2."""
    v1, v2 = CgroupTree(tmp_path / "1", CgroupVersion.V1), CgroupTree(tmp_path / "2")
    found = []
    for tree in (v1, v2):
        for name, mems in {"": "0-3", "/a": "0-3", "/a/b": "1-2", "/a/b/c": "1-2", "/d": "3"}.items():
            tree.add(PATH + name, mems=mems)
        (tree.add(f"{PATH}/new") / "cpuset.mems").write_text("\n")
        with opened(tree) as cgroup:
            found.append(cgroup.read_masks_below())

    assert [{"/a/b": NodeSet.of(1, 2), "/d": NodeSet.of(3)}, {}] == found


def test_a_garbled_child(tmp_path: Path) -> None:
    """The error names the child's file."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(f"{PATH}/a", mems="rubbish")
    with opened(tree) as cgroup, pytest.raises(KernelFormatError) as caught:
        cgroup.read_masks_below()

    assert caught.value.path.endswith(f"{PATH}/a/cpuset.mems")


def test_a_restore_where_the_outermost_is_right_already(tmp_path: Path) -> None:
    """Only the children that a write left behind are written, and it is told whether there were any."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    mems = {"": "0-3", "/a": "0-1", "/b": "0-1"}
    files = [tree.add(PATH + name, mems=text) / "cpuset.mems" for name, text in mems.items()]
    earlier = Earlier(NodeSet.parse("0-3"), NodeSet.of(0, 1), {"/b": NodeSet.parse("2-3")})
    with opened(tree) as cgroup:
        wrote = [cgroup.write_subtree_mems(NodeSet.parse("0-3"), earlier)[0] for _ in range(2)]

    assert ["0-3\n", "0-3\n", "2-3\n"] == [f.read_text() for f in files]
    assert [True, False] == wrote


def test_children_follow_on_v1(tmp_path: Path) -> None:
    """On v1 the cgroups below the container are written too, however deep, and nobody else's (B049)."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    paths = [PATH, f"{PATH}/t1", f"{PATH}/t1/l1", "/system.slice/other.scope"]
    files = [tree.add(p, mems="0-1") / "cpuset.mems" for p in paths]
    with opened(tree) as cgroup:
        cgroup.write_subtree_mems(NodeSet.of(2, 3))

    assert [f.read_text() for f in files] == ["2-3\n", "2-3\n", "2-3\n", "0-1\n"]


def test_thousands_of_children_need_few_descriptors(tmp_path: Path) -> None:
    """A v1 subtree is read and written with one directory open at a time (EMFILE)."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    for path in (PATH, f"{PATH}/t"):
        tree.add(path, mems="0-1")
    files = [tree.add(f"{PATH}/t/{k}", mems="0-1", controllers=False) / "cpuset.mems" for k in range(300)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with opened(tree) as cgroup:
        spare = [os.dup(0) for _ in range(12)]  # free numbers may lie between others that are in use
        for descriptor in spare:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
        try:
            wrote, below = cgroup.write_subtree_mems(NodeSet.of(2, 3))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (True, {}) == (wrote, below)
    assert {"2-3\n"} == {f.read_text() for f in files}


def test_v2_children_are_left_alone(tmp_path: Path) -> None:
    """On v2 the outermost cgroup is enough: what is below follows by itself."""
    tree = CgroupTree(tmp_path)
    files = [tree.add(p, mems="0-1") / "cpuset.mems" for p in (PATH, f"{PATH}/container")]
    with opened(tree) as cgroup:
        cgroup.write_subtree_mems(NodeSet.of(2, 3))

    assert [f.read_text() for f in files] == ["2-3\n", "0-1\n"]

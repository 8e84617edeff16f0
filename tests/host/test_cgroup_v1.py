"""What a real v1 kernel answers: `numapin.kernel.cgroupfs` on this machine's cpuset hierarchy."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion, ControllerMount, Hierarchy
from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import Cgroup, open_cgroup
from numapin.kernel.processes import read_mems_allowed, read_start_ticks
from numapin.model.errors import CgroupGone, KernelWriteError
from numapin.model.nodeset import NodeSet
from support.real_cgroups import ROOT, RealTree

pytestmark = pytest.mark.host
ID = "a" * 64


@pytest.fixture(autouse=True)
def _v1(hierarchy: Hierarchy) -> None:
    if hierarchy.version is not CgroupVersion.V1:
        pytest.skip("this machine has cpuset on cgroup v2; v1's answers cannot be seen here")


def refused(cgroup: Cgroup, nodes: NodeSet) -> KernelWriteError:
    """The kernel's refusal of a write."""
    with pytest.raises(KernelWriteError) as caught:
        cgroup.write_cpuset_mems(nodes)
    return caught.value


def all_nodes(hierarchy: Hierarchy) -> NodeSet:
    """What the root grants."""
    with open_cgroup(hierarchy, "/") as root:
        return root.read_cpuset_mems_effective()


def test_write_and_read_back(tree: RealTree) -> None:
    """What is written is asked for, granted, and what a process in the cgroup may use."""
    nodes = all_nodes(tree.hierarchy)
    one = NodeSet.from_ids(list(nodes)[:1])
    path = tree.make("c")
    pid = tree.populate(path)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        cgroup.write_memory_migrate(True)
        cgroup.write_subtree_mems(one)
        seen = (cgroup.read_cpuset_mems(), cgroup.read_cpuset_mems_effective(), cgroup.pids(), cgroup.is_populated())

    assert seen == (one, one, (pid,), True)
    assert read_mems_allowed(ROOT, pid) == one
    assert (tree.base / "c/cpuset.memory_migrate").read_text() == "1\n"


def test_unknown_node(tree: RealTree) -> None:
    """A node that is not online is EINVAL, and the value stays (B124)."""
    with open_cgroup(tree.hierarchy, tree.make("c")) as cgroup:
        before = cgroup.read_cpuset_mems()
        error = refused(cgroup, NodeSet.of(999))

        assert error.errno == errno.EINVAL
        assert cgroup.read_cpuset_mems() == before
    assert "does not know one of these nodes" in str(error)


def test_outside_the_parent(tree: RealTree) -> None:
    """Nodes that the parent does not have are EACCES on v1; here the parent is not initialised (B047)."""
    path = tree.make("p/c", ready=False)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        error = refused(cgroup, NodeSet.from_ids(list(all_nodes(tree.hierarchy))[:1]))

    assert error.errno == errno.EACCES
    assert "subset of the parent" in str(error)


def test_a_populated_cgroup_keeps_its_nodes(tree: RealTree) -> None:
    """Clearing is ENOSPC while a process lives, and is not taken for a full disk (B050)."""
    path = tree.make("c")
    tree.populate(path)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        error = refused(cgroup, NodeSet())

    assert error.errno == errno.ENOSPC
    assert "not about disk space" in str(error)


def test_a_child_holds_its_parent(tree: RealTree) -> None:
    """Nodes that a child cpuset still has cannot be taken away: EBUSY (B049)."""
    tree.make("c/inner")
    with open_cgroup(tree.hierarchy, f"{tree.path}/c") as cgroup:
        assert refused(cgroup, NodeSet()).errno == errno.EBUSY


def test_unpinning_is_writing_the_parents_nodes(tree: RealTree) -> None:
    """The parent's set is accepted by a populated cgroup with children, and read back (B050, B062)."""
    path = tree.make("c")
    tree.make("c/t1/l1")
    tree.populate(f"{path}/t1/l1")
    nodes = all_nodes(tree.hierarchy)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        cgroup.write_subtree_mems(nodes)

        assert cgroup.read_cpuset_mems() == nodes


def test_uninitialised_children_are_in_nobodys_way(tree: RealTree) -> None:
    """A child that its runtime has not set up yet is left as it is."""
    nodes = all_nodes(tree.hierarchy)
    path = tree.make("c")
    (tree.base / "c/new").mkdir()
    with open_cgroup(tree.hierarchy, path) as cgroup:
        cgroup.write_subtree_mems(nodes)

    assert (tree.base / "c/new/cpuset.mems").read_text() == "\n"


def test_five_thousand_children(tree: RealTree) -> None:
    """A container with 5,000 child cpusets is looked through and restored with a handful of descriptors (EMFILE)."""
    path = tree.make("c")
    for k in range(5000):
        tree.make(f"c/{k}")
    nodes = all_nodes(tree.hierarchy)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 12, hard))
        try:
            below = cgroup.read_masks_below()
            written = cgroup.write_subtree_mems(nodes, Earlier(own=nodes, written=nodes))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert {} == below
    assert (False, {}) == written


def test_gone(tree: RealTree) -> None:
    """A removed cgroup is gone for its open handle too, in reading, writing and counting (B112)."""
    path = tree.make("c")
    with open_cgroup(tree.hierarchy, path) as cgroup:
        (tree.base / "c").rmdir()
        for step in (cgroup.read_cpuset_mems, cgroup.read_limits, lambda: cgroup.write_cpuset_mems(NodeSet.of(0))):
            with pytest.raises(CgroupGone):
                step()
        assert (cgroup.pids(), cgroup.children(), cgroup.is_populated()) == ((), (), False)
        tree.make("c")
        assert not cgroup.still_same()
        with pytest.raises(CgroupGone):
            cgroup.write_cpuset_mems(NodeSet.of(0))


def test_read_only(tree: RealTree, tmp_path: Path) -> None:
    """On a read-only mount of the same hierarchy the refusal is EROFS, with the remedy."""
    mount = tmp_path / "cpuset"
    mount.mkdir()
    options = ["-t", "cgroup", "-o", "cpuset", "none", str(mount)]
    if subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("this environment does not allow mounts")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(mount)], check=True)
        path = tree.make("c")
        controllers = {"cpuset": ControllerMount(CgroupVersion.V1, mount)}
        hierarchy = Hierarchy(CgroupVersion.V1, ROOT, mount, str(mount), controllers)
        with open_cgroup(hierarchy, path) as cgroup:
            error = refused(cgroup, NodeSet.of(0))
    finally:
        subprocess.run(["umount", str(mount)], check=True)

    assert error.errno == errno.EROFS
    assert "read-write" in str(error)


def test_the_runtimes_clock_is_the_kernels(tree: RealTree) -> None:
    """The start time that identifies a process is read for a real one."""
    ticks = read_start_ticks(ROOT, os.getpid())
    uptime = float(Path("/proc/uptime").read_text().split()[0])

    assert ticks is not None
    assert 0 < ticks / os.sysconf("SC_CLK_TCK") <= uptime


FIND = "from pathlib import Path; from numapin.kernel.cgroup_mounts import find_hierarchy as f; print(f(Path('/')))"
OVER_ALL = "mount -t tmpfs none /sys/fs/cgroup; mkdir {0}; mount -t cgroup -o cpuset none {0}; "


def found_in_namespace(tree: RealTree, before: str) -> tuple[int, str]:
    """Exit status and words of a process that looks for the hierarchy in a cgroup namespace of its own."""
    tree.make("in/side")
    script = (
        f"echo $$ >{tree.base}/in/side/cgroup.procs; exec unshare --cgroup --mount --propagation private "
        f'sh -ec \'{before}exec "$0" -c "$1"\' "$0" "$1"'
    )
    done = subprocess.run(["sh", "-ec", script, sys.executable, FIND], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_whole_tree_from_a_cgroup_namespace(tree: RealTree) -> None:
    """There the machine's mounts have ``/../../..`` for a root, and show the whole tree as before."""
    status, said = found_in_namespace(tree, "")

    assert 0 == status, said
    assert f"mount_point='{tree.hierarchy.cpuset_mount}'" in said


def test_a_branch_from_a_cgroup_namespace(tree: RealTree) -> None:
    """A mount made inside begins at the process's own cgroup: refused."""
    status, said = found_in_namespace(tree, OVER_ALL.format(tree.hierarchy.cpuset_mount))

    assert 1 == status
    assert "PartOfCgroupTree" in said
    assert "shows only a branch of a cgroup tree, for this process has a cgroup namespace of its own" in said


def test_threaded_cgroup(tmp_path: Path) -> None:
    """Where cgroup.procs cannot be read the processes of the threads are counted (B065)."""
    unified = Path("/sys/fs/cgroup/unified")
    if not (unified / "cgroup.procs").exists():
        pytest.skip("no cgroup v2 mount beside v1 on this machine")
    top = unified / f"numapin-test-{os.getpid()}"
    hierarchy = Hierarchy(CgroupVersion.V2, ROOT, unified, str(unified), {})
    process = None
    try:
        (top / "t").mkdir(parents=True)
        (top / "t/cgroup.type").write_text("threaded")
        process = subprocess.Popen(["sleep", "60"])
        (top / "cgroup.procs").write_text(str(process.pid))
        (top / "t/cgroup.threads").write_text(str(process.pid))
        with pytest.raises(OSError, match="not supported"):
            (top / "t/cgroup.procs").read_text()
        with open_cgroup(hierarchy, f"/{top.name}/t") as cgroup:
            assert cgroup.is_populated()
            assert cgroup.pids() == (process.pid,)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for directory in (top / "t", top):
            for _ in range(50):  # the kernel lets go of an ended process a moment later
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)

"""Where cpuset is not enabled above a container, and enabling it on the way down to it (cgroup v2, B058, B059)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from numapin.kernel.cgroup_controllers import Enabled, control_file, enable_cpuset, missing_cpuset
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import open_cgroup
from numapin.model.errors import CgroupGone, CpusetNotEnabled
from support.cgroup_trees import CgroupTree, write_files

PATH = "/a.slice/a-b.slice/docker-x.scope"
BESIDE = "/a.slice/a-c.slice/docker-y.scope"
WITHOUT = "cpu memory pids\n"


def lacking(root: Path, *above: str) -> CgroupTree:
    """A tree with two containers; the cgroups *above* lack cpuset in their ``cgroup.subtree_control``."""
    tree = CgroupTree(root)
    for path in (PATH, BESIDE):
        tree.add(path)
    for path in above:
        write_files(tree.cpuset / path.strip("/"), {"cgroup.subtree_control": WITHOUT})
    return tree


def given(tree: CgroupTree, *paths: str) -> None:
    """What the kernel would show after the write: these cgroups have cpuset."""
    for path in paths:
        write_files(tree.cpuset / path[1:], {"cgroup.controllers": "cpuset cpu memory pids\n"})


def control(tree: CgroupTree, path: str) -> str:
    """What stands in a ``cgroup.subtree_control``; a plain file keeps what a shorter text does not cover."""
    return (tree.cpuset / path.strip("/") / "cgroup.subtree_control").read_text()


def enable(tree: CgroupTree, path: str = PATH) -> Enabled:
    """Enable cpuset for the container at *path*."""
    with open_cgroup(tree.hierarchy(), path) as cgroup:
        return enable_cpuset(cgroup)


def test_every_ancestor_without_cpuset(tmp_path: Path) -> None:
    """The ancestors to be changed are named from the top down; the container's own file is not among them (B058)."""
    tree = lacking(tmp_path, "/a.slice", "/a.slice/a-b.slice", PATH)
    hierarchy = tree.hierarchy()

    assert missing_cpuset(hierarchy, PATH) == ("/a.slice", "/a.slice/a-b.slice")
    assert missing_cpuset(hierarchy, BESIDE) == ("/a.slice",)
    assert missing_cpuset(hierarchy, "/a.slice") == ()
    assert control_file(hierarchy, "/") == "/sys/fs/cgroup/cgroup.subtree_control"


def test_v1_lacks_nothing(tmp_path: Path) -> None:
    """On v1 a controller is mounted for the whole hierarchy."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(PATH)

    assert missing_cpuset(tree.hierarchy(), PATH) == ()
    assert enable(tree) == Enabled()


def test_only_the_way_down_is_written(tmp_path: Path) -> None:
    """Each lacking ancestor gets ``+cpuset``; the root, the container and what is beside stay as they are (B059)."""
    tree = lacking(tmp_path, "/a.slice", "/a.slice/a-b.slice", "/a.slice/a-c.slice", PATH)
    given(tree, "/a.slice/a-b.slice", PATH)
    root = control(tree, "/")

    assert enable(tree) == Enabled(("/a.slice", "/a.slice/a-b.slice"))
    assert [control(tree, p)[:7] for p in ("/a.slice", "/a.slice/a-b.slice")] == ["+cpuset"] * 2
    assert [control(tree, p) for p in ("/", PATH, "/a.slice/a-c.slice")] == [root, WITHOUT, WITHOUT]


def test_what_is_enabled_is_not_written(tmp_path: Path) -> None:
    """Where no ancestor lacks it there is nothing to do."""
    tree = lacking(tmp_path)
    before = control(tree, "/a.slice")

    assert enable(tree) == Enabled()
    assert control(tree, "/a.slice") == before


def test_the_root_is_never_written(tmp_path: Path) -> None:
    """Where the hierarchy's root lacks it nothing at all is written, and the sentence says why and how (B059)."""
    tree = lacking(tmp_path, "/", "/a.slice")
    came = enable(tree)

    assert (came.done, came.left) == ((), ("/", "/a.slice"))
    assert isinstance(came.error, CpusetNotEnabled)
    assert came.error.of_root
    assert "every process on the host" in str(came.error)
    assert str(came.error).endswith("echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control")
    assert [control(tree, p) for p in ("/", "/a.slice")] == [WITHOUT, WITHOUT]


def test_a_write_without_effect(tmp_path: Path) -> None:
    """Taken, but the cgroup below still has no cpuset: an error, and it does not count as enabled."""
    tree = lacking(tmp_path, "/a.slice", "/a.slice/a-b.slice")
    given(tree, "/a.slice/a-b.slice")
    write_files(tree.cpuset / PATH[1:], {"cgroup.controllers": WITHOUT})
    came = enable(tree)

    assert (came.done, came.left) == (("/a.slice",), ("/a.slice/a-b.slice",))
    assert isinstance(came.error, CpusetNotEnabled)
    assert came.error.path == "/sys/fs/cgroup/a.slice/a-b.slice/cgroup.subtree_control"


def test_a_refused_write_ends_it(tmp_path: Path) -> None:
    """What the kernel refuses is told with file and errno, and nothing below it is tried."""
    tree = lacking(tmp_path, "/a.slice", "/a.slice/a-b.slice")
    file = tree.cpuset / "a.slice/cgroup.subtree_control"
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")
    came = enable(tree)

    assert (came.done, came.left) == ((), ("/a.slice", "/a.slice/a-b.slice"))
    assert came.error is not None
    assert came.error.errno == errno.ELOOP
    assert control(tree, "/a.slice/a-b.slice") == WITHOUT


def test_a_container_that_went(tmp_path: Path) -> None:
    """A container whose name another one has by now is gone: what was enabled for it is told all the same."""
    tree = lacking(tmp_path, "/a.slice")
    given(tree, "/a.slice/a-b.slice")
    write_files(tree.cpuset / "a.slice/a-b.slice", {"cgroup.subtree_control": WITHOUT})
    with open_cgroup(tree.hierarchy(), PATH) as cgroup:
        (tree.cpuset / PATH[1:]).rename(tree.cpuset / "elsewhere")
        tree.add(PATH)
        came = enable_cpuset(cgroup)

    assert came.done == ("/a.slice", "/a.slice/a-b.slice")
    assert isinstance(came.error, CgroupGone)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EBUSY, "move them into a child cgroup"),
        (errno.EACCES, "let numapin run as root"),
        (errno.EPERM, "outside a container"),
        (errno.EROFS, "mount it read-write"),
        (errno.ENOENT, "enable it in the cgroup above first"),
        (errno.EOPNOTSUPP, "threaded"),
        (errno.EIO, "echo +cpuset > /sys/fs/cgroup/a.slice/cgroup.subtree_control"),
    ],
)
def test_each_refusal_has_its_remedy(number: int, words: str) -> None:
    """The sentence has the file, the errno's name and what to do."""
    error = CpusetNotEnabled("/sys/fs/cgroup/a.slice/cgroup.subtree_control", number)

    assert words in str(error)
    assert errno.errorcode[number] in str(error)
    assert error.path in str(error)

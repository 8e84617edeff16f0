"""Events on recorded trees: `numapin.kernel.watch` and `numapin.kernel.inotify`.

The real cgroup tree, overflow and uevents are in tests/host/test_events.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.watch import CgroupWatcher
from numapin.model.errors import KernelReadError
from support.cgroup_trees import GIB, GUARANTEED_SLICE, ID_A, ID_B, CgroupTree

DOCKER = f"/system.slice/docker-{ID_A}.scope"


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    """A v2 machine with a system slice."""
    machine = CgroupTree(tmp_path)
    machine.add("/system.slice")
    (tmp_path / "run").mkdir()
    return machine


@pytest.fixture
def watcher(tree: CgroupTree) -> Iterator[CgroupWatcher]:
    """Watching that machine."""
    with CgroupWatcher(tree.hierarchy(), tree.discovery().is_container_path) as found:
        yield found


def seen(watcher: CgroupWatcher) -> list[tuple[str, str]]:
    """Kind and path of what was reported."""
    return [(e.kind.value, e.path) for e in watcher.read()]


def test_quiet_at_first(watcher: CgroupWatcher) -> None:
    """What was there before is not reported."""
    assert watcher.read() == []
    assert watcher.findings == ()


def test_created_and_removed(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """A container that comes and goes is two events with its path."""
    directory = tree.add(DOCKER)
    created = seen(watcher)
    shutil.rmtree(directory)

    assert created == [("created", DOCKER)]
    assert seen(watcher) == [("removed", DOCKER)]


def test_children_made_before_the_watch(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """A pod and its container made at once are both found, each once, the outer first (B118)."""
    path = f"{GUARANTEED_SLICE}/cri-containerd-{ID_A}.scope"
    tree.add(path)
    parts = path.strip("/").split("/")

    assert seen(watcher) == [("created", "/" + "/".join(parts[: k + 1])) for k in range(len(parts))]
    assert seen(watcher) == []


def test_500_pods_at_once(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """500 of 500 containers in directories made just before them are found (B118)."""
    wanted = {f"/pods/pod{k}/docker-{k:064x}.scope" for k in range(500)}
    for path in wanted:
        (tree.cpuset / path[1:]).mkdir(parents=True)
    found = [p for kind, p in seen(watcher) if kind == "created" and p.endswith(".scope")]

    assert sorted(found) == sorted(wanted)


def test_nothing_inside_a_container(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """What a container makes in its own cgroup raises nothing."""
    tree.add(DOCKER)
    seen(watcher)
    tree.add(f"{DOCKER}/container/init.scope")

    assert seen(watcher) == []


def test_a_name_used_again(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """Removed and made again between two reads: both are told, in order."""
    directory = tree.add(DOCKER)
    seen(watcher)
    shutil.rmtree(directory)
    tree.add(DOCKER)

    assert seen(watcher) == [("removed", DOCKER), ("created", DOCKER)]


def test_writes_to_mems(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """A write to a watched container's cpuset.mems is told until the watch ends; others' writes are not."""
    file = tree.add(DOCKER, mems="0") / "cpuset.mems"
    other = tree.add(f"/system.slice/docker-{ID_B}.scope") / "cpuset.mems"
    seen(watcher)
    watcher.watch_mems(DOCKER)
    watcher.watch_mems(DOCKER)
    with file.open("r+") as stream:
        stream.write("1")
    with other.open("r+") as stream:
        stream.write("1")
    written = seen(watcher)
    watcher.unwatch_mems(DOCKER)
    watcher.unwatch_mems(DOCKER)
    with file.open("r+") as stream:
        stream.write("2")

    assert written == [("mems-written", DOCKER)]
    assert seen(watcher) == []


@pytest.mark.parametrize(
    ("version", "name"), [(CgroupVersion.V2, "memory.max"), (CgroupVersion.V1, "memory.limit_in_bytes")]
)
def test_written_limits(tmp_path: Path, version: CgroupVersion, name: str) -> None:
    """A write to a watched container's memory limit is told as such, wherever the memory controller is."""
    tree = CgroupTree(tmp_path, version)
    tree.add(DOCKER, memory=GIB)
    hierarchy = tree.hierarchy()
    file = hierarchy.controllers["memory"].path / DOCKER.strip("/") / name
    with CgroupWatcher(hierarchy, tree.discovery().is_container_path) as watcher:
        watcher.watch_mems(DOCKER)
        file.write_text(f"{2 * GIB}\n")
        written = set(seen(watcher))
        watcher.unwatch_mems(DOCKER)
        file.write_text(f"{GIB}\n")

        assert written == {("limit-written", DOCKER)}
        assert seen(watcher) == []


def test_watching_what_is_gone(watcher: CgroupWatcher) -> None:
    """A container that vanished is simply not watched."""
    watcher.watch_mems(DOCKER)

    assert watcher.findings == ()


def test_watches_do_not_leak(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """After a hundred slices and pins came and went there are as many watches as before (trap: no IN_IGNORED)."""
    before = len(watcher._watches)
    for k in range(100):
        directory = tree.add(f"/system.slice/docker-{k:064x}.scope")
        nested = tree.add(f"/batch{k}.slice")
        watcher.read()
        watcher.watch_mems(f"/system.slice/docker-{k:064x}.scope")
        shutil.rmtree(directory)
        shutil.rmtree(nested)
        watcher.read()

    assert len(watcher._watches) == before
    assert len(watcher._known) == 1


def test_pruning(tree: CgroupTree) -> None:
    """A cgroup that turned out to be a container is no longer looked into, but its end is told."""
    inner = tree.add("/c1/inner")
    with CgroupWatcher(tree.hierarchy(), tree.discovery().is_container_path) as watcher:
        watcher.watch_mems("/c1")
        watcher.prune("/c1")
        (inner / "more").mkdir()
        (tree.cpuset / "c1/other").mkdir()
        with (tree.cpuset / "c1/cpuset.mems").open("r+") as stream:
            stream.write("1")
        inside = seen(watcher)
        shutil.rmtree(tree.cpuset / "c1")

        assert inside == [("mems-written", "/c1")]
        assert seen(watcher)[-1] == ("removed", "/c1")


def test_resync_finds_what_events_did_not_tell(tree: CgroupTree, watcher: CgroupWatcher) -> None:
    """After a resync nothing is reported twice, and what comes later is reported."""
    tree.add("/new.slice")
    watcher.resync()
    list(watcher._watches.read())
    tree.add(f"/new.slice/docker-{ID_A}.scope")

    assert seen(watcher) == [("created", f"/new.slice/docker-{ID_A}.scope")]


def test_no_tree_no_watcher(tree: CgroupTree) -> None:
    """Without the hierarchy's directory there is a typed error."""
    hierarchy = tree.hierarchy()
    shutil.rmtree(tree.cpuset)
    with pytest.raises(KernelReadError):
        CgroupWatcher(hierarchy, lambda _: False)

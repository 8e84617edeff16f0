"""Events of runtimes' state files on recorded trees: `numapin.kernel.runtime_watch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.runtime_watch import RuntimeStateWatcher
from numapin.kernel.watch import CgroupEvent, CgroupWatcher, EventKind
from support.cgroup_trees import GIB, ID_A, CgroupTree, oci

DOCKER = f"/system.slice/docker-{ID_A}.scope"


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    """A v2 machine with a system slice."""
    machine = CgroupTree(tmp_path)
    machine.add("/system.slice")
    (tmp_path / "run").mkdir()
    return machine


def test_state_files_name_the_cgroup(tree: CgroupTree) -> None:
    """A state that appears, in directories made after the start, is told with the container's cgroup (trap 33)."""
    with RuntimeStateWatcher(tree.hierarchy(), tree.root) as watcher:
        tree.runc("c1", "/system.slice/c1")
        first = watcher.read()
        tree.crun("c2", "/c2")
        tree.runc(ID_A, DOCKER, base="/run/docker/runtime-runc/moby")
        second = watcher.read()
        tree.runc("c1", "/system.slice/c1", memory=GIB)
        third = watcher.read()

    assert first == [CgroupEvent(EventKind.STATE_APPEARED, "/system.slice/c1")]
    assert {e.path for e in second} == {"/c2", DOCKER}
    assert [e.path for e in third] == ["/system.slice/c1"]


def test_states_that_were_there_are_not_told(tree: CgroupTree) -> None:
    """The first walk finds them; their later changes are told."""
    tree.runc("c1", "/system.slice/c1")
    with RuntimeStateWatcher(tree.hierarchy(), tree.root) as watcher:
        before = watcher.read()
        tree.runc("c1", "/system.slice/c1", memory=GIB)

        assert before == []
        assert watcher.read() == [CgroupEvent(EventKind.STATE_APPEARED, "/system.slice/c1")]


def test_a_state_that_says_nothing(tree: CgroupTree) -> None:
    """A half-written or foreign file in a state directory is no event and no error."""
    directory = tree.root / "run/runc/c1"
    with RuntimeStateWatcher(tree.hierarchy(), tree.root) as watcher:
        directory.mkdir(parents=True)
        (directory / "state.json").write_text('{"id": "c1", ')
        (directory / "exec.fifo").touch()

        assert watcher.read() == []


def test_a_container_of_runc_from_event_to_record(tree: CgroupTree) -> None:
    """Its cgroup's event finds nothing, its state's event finds the container."""
    discovery = tree.discovery()
    with (
        CgroupWatcher(tree.hierarchy(), discovery.is_container_path) as cgroups,
        RuntimeStateWatcher(tree.hierarchy(), tree.root) as states,
    ):
        tree.add("/c1", memory=GIB)
        by_cgroup = [discovery.inspect(e.path) for e in cgroups.read()]
        tree.crun("c1", "/c1", config=oci(memory=GIB))
        by_state = [discovery.inspect(e.path) for e in states.read()]

    assert by_cgroup == [None]
    assert [r.cgroup for r in by_state if r] == ["/c1"]

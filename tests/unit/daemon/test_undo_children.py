"""
Undo of what a first write changes beside the container's own nodes on cgroup v1: child cpusets, ``memory_migrate``.

Plain files keep what a shorter text does not cover, so all node sets here have texts of the same length.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.pinning import INLINE_BYTES, Outcome, Restore, WriteJob, Writer
from numapin.daemon.release import release_offline
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import open_cgroup
from numapin.model.checkpoint import Phase
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import GIB, MIB, CgroupTree, oci, write_files
from support.daemon import BOOT, Host, cid, docker
from support.fakes import FakeClock
from support.killing import changes_of, run_and_kill
from support.machines import even
from support.waiting import readable

PATH = docker(1)
CHILDREN = {"/a": "0-3", "/a/b": "2-3", "/a/b/c": "2-3", "/d": "0-2", "/e": "0-1", "/e/f": "0-1"}
ALL, OURS = NodeSet.parse("0-3"), NodeSet.parse("0-1")


class Story:
    """A container of two nodes whose children chose among four of them before numapin came."""

    def __init__(self, root: Path) -> None:
        self.host = host = Host(root, version=CgroupVersion.V1)
        host.guaranteed(PATH, 15, mems="0-3", effective="0-1")
        for child, mems in CHILDREN.items():
            host.tree.add(f"{PATH}{child}", mems=mems, controllers=False)
        write_files(root, {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
        self.before = self.dump()

    def dump(self) -> dict[str, str]:
        """Everything that numapin writes in the container and below."""
        top = self.host.tree.cpuset / PATH[1:]
        names = ("cpuset.mems", "cpuset.memory_migrate")
        return {str(f.relative_to(top)): f.read_text() for name in names for f in top.rglob(name)}

    def pin(self) -> None:
        """A daemon starts and pins."""
        self.host.start()
        self.host.agent.flush()

    def release(self) -> None:
        """The running daemon releases everything."""
        self.host.agent.release()
        self.host.agent.flush()

    def release_offline(self) -> None:
        """``numapin release --all`` without a daemon."""
        root, state = self.host.root, self.host.file.path
        document = release_offline(
            root, state, root / "run/numapin/lock", why="no daemon answers", clock=self.host.clock
        )
        assert isinstance(document["containers"], list)
        assert [None for _ in document["containers"]] == [row["problem"] for row in document["containers"]]

    def restart_and_release(self) -> None:
        """The next daemon finishes the pin and is asked to release it."""
        self.pin()
        assert (self.host.states(), self.host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
        self.release()
        self.leave()

    def leave(self) -> None:
        """Let go of the agent's descriptors."""
        for view in self.host.agent.views.values():
            view.close()
        os.close(self.host.writer.fileno())


def test_what_a_pin_changes(tmp_path: Path) -> None:
    """The narrower children and the switch as they were are on disk, and the children are inside the pin."""
    story = Story(tmp_path)
    story.pin()

    pin = story.host.saved().containers[PATH]
    assert (Phase.VERIFIED, False) == (pin.phase, pin.original_migrate)
    assert {"/a/b": "2-3", "/d": "0-2", "/e": "0-1"} == {p: str(m) for p, m in pin.original_below.items()}
    assert "1\n" == story.dump()["cpuset.memory_migrate"]
    mems = {name: text for name, text in story.dump().items() if name.endswith("mems")}
    assert [] == [name for name, text in mems.items() if not NodeSet.parse(text).issubset(OURS)], mems


WAYS: dict[str, Callable[[Story], None]] = {
    "offline": Story.release_offline,
    "next daemon": Story.restart_and_release,
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_anywhere_on_the_way_to_a_pin(tmp_path: Path, way: str) -> None:
    """
    Wherever the daemon is killed between its decision and the note of the outcome, also in the midst of the writes:
    after a release every file is as it was before numapin came.
    """
    changes = changes_of(Story(tmp_path / "unhurt").pin)
    assert changes > 20
    touched = 0
    for at in range(changes):
        story = Story(tmp_path / str(at))

        assert run_and_kill(story.pin, at=at)

        touched += story.dump() != story.before
        WAYS[way](story)
        assert story.before == story.dump(), f"after change {at}"
    assert touched > 8


def test_killed_anywhere_on_the_way_back(tmp_path: Path) -> None:
    """A release that is killed, wherever, is finished by the next one."""

    def whole(story: Story) -> None:
        story.pin()
        story.release()

    unhurt = Story(tmp_path / "unhurt")
    first = changes_of(unhurt.pin)
    changes = changes_of(unhurt.release)
    assert unhurt.before == unhurt.dump()
    for at in range(first, first + changes):
        story = Story(tmp_path / str(at))

        assert run_and_kill(lambda story=story: whole(story), at=at)  # type: ignore[misc]

        story.release_offline()
        assert story.before == story.dump(), f"after change {at}"


def test_a_switch_that_was_on_stays_on(tmp_path: Path) -> None:
    """``memory_migrate`` was on before numapin came: it is on after."""
    story = Story(tmp_path)
    story.host.put(PATH, {"cpuset.memory_migrate": "1\n"})
    before = story.dump()
    story.pin()
    assert story.host.saved().containers[PATH].original_migrate is True

    story.release()

    assert before == story.dump()


def test_another_size_keeps_what_was_there(tmp_path: Path) -> None:
    """A changed promise has the old record's masks: they are not those that our own write made."""
    story = Story(tmp_path)
    story.pin()
    original = story.host.agent.ledger.pins[PATH].original_below
    write_files(tmp_path / "sys/fs/cgroup/memory" / PATH[1:], {"memory.limit_in_bytes": f"{14 << 30}\n"})

    story.host.agent.full_pass()

    assert 14 == sum(story.host.reserved().values())
    assert original == story.host.agent.ledger.pins[PATH].original_below
    story.release()
    assert story.before == story.dump()


def test_children_that_came_while_a_pin_was_held_back(tmp_path: Path) -> None:
    """Between the decision and a write that had to wait for room: they are on disk before the write all the same."""
    nodes = [replace(n, free=64 * MIB) for n in even(4)]
    host = Host(tmp_path, nodes=nodes, version=CgroupVersion.V1)
    path = host.guaranteed(PATH, 0.5, mems="0-3", effective="0\n")
    pages = 300 * MIB // os.sysconf("SC_PAGE_SIZE")
    stat = f"hierarchical_anon={pages} N0=0 N1={pages // 2} N2={pages // 2} N3=0\n"
    usage = {"memory.usage_in_bytes": f"{300 * MIB}\n", "memory.numa_stat": stat}
    write_files(tmp_path / "sys/fs/cgroup/memory" / path[1:], usage)
    host.start()
    assert {path: "deferred"} == host.states()
    host.tree.add(f"{path}/late", mems="2-3", controllers=False)
    assert {} == host.saved().containers[path].original_below

    write_files(tmp_path / "sys/fs/cgroup/memory" / path[1:], {"memory.usage_in_bytes": "0\n"})
    host.agent.full_pass()

    assert {"/late": NodeSet.parse("2-3")} == host.saved().containers[path].original_below


# ---- overtaken writes -------------------------------------------------------------------------------------------


def collected(writer: Writer) -> list[Outcome]:
    """Everything that the threads bring."""
    found: list[Outcome] = []
    while writer.busy:
        readable(writer, timeout_s=60)
        found += writer.collect()
    return found


@pytest.mark.parametrize("release", [True, False])
def test_an_overtaken_write_tells_what_it_found(tmp_path: Path, release: bool) -> None:
    """A write that another one overtakes hands its masks on: a release restores them, a pin reports them."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(PATH, mems="0-3")
    child = tree.add(f"{PATH}/a", mems="2-3") / "cpuset.mems"
    writer = Writer(FakeClock())
    restore = Restore(Earlier(ALL, OURS), None) if release else None
    with open_cgroup(tree.hierarchy(), PATH) as cgroup:
        writer.submit(WriteJob(cgroup, OURS, False), INLINE_BYTES + 1)
        writer.submit(WriteJob(cgroup, ALL, False, restore), INLINE_BYTES + 1)

    (outcome,) = collected(writer)

    assert ALL == outcome.nodes
    assert ("2-3\n" if release else "0-3\n") == child.read_text()
    assert ({} if release else {"/a": NodeSet.parse("2-3")}) == outcome.below


def test_the_same_nodes_chosen_by_somebody_else(tmp_path: Path) -> None:
    """Somebody chooses the nodes we pinned: they are theirs, while migration and the children are as before us."""
    story = Story(tmp_path)
    story.pin()
    host = story.host
    assert host.mems(PATH) == "0-1"

    host.tree.task("moby", cid(1), oci(memory=15 * GIB, quota=50_000, mems="0-1"))
    host.agent.full_pass()
    host.agent.flush()

    assert dict.fromkeys(["", *CHILDREN], "0-1") == {c: host.mems(PATH + c) for c in ("", *CHILDREN)}
    assert story.dump()["cpuset.memory_migrate"] == story.before["cpuset.memory_migrate"]
    assert host.states() == {PATH: "pinned-by-others"}
    record = host.saved().containers[PATH]
    assert (record.phase, record.original_below, record.original_migrate) == (Phase.FOREIGN, {}, None)


def test_killed_while_the_same_nodes_become_somebody_elses(tmp_path: Path) -> None:
    """What is to be put back is on disk until it is: a daemon that starts after a kill does it."""
    story = Story(tmp_path)
    story.pin()
    host = story.host
    ours = host.agent.ledger.pins[PATH]
    host.tree.task("moby", cid(1), oci(memory=15 * GIB, quota=50_000, mems="0-1"))
    host.agent.full_pass()
    theirs = host.agent.ledger.pins[PATH]
    left = replace(theirs, original_below=ours.original_below, original_migrate=ours.original_migrate)
    host.agent.ledger.set_pin(left)
    host.stop()
    host.put(PATH, {"cpuset.memory_migrate": "1\n"})

    host.start()
    host.agent.flush()

    assert story.dump()["cpuset.memory_migrate"] == story.before["cpuset.memory_migrate"]
    assert host.saved().containers[PATH].original_migrate is None

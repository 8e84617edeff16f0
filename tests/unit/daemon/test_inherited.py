"""
Values that an undo left in a cgroup are nobody's choice, whatever becomes of the machine and of the daemon.

Plain files keep what a shorter text does not cover, so all node sets here have texts of the same length.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.inherited import Following, about_to_get, as_it_stands, is_restored, restored_by
from numapin.daemon.machine import Machine
from numapin.daemon.release import release_offline
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Restored
from numapin.model.nodeset import NodeSet
from numapin.state.codec import decode, encode
from support.cgroup_trees import GIB, write_files
from support.daemon import BARE, BOOT, Host, docker
from support.machines import even, write_machine

PATH = docker(1)
FOUR, FIVE = NodeSet.parse("0-3"), NodeSet.parse("0-4")


def machine_has(host: Host, nodes: str) -> None:
    """Only *nodes* have memory from now on, the kernel grants them above the container, and the agent was told."""
    online = NodeSet.parse(nodes)
    write_machine(host.root, [n if n.id in online else replace(n, memory=0) for n in host.nodes])
    host.grant("/system.slice", nodes)
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))
    host.agent.full_pass()
    host.agent.flush()


def pinned(tmp_path: Path, *, version: CgroupVersion = CgroupVersion.V2, mems: str = "") -> Host:
    """A container on two of four nodes, on a machine that can get a fifth."""
    host = Host(tmp_path, nodes=even(5, memory=10 * GIB), version=version)
    write_machine(host.root, [*host.nodes[:4], replace(host.nodes[4], memory=0)])
    write_files(tmp_path, {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
    host.guaranteed(PATH, 15, effective="0-1", mems=mems)
    for above in ("/", "/system.slice"):
        host.grant(above, "0-3")
    host.start()
    host.agent.flush()
    assert (host.states(), host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
    return host


def set_class(host: Host, cpu_max: str) -> None:
    """The container's CPU limit is another one, which makes it Guaranteed or not."""
    host.put(PATH, {"cpu.max": f"{cpu_max}\n"})
    host.agent.full_pass()
    host.agent.flush()


def test_a_released_container_stays_released(tmp_path: Path) -> None:
    """A node more, and the released container follows its parent, with nothing reserved and nobody's pin."""
    host = pinned(tmp_path)
    host.agent.release([PATH])

    machine_has(host, "0-4")

    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "released"}, "0-4", {})
    machine_has(host, "0-3")
    machine_has(host, "0-4")
    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "released"}, "0-4", {})
    host.sound()


def test_released_while_a_node_was_lost(tmp_path: Path) -> None:
    """The value of a smaller machine is ours too when the machine is whole again."""
    host = pinned(tmp_path)
    machine_has(host, "0-2")
    host.agent.release([PATH])
    host.agent.flush()
    assert host.mems(PATH) == "0-2"

    machine_has(host, "0-3")

    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "released"}, "0-3", {})


@pytest.mark.parametrize("offline", [False, True])
def test_nothing_is_written_after_everything_was_released(tmp_path: Path, *, offline: bool) -> None:
    """``release --all`` is the last write; the daemon's next start places the container anew."""
    host = pinned(tmp_path)
    if offline:
        host.stop()
        release_offline(tmp_path, host.file.path, tmp_path / "lock", why="", clock=host.clock)
        write_machine(host.root, host.nodes)
        host.grant("/system.slice", "0-4")
    else:
        host.agent.release()
        machine_has(host, "0-4")
        assert (host.states(), host.reserved()) == ({PATH: "released"}, {})
        host.stop()
    assert host.mems(PATH) == "0-3"

    host.start()

    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "pinned"}, "0-1", {0: 10, 1: 5})
    assert host.agent.ledger.pins[PATH].original_mems == NodeSet()
    host.agent.release([PATH])
    assert host.mems(PATH) == "0-4"


@pytest.mark.parametrize("restart", [False, True])
def test_guaranteed_again(tmp_path: Path, *, restart: bool) -> None:
    """Burstable, a node more, Guaranteed: placed again, across a restart of the daemon too."""
    host = pinned(tmp_path)
    set_class(host, "max 100000")
    assert (host.states(), host.mems(PATH)) == ({PATH: "not-managed"}, "0-3")
    if restart:
        host.restart()

    machine_has(host, "0-4")
    followed = host.mems(PATH)
    set_class(host, "50000 100000")

    assert followed == "0-4"
    assert (host.states(), host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
    host.sound()


def test_another_value_is_somebody_elses(tmp_path: Path) -> None:
    """A value that is written after ours is a choice: accounted, never overwritten, and ours is forgotten."""
    host = pinned(tmp_path)
    host.agent.release([PATH])
    host.agent.flush()
    assert host.saved().restored[PATH].mems == (FOUR,)

    host.put(PATH, {"cpuset.mems": "1-2\n"})
    machine_has(host, "0-4")

    assert host.states() == {PATH: "pinned-by-others"}
    assert host.mems(PATH) == "1-2"
    assert host.saved().restored == {}


def test_a_value_like_the_parents_comes_back_and_stays(tmp_path: Path) -> None:
    """Where the parent's nodes were written out before us, they come back, are no choice, and follow nobody."""
    host = pinned(tmp_path, mems="0-3")
    host.agent.release([PATH])

    machine_has(host, "0-4")

    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "released"}, "0-3", {})


def test_v1_keeps_its_value(tmp_path: Path) -> None:
    """A v1 cpuset never follows its parent by itself; what was put back is no choice there either."""
    host = pinned(tmp_path, version=CgroupVersion.V1, mems="0-3")
    host.agent.release([PATH])
    host.agent.flush()

    host.put("/system.slice", {"cpuset.mems": "0-4\n"})
    machine_has(host, "0-4")

    assert (host.states(), host.mems(PATH), host.reserved()) == ({PATH: "released"}, "0-3", {})


def test_a_cgroup_that_went_is_forgotten(tmp_path: Path) -> None:
    """The next pass drops what is remembered of it; another cgroup of the same path has nothing to do with it."""
    host = pinned(tmp_path)
    host.agent.release([PATH])
    host.agent.flush()
    host.agent.on_removed([host.remove(PATH)])

    host.agent.full_pass()
    host.agent.flush()

    assert host.saved().restored == {}


def test_a_kernel_that_does_not_take_the_parents_nodes(tmp_path: Path) -> None:
    """The log says so, and nothing else happens; a cgroup that went is not worth a word."""
    host = pinned(tmp_path)
    host.agent.release([PATH])
    following = Following(finder=host.tree.discovery(), writer=host.writer, ledger=host.agent.ledger, log=host.log)
    mems = host.tree.cpuset / PATH[1:] / "cpuset.mems"
    mems.rename(tmp_path / "elsewhere")
    mems.symlink_to(tmp_path / "elsewhere")

    following.write(host.view(PATH), FIVE)

    assert host.log.facts("nodes_not_followed")["mems"] == "0-4"
    assert (tmp_path / "elsewhere").read_text() == "0-3"
    said = len(host.log.lines)
    host.remove(PATH)
    following.write(host.view(PATH), FIVE)
    assert said == len(host.log.lines)


def test_is_restored(tmp_path: Path) -> None:
    """Path, inode and value say whose it is."""
    host = pinned(tmp_path)
    record = replace(host.view(PATH).record, mems=FOUR)
    known = Restored(record.inode, (FOUR,), follows=True)

    assert is_restored(record, {PATH: known})
    assert not is_restored(record, {})
    assert not is_restored(record, {PATH: replace(known, inode=record.inode + 1)})
    assert not is_restored(replace(record, mems=FIVE), {PATH: known})
    assert is_restored(replace(record, mems=FIVE), {PATH: about_to_get(known, FIVE)})


@pytest.mark.parametrize(
    ("known", "stands", "v1", "after"),
    [
        ("0-3", "0-3", False, "0-3"),
        ("0-3 0-4", "0-3", False, "0-3"),
        ("0-3 0-4", "0-4", False, "0-4"),
        ("0-3", "0,2-3", False, None),
        ("0-3", "0,2-3", True, "0,2-3"),
        ("0-3", "0,2", True, None),
        ("0-3", "", False, None),
    ],
)
def test_as_it_stands(tmp_path: Path, known: str, stands: str, v1: bool, after: str | None) -> None:
    """What is remembered follows what stands there; v1's kernel takes lost nodes out of it, and nothing else may."""
    host = pinned(tmp_path)
    record = replace(host.view(PATH).record, mems=NodeSet.parse(stands), cgroup_v1=v1)
    found = Restored(record.inode, tuple(NodeSet.parse(m) for m in known.split()), follows=True)

    left = as_it_stands(found, record, NodeSet.parse("0,2-3"))

    assert left == (None if after is None else replace(found, mems=(NodeSet.parse(after),)))
    assert as_it_stands(replace(found, inode=1), record, FOUR) is None


def test_restored_by(tmp_path: Path) -> None:
    """What inherited before follows on v2; earlier values of the same cgroup stay known until it is looked at."""
    host = pinned(tmp_path)
    pin = host.agent.ledger.pins[PATH]
    earlier = Restored(pin.inode, (FOUR,), follows=True)

    assert restored_by(pin, FOUR, None, v1=False) == earlier
    assert restored_by(pin, FIVE, earlier, v1=False).mems == (FOUR, FIVE)
    assert restored_by(pin, FIVE, replace(earlier, inode=1), v1=False).mems == (FIVE,)
    assert not restored_by(pin, FOUR, None, v1=True).follows
    assert not restored_by(replace(pin, original_mems=FOUR), FOUR, None, v1=False).follows


def test_a_checkpoint_without_any(tmp_path: Path) -> None:
    """The key is there only when needed, so a file of before reads as it did."""
    host = pinned(tmp_path)
    saved = host.saved()
    some = replace(saved, restored={PATH: Restored(7, (FOUR, FIVE), follows=True)})

    assert b'"restored"' not in encode(saved)
    assert decode(encode(saved), "state.json").restored == {}
    assert decode(encode(some), "state.json") == some


def test_a_dry_run_follows_nothing(tmp_path: Path) -> None:
    """What an earlier run left stays as it is while nothing may be written."""
    host = pinned(tmp_path)
    set_class(host, "max 100000")
    host.stop()
    host.dry_run = True

    host.start()
    machine_has(host, "0-4")

    assert host.mems(PATH) == "0-3"
    assert host.config == BARE

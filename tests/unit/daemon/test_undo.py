"""Undo: what stood before the first write stands again, and only our own value is ever overwritten."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.pinning import INLINE_BYTES, Outcome
from numapin.daemon.standing import value_before
from numapin.daemon.undo import ALL_RELEASED
from numapin.daemon.units import Units
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.systemd import Systemd, decode_nodes
from numapin.model.checkpoint import PinRecord
from numapin.model.errors import KernelWriteError
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import GIB
from support.daemon import BARE, Host, docker
from support.system_bus import system_bus
from support.waiting import readable


def wide(host: Host, number: int) -> str:
    """
    A container of a pair of nodes, 0-1 or 2-3, that had 0-3 before (v1), or inherited.

    Plain files keep what a shorter text does not cover, so all three values have the same length.
    """
    v1 = host.tree.version is CgroupVersion.V1
    return host.guaranteed(docker(number), 15, mems="0-3" if v1 else "", effective=("0-1", "2-3")[number - 1])


def pin_with(host: Host, original: NodeSet) -> PinRecord:
    """A record as the agent makes it, with another value before it."""
    path = host.guaranteed(docker(1), 2)
    host.start()
    return replace(host.agent.ledger.pins[path], original_mems=original)


@pytest.mark.parametrize(
    ("before", "parent", "v1", "after"),
    [
        ("", "0-3", False, "0-3"),
        ("", "0-1", True, "0-1"),
        ("0-3", "0-3", True, "0-3"),
        ("0-3", "0-1", True, "0-1"),
        ("2-3", "0-1", True, "0-1"),
        ("0-3", "0-1", False, "0-3"),
    ],
)
def test_the_value_before(tmp_path: Path, before: str, parent: str, v1: bool, after: str) -> None:
    """Inherited becomes the parent's; on v1 a parent that lost nodes limits what can be restored."""
    pin = pin_with(Host(tmp_path), NodeSet.parse(before))

    assert NodeSet.parse(after) == value_before(pin, NodeSet.parse(parent), v1=v1)


# ---- one container --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_container_is_released(tmp_path: Path, version: CgroupVersion) -> None:
    """Its old value is back, its promise gone from books and disk, its watch too; another one is untouched."""
    host = Host(tmp_path, version=version)
    path, other = wide(host, 1), wide(host, 2)
    host.start()
    assert (host.mems(path), host.mems(other)) == ("0-1", "2-3")

    host.agent.release([path])
    host.agent.flush()

    assert (host.mems(path), host.mems(other)) == ("0-3", "2-3")
    assert host.states() == {path: "released", other: "pinned"}
    assert host.reserved().keys() == {2, 3}
    assert list(host.saved().containers) == [other]
    assert host.watched.mems == {other}
    assert not host.agent.undo.pending(path)
    assert host.log.events().count("container_released") == 1
    host.sound()


def test_a_released_one_stays_released(tmp_path: Path) -> None:
    """Neither a pass, nor an update, nor free memory, nor another writer makes it pinned again."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.start()
    host.agent.release([path])

    host.put(path, {"memory.max": f"{3 * GIB}\n"})
    host.agent.on_mems_written([path])
    host.agent.on_state([path])
    host.agent.full_pass()

    assert host.mems(path) == "0-3"
    assert host.reserved() == {}
    assert host.states() == {path: "released"}


def test_a_restarted_container_is_decided_again(tmp_path: Path) -> None:
    """Another cgroup under the same path is not the one that was released."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.release([path])
    host.agent.on_removed([host.remove(path)])

    host.agent.on_created([host.guaranteed(path, 2)])

    assert host.states() == {path: "pinned"}


def test_a_restarted_daemon_decides_again(tmp_path: Path) -> None:
    """The mark is not on disk."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.start()
    host.agent.release([path])

    host.restart()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0-1"


def test_memory_that_is_released_serves_the_refused(tmp_path: Path) -> None:
    """Who was refused for want of it is pinned at once."""
    host = Host(tmp_path)
    path, waiting = host.guaranteed(docker(1), 36, effective="0-3"), host.guaranteed(docker(2), 8)
    host.start()
    assert host.states()[waiting] == "refused"

    host.agent.release([path])

    assert host.states() == {path: "released", waiting: "pinned"}


def test_a_large_container_is_released_in_a_thread(tmp_path: Path) -> None:
    """Until the write is done the promise stands and `pending` says so; the loop has not waited."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.start()
    host.wait_for_writes()

    host.agent.release([path])
    assert host.agent.undo.pending(path)
    assert host.reserved() == {0: 2}
    host.agent.full_pass()
    host.wait_for_writes()

    assert not host.agent.undo.pending(path)
    assert host.mems(path) == "0-3"
    assert host.states() == {path: "released"}
    assert host.reserved() == {}
    host.sound()


def test_a_release_overtakes_a_pin_on_its_way(tmp_path: Path) -> None:
    """A pin whose write is still in a thread is released too, and the later write wins."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.start()
    assert host.states() == {path: "pinning"}

    host.agent.release([path])
    host.wait_for_writes()

    assert host.mems(path) == "0-3"
    assert host.states() == {path: "released"}
    assert host.reserved() == {}


def test_what_was_never_written_is_not_written(tmp_path: Path) -> None:
    """A pin that was held back, and a cgroup that has its old value anyhow, are released without a write."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpuset.mems": "\n"})

    host.agent.release([path])

    assert host.mems(path) == ""
    assert host.states() == {path: "released"}
    assert host.reserved() == {}


def test_somebody_elses_value_is_left(tmp_path: Path) -> None:
    """What another one wrote meanwhile is neither ours nor the old value: the promise ends, the value stays."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpuset.mems": "2\n"})

    host.agent.release([path])

    assert host.mems(path) == "2"
    assert host.reserved() == {}
    assert host.view(path).message.endswith("cpuset.mems was written by somebody else and is left as it is")


def test_a_kernel_that_refuses(tmp_path: Path) -> None:
    """When the old value cannot be written the promise stands, for the nodes do, and the reason is told."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    file = host.tree.cpuset / path.lstrip("/") / "cpuset.mems"
    content = file.read_text()
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(content)

    host.agent.release([path])

    assert host.states() == {path: "pinned"}
    assert host.view(path).message.startswith("could not be released: ")
    assert host.agent.undo.failed[path]
    assert host.reserved() == {0: 2}
    assert host.watched.mems == {path}
    assert (tmp_path / "elsewhere").read_text() == content
    host.sound()


def test_a_cgroup_that_cannot_be_opened(tmp_path: Path) -> None:
    """What cannot even be looked at is not taken for gone: the promise and its record stay."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.view(path).close()
    host.remove(path)
    (host.tree.cpuset / path.lstrip("/")).write_text("")

    host.agent.release([path])

    assert host.states() == {path: "pinned"}
    assert "ENOTDIR" in host.agent.undo.failed[path]
    assert list(host.agent.ledger.pins) == [path]


def test_a_release_that_fails_in_a_thread(tmp_path: Path) -> None:
    """The same when the kernel's refusal comes later: pinned as before, watched, and said."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.start()
    host.wait_for_writes()
    host.agent.release([path])
    refusal = KernelWriteError("cpuset.mems", errno.EBUSY, "0-3")
    assert readable(host.writer, timeout_s=60)
    host.put(path, {"cpuset.mems": "0\n"})  # as if the kernel had refused

    inode = host.view(path).record.inode
    host.agent.on_outcomes([Outcome(path, inode, NodeSet.parse("0-3"), None, refusal, True, 1)])

    assert host.states() == {path: "pinned"}
    assert host.view(path).message.startswith("could not be released: ")
    assert "EBUSY" in host.agent.undo.failed[path]
    assert not host.agent.undo.pending(path)
    assert host.watched.mems == {path}
    assert host.reserved() == {0: 2}
    host.sound()


def test_a_refused_container_is_released_without_a_write(tmp_path: Path) -> None:
    """It has no pin; from now on it gets none."""
    host = Host(tmp_path)
    first, waiting = host.guaranteed(docker(1), 36, effective="0-3"), host.guaranteed(docker(2), 8)
    host.start()

    host.agent.release([waiting])
    host.agent.on_removed([host.remove(first)])

    assert host.states() == {waiting: "released"}
    assert host.mems(waiting) == ""


def test_a_container_that_is_not_guaranteed_any_more(tmp_path: Path) -> None:
    """Its record is on disk until its cgroup is as before: who is killed in between still knows what to restore."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.flush()
    host.put(path, {"cpu.max": "max 100000\n"})
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.agent.full_pass()

    assert host.states() == {path: "not-managed"}
    assert host.saved().containers[path].original_mems == NodeSet()
    host.wait_for_writes()
    host.agent.flush()
    assert (host.mems(path), host.saved().containers, host.reserved()) == ("0-3", {}, {})
    host.sound()


def test_killed_before_the_old_value_is_back(tmp_path: Path) -> None:
    """The next start finds the record of a container that is not Guaranteed any more and restores its cgroup."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.flush()
    host.put(path, {"cpu.max": "max 100000\n"})
    before = host.mems(path)
    host.start()  # no stop before it
    host.agent.flush()

    assert (before, host.mems(path)) == ("0", "0-3")
    assert (host.states(), host.reserved(), host.saved().containers) == ({path: "not-managed"}, {}, {})


def test_a_kernel_that_does_not_take_the_old_value(tmp_path: Path) -> None:
    """It is named, promise and record stay as the nodes do, and the next full pass tries again."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    file = host.tree.cpuset / path[1:] / "cpuset.mems"
    file.unlink()
    file.mkdir()  # neither read nor written
    host.put(path, {"cpu.max": "max 100000\n"})
    host.agent.on_created([path])

    assert host.reserved() == {0: 2}
    file.rmdir()
    file.write_text("0\n")
    host.agent.full_pass()
    assert (host.states(), host.reserved(), host.mems(path)) == ({path: "not-managed"}, {}, "0-3")
    host.sound()


def test_guaranteed_again_before_the_old_value_is_back(tmp_path: Path) -> None:
    """A restore on its way does not end the promise that was made anew meanwhile; our nodes stand in the end."""
    host = Host(tmp_path)
    path = host.obedient(host.guaranteed(docker(1), 2))
    host.start()
    host.agent.flush()
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.put(path, {"cpu.max": "max 100000\n"})
    host.agent.full_pass()
    host.put(path, {"cpu.max": "50000 100000\n"})
    host.agent.full_pass()
    host.wait_for_writes()
    host.put(path, {"cpuset.mems": "0\n"})  # our repair, for plain files keep what a shorter text does not cover
    host.agent.full_pass()

    assert (host.states(), host.reserved()) == ({path: "pinned"}, {0: 2})
    assert host.agent.ledger.pins[path].original_mems == NodeSet()
    host.sound()


def test_children_of_a_v1_container(tmp_path: Path) -> None:
    """A child cpuset with fewer nodes than its parent gets exactly these back, one that followed follows."""
    host = Host(tmp_path, version=CgroupVersion.V1)
    path = wide(host, 1)
    before = {"narrow": "2-3", "narrow/inner": "2-3", "same": "0-3", "same/x": "0-3"}
    for name, mems in before.items():
        host.tree.add(f"{path}/{name}", mems=mems)
    host.start()
    host.agent.flush()
    assert host.mems(f"{path}/narrow") == "0-1"
    host.tree.add(f"{path}/later", mems="0-1")
    host.restart()

    host.agent.release([path])

    assert before == {name: host.mems(f"{path}/{name}") for name in before}
    assert host.mems(f"{path}/later") == "0-3"
    assert host.mems(path) == "0-3"


def test_a_unit_is_told_nothing_again(tmp_path: Path) -> None:
    """The property is reset after the cgroup was written, and `pending` waits for it."""
    with system_bus(tmp_path) as bus:
        host = Host(tmp_path)
        host.units = Units(Systemd(tmp_path))
        path = wide(host, 1)
        unit = bus.units[bus.add(path)]
        host.start()
        host.wait_for_units()
        assert decode_nodes(unit.nodes) == NodeSet.of(0, 1)
        seen: list[str] = []
        bus.on_set = lambda _: seen.append(host.mems(path))

        host.agent.release([path])
        assert host.agent.undo.pending(path)
        host.wait_for_units()

        assert unit.nodes == b""
        assert seen == ["0-3"]
        assert not host.agent.undo.pending(path)
        assert host.view(path).unit_note == ""


@pytest.mark.parametrize("after", ["0-3", "0-1", "2-3"], ids=["kept", "ours-again", "somebody-elses"])
def test_b073_the_file_after_the_property_was_reset(tmp_path: Path, after: str) -> None:
    """
    B073: the property says nothing and the cgroup still has our nodes, as systemd leaves them: the parent's full set
    is written once more; what somebody else wrote meanwhile stays.
    """
    with system_bus(tmp_path) as bus:
        host = Host(tmp_path)
        host.units = Units(Systemd(tmp_path))
        path = wide(host, 1)
        unit = bus.units[bus.add(path)]
        host.start()
        host.wait_for_units()
        bus.on_set = lambda _: host.put(path, {"cpuset.mems": f"{after}\n"})

        host.agent.release([path])
        host.wait_for_units()

        assert unit.nodes == b""
        assert host.mems(path) == (after if after == "2-3" else "0-3")
        assert bus.calls.count("SetUnitProperties") == 2
        assert not host.agent.undo.pending(path)
        assert host.states() == {path: "released"}
        assert (host.reserved(), host.watched.mems) == ({}, set())


# ---- everything -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_everything_is_as_before(tmp_path: Path, version: CgroupVersion) -> None:
    """
    A dump before the daemon came equals the one after: on v1 to the letter, on v2 with "inherited" as the parent's
    set, which is the same in effect.
    """
    host = Host(tmp_path, version=version)
    paths = [wide(host, 1), host.container(docker(7), memory=GIB)]
    paths.append(host.guaranteed(docker(8), 1, mems="2", effective="2"))
    before = {path: host.mems(path) for path in paths}
    host.start()
    assert {path: host.mems(path) for path in paths} != before

    host.agent.release()

    after = {path: host.mems(path) for path in paths}
    if version is CgroupVersion.V1:
        assert before == after
    else:
        assert {p: m if p in (docker(7), docker(8)) else m or "0-3" for p, m in before.items()} == after
    assert host.states()[docker(8)] == "pinned-by-others"
    assert host.reserved() == {2: 1}
    host.sound()


def test_nothing_is_pinned_after_everything_was_released(tmp_path: Path) -> None:
    """A container that comes later, before the service ends, is left alone; the next start decides about all."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.start()
    host.agent.release()

    later = wide(host, 2)
    host.agent.on_created([later])

    assert host.states() == {path: "released", later: "released"}
    assert host.view(later).message == ALL_RELEASED
    assert host.mems(later) == ""
    host.restart()
    assert host.states() == {path: "pinned", later: "pinned"}


def test_what_waits_is_released_too(tmp_path: Path) -> None:
    """The memory of ended containers is given back with the rest."""
    host = Host(tmp_path, config=BARE)
    path = host.guaranteed(docker(1), 2)
    (tmp_path / "var/lib/docker/containers" / ("0" * 63 + "1")).mkdir(parents=True)
    host.start()
    host.agent.on_removed([host.remove(path)])
    assert host.reserved() == {0: 2}

    host.agent.release()

    assert host.reserved() == {}
    assert host.agent.ledger.pins == {}


def test_a_dry_run_restores_nothing(tmp_path: Path) -> None:
    """There is nothing of ours in any cgroup."""
    host = Host(tmp_path, dry_run=True)
    path = host.guaranteed(docker(1), 2)
    host.start()

    host.agent.release([path])

    assert host.states() == {path: "would-pin"}
    assert host.mems(path) == ""


def test_a_killed_daemon_forgets_no_release(tmp_path: Path) -> None:
    """A crash right after the write, before the save: the record is still there and the pin is made again."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.start()
    host.agent.flush()
    host.agent.release([path])  # not flushed: SIGKILL

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.saved().containers[path].original_mems == NodeSet()

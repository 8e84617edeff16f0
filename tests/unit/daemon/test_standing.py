"""
Whose value stands when a pin shall be undone: ours in every form that writes, kernels and kills leave it in.

Plain files keep what a shorter text does not cover, so what is written over another text here is as long or longer.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.machine import Machine
from numapin.daemon.pinning import INLINE_BYTES, Outcome
from numapin.daemon.release import release_document, release_offline
from numapin.daemon.standing import LEFT, Whose, what_stands
from numapin.daemon.status import About, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import open_cgroup
from numapin.model.checkpoint import Phase, PinRecord, Restored
from numapin.model.container import ContainerId, Runtime
from numapin.model.errors import KernelWriteError
from numapin.model.memory import Owner
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import CgroupTree, write_files
from support.daemon import BOOT, Host, cid, docker
from support.explained import explained
from support.machines import write_machine
from support.waiting import readable

PATH = docker(1)
BURSTABLE = {"cpu.max": "max 100000\n"}


def changed(host: Host, *gone: int) -> None:
    """The memory of these nodes is gone from now on, that of all others there, and the agent was told."""
    write_machine(host.root, [replace(n, memory=0) if n.id in gone else n for n in host.nodes])
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))


def burstable(host: Host) -> None:
    """The container's CPU is not limited any more."""
    if host.tree.version is CgroupVersion.V2:
        host.put(PATH, BURSTABLE)
    else:
        write_files(host.root, {f"sys/fs/cgroup/cpu,cpuacct{PATH}/cpu.cfs_quota_us": "-1\n"})


def large(host: Host, **options: str) -> None:
    """A container of two nodes, 0-1, whose writes go to a thread."""
    host.guaranteed(PATH, 15, **options)
    host.holds(PATH, {0: INLINE_BYTES, 1: INLINE_BYTES})


def pinned_in_a_thread(root: Path) -> Host:
    """A large container that is pinned, and its checkpoint on disk."""
    host = Host(root)
    large(host)
    host.obedient(PATH)
    host.start()
    host.wait_for_writes()
    host.agent.flush()
    assert (host.states(), host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
    return host


def refuse(host: Host, *, stands: str = "0-1") -> None:
    """What a thread has just written is not there; as if the kernel had refused it."""
    assert readable(host.writer, timeout_s=60)
    (outcome,) = host.writer.collect()
    host.put(PATH, {"cpuset.mems": f"{stands}\n"})
    refusal = KernelWriteError("cpuset.mems", errno.EBUSY, str(outcome.nodes))
    host.agent.on_outcomes([Outcome(PATH, outcome.inode, outcome.nodes, None, refusal, True, 1)])


# ---- the question itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "phase", "found", "parent", "whose"),
    [
        (CgroupVersion.V2, Phase.VERIFIED, "0-1", "0-3", Whose.OURS),
        (CgroupVersion.V2, Phase.VERIFIED, "2-3", "0-3", Whose.BEFORE),
        (CgroupVersion.V2, Phase.VERIFIED, "0", "0,2-3", Whose.OTHERS),
        (CgroupVersion.V2, Phase.DEFERRED, "0", "0,2-3", Whose.OTHERS),
        (CgroupVersion.V1, Phase.VERIFIED, "0", "0,2-3", Whose.OURS),
        (CgroupVersion.V1, Phase.VERIFIED, "0", "0-3", Whose.OTHERS),
        (CgroupVersion.V1, Phase.VERIFIED, "", "2-3", Whose.OURS),
        (CgroupVersion.V1, Phase.VERIFIED, "0-3", "0-3", Whose.OTHERS),
        (CgroupVersion.V1, Phase.VERIFIED, "2", "0-2", Whose.BEFORE),
        (CgroupVersion.V1, Phase.PLANNED, "0-3", "0-3", Whose.OURS),
        (CgroupVersion.V1, Phase.PLANNED, "0,2-3", "0,2-3", Whose.OURS),
        (CgroupVersion.V1, Phase.DEFERRED, "0-3", "0-3", Whose.OURS),
        (CgroupVersion.V1, Phase.DEFERRED, "0", "0-3", Whose.OURS),
        (CgroupVersion.V1, Phase.DEFERRED, "", "0-3", Whose.OURS),
        (CgroupVersion.V1, Phase.DEFERRED, "1-2", "0-3", Whose.OTHERS),
    ],
)
def test_whose_it_is(
    tmp_path: Path, version: CgroupVersion, phase: Phase, found: str, parent: str, whose: Whose
) -> None:
    """Nodes 0-1 of ours over 2-3: v1 takes nodes that went out of the value, v2 leaves it as it is."""
    tree = CgroupTree(tmp_path, version)
    write_files(tree.add(PATH), {"cpuset.mems": f"{found}\n"})
    pin = PinRecord(
        container_id=ContainerId("x"),
        name="x",
        pod_uid=None,
        runtime=Runtime.DOCKER,
        cgroup=PATH,
        inode=1,
        owner=Owner("x", "x"),
        phase=phase,
        nodes=NodeSet.parse("0-1"),
        original_mems=NodeSet.parse("2-3"),
    )
    with open_cgroup(tree.hierarchy(), PATH) as cgroup:
        standing = what_stands(cgroup, pin, NodeSet.parse(parent))

    assert (whose, NodeSet.parse(found)) == (standing.whose, standing.found)


# ---- nodes that went (v1) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["release", "class", "offline"])
@pytest.mark.parametrize("back", [False, True], ids=["lost", "back above"])
def test_a_node_that_went_takes_no_original_with_it(tmp_path: Path, way: str, back: bool) -> None:
    """The kernel took a node out of our value: what is left is ours all the same, and children and switch follow."""
    host = Host(tmp_path, version=CgroupVersion.V1)
    host.guaranteed(PATH, 25, mems="0-3", effective="0-2")
    host.tree.add(f"{PATH}/a", mems="1-3", controllers=False)
    host.start()
    assert (host.mems(PATH), host.mems(f"{PATH}/a")) == ("0-2", "1-2")
    for path, left in (("/system.slice", "0-1,3"), (PATH, "0-1"), (f"{PATH}/a", "1")):
        host.put(path, {"cpuset.mems": f"{left}\n", "cpuset.effective_mems": f"{left}\n"})
    changed(host, 2)
    assert host.states() == {PATH: "pin-lost"}
    above = "0-3" if back else "0-1,3"
    host.put("/system.slice", {"cpuset.mems": f"{above}\n", "cpuset.effective_mems": f"{above}\n"})

    if way == "release":
        host.agent.release([PATH])
    elif way == "class":
        burstable(host)
        host.agent.full_pass()
    host.stop()
    if way == "offline":
        write_files(host.root, {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
        lock = host.root / "run/numapin/lock"
        release_offline(host.root, host.file.path, lock, why="no daemon answers", clock=host.clock)

    before = ("0-3", "1-3") if back else ("0-1,3", "1,3")
    assert before == (host.mems(PATH), host.mems(f"{PATH}/a"))
    assert host.saved().containers == {}
    assert (host.tree.cpuset / PATH[1:] / "cpuset.memory_migrate").read_text().strip() == "0"


def test_a_node_that_went_and_came_back_while_nothing_could_be_put_back(tmp_path: Path) -> None:
    """What the kernel left of our value is remembered as ours until it can be restored (v1)."""
    host = Host(tmp_path, version=CgroupVersion.V1)
    host.guaranteed(PATH, 25, mems="0-3", effective="0-2")
    host.start()
    write_files(host.root, {f"sys/fs/cgroup/memory{PATH}/memory.usage_in_bytes": f"{2 * INLINE_BYTES}\n"})
    burstable(host)
    host.agent.full_pass()
    refuse(host, stands="0-2")
    assert host.states() == {PATH: "failed"}
    host.put(PATH, {"cpuset.mems": "0-1\n", "cpuset.effective_mems": "0-1\n"})

    changed(host, 2)
    changed(host)
    host.agent.full_pass()
    host.wait_for_writes()

    assert (host.states(), host.mems(PATH)) == ({PATH: "not-managed"}, "0-3")
    assert (host.tree.cpuset / PATH[1:] / "cpuset.memory_migrate").read_text().strip() == "0"


def test_killed_while_a_class_change_is_undone(tmp_path: Path) -> None:
    """The own nodes are back and the children's are not (v1): the next start finishes as a release would."""
    host = Host(tmp_path, version=CgroupVersion.V1)
    host.guaranteed(PATH, 15, mems="0-3", effective="0-1")
    host.tree.add(f"{PATH}/a", mems="2-3", controllers=False)
    host.start()
    host.agent.flush()
    assert (host.mems(PATH), host.mems(f"{PATH}/a")) == ("0-1", "0-1")
    host.put(PATH, {"cpuset.mems": "0-3\n"})
    burstable(host)

    host.start()  # no stop before it

    assert (host.states(), host.reserved()) == ({PATH: "not-managed"}, {})
    assert (host.mems(PATH), host.mems(f"{PATH}/a")) == ("0-3", "2-3")
    assert (host.tree.cpuset / PATH[1:] / "cpuset.memory_migrate").read_text().strip() == "0"


# ---- a controller that went (v2) ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["daemon", "offline"])
def test_where_cpuset_was_taken_away_nothing_stands(tmp_path: Path, way: str) -> None:
    """It is not called pinned, its release has nothing to write and succeeds, and nothing is promised after."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 1)
    host.start()
    host.agent.flush()
    for name in ("cpuset.mems", "cpuset.mems.effective", "cpuset.cpus"):
        (host.tree.cpuset / PATH[1:] / name).unlink()
    host.put("/system.slice", {"cgroup.subtree_control": "cpu memory\n"})
    host.agent.full_pass()
    assert (host.states(), host.reserved()) == ({PATH: "unpinned"}, {0: 1})

    if way == "daemon":
        document = release_document(host.agent, {"all": True})
    else:
        host.stop()
        write_files(host.root, {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
        lock = host.root / "run/numapin/lock"
        document = release_offline(host.root, host.file.path, lock, why="no daemon answers", clock=host.clock)

    assert isinstance(document["containers"], list)
    assert [("released", None)] == [(row["state"], row["problem"]) for row in document["containers"]]
    assert host.saved().containers == {}


# ---- a kernel that refuses ------------------------------------------------------------------------------------


def test_a_pin_that_is_not_granted_and_cannot_be_put_back(tmp_path: Path) -> None:
    """The record stays on disk, and with it what stood before; the next pass puts it back."""
    host = Host(tmp_path)
    large(host, effective="2-3")
    host.start()
    assert readable(host.writer, timeout_s=60)
    host.agent.on_outcomes(host.writer.collect())

    refuse(host)
    host.agent.flush()

    assert (host.states(), host.reserved()) == ({PATH: "failed"}, {0: 10, 1: 5})
    assert "the kernel grants 2-3" in host.view(PATH).message
    assert "its nodes could not be put back: " in host.view(PATH).message
    assert host.saved().containers[PATH].original_mems == NodeSet()
    host.agent.full_pass()
    host.wait_for_writes()
    host.agent.flush()
    assert (host.states(), host.reserved(), host.mems(PATH)) == ({PATH: "failed"}, {}, "0-3")
    assert host.saved().containers == {}
    host.sound()


def test_what_an_earlier_undo_left_is_not_somebody_elses(tmp_path: Path) -> None:
    """A first write that is refused over a value of ours from an earlier release leaves it, and blames nobody."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 25, mems="0-1", effective="0-1")
    host.holds(PATH, {0: 2 * INLINE_BYTES})
    host.prepare()
    inode = (host.tree.cpuset / PATH[1:]).stat().st_ino
    host.agent.ledger.set_restored(PATH, Restored(inode, (NodeSet.parse("0-1"),), follows=True))
    host.agent.full_pass()
    assert host.states() == {PATH: "pinning"}

    refuse(host)

    assert (host.states(), host.reserved(), host.mems(PATH)) == ({PATH: "failed"}, {}, "0-1")
    assert "EBUSY" in host.view(PATH).message
    assert LEFT not in host.view(PATH).message


def test_the_parent_as_it_is_when_a_failed_pin_is_put_back(tmp_path: Path) -> None:
    """What was inherited is what the parent grants then, not what it granted when the pin was decided."""
    host = Host(tmp_path)
    large(host, effective="2-3")
    host.start()
    host.put("/system.slice", {"cpuset.mems.effective": "0-2\n"})

    host.wait_for_writes()

    assert (host.states(), host.mems(PATH)) == ({PATH: "failed"}, "0-2")


@pytest.mark.parametrize("refused", [False, True])
def test_a_node_goes_while_its_pin_is_written(tmp_path: Path, refused: bool) -> None:
    """The pin is lost and no failure: it keeps its reservation, and the node's return makes it whole."""
    host = Host(tmp_path)
    large(host, effective="0")
    host.start()
    assert host.states() == {PATH: "pinning"}

    changed(host, 1)
    if refused:
        refuse(host, stands="")
    host.wait_for_writes()
    assert "node 1 has no memory now" in host.view(PATH).message
    lost = (host.states(), host.reserved(), host.agent.ledger.pins[PATH].phase)
    host.grant(PATH, "0-1")
    changed(host)
    host.wait_for_writes()

    assert ({PATH: "pin-lost"}, {0: 15}, Phase.DEFERRED) == lost
    assert (host.states(), host.reserved()) == ({PATH: "pinned"}, {0: 10, 1: 5})
    assert host.agent.ledger.pins[PATH].original_mems == NodeSet()
    host.sound()


def test_what_a_failed_restore_still_holds_is_told(tmp_path: Path) -> None:
    """Status has a row although it is not Guaranteed, and explain says no more of a placement that ended."""
    host = pinned_in_a_thread(tmp_path)
    burstable(host)
    host.agent.full_pass()
    refuse(host)
    about = About(pid=1, started_wall_ns=0, started_monotonic_ns=0, cgroup_version="v2", boot_id="b", checkpoint=None)
    status: Any = status_document(host.agent, about, now_ns=0, wall_ns=0)
    said = explained(host, PATH)["sentences"]
    host.agent.full_pass()
    host.wait_for_writes()
    after: Any = status_document(host.agent, about, now_ns=0, wall_ns=0)

    assert [(row["cgroup"], row["state"]) for row in status["containers"]] == [(PATH, "failed")]
    assert status["containers"][0]["message"].endswith("nodes 0-1 stay written and reserved until that is done")
    message = status["containers"][0]["message"]
    assert status["findings"] == [
        {"code": "not-put-back", "message": f"{cid(1)[:12]}: {message}; it is tried again at each full pass"}
    ]
    assert after["findings"] == []
    assert said[0].startswith("Failed, and what it was promised stays reserved: its nodes could not be put back: ")
    assert "written and reserved until that is done; it is tried again at the next full pass" in said[0]
    assert not any("nothing is promised" in s or "is taken" in s or "needs" in s for s in said)
    assert after["containers"] == []
    assert host.reserved() == {}


@pytest.mark.parametrize("everything", [False, True])
def test_a_refused_release_of_one_that_is_not_guaranteed_any_more(tmp_path: Path, everything: bool) -> None:
    """It is not pinned for that: it stays failed, and is tried again until the kernel takes the old value."""
    host = pinned_in_a_thread(tmp_path)
    burstable(host)
    host.agent.full_pass()
    refuse(host)
    assert host.states() == {PATH: "failed"}

    host.agent.release(None if everything else [PATH])
    refuse(host)

    assert (host.states(), list(host.agent.undo.failed)) == ({PATH: "failed"}, [PATH])
    assert host.reserved() == {0: 10, 1: 5}
    host.agent.full_pass()
    host.wait_for_writes()
    assert (host.states(), host.reserved(), host.mems(PATH)) == ({PATH: "not-managed"}, {}, "0-3")
    assert host.agent.undo.failed == {}
    host.sound()


def test_a_refused_release_of_a_lost_pin(tmp_path: Path) -> None:
    """It is lost as before, and not called pinned."""
    host = pinned_in_a_thread(tmp_path)
    changed(host, 1)

    host.agent.release([PATH])
    refuse(host)

    assert (host.states(), list(host.agent.undo.failed)) == ({PATH: "pin-lost"}, [PATH])
    assert list(host.agent.ledger.pins) == [PATH]


def test_a_refused_release_of_everything_leaves_a_pin(tmp_path: Path) -> None:
    """What could not be released is not called released when it is decided again: its nodes and its promise stand."""
    host = pinned_in_a_thread(tmp_path)
    host.agent.release()
    refuse(host)

    host.put(PATH, {"memory.max": f"{16 << 30}\n"})
    host.agent.full_pass()
    host.wait_for_writes()

    assert (host.states(), host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
    assert host.reserved() == {0: 10, 1: 6}


def test_guaranteed_again_while_the_old_value_is_written(tmp_path: Path) -> None:
    """Our own restore is no drift: the nodes are written once more after it, and nobody is suspected."""
    host = pinned_in_a_thread(tmp_path)
    burstable(host)
    host.agent.full_pass()
    assert readable(host.writer, timeout_s=60)
    host.put(PATH, {"cpuset.mems": "0-1\n"})  # the thread has not got there yet
    host.put(PATH, {"cpu.max": "50000 100000\n"})
    host.agent.full_pass()
    host.put(PATH, {"cpuset.mems": "0-3\n"})

    host.wait_for_writes()
    host.agent.full_pass()

    assert (host.states(), host.mems(PATH)) == ({PATH: "pinned"}, "0-1")
    assert (host.agent.counters.repairs, host.view(PATH).repair_cause) == (0, None)
    host.sound()

"""A daemon process on odd machines below a root of their own, and real refusals of the kernel."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from numapin.daemon.pinning import WriteJob, perform
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import open_cgroup
from numapin.model.nodeset import NodeSet
from numapin.state.codec import decode
from support.cgroup_trees import GIB, CgroupTree, oci
from support.checkpoints import reseal
from support.daemon import cid, docker
from support.fakes import FakeClock
from support.machines import even, write_flat_machine, write_machine
from support.real_cgroups import RealTree
from support.running import Numapin, wait_for
from support.system_bus import system_bus

pytestmark = pytest.mark.host


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two nodes and a v2 tree of plain files."""
    root = tmp_path / "machine"
    write_machine(root, even(2, memory=10 * GIB))
    return root


@pytest.fixture
def numapin(tmp_path: Path, machine: Path) -> Iterator[Numapin]:
    """A daemon for that machine."""
    daemon = Numapin(tmp_path, root=machine)
    try:
        yield daemon
    finally:
        daemon.kill()


def add(tree: CgroupTree, number: int, effective: str = "0") -> str:
    """A Guaranteed container."""
    tree.add(docker(number), memory=GIB, quota=50_000, effective=effective)
    return docker(number)


def quiet(numapin: Numapin) -> bool:
    """True when no trace of the program is in the log."""
    text = numapin.log.read_text()
    return "Traceback" not in text and "step_failed" not in text


def test_no_numa(numapin: Numapin, machine: Path) -> None:
    """A kernel without NUMA is one node 0, and containers are accounted there."""
    shutil.rmtree(machine / "sys/devices/system/node")
    path = add(CgroupTree(machine, nodes="0"), 1)
    write_flat_machine(machine, memory=10 * GIB, pools={2 << 20: 0, 1 << 30: 0})

    numapin.start()

    assert numapin.states("/system.slice") == {path: "pinned"}
    assert [n["id"] for n in numapin.status()["nodes"]] == [0]
    assert quiet(numapin)


def test_a_read_only_cgroup_tree(numapin: Numapin, machine: Path) -> None:
    """EROFS: the reason has the path and says to mount it read-write; nothing stays reserved; the daemon serves."""
    mount = machine / "sys/fs/cgroup"
    mount.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "numapin-test", str(mount)], check=True)
    try:
        path = add(CgroupTree(machine, nodes="0-1"), 1)
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        numapin.start()

        row = numapin.rows("/system.slice")[path]
        assert row["state"] == "failed"
        assert f"{mount}{path}/cpuset.mems" in row["message"]
        assert "mount it read-write" in row["message"]
        assert [n["memory_map"]["memory"]["reserved"] for n in numapin.status()["nodes"]] == [0, 0]
        assert quiet(numapin)
        numapin.kill()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_one_write_without_room(numapin: Numapin, machine: Path) -> None:
    """ENOSPC on one container's file: its reason says that no disk is full, and the one beside it is pinned."""
    mount = machine / "sys/fs/cgroup"
    mount.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "numapin-test", str(mount)], check=True)
    try:
        tree = CgroupTree(machine, nodes="0-1")
        bad, good = add(tree, 1), add(tree, 2)
        (tree.cpuset / bad[1:] / "cpuset.mems").write_text("")  # the only file here that needs another page
        with pytest.raises(OSError, match="No space left"), (mount / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)
        numapin.start()

        rows = numapin.rows("/system.slice")
        assert (rows[bad]["state"], rows[good]["state"]) == ("failed", "pinned")
        assert f"{mount}{bad}/cpuset.mems" in rows[bad]["message"]
        assert "(ENOSPC); a populated cgroup cannot be left without nodes" in rows[bad]["message"]
        assert [n["memory_map"]["memory"]["reserved"] for n in numapin.status()["nodes"]] == [GIB, 0]
        (mount / "ballast").unlink()
        numapin.signal(signal.SIGHUP)
        wait_for(lambda: numapin.states("/system.slice") == {bad: "pinned", good: "pinned"})
        assert quiet(numapin)
        numapin.kill()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk(numapin: Numapin, machine: Path) -> None:
    """Without room for the checkpoint no cgroup is written; with room again the next look pins."""
    state = machine / "own/state"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "numapin-test", str(state)], check=True)
    try:
        (state / "ballast").write_bytes(b"x" * (16 << 10))
        tree = CgroupTree(machine, nodes="0-1")
        path = add(tree, 1)
        numapin.start()

        row = numapin.rows("/system.slice")[path]
        assert row["state"] == "failed"
        assert "ENOSPC" in row["message"]
        assert (tree.cpuset / path[1:] / "cpuset.mems").read_text() == "\n"
        assert [f["code"] for f in numapin.status()["findings"]] == ["checkpoint-unwritable"]
        (state / "ballast").unlink()
        numapin.signal(signal.SIGHUP)
        wait_for(lambda: numapin.states("/system.slice") == {path: "pinned"})
        assert numapin.status()["findings"] == []
        assert quiet(numapin)
        numapin.kill()
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_damaged_checkpoint(numapin: Numapin, machine: Path) -> None:
    """It is kept aside, told in status and log, and the start goes on with what the cgroups say."""
    path = add(CgroupTree(machine, nodes="0-1"), 1)
    numapin.state.parent.mkdir(parents=True)
    numapin.state.write_text("rubbish")

    numapin.start()

    assert numapin.states("/system.slice") == {path: "pinned"}
    (finding,) = numapin.status()["findings"]
    assert finding["code"] == "checkpoint-damaged"
    (aside,) = numapin.state.parent.glob("state.json.damaged-*")
    assert str(aside) in finding["message"]
    assert aside.read_text() == "rubbish"


@pytest.mark.parametrize("older", [False, True], ids=["only-the-newer", "ours-as-the-generation-before"])
def test_a_checkpoint_of_a_newer_numapin(numapin: Numapin, machine: Path, older: bool) -> None:
    """
    B082: after a downgrade the file is said to be of a newer numapin, kept whole under another name, and the same
    promises are made again without a write; the next version finds the file that this one wrote.
    """
    path = add(CgroupTree(machine, nodes="0-1"), 1)
    numapin.start()
    numapin.stop()
    before = numapin.state.read_bytes()
    newer = reseal(
        before.replace(b'"version":1,', b'"version":2,').replace(b'"refusals":', b'"later":{"a":1},\n"refusals":')
    )
    numapin.state.write_bytes(newer)
    previous = numapin.state.with_name("state.json.1")
    if older:
        previous.write_bytes(before)
    else:
        previous.unlink(missing_ok=True)

    numapin.start()

    (aside,) = numapin.state.parent.glob("state.json.other-version-*")
    (finding,) = numapin.status()["findings"]
    reason = "version: this program reads 1, the file has 2; it was written by a newer numapin"
    assert newer == aside.read_bytes()
    assert finding["code"] == "checkpoint-version"
    assert f"{reason}; kept as {aside}" in finding["message"]
    assert numapin.lines("checkpoint_not_used")[0]["kept_as"] == str(aside)
    assert numapin.states("/system.slice") == {path: "pinned" if older else "pinned-by-others"}
    assert [n["memory_map"]["memory"]["reserved"] for n in numapin.status()["nodes"]] == [GIB, 0]
    assert numapin.rows("/system.slice")[path]["nodes"] == [0]
    assert numapin.status()["counters"]["writes"] == 0
    numapin.stop()
    found = decode(numapin.state.read_bytes(), numapin.state)
    assert (found.version, list(found.containers)) == (1, [path])
    assert quiet(numapin)


def test_no_memory_controller(numapin: Numapin, machine: Path) -> None:
    """
    B056: with the controller off there is one finding and one line at the start, however often everything is looked
    at; a container whose metadata has limits is pinned by them, one without gets nothing.
    """
    tree = CgroupTree(machine, nodes="0-1")
    (machine / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu io pids\n")
    told, bare = docker(1), docker(2)
    for number, path in enumerate((told, bare), start=1):
        tree.add(path, effective="0", controllers=False, pids=(1000 + number,))
        tree.process(1000 + number)
    tree.task("moby", cid(1), oci(memory=GIB, quota=50_000))
    numapin.configure('full_pass_interval = "1s"')
    numapin.start()
    began = numapin.log.read_text()
    wait_for(lambda: numapin.status()["uptime_seconds"] >= 4)

    status = numapin.status()
    assert [f["code"] for f in status["findings"]] == ["no-memory-controller"]
    assert "boot with cgroup_enable=memory" in status["findings"][0]["message"]
    assert len(numapin.lines("no_memory_controller")) == 1
    assert began == numapin.log.read_text()
    assert status["last_full_pass_seconds_ago"] < 3
    assert numapin.states("/system.slice") == {told: "pinned"}
    assert (tree.cpuset / bare[1:] / "cpuset.mems").read_text() == "\n"
    assert [n["memory_map"]["memory"]["reserved"] for n in status["nodes"]] == [GIB, 0]
    assert quiet(numapin)


def test_systemd_on_a_v1_host(numapin: Numapin, machine: Path) -> None:
    """B077: on v1 the property would do nothing, whatever systemd's version: nobody is asked."""
    tree = CgroupTree(machine, CgroupVersion.V1, nodes="0-1")
    path = docker(1)
    tree.add(path, memory=15 * GIB, quota=50_000, effective="0-1", mems="0-1")
    with system_bus(machine) as bus:
        bus.add(path)
        numapin.start()
        wait_for(lambda: numapin.rows("/system.slice")[path]["state"] != "pinning")

        row = numapin.rows("/system.slice")[path]
        assert bus.calls == []
        assert (row["state"], row["nodes"], row["unit"]) == ("pinned", [0, 1], None)
        assert [f["code"] for f in numapin.status()["findings"]] == []
    assert quiet(numapin)


def test_hotplug_of_something_unusable(numapin: Numapin, machine: Path) -> None:
    """A reload on a machine that became unreadable is refused with the path, and the old picture serves on."""
    path = add(CgroupTree(machine, nodes="0-1"), 1)
    numapin.start()
    (machine / "sys/devices/system/node/online").write_text("0-\n")
    numapin.signal(signal.SIGHUP)

    wait_for(lambda: numapin.lines("configuration_refused"))

    assert "sys/devices/system/node/online" in numapin.lines("configuration_refused")[0]["reason"]
    assert numapin.states("/system.slice") == {path: "pinned"}
    assert quiet(numapin)


def test_a_machine_that_changed_without_a_word(numapin: Numapin, machine: Path) -> None:
    """No uevent told of it: the full pass sees that a node has less memory, and promises no more than there is."""
    CgroupTree(machine, nodes="0-1")
    numapin.configure('full_pass_interval = "1s"')
    numapin.start()
    write_machine(machine, even(2, memory=4 * GIB))
    wait_for(lambda: [n["memory_map"]["memory"]["total"] for n in numapin.status()["nodes"]] == [4 * GIB] * 2)

    assert "machine_changed" in numapin.log.read_text()
    changes = len(numapin.lines("machine_changed"))
    passed = numapin.status()["last_full_pass_seconds_ago"]
    wait_for(lambda: numapin.status()["last_full_pass_seconds_ago"] < passed)
    assert len(numapin.lines("machine_changed")) == changes
    assert quiet(numapin)


def test_something_in_the_place_of_the_socket(numapin: Numapin, machine: Path) -> None:
    """A file where the socket shall be is not replaced: exit 1, the path, and what to do."""
    tree = CgroupTree(machine, nodes="0-1")
    path = add(tree, 1)
    numapin.socket.parent.mkdir(parents=True)
    numapin.socket.write_text("mine")

    ended = numapin.once()

    assert ended.returncode == 1
    assert f"cannot listen on {numapin.socket}" in ended.stderr
    assert "remove it" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert numapin.socket.read_text() == "mine"
    assert (tree.cpuset / path[1:] / "cpuset.mems").read_text() == "\n"


# ---- the kernel's own refusals -------------------------------------------------------------------------------------


def populated_without_nodes(tree: RealTree) -> tuple[str, NodeSet]:
    """A process lives there, so the nodes cannot be taken away."""
    path = tree.make("full")
    tree.populate(path)
    return path, NodeSet()


def unknown_node(tree: RealTree) -> tuple[str, NodeSet]:
    """No such node on this machine."""
    return tree.make("unknown"), NodeSet.of(900)


def outside_the_parent(tree: RealTree) -> tuple[str, NodeSet]:
    """The parent has no nodes."""
    (tree.base / "bare/inner").mkdir(parents=True)
    return f"{tree.path}/bare/inner", NodeSet.of(0)


@pytest.mark.parametrize(
    ("make", "codes", "words"),
    [
        (populated_without_nodes, (errno.ENOSPC, errno.EBUSY), "cpuset.mems"),
        (unknown_node, (errno.EINVAL, errno.ERANGE, errno.EACCES), "cpuset.mems"),
        (outside_the_parent, (errno.EACCES,), "subset of the parent"),
    ],
)
def test_refused_writes(
    tree: RealTree,
    make: Callable[[RealTree], tuple[str, NodeSet]],
    codes: tuple[int, ...],
    words: str,
) -> None:
    """Each refusal of the kernel becomes an outcome with its errno and the path; nothing is raised or changed."""
    if tree.hierarchy.version is not CgroupVersion.V1:
        pytest.skip("v1 refuses these; v2 takes them and grants something else")
    path, nodes = make(tree)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        before = cgroup.read_cpuset_mems()
        outcome = perform(WriteJob(cgroup, nodes, migrate=True), FakeClock())

        assert outcome.error is not None
        assert outcome.error.errno in codes
        assert path in str(outcome.error)
        assert words in str(outcome.error)
        assert before == cgroup.read_cpuset_mems()


def test_a_cgroup_that_goes_under_the_writer(tree: RealTree) -> None:
    """A directory that is removed while it is held open is gone, not an error of ours."""
    path = tree.make("short")
    with open_cgroup(tree.hierarchy, path) as cgroup:
        (tree.base / "short").rmdir()

        outcome = perform(WriteJob(cgroup, NodeSet.of(0), migrate=True), FakeClock())

        assert outcome.error is not None
        assert outcome.error.code == "cgroup-gone"

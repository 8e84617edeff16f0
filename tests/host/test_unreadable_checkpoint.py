"""A daemon process whose checkpoint cannot be read, or not be written, until the cause is gone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cgroup_trees import GIB, CgroupTree
from support.daemon import docker
from support.machines import even, write_machine
from support.running import Numapin, wait_for

pytestmark = pytest.mark.host


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two nodes and a v2 tree of plain files."""
    return write_machine(tmp_path / "machine", even(2, memory=10 * GIB))


@pytest.fixture
def numapin(tmp_path: Path, machine: Path) -> Iterator[Numapin]:
    """A daemon for that machine."""
    daemon = Numapin(tmp_path, root=machine)
    try:
        yield daemon
    finally:
        daemon.kill()


def test_it_starts_and_waits(numapin: Numapin, machine: Path) -> None:
    """READY with a finding and nothing written; some seconds after the link is gone everything is as before."""
    tree = CgroupTree(machine, nodes="0-1")
    old, new = docker(1), docker(2)
    tree.add(old, memory=GIB, quota=50_000, effective="0")
    numapin.start()
    assert numapin.states("/system.slice") == {old: "pinned"}
    numapin.stop()
    away = numapin.state.rename(machine / "elsewhere")
    numapin.state.symlink_to(away)
    tree.add(new, memory=GIB, quota=50_000, effective="0")

    numapin.start()

    assert numapin.states("/system.slice") == {old: "failed", new: "failed"}
    (finding,) = numapin.status()["findings"]
    assert finding["code"] == "checkpoint-unreadable"
    assert "symbolic link" in finding["message"]
    assert "CHECKPOINT CANNOT BE READ" in numapin.status()["summary"]
    assert (tree.cpuset / old[1:] / "cpuset.mems").read_text() == "0"
    assert (tree.cpuset / new[1:] / "cpuset.mems").read_text() == "\n"
    numapin.state.unlink()
    away.rename(numapin.state)
    wait_for(lambda: numapin.states("/system.slice") == {old: "pinned", new: "pinned"})
    assert numapin.status()["findings"] == []
    assert "Traceback" not in numapin.log.read_text()


def test_a_disk_that_becomes_read_only(numapin: Numapin, machine: Path) -> None:
    """A new container waits, the old pin stays; mounted read-write again, the save that was missing is made."""
    state = machine / "own/state"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "numapin-test", str(state)], check=True)
    try:
        tree = CgroupTree(machine, nodes="0-1")
        old, new = docker(1), docker(2)
        tree.add(old, memory=GIB, quota=50_000, effective="0")
        numapin.start()
        wait_for(lambda: numapin.status()["counters"]["saves"] == 2)
        subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
        tree.add(new, memory=GIB, quota=50_000, effective="0")
        numapin.signal(signal.SIGHUP)
        wait_for(lambda: numapin.states("/system.slice") == {old: "pinned", new: "failed"})

        assert "EROFS" in numapin.rows("/system.slice")[new]["message"]
        assert (tree.cpuset / new[1:] / "cpuset.mems").read_text() == "\n"
        assert [f["code"] for f in numapin.status()["findings"]] == ["checkpoint-unwritable"]
        subprocess.run(["mount", "-o", "remount,rw", str(state)], check=True)
        wait_for(lambda: numapin.states("/system.slice") == {old: "pinned", new: "pinned"})  # by itself
        assert numapin.status()["findings"] == []
        numapin.kill()
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_reserved_node_that_went(numapin: Numapin, machine: Path) -> None:
    """A reservation for node 1 does not forbid the start after a reboot without it; a finding says so."""
    CgroupTree(machine, nodes="0-1").add(docker(1), memory=GIB, quota=50_000, effective="0")
    numapin.configure('[reserved.node.1]\nmemory = "2Gi"\n')
    numapin.start()
    numapin.stop()
    write_machine(machine, even(1, memory=10 * GIB))

    numapin.start()

    assert numapin.states("/system.slice") == {docker(1): "pinned"}
    (finding,) = numapin.status()["findings"]
    assert (finding["code"], "node 1" in finding["message"]) == ("machine", True)

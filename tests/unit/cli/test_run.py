"""``numapin run``: what keeps it from starting, each with its sentence and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from numapin.cli.main import main
from numapin.daemon.suitability import LOOKING
from numapin.state.lock import DaemonLock
from support.cgroup_trees import GIB, CgroupTree
from support.machines import NODES, even, write_machine
from support.privilege import unprivileged
from support.trees import write_tree


def machine(root: Path) -> Path:
    """A machine on which the daemon would start."""
    write_machine(root, even(2, memory=10 * GIB))
    CgroupTree(root, nodes="0-1")
    return root


def spoil_configuration(root: Path) -> None:
    """Two files with a problem each."""
    write_tree(root, {"etc/numapin/numapin.toml": "polcy = 1\n", "etc/numapin/conf.d/a.toml": "policy = 'x'\n"})


def spoil_reservation(root: Path) -> None:
    """More is reserved than a node has."""
    write_tree(root, {"etc/numapin/numapin.toml": "[reserved.node.1]\nmemory = '11Gi'\n"})


def spoil_sysfs(root: Path) -> None:
    """A garbled list of online nodes."""
    write_tree(root, {f"{NODES}/online": "0-\n"})


def spoil_meminfo(root: Path) -> None:
    """A node whose memory cannot be understood."""
    write_tree(root, {f"{NODES}/node1/meminfo": "MemTotal lots\n"})


def spoil_cgroups(root: Path) -> None:
    """No cpuset."""
    write_tree(root, {"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"})


def spoil_checkpoint(root: Path) -> None:
    """Something in the checkpoint's place that is no file."""
    (root / "var/lib/numapin/state.json").mkdir(parents=True)


def spoil_state_directory(root: Path) -> None:
    """The state directory is a link to elsewhere."""
    (root / "var/lib").mkdir(parents=True)
    (root / "elsewhere").mkdir()
    (root / "var/lib/numapin").symlink_to(root / "elsewhere")


def spoil_lock(root: Path) -> None:
    """The lock is a link to elsewhere."""
    (root / "run/numapin").mkdir(parents=True)
    (root / "run/numapin/lock").symlink_to(root / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "status", "words"),
    [
        (spoil_configuration, 6, ["numapin.toml: polcy: unknown key; did you mean policy?", "a.toml: policy: "]),
        (spoil_reservation, 6, ["numapin.toml", "reserved.node.1.memory", "reserve less"]),
        (spoil_sysfs, 1, [f"{NODES}/online"]),
        (spoil_meminfo, 1, [f"{NODES}/node1/meminfo"]),
        (spoil_cgroups, 1, ["no cpuset controller under", "boot with cgroup v2", LOOKING, "make demo"]),
        (spoil_lock, 1, ["run/numapin/lock", "symbolic link"]),
    ],
)
def test_what_keeps_it_from_starting(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    status: int,
    words: list[str],
) -> None:
    """Each is a sentence with the path and what to do, the stated exit status, and no trace of the program."""
    machine(tmp_path)
    spoil(tmp_path)

    assert main(["run", "--root", str(tmp_path)]) == status
    error = capfd.readouterr().err
    assert [w for w in words if w not in error] == []
    assert "Traceback" not in error
    assert "internal error" not in error


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_checkpoint, ["var/lib/numapin/state.json", "cannot be read"]),
        (spoil_state_directory, ["var/lib/numapin", "symbolic link"]),
    ],
)
def test_a_dry_run_needs_a_readable_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], spoil: Callable[[Path], None], words: list[str]
) -> None:
    """A rehearsal cannot tell what would happen without it, and says so; a real run waits (tests/host)."""
    machine(tmp_path)
    spoil(tmp_path)

    assert main(["run", "--dry-run", "--root", str(tmp_path)]) == 1
    error = capfd.readouterr().err
    assert [w for w in words if w not in error] == []
    assert "Traceback" not in error


def test_a_second_daemon(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It names the process that holds the lock, and leaves its socket and state alone."""
    machine(tmp_path)
    write_tree(tmp_path, {"run/numapin/": ""})
    with DaemonLock(tmp_path / "run/numapin/lock"):
        assert main(["run", "--root", str(tmp_path)]) == 1

    error = capfd.readouterr().err
    assert f"numapin is already running: process {os.getpid()} holds {tmp_path}/run/numapin/lock" in error
    assert not (tmp_path / "var").exists()


def test_without_root(capsys: pytest.CaptureFixture[str]) -> None:
    """On a real machine it needs root, exit 4, and says what works without."""
    with unprivileged():
        assert main(["run"]) == 4

    error = capsys.readouterr().err
    assert "numapin run must be root" in error
    assert f"Without root these work: {LOOKING}" in error
    assert "make demo" in error


def one_node(root: Path) -> Path:
    """A machine with one node and no container, on which another daemon runs: a start ends at its lock."""
    write_machine(root, even(1, memory=10 * GIB))
    CgroupTree(root, nodes="0")
    return write_tree(root, {"run/numapin/": ""})


def test_what_the_host_is_not_made_for_is_in_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal it is told in log lines like all that follows, and first."""
    with DaemonLock(one_node(tmp_path) / "run/numapin/lock"):
        assert main(["run", "--root", str(tmp_path)]) == 1

    *logged, last = capfd.readouterr().err.splitlines()
    lines = [json.loads(line) for line in logged]
    assert [line["event"] for line in lines] == ["about_this_host", "about_this_host"]
    assert "one NUMA node" in lines[0]["reason"]
    assert all("make demo" in line["reason"] for line in lines)
    assert last.startswith("numapin: numapin is already running")


def test_what_the_host_is_not_made_for_is_said_on_a_terminal(tmp_path: Path) -> None:
    """Somebody at a terminal gets the sentences alone."""
    terminal, its_end = os.openpty()
    try:
        with DaemonLock(one_node(tmp_path) / "run/numapin/lock"):
            argv = [sys.executable, "-m", "numapin", "run", "--root", str(tmp_path)]
            done = subprocess.run(argv, stderr=its_end, check=False, timeout=60)
        said = os.read(terminal, 1 << 16).decode().splitlines()
    finally:
        os.close(its_end)
        os.close(terminal)

    assert done.returncode == 1
    assert said[0].startswith("numapin: this host has one NUMA node")
    assert said[1].startswith("numapin: no container runtime was used on this host yet")
    assert said[2].startswith("numapin: numapin is already running")


def test_a_configuration_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was named must exist."""
    machine(tmp_path)

    assert main(["run", "--root", str(tmp_path), "--config", str(tmp_path / "none.toml")]) == 6
    assert f"{tmp_path}/none.toml: there is no such file" in capsys.readouterr().err

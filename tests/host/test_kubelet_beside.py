"""The daemon as a process beside a kubelet's state file, on a machine of plain files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import POD, Host, cid, cri, docker
from support.kubelet import STATE, document, put, text
from support.running import Numapin, wait_for

pytestmark = pytest.mark.host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Four nodes, one pod's container, one of Docker's."""
    made = Host(tmp_path / "machine")
    made.guaranteed(cri(1), 2)
    made.guaranteed(docker(2), 3)
    return made


@pytest.fixture
def numapin(tmp_path: Path, host: Host) -> Iterator[Numapin]:
    """A daemon on that machine, not started yet."""
    daemon = Numapin(tmp_path, root=host.root)
    daemon.configure("full_pass_interval = '1h'\n[reserved]\nfraction = '0%'\nminimum = 0")
    try:
        yield daemon
    finally:
        daemon.kill()


def states(numapin: Numapin) -> dict[str, str]:
    """State of each container by id."""
    return {row["id"]: row["state"] for row in numapin.status()["containers"]}


def reserved(numapin: Numapin) -> list[int]:
    """GiB reserved on each node."""
    return [node["memory_map"]["memory"]["reserved"] >> 30 for node in numapin.status()["nodes"]]


def test_the_file_is_followed(numapin: Numapin, host: Host) -> None:
    """A state file that appears, changes and goes is acted on at once, with a full pass an hour away."""
    numapin.start()
    assert states(numapin) == {cid(1): "pinned", cid(2): "pinned"}

    put(host.root, text(document({POD: {"app": ((3,), 4)}})))
    wait_for(lambda: states(numapin) == {cid(1): "pinned-by-others", cid(2): "pinned"})
    assert reserved(numapin) == [3, 0, 0, 4]
    assert "kubelet-beside" in {f["code"] for f in numapin.status()["findings"]}

    put(host.root, text(document({POD: {"app": ((2,), 5)}})))
    wait_for(lambda: reserved(numapin) == [3, 0, 5, 0])

    (host.root / STATE).unlink()
    wait_for(lambda: states(numapin) == {cid(1): "pinned", cid(2): "pinned"})
    assert sum(reserved(numapin)) == 5


def test_kill_after_the_hand_over(numapin: Numapin, host: Host) -> None:
    """Killed and started again, the daemon has the kubelet's numbers once, and the pod's cgroup as it was."""
    numapin.start()
    put(host.root, text(document({POD: {"app": ((3,), 4)}})))
    wait_for(lambda: states(numapin)[cid(1)] == "pinned-by-others")
    mems = host.mems(cri(1))
    numapin.kill()

    numapin.start()

    assert states(numapin) == {cid(1): "pinned-by-others", cid(2): "pinned"}
    assert reserved(numapin) == [3, 0, 0, 4]
    assert mems == host.mems(cri(1)) == "0"


def test_reload_with_another_file(numapin: Numapin, host: Host) -> None:
    """SIGHUP with another kubelet.state makes the daemon follow that one."""
    numapin.start()
    numapin.configure("[kubelet]\nstate = '/srv/kubelet/state'")
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: numapin.lines("configuration_reloaded"))
    place = host.root / "srv/kubelet/state"
    place.parent.mkdir(parents=True)
    place.write_text(text(document({POD: {"app": ((1,), 4)}})))

    wait_for(lambda: states(numapin)[cid(1)] == "pinned-by-others")

    assert reserved(numapin) == [3, 4, 0, 0]

"""Datagrams to the service manager, received on a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.daemon.notify import Notifier


class Manager:
    """The other end."""

    def __init__(self, name: str | bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.socket.bind(name)

    def lines(self) -> list[str]:
        """One datagram."""
        return self.socket.recv(4096).decode().split("\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the manager listens."""
    return tmp_path / "notify"


@pytest.fixture
def manager(path: Path) -> Iterator[Manager]:
    """A manager at *path*."""
    manager = Manager(str(path))
    yield manager
    manager.socket.close()


def test_every_message(path: Path, manager: Manager) -> None:
    """Each state is one datagram in sd_notify's words."""
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": str(path)}, pid=1)
    assert notifier.ready("2 nodes")
    assert manager.lines() == ["READY=1", "STATUS=2 nodes"]
    assert notifier.status("3 pinned")
    assert manager.lines() == ["STATUS=3 pinned"]
    assert notifier.reloading(monotonic_ns=1_234_567_890)
    assert manager.lines() == ["RELOADING=1", "MONOTONIC_USEC=1234567"]
    assert notifier.watchdog()
    assert manager.lines() == ["WATCHDOG=1"]
    assert notifier.stopping("bye")
    assert manager.lines() == ["STOPPING=1", "STATUS=bye"]


def test_abstract_socket() -> None:
    """An address that begins with @ is an abstract name."""
    name = f"numapin-test-{os.getpid()}"
    manager = Manager(b"\0" + name.encode())
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": "@" + name}, pid=1)

    assert notifier.watchdog()
    assert manager.lines() == ["WATCHDOG=1"]
    manager.socket.close()


def test_status_is_one_line(path: Path, manager: Manager) -> None:
    """A status text cannot smuggle in an assignment of its own, and is not endless."""
    notifier = Notifier(str(path))
    notifier.status("a\nSTOPPING=1\x1b[0m" + "x" * 10_000)
    (line,) = manager.lines()

    assert line.startswith("STATUS=a STOPPING=1 [0mxxx")
    assert len(line) == 7 + 512


@pytest.mark.parametrize("address", ["", "@", "/", "vsock:2:1234", "relative"])
def test_no_manager(address: str) -> None:
    """Without an address that can be one, nothing is sent."""
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10"}, pid=1)

    assert notifier == Notifier(None, None)
    assert not notifier.ready("")


def test_unset() -> None:
    """An empty environment, as when run by hand, means no manager."""
    assert Notifier() == Notifier.from_environment({}, pid=1)


def test_manager_went(path: Path) -> None:
    """A manager that is gone is no error."""
    assert not Notifier(str(path)).ready("")
    Manager(str(path)).socket.close()
    assert not Notifier(str(path)).status("")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30_000_000_000),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 30_000_000_000),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "9" * 30}, None),
        ({}, None),
    ],
)
def test_watchdog_interval(environ: dict[str, str], expected: int | None) -> None:
    """The watchdog's limit is ours only when its number is one and the process id is ours or absent."""
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": "/run/n", **environ}, pid=42)

    assert expected == notifier.watchdog_ns

"""Asking the daemon, and what is told when nobody answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from numapin.cli.client import request
from numapin.model.errors import ExitStatus, NoAnswer, NotPermitted, NotRunning, RequestFailed
from support.api import LARGE, serving
from support.privilege import public_directory, unprivileged


@contextmanager
def answering(path: Path, data: bytes | None) -> Iterator[None]:
    """A socket that answers one client with *data*, or with nothing and holds on for ``None``."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            if data is None:
                client.recv(1)  # until the client gives up
            else:
                client.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listener.close()


def test_answer(tmp_path: Path) -> None:
    """A request gives the daemon's result, also one far larger than a socket buffer."""
    path = tmp_path / "api.sock"
    with serving(path):
        assert request(path, "status", {"a": 1}) == {"params": {"a": 1}, "uid": os.geteuid()}
        assert request(path, "large") == LARGE


def test_error(tmp_path: Path) -> None:
    """The daemon's error comes with its code, message and exit status."""
    path = tmp_path / "api.sock"
    with serving(path), pytest.raises(RequestFailed) as caught:
        request(path, "nonsense")

    assert (caught.value.code, caught.value.exit_status) == ("unknown-verb", ExitStatus.USAGE)
    assert "'nonsense'" in str(caught.value)


@pytest.mark.parametrize("size", [70_000, 3_000_000])
def test_request_too_large(tmp_path: Path, size: int) -> None:
    """A request that the daemon refuses while it is being sent still tells the reason."""
    path = tmp_path / "api.sock"
    with serving(path), pytest.raises(RequestFailed) as caught:
        request(path, "status", {"a": "x" * size})

    assert caught.value.code == "too-large"


def test_nobody_there(tmp_path: Path) -> None:
    """Without a socket, or with one that a killed daemon left, the daemon is not running: exit status 3."""
    path = tmp_path / "api.sock"
    with pytest.raises(NotRunning) as missing:
        request(path, "status")
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    with pytest.raises(NotRunning, match="refused"):
        request(path, "status")

    assert (missing.value.socket, missing.value.exit_status) == (str(path), ExitStatus.NOT_RUNNING)
    assert "no numapin daemon answers on" in str(missing.value)


def test_path_too_long(tmp_path: Path) -> None:
    """A path that no socket can have is a daemon that is not running there."""
    with pytest.raises(NotRunning, match="too long"):
        request(tmp_path / ("x" * 200), "status")


def test_no_answer_in_time(tmp_path: Path) -> None:
    """A daemon that does not answer is given up after the time given, and is not called one that does not run."""
    path = tmp_path / "api.sock"
    with answering(path, None), pytest.raises(NoAnswer, match=r"no answer within 0\.05 s") as caught:
        request(path, "status", timeout_s=0.05)

    assert caught.value.exit_status == ExitStatus.FAILURE


def test_full_queue(tmp_path: Path) -> None:
    """While the daemon's queue of connections is full a client waits for its place, up to the time given."""
    path = tmp_path / "api.sock"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        first = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        first.connect(str(path))
        with pytest.raises(NoAnswer):
            request(path, "status", timeout_s=0.05)
        answered = stack.enter_context(ThreadPoolExecutor(1)).submit(request, path, "status")
        listener.accept()[0].close()
        second, _ = listener.accept()
        with second:
            second.recv(1 << 10)
            second.sendall(b'{"apiVersion":"numapin/v1","kind":"Answer","result":{"a":1}}\n')

        assert answered.result() == {"a": 1}


def test_closed_without_an_answer(tmp_path: Path) -> None:
    """A daemon that dies over a request is not running."""
    path = tmp_path / "api.sock"
    with answering(path, b""), pytest.raises(NotRunning, match="without an answer"):
        request(path, "status")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"[]\n",
        b"{}\n",
        b'{"apiVersion":"numapin/v2","kind":"Answer","result":{}}\n',
        b'{"apiVersion":"numapin/v1","kind":"Answer","result":5}\n',
        b'{"apiVersion":"numapin/v1","kind":"Answer"',
        b"\xff",
    ],
)
def test_other_answer(tmp_path: Path, data: bytes) -> None:
    """Something else on the socket is told as such."""
    path = tmp_path / "api.sock"
    with answering(path, data), pytest.raises(RequestFailed) as caught:
        request(path, "status")

    assert caught.value.code == "bad-answer"
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("status", [b'"5"', b"99", b"null", b"[]"])
def test_error_with_an_odd_exit_status(tmp_path: Path, status: bytes) -> None:
    """An error whose exit status is none of ours is a failure."""
    path = tmp_path / "api.sock"
    data = b'{"apiVersion":"numapin/v1","kind":"Error","code":"x","message":"y","exit":' + status + b"}\n"
    with answering(path, data), pytest.raises(RequestFailed) as caught:
        request(path, "status")

    assert (caught.value.code, caught.value.exit_status) == ("x", ExitStatus.FAILURE)


def test_daemon_refuses_the_user(tmp_path: Path) -> None:
    """The daemon's refusal of a user is the command's: exit status 4."""
    path = tmp_path / "api.sock"
    data = b'{"apiVersion":"numapin/v1","kind":"Error","code":"not-permitted","message":"for root only","exit":4}\n'
    with answering(path, data), pytest.raises(NotPermitted, match="for root only") as caught:
        request(path, "release")

    assert caught.value.exit_status == ExitStatus.NO_PERMISSION


def test_socket_refuses_the_user() -> None:
    """A user whom the socket's mode keeps out is told of the group."""
    with public_directory() as directory:
        path = directory / "api.sock"
        with serving(path):
            path.chmod(0)
            with unprivileged(), pytest.raises(NotPermitted, match="group numapin"):
                request(path, "status")


def test_light_imports() -> None:
    """The client loads none of the heavy libraries."""
    code = (
        "import sys, numapin.cli.client\n"
        "heavy = {'msgspec', 'structlog', 'rich', 'psutil', 'pyroute2', 'jeepney', 'asyncio', 'dataclasses'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"

"""The API socket of a running daemon, in the hands of clients who mean harm."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.api import MAX_CONNECTIONS, MAX_REQUEST_BYTES
from numapin.kernel.systemd import SYSTEM_BUS, Systemd
from numapin.model.errors import SystemdError
from numapin.model.nodeset import NodeSet
from support.api import line
from support.cgroup_trees import GIB, CgroupTree
from support.daemon import docker
from support.hostile import documents, fuzz, survived, texts, values
from support.machines import even, write_machine
from support.privilege import NOBODY, unprivileged
from support.running import Numapin, wait_for
from support.system_bus import system_bus

CROWD = 1000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numapin]:
    """A daemon on a machine of plain files with one pinned container."""
    home = tmp_path_factory.mktemp("daemon")
    root = home / "machine"
    write_machine(root, even(2, memory=10 * GIB))
    CgroupTree(root, nodes="0-1").add(docker(1), memory=GIB, quota=50_000, effective="0")
    running = Numapin(home, root=root)
    try:
        running.start()
        yield running
        assert running.status()["counters"]["failures"] == 0
    finally:
        running.kill()


def exchange(path: Path, data: bytes) -> bytes:
    """Send *data*, say that this was all, and take what comes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(str(path))
        answer = bytearray()
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(1 << 16):
                answer += part
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we still sent
        return bytes(answer)


def sound(running: Numapin) -> bool:
    """True when the daemon answers and no step of it has failed."""
    return running.status()["running"] and not running.lines("step_failed") and not running.lines("invariant_broken")


verbs = st.sampled_from(["status", "containers", "explain", "release", "plan", "stop"])
parameters = st.dictionaries(st.sampled_from(["container", "all", "report"]) | texts, values, max_size=3)
questions = st.fixed_dictionaries(
    {
        "apiVersion": st.just("numapin/v1"),
        "verb": verbs,
        "params": parameters | st.fixed_dictionaries({"container": texts}),
    }
)


@fuzz
@given(
    data=st.binary(max_size=200)
    | questions.map(lambda q: json.dumps(q).encode() + b"\n")
    | documents({"apiVersion": "numapin/v1", "verb": "explain", "params": {"container": "x"}}).map(
        lambda t: t.encode("utf-8", "surrogatepass") + b"\n"
    )
)
def test_any_request(daemon: Numapin, data: bytes) -> None:
    """One line of plain JSON is the answer to any bytes, or none when there was no request; nothing fails inside."""
    answer = exchange(daemon.socket, data)

    if answer or data.strip(b"\n"):
        assert answer.count(b"\n") == 1
        assert answer.isascii()
        found = json.loads(answer, parse_constant=lambda word: pytest.fail(f"{word} in an answer"))
        assert found["kind"] in ("Answer", "Error")
        assert found.get("code") not in ("internal", "error")
    assert daemon.lines("step_failed") == []


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Room for a crowd of clients in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * CROWD)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_crowd(daemon: Numapin) -> None:
    """
    A thousand clients at once, silent, half way or gone again: the daemon takes as many as it may, lets the others
    wait in the kernel's queue or be told to try again, drops those that say nothing, and then serves as before.
    """
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    before = len(os.listdir(descriptors))
    choice = random.Random(1)
    connected, turned_away = 0, 0
    with many_descriptors(), ExitStack() as stack:
        for _ in range(CROWD):
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            try:
                client.connect(str(daemon.socket))
            except BlockingIOError as exc:
                assert exc.errno == errno.EAGAIN
                turned_away += 1
                continue
            connected += 1
            match choice.randrange(4):
                case 0:
                    client.send(line("status")[:9])
                case 1:
                    client.close()
                case 2:
                    client.send(b"x" * 1000)
                case _:
                    pass
        wait_for(lambda: len(os.listdir(descriptors)) > before)

        assert connected >= MAX_CONNECTIONS
        assert connected + turned_away == CROWD
        assert len(os.listdir(descriptors)) <= before + MAX_CONNECTIONS + 2
    wait_for(lambda: sound(daemon))
    wait_for(lambda: len(os.listdir(descriptors)) <= before + 1)


def test_silence_does_not_keep_others_out(daemon: Numapin) -> None:
    """While every place is taken by clients that say nothing, another one is served within two deadlines."""
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.connect(str(daemon.socket))
            client.send(b'{"half')
        began = time.monotonic()
        answer = json.loads(exchange(daemon.socket, line("status")))

    assert answer["kind"] == "Answer"
    assert time.monotonic() - began < 11


def test_more_requests_while_one_is_answered(daemon: Numapin) -> None:
    """Requests poured behind the first are no second one: one error, in one line, and the end of the connection."""
    for data in (line("status") * 50, line("status") + b"x" * (2 * MAX_REQUEST_BYTES), b"x" * (1 << 20)):
        answer = exchange(daemon.socket, data)

        if answer:  # a client that still sends when it is refused may lose the answer
            assert json.loads(answer)["code"] in ("bad-request", "too-large")
    assert sound(daemon)


def test_clients_that_go_while_they_are_answered(daemon: Numapin) -> None:
    """Nobody is left to take the answer: the connection is dropped, and nothing else happens."""
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    before = len(os.listdir(descriptors))
    for _ in range(200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(daemon.socket))
            client.send(line("status"))

    wait_for(lambda: len(os.listdir(descriptors)) <= before + 1)
    assert sound(daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it becomes somebody else")
def test_strangers(daemon: Numapin) -> None:
    """
    A stranger is refused by the directory and the socket's mode; with both opened by mistake, by the daemon, which
    goes by the kernel's word (SO_PEERCRED) and not by what the request says.
    """
    with unprivileged(), pytest.raises(PermissionError):
        exchange(daemon.socket, line("status"))
    opened = [p for p in (daemon.socket, *daemon.socket.parents) if p.stat().st_uid == 0 and p != Path("/")]
    modes = {path: path.stat().st_mode & 0o7777 for path in opened}
    try:
        for path in opened:
            path.chmod(0o777)
        with unprivileged():
            answers = [
                json.loads(exchange(daemon.socket, line(v, {"uid": 0}))) for v in ("status", "release", "stop")
            ]
    finally:
        for path, mode in modes.items():
            path.chmod(mode)

    assert [("Error", "not-permitted")] * 3 == [(a["kind"], a["code"]) for a in answers]
    assert NOBODY != os.geteuid()


@fuzz
@given(
    st.binary(max_size=200)
    | st.just(b"OK 0123456789abcdef0123456789abcdef\r\n").flatmap(
        lambda ok: st.binary(max_size=300).map(lambda more: ok + more)
    )
)
def test_a_bus_that_talks_nonsense(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever sits behind the system bus, systemd's property is told or the error is ours, in bounded time."""
    root = tmp_path_factory.mktemp("bus")
    (root / "run/systemd/system").mkdir(parents=True)
    path = root / SYSTEM_BUS
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, selectors.DefaultSelector() as selector:
        listener.bind(str(path))
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        told = _prepared(listener, data)
        with Systemd(root, timeout_s=0.2) as systemd:
            found = survived(lambda: systemd.read_allowed_memory_nodes("a.scope"), SystemdError)
        told.join()

    assert isinstance(found, NodeSet | SystemdError)


def _prepared(listener: socket.socket, data: bytes) -> threading.Thread:
    """A thread that says *data* to the first client and closes; one that has given up by then is said nothing."""

    def talk() -> None:
        client, _ = listener.accept()
        with client, suppress(BrokenPipeError, ConnectionResetError):
            client.recv(1 << 16)
            client.sendall(data)

    thread = threading.Thread(target=talk)
    thread.start()
    return thread


@fuzz
@given(st.binary(max_size=64) | st.just(b"\xff" * 9000))
def test_any_bit_map_of_a_unit(tmp_path_factory: pytest.TempPathFactory, nodes: bytes) -> None:
    """What systemd says about a unit's nodes is a set, or an error that names the unit."""
    with system_bus(tmp_path_factory.mktemp("bus")) as bus:
        unit = bus.add("/system.slice/a.scope", nodes)
        with Systemd(bus.root) as systemd:
            found = survived(lambda: systemd.read_allowed_memory_nodes(unit), SystemdError)

    assert isinstance(found, NodeSet) or unit in str(found)

"""The API socket: its file, its bounds, and who may ask."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numapin.daemon.api import DEADLINE_NS, MAX_CONNECTIONS, MAX_REQUEST_BYTES, PAUSE_NS, Peer
from numapin.model.errors import AlreadyRunning, CheckpointUnwritable, ExitStatus, SocketUnusable
from support.api import LARGE, NOW_NS, Driven, answer, line
from support.privilege import NOBODY, public_directory
from support.waiting import readable

MEMBERS = 64_000
"""A group that no machine has."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Driven]:
    """A server."""
    driven = Driven(tmp_path / "run" / "api.sock")
    yield driven
    driven.close()


def refused(found: Mapping[str, Any], code: str) -> None:
    """The answer is a complete error of this code."""
    assert (found["apiVersion"], found["kind"], found["code"]) == ("numapin/v1", "Error", code)
    assert found["message"]
    assert found["exit"] in set(ExitStatus)


# ---- requests ----------------------------------------------------------------------------------------------------


def test_answer(api: Driven) -> None:
    """A request gets the handler's result, and the handler the parameters and the peer."""
    found = api.ask(line("status", {"a": [1]}))

    assert found == {
        "apiVersion": "numapin/v1",
        "kind": "Answer",
        "result": {"params": {"a": [1]}, "uid": os.geteuid()},
    }


def test_request_in_pieces(api: Driven) -> None:
    """A request may arrive byte by byte."""
    with api.connect() as client:
        for byte in line("status"):
            client.sendall(bytes([byte]))
            api.pump()

        assert answer(client, api.pump)["kind"] == "Answer"


def test_large_answer_does_not_hold_the_loop(api: Driven) -> None:
    """An answer beyond the socket buffer is sent as the client takes it; others are served meanwhile."""
    with api.connect() as slow:
        slow.sendall(line("large"))
        api.pump()
        assert api.ask(line("status"))["kind"] == "Answer"

        assert answer(slow, api.pump)["result"] == LARGE


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"rubbish\n", "bad-request"),
        (b"[]\n", "bad-request"),
        (b'"status"\n', "bad-request"),
        (b"\xff\xfe\n", "bad-request"),
        (b"[" * 60_000 + b"\n", "bad-request"),
        (b'{"apiVersion":"numapin/v1","verb":"status","params":{"a":NaN}}\n', "bad-request"),
        (b'{"apiVersion":"numapin/v1","verb":"status","params":{"a":' + b"9" * 50_000 + b"}}\n", "bad-request"),
        (line(5), "bad-request"),
        (line("status", [1]), "bad-request"),
        (line("status", version="numapin/v2"), "bad-version"),
        (b"{}\n", "bad-version"),
        (line("nonsense"), "unknown-verb"),
        (line("status") + b"x", "bad-request"),
        (line("status") * 2, "bad-request"),
        (b"x" * (MAX_REQUEST_BYTES + 1), "too-large"),
        (b"x" * (MAX_REQUEST_BYTES + 1) + b"\n", "too-large"),
    ],
)
def test_bad_request(api: Driven, data: bytes, code: str) -> None:
    """Whatever is not one request line gets an error answer, and the server goes on."""
    refused(api.ask(data), code)

    assert api.ask(line("status"))["kind"] == "Answer"


def test_largest_request(api: Driven) -> None:
    """A request of exactly the bound is served."""
    empty = len(line("status", {"a": ""})) - 1
    data = line("status", {"a": "x" * (MAX_REQUEST_BYTES - empty)})

    assert len(data) == MAX_REQUEST_BYTES + 1
    assert api.ask(data)["kind"] == "Answer"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60) | st.from_regex(rb'\{"apiVersion":"numapin/v1",.{0,40}\}', fullmatch=True))
def test_any_bytes(api: Driven, data: bytes) -> None:
    """Any bytes get one well-formed answer."""
    found = api.ask(data.replace(b"\n", b" ") + b"\n")

    assert found["kind"] in ("Answer", "Error")


def test_no_line_end(api: Driven) -> None:
    """A client that stops in the middle of a line gets an error."""
    with api.connect() as client:
        client.sendall(line("status")[:-1])
        client.shutdown(socket.SHUT_WR)
        api.pump()

        refused(answer(client, api.pump), "bad-request")


def test_silent_client(api: Driven) -> None:
    """A client that connects and goes, or goes before its answer, leaves nothing behind."""
    api.connect().close()
    api.pump()
    client = api.connect()
    client.sendall(line("large"))
    client.close()
    api.pump()

    assert api.server.expire(NOW_NS) is None


def test_much_too_large_request(api: Driven) -> None:
    """A client that still sends when it is refused gets the reason, not a reset connection."""
    with api.connect() as client:
        sent = 0
        data = b"x" * 1_000_000
        while sent < len(data):
            try:
                sent += client.send(data[sent:])
            except BlockingIOError:
                api.pump()
        api.pump()
        client.shutdown(socket.SHUT_WR)

        refused(answer(client, api.pump), "too-large")


def test_handler_failure(tmp_path: Path) -> None:
    """An error with facts becomes an answer with its code; a bug is answered too, and reaches the loop."""

    def serve(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        if verb == "disk":
            raise CheckpointUnwritable("/var/lib/x", "disk full")
        return {"not": object()} if verb == "unprintable" else 1 // 0

    api = Driven(tmp_path / "api.sock", serve)
    refused(api.ask(line("disk")), "checkpoint-unwritable")
    for verb, error in (("bug", ZeroDivisionError), ("unprintable", TypeError)):
        with api.connect() as client:
            client.sendall(line(verb))
            with pytest.raises(error):
                api.pump()
            refused(answer(client, api.pump), "internal")
    api.close()


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """File names with any bytes in them can be answered, and no control character is sent as such."""
    api = Driven(tmp_path / "api.sock", lambda *_: {"cgroup": "/a\udcff\x1b\u2028"})

    assert api.ask(line("x"))["result"] == {"cgroup": "/a\udcff\x1b\u2028"}
    api.close()


# ---- bounds ------------------------------------------------------------------------------------------------------


def test_slow_request_is_dropped(api: Driven) -> None:
    """A client that has not sent its request in five seconds is dropped, not before."""
    with api.connect() as client:
        client.sendall(b"{")
        api.pump()

        assert api.server.expire(NOW_NS + DEADLINE_NS - 1) == NOW_NS + DEADLINE_NS
        assert api.server.expire(NOW_NS + DEADLINE_NS) is None
        assert client.recv(10) == b""


def test_a_request_that_came_while_the_loop_was_busy(api: Driven) -> None:
    """It is answered, however long the loop had other work after it took the connection."""
    with api.connect() as client:
        api.pump()
        client.sendall(line("status"))

        late = NOW_NS + 2 * DEADLINE_NS
        api.server.expire(late)
        assert answer(client, lambda: api.pump(late))["kind"] == "Answer"


def test_an_answer_that_is_taken_while_the_loop_is_busy(api: Driven) -> None:
    """A client that has taken what was sent gets the rest, once; one that then takes nothing is dropped."""
    with api.connect() as client:
        api.pump()
        client.sendall(line("large"))
        api.pump()
        client.recv(1 << 20)

        late = NOW_NS + DEADLINE_NS
        assert api.server.expire(late) == late + DEADLINE_NS
        assert api.server.expire(late + DEADLINE_NS) is None


def test_slow_reader_is_dropped(api: Driven) -> None:
    """A client that does not take its answer in five seconds from the request is dropped."""
    with api.connect() as client:
        api.pump()
        client.sendall(line("large"))
        api.pump(NOW_NS + 2)

        assert api.server.expire(NOW_NS + 3) == NOW_NS + 2 + DEADLINE_NS
        assert api.server.expire(NOW_NS + 2 + DEADLINE_NS) is None


def test_too_many_clients(api: Driven) -> None:
    """Beyond the limit clients wait in the queue, without waking the loop, and are served when there is room."""
    clients = [api.connect() for _ in range(MAX_CONNECTIONS)]
    api.pump()
    with api.connect() as waiting:
        waiting.sendall(line("status"))
        assert not api.selector.select(0)
        clients[0].close()
        api.pump()

        assert answer(waiting, api.pump)["kind"] == "Answer"
    for client in clients:
        client.close()


def test_out_of_descriptors(api: Driven) -> None:
    """Without a free descriptor the server pauses instead of spinning, and takes the client later."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with api.connect() as client:
        client.sendall(line("status"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, limits[1]))
        fill = []
        try:
            while True:
                fill.append(os.dup(0))
        except OSError:
            pass
        try:
            api.pump()
        finally:
            for fd in fill:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        assert not api.selector.select(0)
        assert api.server.expire(NOW_NS) == NOW_NS + PAUSE_NS
        assert api.server.expire(NOW_NS + PAUSE_NS) is None
        api.pump()
        assert answer(client, api.pump)["kind"] == "Answer"


# ---- the socket file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0, 0o777])
def test_mode(tmp_path: Path, mask: int) -> None:
    """The file is for root, and for the group when there is one, whatever the umask is."""
    before = os.umask(mask)
    try:
        alone = Driven(tmp_path / "alone.sock", group="no-such-group")
        shared = Driven(tmp_path / "shared.sock", group=os.getegid())
    finally:
        os.umask(before)

    assert stat.S_IMODE(alone.path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(shared.path.lstat().st_mode) == 0o660
    assert os.getegid() == shared.path.lstat().st_gid
    alone.close()
    shared.close()


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    """The socket of a daemon that was killed does not keep the next from starting."""
    path = tmp_path / "api.sock"
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    api = Driven(path)

    assert api.ask(line("status"))["kind"] == "Answer"
    api.close()
    assert not path.exists()


def test_live_socket_is_left_alone(api: Driven) -> None:
    """The socket of a daemon that answers is not taken away."""
    with pytest.raises(AlreadyRunning):
        Driven(api.path)

    assert api.ask(line("status"))["kind"] == "Answer"


def _file(path: Path) -> None:
    path.write_text("precious")


def _link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("precious")
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "part"), [(_file, "no socket"), (_link, "symbolic link"), (Path.mkdir, "no socket")]
)
def test_something_else_is_in_the_way(tmp_path: Path, make: Callable[[Path], None], part: str) -> None:
    """A file, link or directory in the socket's place is refused and stays as it was."""
    path = tmp_path / "api.sock"
    make(path)
    before = path.lstat()
    with pytest.raises(SocketUnusable, match=part) as caught:
        Driven(path)

    assert str(path) in str(caught.value)
    assert before.st_ino == path.lstat().st_ino


def test_directory_is_a_symbolic_link(tmp_path: Path) -> None:
    """A socket directory that is a symbolic link is not followed."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketUnusable, match="symbolic link"):
        Driven(tmp_path / "run" / "api.sock")

    assert os.listdir(tmp_path / "elsewhere") == []


def test_path_too_long(tmp_path: Path) -> None:
    """A path beyond the kernel's limit is refused with its name."""
    with pytest.raises(SocketUnusable, match="too long"):
        Driven(tmp_path / ("x" * 120))


def test_successor_keeps_its_socket(tmp_path: Path) -> None:
    """Closing does not remove a socket that another daemon has put in the place meanwhile."""
    path = tmp_path / "api.sock"
    first = Driven(path)
    path.rename(tmp_path / "old.sock")
    second = Driven(path)
    first.close()

    assert second.ask(line("status"))["kind"] == "Answer"
    second.close()


# ---- who may ask -------------------------------------------------------------------------------------------------


def ask_as(api: Driven, uid: int, gid: int, groups: list[int], verb: str) -> dict[str, Any]:
    """The answer to another user, ``{"errno": N}`` when the kernel does not let it connect."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(str(api.path))
                client.sendall(line(verb))
                os.write(writer, client.makefile("rb").readline())
        except OSError as exc:
            os.write(writer, json.dumps({"errno": exc.errno}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    data = b""
    while True:
        ready = readable(reader, api.server.fileno(), timeout_s=10)
        api.pump()
        if reader in ready:
            if not (part := os.read(reader, 1 << 16)):
                break
            data += part
    os.close(reader)
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(data)
    return found


@pytest.fixture
def shared() -> Iterator[Driven]:
    """A server whose socket the group MEMBERS may use, in a directory anybody can enter."""
    with public_directory() as directory:
        api = Driven(directory / "api.sock", group=MEMBERS)
        yield api
        api.close()


@as_root
@pytest.mark.parametrize(
    ("gid", "groups"),
    [(MEMBERS, []), (NOBODY, [MEMBERS]), (NOBODY, [*range(50_000, 50_200), MEMBERS])],
    ids=["primary", "supplementary", "200 groups"],
)
def test_members_read(shared: Driven, gid: int, groups: list[int]) -> None:
    """A member of the group, by its primary or a supplementary group, may read and not change."""
    assert ask_as(shared, NOBODY, gid, groups, "status")["result"]["uid"] == NOBODY
    refused(ask_as(shared, NOBODY, gid, groups, "release"), "not-permitted")


@as_root
def test_kernel_keeps_strangers_out(shared: Driven) -> None:
    """Others cannot even connect."""
    assert ask_as(shared, NOBODY, NOBODY, [], "status") == {"errno": 13}


@as_root
@pytest.mark.parametrize("groups", [[], list(range(50_000, 50_300))], ids=["none", "300 groups"])
def test_daemon_refuses_strangers(shared: Driven, groups: list[int]) -> None:
    """Where the file's mode lets strangers in, the daemon refuses them, also with more groups than it is told of."""
    shared.path.chmod(0o666)
    found = ask_as(shared, NOBODY, NOBODY, groups, "status")

    refused(found, "not-permitted")
    assert "group numapin" in found["message"]


@as_root
def test_root_changes(shared: Driven) -> None:
    """Root may change things."""
    assert shared.ask(line("release"))["result"] == {"released": True}

"""The API socket: one JSON request line and one JSON answer per connection.

Owns: who may ask what, and the bounds on size, time and number. Must never: block the loop, or know what a verb does.
"""

from __future__ import annotations

import errno
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from numapin.daemon.api_peer import Peer, read_peer
from numapin.daemon.api_socket import group_id, listen
from numapin.daemon.api_wire import UnknownVerb, encode_error, encode_result, parse_request
from numapin.model.errors import ExitStatus, NotPermitted, NumapinError, RequestFailed

__all__ = ["ApiServer", "Handler", "Peer", "UnknownVerb"]

GROUP = "numapin"
MAX_REQUEST_BYTES = 64 << 10
MAX_CONNECTIONS = 64
DEADLINE_NS = 5_000_000_000
"""For a request to arrive, and again for its answer to be taken."""
PAUSE_NS = 1_000_000_000
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Handler = Callable[[str, Mapping[str, object], Peer], object]
"""(verb, params, peer) to plain JSON data. `NumapinError` becomes an error answer; UnknownVerb for no such verb."""


class _Connection:
    """One client: what came, what is still to be sent, until when."""

    def __init__(self, sock: socket.socket, peer: Peer, deadline_ns: int) -> None:
        self.sock = sock
        self.peer = peer
        self.deadline_ns = deadline_ns
        self.received = bytearray()
        self.answer: memoryview | None = None
        self.late = False
        """Its time was over once, and it had done its part: the loop was what was late."""
        self.draining = False
        """Answered, but the client has sent more: a close now could take the answer from it (ECONNRESET)."""

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever the client has sent or taken something."""
        return len(self.received), -1 if self.answer is None else len(self.answer)


class ApiServer:
    """
    Serves *handler* on *path* inside somebody else's selector.

    All descriptors are behind one epoll descriptor of its own, which `attach` registers with this object as its
    data; the loop calls `ready` when it is readable and `expire` from time to time. Verbs in *changing* are for
    root only, all others for root and the group too. *group* is a name, or a number for a group without one.
    """

    def __init__(
        self,
        path: Path,
        handler: Handler,
        *,
        changing: frozenset[str] = frozenset(),
        group: str | int = GROUP,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.path = path
        self._handler = handler
        self._changing = changing
        self._gid = group if isinstance(group, int) else group_id(group)
        self._max_connections = max_connections
        self._epoll = selectors.EpollSelector()
        self._listener: socket.socket | None = None
        self._inode = 0
        self._accepting = False
        self._resume_ns: int | None = None
        """When to accept again after the process ran out of descriptors."""
        self._connections: dict[int, _Connection] = {}

    def fileno(self) -> int:
        """The descriptor that is readable when `ready` has something to do."""
        return self._epoll.fileno()

    def attach(self, selector: selectors.BaseSelector) -> None:
        """
        Make the socket (0660 with the group, else 0600), listen, and register with *selector*.

        Raises:
            AlreadyRunning: A daemon answers there.
            SocketUnusable: The place is taken by something else, or cannot be written.
        """
        self._listener, self._inode = listen(self.path, self._gid, self._max_connections)
        self._accept_more(True)
        selector.register(self, selectors.EVENT_READ, self)

    def close(self) -> None:
        """Drop every client and remove the socket file, if it is still ours."""
        for connection in tuple(self._connections.values()):
            self._drop(connection)
        if self._listener is not None:
            with suppress(OSError):
                if self.path.lstat().st_ino == self._inode:
                    self.path.unlink()
            self._accept_more(False)
            self._listener.close()
            self._listener = None
        self._epoll.close()

    def ready(self, key: selectors.SelectorKey, now_ns: int) -> None:
        """Serve what is ready, without waiting. *now_ns* is monotonic time; *key* is the loop's and is not used."""
        del key
        self._serve_ready(now_ns)

    def _serve_ready(self, now_ns: int) -> None:
        for mine, mask in self._epoll.select(0):
            if mine.data is None:
                self._accept(now_ns)
            else:
                self._serve(mine.data, mask, now_ns)

    def expire(self, now_ns: int) -> int | None:
        """
        Drop clients whose time is over; returns `deadline_ns`.

        What they have sent or taken by now is looked at first: the loop may have been busy for longer than that.
        """
        due = {c: c.progress for c in self._connections.values() if now_ns >= c.deadline_ns}
        if due:
            self._serve_ready(now_ns)
        for connection, before in due.items():
            if connection.sock.fileno() < 0 or now_ns < connection.deadline_ns:
                continue
            if connection.progress != before and not connection.late:
                connection.late, connection.deadline_ns = True, now_ns + DEADLINE_NS
            else:
                self._drop(connection)
        if self._resume_ns is not None and now_ns >= self._resume_ns:
            self._accept_more(True)
        return self.deadline_ns()

    def deadline_ns(self) -> int | None:
        """When `expire` has something to do, in monotonic time; ``None`` when there is nothing."""
        due = [c.deadline_ns for c in self._connections.values()]
        return min(due if self._resume_ns is None else [*due, self._resume_ns], default=None)

    def _accept_more(self, wanted: bool) -> None:
        assert self._listener is not None
        self._resume_ns = None
        if wanted and not self._accepting:
            self._epoll.register(self._listener, selectors.EVENT_READ, None)
        elif self._accepting and not wanted:
            self._epoll.unregister(self._listener)
        self._accepting = wanted

    def _accept(self, now_ns: int) -> None:
        assert self._listener is not None
        while len(self._connections) < self._max_connections:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in _SHORT:  # the queue stays readable; without a pause the loop would spin
                    self._accept_more(False)
                    self._resume_ns = now_ns + PAUSE_NS
                return
            sock.setblocking(False)
            try:
                connection = _Connection(sock, read_peer(sock), now_ns + DEADLINE_NS)
            except OSError:
                sock.close()
                continue
            self._connections[sock.fileno()] = connection
            self._epoll.register(sock, selectors.EVENT_READ, connection)
            if not self._may_read(connection.peer):
                self._refuse(connection, NotPermitted(_STRANGER), now_ns)
        self._accept_more(False)  # the rest waits in the kernel's queue

    def _may_read(self, peer: Peer) -> bool:
        return peer.is_root or (self._gid is not None and self._gid in peer.groups)

    def _serve(self, connection: _Connection, mask: int, now_ns: int) -> None:
        if connection.sock.fileno() not in self._connections:
            return
        try:
            if mask & selectors.EVENT_READ:
                self._receive(connection, now_ns)
            if connection.answer and connection.sock.fileno() in self._connections:
                self._send(connection)
        except BlockingIOError:
            pass
        except OSError:  # the client went
            self._drop(connection)

    def _receive(self, connection: _Connection, now_ns: int) -> None:
        data = connection.sock.recv(64 << 10)
        if connection.answer is not None:
            if not data:
                self._drop(connection)
            return
        connection.received += data
        line, end, rest = connection.received.partition(b"\n")
        if not end and data and len(line) <= MAX_REQUEST_BYTES:
            return
        if len(line) > MAX_REQUEST_BYTES:
            self._refuse(connection, RequestFailed("too-large", _TOO_LARGE, ExitStatus.USAGE), now_ns)
        elif not line and not end:
            self._drop(connection)
        elif not end or rest:
            self._refuse(connection, RequestFailed("bad-request", _ONE_LINE, ExitStatus.USAGE), now_ns)
        else:
            self._handle(connection, bytes(line), now_ns)

    def _handle(self, connection: _Connection, line: bytes, now_ns: int) -> None:
        """Answer one request. A fault of the handler is the loop's to report; its client is told that much."""
        answer = encode_error(RequestFailed("internal", "the daemon failed on this request; see its log"))
        try:
            verb, params = parse_request(line)
            if verb in self._changing and not connection.peer.is_root:
                raise NotPermitted(f"numapin {verb} changes something and is for root only")
            answer = encode_result(self._handler(verb, params, connection.peer))
        except NumapinError as exc:
            answer = encode_error(exc)
        finally:
            self._queue(connection, answer, now_ns)

    def _refuse(self, connection: _Connection, error: NumapinError, now_ns: int) -> None:
        connection.draining = True
        self._queue(connection, encode_error(error), now_ns)

    def _queue(self, connection: _Connection, answer: bytes, now_ns: int) -> None:
        connection.received.clear()
        connection.answer = memoryview(answer)
        connection.deadline_ns = now_ns + DEADLINE_NS
        self._epoll.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def _send(self, connection: _Connection) -> None:
        assert connection.answer is not None
        connection.answer = connection.answer[connection.sock.send(connection.answer) :]
        if not connection.answer:
            if not connection.draining:
                self._drop(connection)
                return
            connection.sock.shutdown(socket.SHUT_WR)
            self._epoll.modify(connection.sock, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.sock.fileno()]
        self._epoll.unregister(connection.sock)
        connection.sock.close()
        if self._listener is not None:
            self._accept_more(True)


_STRANGER = (
    f"reading needs root or membership in the group {GROUP} (sudo usermod -aG {GROUP} USER, then log in again)"
)
_TOO_LARGE = f"a request is at most {MAX_REQUEST_BYTES} bytes"
_ONE_LINE = "a connection carries one request: one line of JSON and its line end"

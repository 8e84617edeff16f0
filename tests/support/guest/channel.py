"""
The host's side of the exec channel to the guest's agent (``agent.py`` tells the protocol).

Owns the socket and the matching of answers to requests; knows nothing of QEMU's life.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

CHUNK_BYTES: Final = 512 * 1024
HELLO_EVERY_S: Final = 0.5


class ChannelTimeout(Exception):
    """No answer in time; the guest's life decides what it means."""


class ChannelClosed(Exception):
    """QEMU closed its end."""


class ChannelRefused(Exception):
    """The agent answered with an error."""


class Channel:
    """
    Requests to the agent, one after the other.

    *check* is called while waiting, about every half second, and may raise to end the wait.
    """

    def __init__(self, connection: socket.socket, check: Callable[[], None]) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._check = check
        self._pending = bytearray()

    def close(self) -> None:
        """Close the socket; may be called twice."""
        self._socket.close()

    def synchronise(self, *, timeout_s: float) -> None:
        """
        The agent answers, and the guest's clock is the host's.

        Also the way back after a snapshot was loaded: what was under way is forgotten on this
        side, and the line break before the first request ends any half line on the other.

        Raises:
            ChannelTimeout: The agent was not there in *timeout_s* seconds.
        """
        deadline = time.monotonic() + timeout_s
        sent: set[str] = set()
        self._drop_received()
        while True:
            sent.add(self._send("hello", {"time_ns": time.time_ns()}, deadline, lead=b"\n"))
            try:
                self._receive(sent, min(deadline, time.monotonic() + HELLO_EVERY_S * len(sent)))
                return
            except ChannelTimeout:
                if time.monotonic() >= deadline:
                    raise

    def request(self, operation: str, fields: Mapping[str, object], *, timeout_s: float) -> dict[str, object]:
        """
        The agent's answer to one request.

        Raises:
            ChannelTimeout: No answer in *timeout_s* seconds.
            ChannelRefused: The agent could not do it.
            ChannelClosed: QEMU ended.
        """
        deadline = time.monotonic() + timeout_s
        identity = self._send(operation, fields, deadline)
        answer = self._receive({identity}, deadline)
        if "error" in answer:
            raise ChannelRefused(str(answer["error"]))
        return answer

    def send_raw(self, data: bytes) -> None:
        """Send *data* as it is, for tests of the channel; a few kilobytes at most."""
        self._socket.sendall(data)

    def _send(self, operation: str, fields: Mapping[str, object], deadline: float, *, lead: bytes = b"") -> str:
        """Send one request; gives its identity."""
        identity = uuid.uuid4().hex
        line = json.dumps({"id": identity, "op": operation, **fields}).encode("ascii")
        data = memoryview(lead + line + b"\n")
        while data:
            self._wait(select.POLLOUT, deadline)
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                continue
            except (BrokenPipeError, ConnectionResetError) as exc:
                raise ChannelClosed from exc
        return identity

    def _receive(self, identities: set[str], deadline: float) -> dict[str, object]:
        """The first answer to one of *identities*; others are stale and dropped."""
        while True:
            end = self._pending.find(b"\n")
            if end < 0:
                self._wait(select.POLLIN, deadline)
                self._pending += self._read_some()
                continue
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            try:
                answer = json.loads(line)
            except ValueError:
                continue  # the rest of a message from before a snapshot was loaded
            if isinstance(answer, dict) and answer.get("id") in identities:
                return answer

    def _read_some(self) -> bytes:
        """What has arrived, which may be nothing."""
        try:
            part = self._socket.recv(1 << 18)
        except BlockingIOError:
            return b""
        except ConnectionResetError as exc:
            raise ChannelClosed from exc
        if not part:
            raise ChannelClosed
        return part

    def _drop_received(self) -> None:
        self._pending.clear()
        while self._read_some():
            pass

    def _wait(self, events: int, deadline: float) -> None:
        """Until the socket is ready for *events*."""
        poll = select.poll()
        poll.register(self._socket, events)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ChannelTimeout
            if poll.poll(min(left_s, 0.5) * 1000):
                return
            self._check()


def encode(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def decode(field: object) -> bytes:
    """The bytes of a base64 field of an answer."""
    return base64.b64decode(str(field))

"""An API server driven by its test, in the test's own thread or in one beside it."""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numapin.daemon.api import ApiServer, Handler, Peer, UnknownVerb

NOW_NS = 1_000_000_000
LARGE = {"text": "x" * 5_000_000}
"""Far more than a socket buffer holds."""


def handler(verb: str, params: Mapping[str, object], peer: Peer) -> object:
    """A daemon with a few verbs."""
    match verb:
        case "status":
            return {"params": dict(params), "uid": peer.uid}
        case "large":
            return LARGE
        case "release":
            return {"released": True}
        case "break":
            raise ZeroDivisionError("a bug")
        case _:
            raise UnknownVerb(verb)


class Driven:
    """A server that moves only when told."""

    def __init__(self, path: Path, serve: Handler = handler, **options: Any) -> None:
        self.server = ApiServer(path, serve, changing=frozenset({"release"}), **options)
        self.selector = selectors.DefaultSelector()
        self.path = path
        self.server.attach(self.selector)

    def pump(self, now_ns: int = NOW_NS) -> None:
        """Serve until nothing is ready."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                self.server.ready(key, now_ns)

    def connect(self) -> socket.socket:
        """A client that does not wait."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(str(self.path))
        client.setblocking(False)
        return client

    def ask(self, data: bytes) -> dict[str, Any]:
        """Send these bytes and take the answer."""
        with self.connect() as client:
            client.sendall(data)
            self.pump()
            return answer(client, self.pump)

    def close(self) -> None:
        """Stop."""
        self.server.close()
        self.selector.close()


def line(verb: object, params: object = None, version: object = "numapin/v1") -> bytes:
    """A request."""
    return json.dumps({"apiVersion": version, "verb": verb, "params": params or {}}).encode() + b"\n"


def answer(client: socket.socket, pump: Callable[[], None]) -> dict[str, Any]:
    """Everything until the server closes, while *pump* lets it go on; it must be one line."""
    data = bytearray()
    while True:
        try:
            part = client.recv(1 << 16)
        except BlockingIOError:
            pump()
            continue
        if not part:
            break
        data += part
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    found: dict[str, Any] = json.loads(data)
    return found


@contextmanager
def serving(path: Path, serve: Handler = handler) -> Iterator[None]:
    """A server in a thread of its own, for clients that wait."""
    driven = Driven(path, serve)
    reader, writer = os.pipe()
    driven.selector.register(reader, selectors.EVENT_READ, None)

    def loop() -> None:
        while True:
            for key, _ in driven.selector.select():
                if key.data is None:
                    return
                driven.server.ready(key, NOW_NS)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        os.write(writer, b"x")
        thread.join()
        driven.close()
        os.close(reader)
        os.close(writer)

"""A system bus with systemd behind it: a socket that speaks D-Bus, in a thread."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jeepney import HeaderFields, MessageType, Parser, new_error, new_method_return

from numapin.kernel.systemd import BOOTED, SYSTEM_BUS

UNKNOWN_PROPERTY = "org.freedesktop.DBus.Error.UnknownProperty"
DENIED = "org.freedesktop.DBus.Error.AccessDenied"
NO_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


@dataclass
class Unit:
    """A loaded unit; *nodes* is the property's bit map."""

    cgroup: str
    nodes: bytes = b""


@dataclass
class SystemBus:
    """
    What systemd knows and how it behaves; changed by a test at any time.

    ``calls`` are the methods called, in order. ``refuse_set`` and ``refuse_get`` are names of errors; ``deaf``
    takes a set as success and keeps the old value; ``mute`` answers nothing. ``on_set`` is what systemd does to
    the cgroup of a unit whose property was set, before it answers.
    """

    root: Path
    units: dict[str, Unit] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refuse_set: str = ""
    refuse_get: str = ""
    deaf: bool = False
    mute: bool = False
    on_set: Callable[[Unit], None] | None = None

    def add(self, cgroup: str, nodes: bytes = b"") -> str:
        """Load a unit whose own directory is *cgroup*; its name."""
        name = cgroup.rpartition("/")[2]
        self.units[name] = Unit(cgroup, nodes)
        return name

    def answer(self, message: Any) -> Any:
        """The reply to one method call; ``None`` for none."""
        member = message.header.fields[HeaderFields.member]
        if member == "Hello":
            return new_method_return(message, "s", (":1.1",))
        self.calls.append(member)
        if self.mute:
            return None
        match member, message.body:
            case "GetUnit", (name,):
                if name not in self.units:
                    return new_error(message, NO_UNIT, "s", (f"Unit {name} not loaded.",))
                path = "/org/freedesktop/systemd1/unit/" + name.encode().hex()
                return new_method_return(message, "o", (path,))
            case "Get", (interface, name):
                unit = self._unit(message)
                assert interface.endswith((".Scope", ".Service"))
                if name == "ControlGroup":
                    return new_method_return(message, "v", (("s", unit.cgroup),))
                if self.refuse_get:
                    return new_error(message, self.refuse_get, "s", (f"Unknown property {name}.",))
                return new_method_return(message, "v", (("ay", unit.nodes),))
            case "SetUnitProperties", (name, runtime, [("AllowedMemoryNodes", ("ay", value))]):
                assert runtime is True
                if self.refuse_set or name not in self.units:
                    return new_error(message, self.refuse_set or NO_UNIT, "s", ("No.",))
                if not self.deaf:
                    self.units[name].nodes = bytes(value) + b"\0" * 7 if value else b""  # systemd pads to words
                    if self.on_set is not None:
                        self.on_set(self.units[name])
                return new_method_return(message)
            case _:
                raise AssertionError(f"nobody should call {member} with {message.body}")

    def _unit(self, message: Any) -> Unit:
        path = message.header.fields[HeaderFields.path]
        return self.units[bytes.fromhex(path.rpartition("/")[2]).decode()]

    # ---- the bus ---------------------------------------------------------------------------------------------

    def serve(self, listener: socket.socket, stop: socket.socket) -> None:
        """Serve clients, each as far as it goes, until *stop* has a byte."""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(stop, selectors.EVENT_READ)
            clients: dict[socket.socket, _Client] = {}
            while True:
                for key, _ in selector.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is stop:
                        for client in clients:
                            client.close()
                        return
                    if sock is listener:
                        fresh, _ = listener.accept()
                        clients[fresh] = _Client(fresh)
                        selector.register(fresh, selectors.EVENT_READ)
                    elif not clients[sock].serve(self):
                        selector.unregister(sock)
                        clients.pop(sock)
                        sock.close()


class _Client:
    """One connection: a few lines of SASL, then messages."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lines: bytearray | None = bytearray()
        self.parser = Parser()
        self.serial = 0

    def serve(self, bus: SystemBus) -> bool:
        """Take what came and answer; false at its end."""
        data = self.sock.recv(1 << 16)
        if not data:
            return False
        if self.lines is not None:
            self.lines += data
            data = b""
            while self.lines is not None and b"\r\n" in self.lines:
                line, self.lines = self.lines.split(b"\r\n", 1)
                if line.lstrip(b"\0").startswith(b"AUTH EXTERNAL"):
                    self.sock.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
                elif line == b"BEGIN":
                    data, self.lines = bytes(self.lines), None
        for message in self.parser.feed(data):
            if message.header.message_type is not MessageType.method_call:
                continue
            message.header.fields.setdefault(HeaderFields.sender, ":1.1")  # what a bus adds
            reply = bus.answer(message)
            if reply is not None:
                self.serial += 1
                self.sock.sendall(reply.serialise(serial=self.serial))
        return True


@contextmanager
def system_bus(root: Path) -> Iterator[SystemBus]:
    """A machine below *root* that systemd has started, with its bus."""
    (root / BOOTED).mkdir(parents=True)
    path = root / SYSTEM_BUS
    path.parent.mkdir(parents=True)
    bus = SystemBus(root)
    near, far = socket.socketpair()
    with near, far, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=bus.serve, args=(listener, far))
        thread.start()
        try:
            yield bus
        finally:
            near.send(b"x")
            thread.join()

"""The property ``AllowedMemoryNodes`` of systemd units, over the system bus.

Owns: which cgroup is a unit, and the few D-Bus calls about it. Must never: change anything but that property, and it
only at run time; be used in the daemon's loop, since PID 1 may take seconds to answer; or be needed: a machine
without systemd is as good. Uses only what jeepney 0.8 and 0.9 have in common: its authentication and its parser.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from numapin.kernel.clock import SystemClock
from numapin.model.errors import NoSuchUnit, SystemdAbsent, SystemdError, SystemdTooOld
from numapin.model.nodeset import MAX_ID, NodeSet

SYSTEM_BUS = "run/dbus/system_bus_socket"
BOOTED = "run/systemd/system"
"""Exists when systemd is the service manager. Source: sd_booted(3)."""
TIMEOUT_S = 30.0
"""For one answer: PID 1 was seen to be busy for 12.7 s while it moved a container's pages."""

_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_PROPERTY = "AllowedMemoryNodes"
_INTERFACES = {".scope": f"{_NAME}.Scope", ".service": f"{_NAME}.Service"}
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,248}\.(scope|service)")
_UNKNOWN_PROPERTY = "org.freedesktop.DBus.Error.UnknownProperty"
_NOBODY = tuple(f"org.freedesktop.DBus.Error.{e}" for e in ("ServiceUnknown", "NameHasNoOwner", "Spawn."))
"""How the errors begin that a bus answers with when nobody has the name and nobody can be started for it."""


def unit_of(cgroup: str) -> str | None:
    """
    The unit whose own directory the cgroup path is; ``None`` for a directory inside a unit and for any other.

    A name is no proof (the cgroupfs driver can make ``x.scope`` too): compare `Systemd.read_control_group`.

    Source: systemd, cg_escape(): a directory whose name could be one of the kernel's files gets ``_`` in front.
    """
    name = cgroup.rpartition("/")[2].removeprefix("_")
    return name if _UNIT.fullmatch(name) else None


def encode_nodes(nodes: NodeSet) -> bytes:
    """The property's bit map: node *n* is bit ``n % 8`` of byte ``n // 8``. Source: man org.freedesktop.systemd1."""
    number = sum(1 << node for node in nodes)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def decode_nodes(data: bytes) -> NodeSet:
    """`encode_nodes` backwards; zero bytes at the end mean nothing. Raises: ValueError for a node above MAX_ID."""
    data = data.rstrip(b"\0")
    if len(data) * 8 > MAX_ID + 1:
        raise ValueError(f"a node above {MAX_ID}")
    number = int.from_bytes(data, "little")
    return NodeSet.from_ids(n for n in range(number.bit_length()) if number >> n & 1)


class Systemd:
    """
    The service manager of the machine below *root*. Connects when first asked; for one thread at a time.

    Every method raises, beside what it names:
        SystemdAbsent: No systemd, no system bus, or nobody answers for it there.
        SystemdError: Another error, or no answer within the time.
    """

    def __init__(self, root: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._bus = root / SYSTEM_BUS
        self._booted = root / BOOTED
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection; the next call makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def present(self) -> bool:
        """True where systemd runs the machine and there is a bus to reach it by."""
        return self._booted.is_dir() and self._bus.exists()

    def read_allowed_memory_nodes(self, unit: str) -> NodeSet:
        """
        The nodes that *unit* is told to be held to; empty when it is told nothing.

        Raises:
            NoSuchUnit: It is not loaded.
        """
        value = self._read(unit, _PROPERTY, "ay")
        try:
            return decode_nodes(bytes(value))
        except ValueError as exc:
            raise SystemdError(unit, f"answered {_PROPERTY} with {len(value)} bytes: {exc}") from exc

    def read_control_group(self, unit: str) -> str:
        """
        Cgroup path of *unit*, empty while it has none.

        Raises:
            NoSuchUnit: It is not loaded.
        """
        return str(self._read(unit, "ControlGroup", "s"))

    def set_allowed_memory_nodes(self, unit: str, nodes: NodeSet) -> None:
        """
        Tell *unit* at run time to be held to *nodes*; none resets the property.

        systemd writes the unit's ``cpuset.mems`` before it answers, and does nothing else meanwhile: write the
        cgroup first, so that no page is left to move. A reset is taken as success although the cgroup keeps its
        nodes (the kernel refuses an empty set for a populated cgroup).

        Raises:
            NoSuchUnit: It is not loaded.
        """
        properties = [(_PROPERTY, ("ay", encode_nodes(nodes)))]
        self._call(unit, _PATH, f"{_NAME}.Manager", "SetUnitProperties", "sba(sv)", (unit, True, properties))

    def _read(self, unit: str, name: str, signature: str) -> Any:
        (path,) = self._call(unit, _PATH, f"{_NAME}.Manager", "GetUnit", "s", (unit,))
        interface = _INTERFACES[f".{unit.rpartition('.')[2]}"]
        body = self._call(unit, path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name))
        match body:
            case [(found, value)] if found == signature:
                return value
        raise SystemdError(unit, f"answered {name} with {body!r:.120}")

    def _call(
        self, unit: str, path: str, interface: str, method: str, signature: str, body: tuple[object, ...]
    ) -> Any:
        from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call

        if not self.present:
            raise SystemdAbsent(unit, "this machine was not started by systemd, or has no system bus")
        message = new_method_call(DBusAddress(path, _NAME, interface), method, signature, body)
        with self._told(unit):
            answer = self._exchange(message)
        if answer.header.message_type is MessageType.error:
            error = str(answer.header.fields.get(HeaderFields.error_name, "an error without a name"))
            text = str(answer.body[0])[:200] if answer.body else ""
            if error.startswith(_NOBODY):
                raise SystemdAbsent(unit, f"systemd is not on the system bus: {text or error}")
            if error == _UNKNOWN_PROPERTY:
                raise SystemdTooOld(unit, f"it does not know the property, which came with systemd 244 ({error})")
            kind = NoSuchUnit if error == f"{_NAME}.NoSuchUnit" else SystemdError
            raise kind(unit, f"{text} ({error})" if text else error)
        return answer.body

    def _exchange(self, message: Any) -> Any:
        """One call; a connection that broke since the last one is replaced once."""
        if self._connection is not None:
            try:
                return self._connection.ask(message, self._timeout_s)
            except (BrokenPipeError, ConnectionResetError):
                self.close()
        self._connection = _Connection(str(self._bus), self._timeout_s)
        return self._connection.ask(message, self._timeout_s)

    @contextmanager
    def _told(self, unit: str) -> Iterator[None]:
        """What can go wrong on a socket, as our errors; the connection is not used again then."""
        try:
            yield
        except TimeoutError as exc:
            self.close()
            raise SystemdError(unit, f"no answer within {self._timeout_s:g} s") from exc
        except (FileNotFoundError, ConnectionRefusedError) as exc:
            self.close()
            raise SystemdAbsent(unit, f"nobody listens on {self._bus}") from exc
        except (OSError, ValueError) as exc:  # ValueError: jeepney's, for what is not D-Bus
            self.close()
            raise SystemdError(unit, f"{self._bus}: {exc}") from exc


class _Connection:
    """One connection to a message bus, authenticated and named. Each step has a deadline."""

    def __init__(self, path: str, timeout_s: float) -> None:
        from jeepney import DBusAddress, Parser, new_method_call
        from jeepney.auth import BEGIN, Authenticator

        self._parser = Parser()
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._clock = SystemClock()
        self._deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        try:
            self._limit()
            self._socket.connect(path)
            authenticator = Authenticator()
            for line in authenticator:
                self._send(line)
                authenticator.feed(self._receive())
            self._send(BEGIN)
            bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
            self.ask(new_method_call(bus, "Hello"), timeout_s)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def ask(self, message: Any, timeout_s: float) -> Any:
        """Send a call and wait for its answer; signals and others' messages in between are dropped."""
        from jeepney import HeaderFields

        self._deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        self._serial += 1
        self._send(message.serialise(serial=self._serial))
        while True:
            while (answer := self._parser.get_next_message()) is None:
                self._parser.add_data(self._receive())
            if answer.header.fields.get(HeaderFields.reply_serial) == self._serial:
                return answer

    def _send(self, data: bytes) -> None:
        self._limit()
        self._socket.sendall(data)

    def _receive(self) -> bytes:
        self._limit()
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the bus closed the connection")
        return data

    def _limit(self) -> None:
        left_ns = self._deadline_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        self._socket.settimeout(left_ns / 1e9)

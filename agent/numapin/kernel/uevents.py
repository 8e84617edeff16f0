"""Memory hotplug: the kernel's uevents of memory blocks and nodes.

Owns: the netlink socket they come from. Must never: load all of pyroute2 where its two sockets can be had alone, or
take what was lost for silence.
"""

from __future__ import annotations

import errno
import importlib.util
import socket
import sys
from dataclasses import dataclass
from typing import Any, Self

from numapin.model.errors import KernelReadError

_UEVENT_KERNEL_GROUP = 1
_UEVENT_BYTES = 65_536
_HOTPLUG_SUBSYSTEMS = ("memory", "node")


@dataclass(frozen=True, slots=True)
class Uevent:
    """A kernel uevent of memory or a node, with the kernel's words (``online``, ``memory``, ``/devices/…``)."""

    action: str
    subsystem: str
    devpath: str


class UeventWatcher:
    """
    Kernel uevents of memory blocks and nodes (not udev's copies), without blocking.

    Raises:
        KernelReadError: The kernel or the service's restrictions do not allow the socket.
    """

    def __init__(self) -> None:
        base, kind = _uevent_sockets()
        try:
            self._socket: Any = kind()
            # the base class's bind: that of UeventSocket takes no group before pyroute2 0.8
            base.bind(self._socket, groups=_UEVENT_KERNEL_GROUP)
        except OSError as exc:
            raise KernelReadError("the kernel's uevent socket", exc.errno or 0) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Descriptor that becomes readable when an uevent of any kind arrives."""
        return int(self._socket.fileno())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def drain(self) -> bool:
        """Take everything off the socket; true when memory or a node changed, or something may have been lost."""
        return bool(self.read())

    def read(self) -> list[Uevent]:
        """
        Uevents of memory and nodes since the last call; never blocks.

        When the kernel dropped some, one with the action ``lost`` is among them.
        """
        events: list[Uevent] = []
        while True:
            try:
                data = self._socket.recv(_UEVENT_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return events
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise KernelReadError("the kernel's uevent socket", exc.errno or 0) from exc
                events.append(Uevent("lost", "memory", ""))
                continue
            for message in self._socket.marshal.parse(data):
                if message.get("SUBSYSTEM") in _HOTPLUG_SUBSYSTEMS:
                    events.append(Uevent(message.get("ACTION"), message.get("SUBSYSTEM"), message.get("DEVPATH")))


def _uevent_sockets() -> tuple[Any, Any]:
    """
    pyroute2's netlink socket and its uevent socket, without the rest of pyroute2.

    Its package imports everything it can do (routing, nftables, a database): 10 MiB for the daemon's whole life and
    half of its start. So the package stands in ``sys.modules`` unexecuted, as a place to import the two from
    (tried with 0.7.7 and 0.9.7); where a version does not bear that, all of it is loaded.
    """
    spec = importlib.util.find_spec("pyroute2")
    if spec is not None and "pyroute2" not in sys.modules:
        sys.modules["pyroute2"] = importlib.util.module_from_spec(spec)
        try:
            return _import_sockets()
        except (ImportError, AttributeError):
            for name in [m for m in sys.modules if m == "pyroute2" or m.startswith("pyroute2.")]:
                del sys.modules[name]
    return _import_sockets()


def _import_sockets() -> tuple[Any, Any]:
    from pyroute2.netlink.nlsocket import NetlinkSocket
    from pyroute2.netlink.uevent import UeventSocket

    return NetlinkSocket, UeventSocket

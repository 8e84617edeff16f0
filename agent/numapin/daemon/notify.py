"""Talking to the service manager, as sd_notify(3) does.

Owns: the datagrams to ``NOTIFY_SOCKET``. Must never: fail the daemon because nobody listens, or wait long.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

_SEND_TIMEOUT_S = 1.0
_MAX_STATUS_CHARS = 512


@dataclass(frozen=True, slots=True)
class Notifier:
    """
    *address* is a path, or ``@`` and an abstract name; ``None`` makes every call do nothing.

    ``watchdog_ns`` is the manager's limit between two `watchdog` calls, ``None`` when it has none; calling at
    half of it is the custom. Every method answers whether the datagram was taken.
    """

    address: str | None = None
    watchdog_ns: int | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, pid: int) -> Notifier:
        """
        Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` (another process's watchdog is not ours).

        Source: sd_notify(3), sd_watchdog_enabled(3).
        """
        address = environ.get("NOTIFY_SOCKET", "")
        if len(address) < 2 or address[0] not in "/@":
            return cls()
        usec = environ.get("WATCHDOG_USEC", "")
        meant = environ.get("WATCHDOG_PID", "") in ("", str(pid))
        is_number = usec.isascii() and usec.isdecimal() and len(usec) < 19
        watchdog_ns = int(usec) * 1000 if meant and is_number and int(usec) > 0 else None
        return cls(address, watchdog_ns)

    def ready(self, status: str) -> bool:
        """The daemon serves; also ends a reload."""
        return self._send("READY=1", _status(status))

    def status(self, status: str) -> bool:
        """One line for ``systemctl status``."""
        return self._send(_status(status))

    def reloading(self, *, monotonic_ns: int) -> bool:
        """A reload begins at *monotonic_ns* (CLOCK_MONOTONIC); `ready` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns // 1000}")

    def stopping(self, status: str) -> bool:
        """The daemon is on its way out."""
        return self._send("STOPPING=1", _status(status))

    def watchdog(self) -> bool:
        """The loop is alive."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        if self.address is None:
            return False
        name = "\0" + self.address[1:] if self.address[0] == "@" else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_TIMEOUT_S)  # a full queue of the manager's drains in milliseconds
            try:
                sender.sendto("\n".join(lines).encode("utf-8", "replace"), name)
            except OSError:
                return False  # the manager went, or does not read; serving containers does not depend on it
        return True


def _status(text: str) -> str:
    """One line, whatever is in *text*: a line end would begin another assignment."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return "STATUS=" + line[:_MAX_STATUS_CHARS]

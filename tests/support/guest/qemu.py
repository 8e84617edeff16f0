"""
One QEMU process: its command line, its sockets, its end.

Knows the process, the monitor and the exec channel; what is done over them is ``machine``'s.
"""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.guest.channel import Channel
from support.guest.errors import GuestDied, GuestTimeout
from support.guest.host import Tool, require
from support.guest.monitor import Monitor, MonitorLost, MonitorRefused
from support.guest.recipe import Recipe

START_S: Final = 120.0
CONSOLE_LINES: Final = 40


@dataclass(frozen=True, slots=True)
class Drives:
    """What a QEMU starts from: all paths absolute; only *overlay* is written."""

    kernel: Path
    initrd: Path
    disk: Path
    overlay: Path


class Qemu:
    """
    A running QEMU whose files (console.log, console.sock, qemu.log) lie in *directory*.

    It is killed by the kernel when the thread that made it ends.
    """

    def __init__(self, recipe: Recipe, drives: Drives, directory: Path, *, snapshot: str | None) -> None:
        """
        Start it, from *snapshot* of the overlay or, with ``None``, by a cold boot.

        Raises:
            HostNotReady: QEMU is not installed.
            GuestDied: It ended at once, as with a snapshot that is not there.
            GuestTimeout: It did not greet.
        """
        self._directory = directory
        exec_here, exec_there = socket.socketpair()
        monitor_here, monitor_there = socket.socketpair()
        with exec_there, monitor_there, (directory / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(require(Tool.SETPRIV), "--pdeathsig", "KILL", require(Tool.QEMU)),
                    *recipe.machine.options(),
                    *_back_ends(recipe, drives, directory),
                    *("-chardev", f"socket,id=exec,fd={exec_there.fileno()}"),
                    *("-chardev", f"socket,id=monitor,fd={monitor_there.fileno()}"),
                    *("-mon", "chardev=monitor,mode=control"),
                    *([] if snapshot is None else ["-loadvm", snapshot]),
                ],
                pass_fds=(exec_there.fileno(), monitor_there.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
            )
        self.channel = Channel(exec_here, self.check)
        self.monitor = Monitor(monitor_here)
        try:
            self.monitor.connect(timeout_s=START_S)
            self.monitor.execute("cont", timeout_s=START_S)
        except (MonitorLost, MonitorRefused) as exc:
            self.kill()
            raise GuestDied(f"QEMU did not start: {exc}; {self._last_words()}", "") from exc

    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def wait_end(self, timeout_s: float = 5) -> None:
        """Give a dying QEMU so many seconds to be dead."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def check(self) -> None:
        """
        Nothing while the process lives.

        Raises:
            GuestDied: It has ended.
        """
        if not self.is_running():
            status = self._process.returncode
            raise GuestDied(
                f"QEMU ended with {status} (a panic in the guest ends it too); {self._last_words()}",
                self.console_tail(),
            )

    def timeout(self, what: str, seconds: float) -> GuestTimeout:
        """The error for *what* not having happened in so many seconds."""
        return GuestTimeout(f"not within {seconds:g} s: {what}", self.console_tail())

    def console_tail(self, lines: int = CONSOLE_LINES) -> str:
        """The last lines that the guest wrote to its serial console."""
        return _tail(self._directory / "console.log", lines)

    def quit(self) -> None:
        """End it in order, so that the overlay is whole; kill it when it does not."""
        if self.is_running():
            try:
                self.monitor.execute("quit", timeout_s=10)
                self._process.wait(30)
            except (MonitorLost, MonitorRefused, subprocess.TimeoutExpired):
                pass  # killed below
        self.kill()

    def kill(self) -> None:
        """End it at once and close all; may be called twice."""
        if self.is_running():
            self._process.kill()
        self._process.wait(30)
        self.channel.close()
        self.monitor.close()

    def _last_words(self) -> str:
        return "QEMU said: " + (_tail(self._directory / "qemu.log", 5) or "nothing")


def _back_ends(recipe: Recipe, drives: Drives, directory: Path) -> list[str]:
    """Options for what the guest cannot see: files and the console's socket."""
    block = {
        "driver": "qcow2",
        "node-name": "disk",
        "cache": {"no-flush": True},
        "discard": "unmap",
        "file": {"driver": "file", "filename": str(drives.overlay), "discard": "unmap"},
        "backing": {
            "driver": "raw",
            "read-only": True,
            "file": {"driver": "file", "filename": str(drives.disk), "read-only": True},
        },
    }
    console = "socket,id=console,path=console.sock,server=on,wait=off,logfile=console.log"
    return [
        *("-display", "none", "-no-reboot", "-S"),
        *("-kernel", str(drives.kernel), "-initrd", str(drives.initrd)),
        *("-append", " ".join(recipe.kernel_arguments)),
        *("-blockdev", json.dumps(block)),
        *("-chardev", f"{console},logappend=on"),
    ]


def _tail(path: Path, lines: int) -> str:
    """The last *lines* of a log, empty when there is none."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])

"""
A running test guest: commands, files, snapshots, hotplug.

What holds in the guest is read in the guest; this module only carries words to it and back.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from support.guest.channel import (
    CHUNK_BYTES,
    ChannelClosed,
    ChannelRefused,
    ChannelTimeout,
    decode,
    encode,
)
from support.guest.errors import AgentFailed, CommandFailed, Completed, GuestError, MonitorFailed
from support.guest.host import TO_RUN, ensure
from support.guest.monitor import MonitorLost, MonitorRefused
from support.guest.qemu import Drives, Qemu
from support.guest.recipe import Recipe

BASE: Final = "base"
"""The snapshot that every finished image has."""

BOOT_S: Final = 300.0
SNAPSHOT_S: Final = 120.0
FILE_S: Final = 120.0
ANSWER_S: Final = 20.0
"""How much longer than a command itself its answer may take."""

CHANGES_DEVICES: Final = frozenset({"object-add", "object-del", "device_add", "device_del"})


class Guest:
    """
    One guest with private files; a context manager.

    Make it with ``support.guest.image.Image.start``. After the guest died (a panic, a power off)
    ``load`` brings it back, in a new QEMU.
    """

    def __init__(
        self,
        recipe: Recipe,
        drives: Drives,
        directory: Path,
        *,
        snapshot: str | None,
        held: tuple[IO[str], ...] = (),
        remove: bool = True,
    ) -> None:
        """
        Start it and wait for its agent.

        *held* are locks closed with the guest; *remove* says whether *directory* goes with it.

        Raises:
            GuestError: As ``Qemu`` and ``load``.
        """
        self.directory = directory
        self._recipe = recipe
        self._drives = drives
        self._held = held
        self._remove = remove
        self._devices_changed = False
        try:
            ensure(TO_RUN)
            self._qemu = Qemu(recipe, drives, directory, snapshot=snapshot)
        except BaseException:
            self._forget()
            raise
        try:
            self._synchronise(SNAPSHOT_S if snapshot else BOOT_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the guest and remove its files; may be called twice."""
        self._qemu.quit()
        self._forget()

    def _forget(self) -> None:
        if self._remove:
            shutil.rmtree(self.directory, ignore_errors=True)
        for file in self._held:
            file.close()

    @property
    def console_socket(self) -> Path:
        """The socket of the guest's serial console, for one terminal at a time."""
        return self.directory / "console.sock"

    # Commands and files

    def run(
        self,
        script: str,
        *,
        timeout_s: float = 60,
        check: bool = True,
        stdin: bytes | None = None,
    ) -> Completed:
        """
        How *script* ended, run by bash as root in ``/root``.

        Background children may go on: their output is then lost. With *check* only status 0 is
        accepted.

        Raises:
            CommandFailed: Another status, with *check*.
            GuestTimeout: It took longer than *timeout_s*; it and its session were killed.
        """
        answer = self._ask(
            "run",
            {
                "script": script,
                "timeout_s": timeout_s,
                "stdin": None if stdin is None else encode(stdin),
            },
            timeout_s=timeout_s + ANSWER_S,
            what=script,
        )
        output = [decode(answer[name]).decode(errors="replace") for name in ("stdout", "stderr")]
        status = answer["status"]
        if not isinstance(status, int):
            told = f"{script}\nuntil then, stdout: {output[0]}\nstderr: {output[1]}"
            raise self._qemu.timeout(told, timeout_s)
        completed = Completed(status, *output)
        if check and status != 0:
            raise CommandFailed(script, completed, self.console_tail())
        return completed

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """
        The file *path* in the guest holds *data*; its folder is made.

        A file that is new and has no *mode* given gets 0644; one that is there keeps its own.

        Raises:
            AgentFailed: The guest cannot write there.
        """
        for offset in range(0, max(len(data), 1), CHUNK_BYTES):
            fields = {
                "path": path,
                "data": encode(data[offset : offset + CHUNK_BYTES]),
                "append": offset > 0,
                "mode": mode,
            }
            self._ask("write", fields, timeout_s=FILE_S, what=f"writing {path}")

    def read(self, path: str) -> bytes:
        """
        The content of *path* in the guest, files of /proc and /sys too.

        Raises:
            AgentFailed: It cannot be read.
        """
        content = bytearray()
        at_end = False
        while not at_end:
            fields = {"path": path, "offset": len(content), "length": CHUNK_BYTES}
            answer = self._ask("read", fields, timeout_s=FILE_S, what=f"reading {path}")
            content += decode(answer["data"])
            at_end = bool(answer["at_end"])
        return bytes(content)

    def push(self, source: Path, path: str) -> None:
        """The host's file *source* is in the guest at *path*, with the same permission bits."""
        self.write(path, source.read_bytes(), mode=source.stat().st_mode & 0o777)

    def send_raw(self, data: bytes) -> None:
        """Bytes for the guest's agent that are no whole request, for tests of the channel."""
        self._qemu.channel.send_raw(data)

    # Snapshots and hardware

    def save(self, name: str) -> None:
        """
        The guest as it is now is the snapshot *name*, which replaces an older one.

        It lasts as long as this guest's private files.

        Raises:
            GuestError: A device was plugged in or out: such a machine could not be loaded again.
            MonitorFailed: QEMU could not do it.
        """
        if self._devices_changed:
            raise GuestError(f"snapshot {name}: devices were plugged in or out; load one first")
        self._human(f"savevm {name}")

    def load(self, name: str = BASE) -> None:
        """
        The guest is as it was when *name* was saved, but for its clock, which is the host's.

        Always in a new QEMU: one that emulates never lets its time stamp counter go back, so in the same one the
        guest's clocks would jump by the time since the save, and with them watchdogs and RCU's patience would end.

        Raises:
            GuestDied: There is no such snapshot.
            GuestTimeout: The agent did not come back.
        """
        self._qemu.quit()
        self._qemu = Qemu(self._recipe, self._drives, self.directory, snapshot=name)
        self._devices_changed = False
        self._synchronise(SNAPSHOT_S)

    def monitor(self, command: str, arguments: Mapping[str, object] | None = None) -> object:
        """
        QEMU's answer to a QMP command, such as ``object-add``.

        Raises:
            MonitorFailed: QEMU refused it or did not answer.
        """
        if command in CHANGES_DEVICES:
            self._devices_changed = True
        try:
            return self._qemu.monitor.execute(command, arguments, timeout_s=SNAPSHOT_S)
        except (MonitorRefused, MonitorLost) as exc:
            self._qemu.check()
            raise MonitorFailed(str(exc), self.console_tail()) from exc

    def console_tail(self, lines: int = 40) -> str:
        """The last lines of the guest's serial console."""
        return self._qemu.console_tail(lines)

    def _human(self, line: str) -> None:
        """A human monitor command that says nothing when it succeeds."""
        answer = self.monitor("human-monitor-command", {"command-line": line})
        if answer:
            raise MonitorFailed(f"{line}: {answer}", self.console_tail())

    def _synchronise(self, timeout_s: float) -> None:
        try:
            self._qemu.channel.synchronise(timeout_s=timeout_s)
        except ChannelTimeout:
            raise self._qemu.timeout("an answer of the guest's agent", timeout_s) from None
        except ChannelClosed:
            raise self._gone() from None

    def _ask(self, operation: str, fields: Mapping[str, object], *, timeout_s: float, what: str) -> dict[str, object]:
        try:
            return self._qemu.channel.request(operation, fields, timeout_s=timeout_s)
        except ChannelTimeout:
            raise self._qemu.timeout(what, timeout_s) from None
        except ChannelRefused as exc:
            raise AgentFailed(f"{what}: {exc}", self.console_tail()) from None
        except ChannelClosed:
            raise self._gone() from None

    def _gone(self) -> GuestError:
        """The error for a channel that QEMU closed."""
        try:
            self._qemu.wait_end()
            self._qemu.check()
        except GuestError as exc:
            return exc
        return MonitorFailed("QEMU closed the exec channel", self.console_tail())

"""QEMU's monitor (QMP), blocking: one command, one answer. Owns the connection's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from qemu.qmp import ExecuteError, QMPClient, QMPError

T = TypeVar("T")


class MonitorRefused(Exception):
    """QEMU answered with an error."""


class MonitorLost(Exception):
    """QEMU ended, or did not answer in time."""


class Monitor:
    """A connection to QEMU's monitor over one end of a socket pair."""

    def __init__(self, connection: socket.socket) -> None:
        self._runner = asyncio.Runner()
        self._client = QMPClient("guest")
        self._connection = connection
        self._is_closed = False

    def connect(self, *, timeout_s: float) -> None:
        """
        Commands are accepted after the call.

        Raises:
            MonitorLost: QEMU did not greet in *timeout_s* seconds.
        """

        async def connect() -> None:
            await self._client.connect(self._connection)

        self._run(connect(), timeout_s)

    def execute(self, command: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float) -> object:
        """
        QEMU's answer to *command*.

        Raises:
            MonitorRefused: QEMU answered with an error.
            MonitorLost: It did not answer.
        """
        given = dict(arguments) if arguments else None
        try:
            return self._run(self._client.execute(command, given), timeout_s)
        except ExecuteError as exc:
            raise MonitorRefused(f"{command}: {exc}") from exc

    def close(self) -> None:
        """End the connection; QEMU may be gone already. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True

        async def disconnect() -> None:
            await self._client.disconnect()

        try:
            self._run(disconnect(), 10)
        except (MonitorLost, EOFError, OSError):
            pass  # what is left to close is closed below
        finally:
            self._runner.close()
            self._connection.close()

    def _run(self, work: Awaitable[T], timeout_s: float) -> T:
        async def limited() -> T:
            return await asyncio.wait_for(work, timeout_s)

        try:
            return self._runner.run(limited())
        except ExecuteError:
            raise
        except (QMPError, TimeoutError, EOFError, OSError) as exc:
            raise MonitorLost(f"{type(exc).__name__}: {exc}") from exc

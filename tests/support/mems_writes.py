"""Writes to ``cpuset.mems`` of plain files, as the kernel saw them and not as the writer counts them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from inotify_simple import INotify, flags

from support.daemon import Host


class MemsWrites:
    """
    From its start on every write to the ``cpuset.mems`` of these cgroups, an equal value included.

    To be used as a context; what a test itself puts there counts as well.
    """

    def __init__(self, host: Host, paths: Iterable[str]) -> None:
        self._base: Path = host.tree.cpuset
        self._paths: dict[int, str] = {}
        self._inotify = INotify(nonblocking=True)
        self.watch(*paths)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._inotify.close()

    def watch(self, *paths: str) -> None:
        """Look at these as well."""
        for path in paths:
            # with the end of each write between them, the kernel does not join two writes into one event
            descriptor = self._inotify.add_watch(
                self._base / path.lstrip("/") / "cpuset.mems", flags.MODIFY | flags.CLOSE_WRITE
            )
            self._paths[descriptor] = path

    def taken(self) -> list[str]:
        """The cgroup of each write since the last call, in the order of the writes."""
        events = self._inotify.read(timeout=0)
        assert not any(event.mask & flags.Q_OVERFLOW for event in events)
        return [self._paths[event.wd] for event in events if event.mask & flags.MODIFY]

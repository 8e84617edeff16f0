"""How long after the kernel's last word about memory the service's status was right, as seen in the guest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import support.books_watcher
from support.guest.machine import Guest

PROGRAM: Final = Path(support.books_watcher.__file__)
BOOKS, UEVENTS = "/tmp/books.log", "/tmp/uevents.log"
WATCH = f"""
python3 /tmp/books_watcher.py {BOOKS} >/dev/null 2>&1 &
udevadm monitor --kernel --subsystem-match=memory >{UEVENTS} 2>&1 &
until test -s {BOOKS} && grep -q KERNEL {UEVENTS}; do sleep 0.1; done
"""


@dataclass(frozen=True, slots=True)
class BooksLog:
    """Running watchers of the status and of the kernel's events about memory blocks."""

    guest: Guest

    @classmethod
    def start(cls, guest: Guest) -> Self:
        """From now on both are written down."""
        guest.push(PROGRAM, "/tmp/books_watcher.py")
        guest.run(WATCH)
        return cls(guest)

    def lateness(self, right: Callable[[dict[str, Any]], bool]) -> float:
        """
        Seconds from the kernel's last event until what the status says was *right*, for the last time it became so.

        *right* is asked about entries of `support.books_watcher`, whose nodes are strings.
        """
        last: float = max(
            float(line.partition("[")[2].partition("]")[0])
            for line in self.guest.read(UEVENTS).decode().splitlines()
            if line.startswith("KERNEL[")
        )
        became: list[float] = []
        was = False
        for entry in map(json.loads, self.guest.read(BOOKS).decode().splitlines()):
            if right(entry) and not was:
                became.append(entry["at"])
            was = right(entry)
        return became[-1] - last

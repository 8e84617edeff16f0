"""What a save does to make itself last, and when a cgroup is written, in order."""

from __future__ import annotations

import linecache
import os
import re
import stat
import sys
from collections.abc import Callable
from types import FrameType

SYNC = re.compile(r"\bfsync\((\w+)\)")


class Order:
    """
    A profile function that notes the calls of ``os`` which change the checkpoint, and each write to a cgroup.

    Notes are ``write``, ``sync file``, ``sync directory``, ``link``, ``rename`` and ``cgroup``; equal ones that
    follow each other are one.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """See `sys.setprofile`."""
        if event != "c_return" or getattr(arg, "__module__", None) != "posix":
            return
        module, name = "/".join(frame.f_code.co_filename.rsplit("/", 2)[-2:]), getattr(arg, "__name__", "")
        if module == "kernel/files.py" and name == "write":
            self._note("cgroup")
        elif module == "state/checkpoint.py":
            if name == "fsync":
                self._note(f"sync {synced(frame)}")
            elif name in ("write", "link", "rename"):
                self._note(name)

    def _note(self, note: str) -> None:
        if self.notes[-1:] != [note]:
            self.notes.append(note)


def synced(frame: FrameType) -> str:
    """What the descriptor is that the frame gives to ``fsync`` on its present line: the call itself does not tell."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    found = SYNC.search(line)
    assert found, f"fsync with something else than a variable: {line}"
    return "directory" if stat.S_ISDIR(os.fstat(frame.f_locals[found[1]]).st_mode) else "file"


def order_of(step: Callable[[], object]) -> list[str]:
    """The notes of *step*, which runs in this process."""
    order = Order()
    sys.setprofile(order)
    try:
        step()
    finally:
        sys.setprofile(None)
    return order.notes

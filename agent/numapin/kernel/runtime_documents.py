"""Documents below the runtimes' directories, each parsed once.

Owns: which documents were parsed, and the way down to them. Directories that are asked for may be links of the
admin's making; below them no link is followed. Must never: know what a document means, or keep the text of one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from numapin.kernel.files import (
    file_stamp,
    is_directory,
    list_subdirectories,
    open_beneath,
    open_directory,
    read_text,
)
from numapin.kernel.names import is_safe_id
from numapin.model.errors import KernelError, KernelReadError

_T = TypeVar("_T")


class Documents:
    """
    Reader of documents below *root*, the directories named as the machine has them.

    A document is parsed once and again only after it was replaced; one that cannot be believed stays the same error
    until then.
    """

    def __init__(self, root: Path) -> None:
        self._root = "" if str(root) == "/" else str(root)
        self._parsed: dict[str, tuple[tuple[int, int, int], object]] = {}
        self._used: set[str] = set()

    def forget_unused(self) -> None:
        """Drop parsed documents that nobody asked for since the last call."""
        self._parsed = {k: v for k, v in self._parsed.items() if k in self._used}
        self._used.clear()

    def listed(self, directory: str) -> list[str]:
        """Names of the directories in one of the runtimes' directories that can be ids; none when it is missing."""
        try:
            return [n for n in list_subdirectories(self._root + directory) if is_safe_id(n)]
        except KernelReadError:
            return []

    def exists(self, directory: str, name: str) -> bool:
        """True when *name* in *directory* is a directory and no link."""
        return is_directory(f"{self._root}{directory}/{name}", follow=False)

    def load(self, base: str, parts: Iterable[str], file: str, parse: Callable[[str, str], _T]) -> _T | None:
        """
        One parsed document below *base*, ``None`` when missing; what was parsed before is returned as it was.

        Raises:
            KernelReadError: A link, no regular file (EINVAL), too long, unreadable.
            KernelFormatError: Not such a document.
        """
        parts = tuple(parts)
        shown = "/".join((base, *parts, file))
        fds: list[int] = []
        try:
            fds.append(open_directory(self._root + base))
            fds.append(open_beneath(fds[0], parts, shown=shown))
            stamp = file_stamp(file, dir_fd=fds[1], shown=shown, regular=True)
            if stamp is None:
                return None
            self._used.add(shown)
            known = self._parsed.get(shown)
            if known is None or known[0] != stamp:
                known = (stamp, self._parse(file, fds[1], shown, parse))
                self._parsed[shown] = known
            if isinstance(known[1], KernelError):
                raise known[1].with_traceback(None)  # else its trace, and what that holds, grows each time
            return known[1]  # type: ignore[return-value] # one file is always parsed by the same function
        except KernelReadError as exc:
            if exc.errno in (errno.ENOENT, errno.ENODEV):
                return None
            raise
        finally:
            for fd in fds:
                os.close(fd)

    @staticmethod
    def _parse(file: str, fd: int, shown: str, parse: Callable[[str, str], object]) -> object:
        """The document, or the error it deserves: a damaged file is not parsed again until it changes."""
        try:
            return parse(read_text(file, dir_fd=fd, shown=shown, follow=False), shown)
        except KernelError as exc:
            if isinstance(exc, KernelReadError) and exc.errno in (errno.ENOENT, errno.ENODEV):
                raise
            exc.__cause__ = exc.__context__ = None  # they and the trace hold the whole text
            return exc.with_traceback(None)

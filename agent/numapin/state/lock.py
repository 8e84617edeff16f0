"""One daemon at a time.

Owns: the lock file. Must never: remove it (a second daemon would then lock another file of the same name).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from numapin.model.errors import AlreadyRunning, NotPermitted, SocketUnusable


class DaemonLock:
    """
    Holds *path* from ``__enter__`` to ``__exit__``; the kernel lets go when the process ends in any way.

    The file holds the holder's process id, for the message of a second daemon.
    """

    def __init__(self, path: Path, *, names_holder: bool = True) -> None:
        """Without *names_holder* nothing is written, so that the file system can still be made read-only."""
        self.path = path
        self._names_holder = names_holder
        self._fd: int | None = None

    def __enter__(self) -> Self:
        """
        Take the lock without waiting; directories are made (0755) when missing.

        Raises:
            AlreadyRunning: Another process holds it.
            NotPermitted: The file cannot be opened by this user.
            SocketUnusable: The disk is full or read-only, or a symbolic link is in the way.
        """
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            access = os.O_RDWR if self._names_holder else os.O_RDONLY
            beside = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                flags = access | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(self.path.name, flags, 0o644, dir_fd=beside)
            finally:
                os.close(beside)
        except OSError as exc:
            raise _error(self.path, exc) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = _holder(fd)
            os.close(fd)
            raise AlreadyRunning(str(self.path), holder) from exc
        try:
            if self._names_holder:
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as exc:
            os.close(fd)
            raise _error(self.path, exc) from exc
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@contextlib.contextmanager
def state_lock(directory: Path, *, besides: Path | None = None, create: bool = False) -> Iterator[None]:
    """
    Hold the lock of the checkpoint in *directory*: two daemons with different sockets must not write one checkpoint.

    Where it cannot be taken (no directory unless *create*, a link in its place, a disk that is full or read-only)
    nothing can be saved there either, by nobody: then it is done without. So it is where *besides*, the lock beside
    the socket that is held already, is the same file.

    Raises:
        AlreadyRunning: Another process holds it.
    """
    with contextlib.ExitStack() as stack:
        if create:
            with contextlib.suppress(OSError):
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        own = directory / "lock"
        if _is_own_directory(directory) and not (besides is not None and _same(own, besides)):
            with contextlib.suppress(NotPermitted, SocketUnusable):
                stack.enter_context(DaemonLock(own, names_holder=False))
        yield


def _is_own_directory(directory: Path) -> bool:
    try:
        return directory.is_dir() and not directory.is_symlink()
    except OSError:  # a name too long
        return False


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _holder(fd: int) -> int:
    """Process id in the file, 0 when the holder has not written it yet."""
    word = os.pread(fd, 32, 0).strip()
    return int(word) if word.isdigit() else 0


def _error(path: Path, exc: OSError) -> Exception:
    reason = f"{os.strerror(exc.errno or 0)} ({errno.errorcode.get(exc.errno or 0, str(exc.errno))})"
    if exc.errno in (errno.EACCES, errno.EPERM):
        return NotPermitted(f"cannot open the daemon's lock {path}: {reason}; numapin must run as root")
    if exc.errno == errno.ELOOP:
        reason = f"it is a symbolic link, which is not followed ({errno.errorcode[errno.ELOOP]}); remove it"
    if exc.errno != errno.ENAMETOOLONG and path.parent.is_symlink():
        reason = f"{path.parent} is a symbolic link, which is not followed; remove it"
    elif exc.errno in (errno.EEXIST, errno.ENOTDIR):
        reason = f"{path.parent} is no directory ({errno.errorcode[exc.errno]}); remove what is there"
    return SocketUnusable(str(path), f"cannot take the daemon's lock: {reason}")

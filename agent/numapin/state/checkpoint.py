"""The checkpoint file.

Owns: saving without ever being without a good generation, and finding the best one at start. Must never: delete
a damaged file, follow a symbolic link, or read a clock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointUnreadable,
    CheckpointUnwritable,
    CheckpointWrongVersion,
)
from numapin.state.codec import CheckpointEncoder, decode

MAX_FILE_BYTES = 256 << 20
"""A file larger than this is not ours; 500 containers take 0.7 MiB."""


_MODE = 0o640
"""The group may read, as it may ask the daemon: without a daemon ``status`` shows this file. The umask has no say."""


class Generation(StrEnum):
    """Which file a checkpoint came from."""

    CURRENT = "current"
    PREVIOUS = "previous"
    NONE = "none"
    """There was none to believe: a first start, or both were damaged."""


class SaveStep(StrEnum):
    """Points in a save, each *after* the system call it names, in this order."""

    STARTED = "started"
    CREATED = "created"
    WRITTEN = "written"
    SYNCED = "synced"
    LINKED = "linked"
    KEPT_PREVIOUS = "kept-previous"
    RENAMED = "renamed"
    DIRECTORY_SYNCED = "directory-synced"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that could not be believed, where it is kept now, and why."""

    path: Path
    kept_as: Path
    error: CheckpointError

    @property
    def reason(self) -> str:
        """The sentence for log and status."""
        return str(self.error)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was found; ``checkpoint`` is ``None`` exactly when ``generation`` is NONE."""

    checkpoint: Checkpoint | None
    generation: Generation
    damaged: tuple[Damaged, ...] = ()


def _no_step(step: SaveStep) -> None:
    del step


class CheckpointFile:
    """
    One checkpoint on disk: *path* and, beside it, ``<path>.1``, the generation before.

    A save writes ``<path>.new``, syncs it, links the present file to ``<path>.1`` (over the older one) and renames
    the new one into place, so each name holds a whole generation or does not exist, at every instant. Leftovers of
    a save that was cut short are replaced by the next. One process at a time may save (`state.lock`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.previous_path = path.with_name(path.name + ".1")
        self._new = path.name + ".new"
        self._link = path.name + ".1.new"
        self._encoder = CheckpointEncoder()
        self._aside: dict[str, str] = {}
        """Damaged files that could not be renamed yet, by the name they shall get."""

    def save(self, checkpoint: Checkpoint, step: Callable[[SaveStep], None] = _no_step) -> None:
        """
        *checkpoint* is on the disk when this returns, and what was there before is ``<path>.1``. Two fsyncs.

        The directory is made (0750) when missing. *step* is called after each system call that matters.

        Raises:
            CheckpointUnwritable: Disk full, read-only, not permitted, or a symbolic link in the way. The file
                holds the generation before, or, when only the last fsync failed, the new one.
        """
        data = self._encoder.encode(checkpoint)
        with self._writing(), self._directory(create=True) as fd:
            step(SaveStep.STARTED)
            for name in tuple(self._aside):
                _rename_aside(fd, name, self._aside[name])
                del self._aside[name]
            _refuse_odd(fd, self.path.name)
            try:
                self._write_new(fd, data, step)
                self._keep_previous(fd, step)
                os.rename(self._new, self.path.name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                _unlink(fd, self._new)  # on a full disk the half-written file is what fills it
                raise
            step(SaveStep.RENAMED)
            os.fsync(fd)
            step(SaveStep.DIRECTORY_SYNCED)

    def load(self, *, wall_ns: int) -> Loaded:
        """
        The best generation there is; a damaged file is renamed to ``<name>.damaged-<UTC time of wall_ns>``, a whole
        one of another version to ``<name>.other-version-<UTC time of wall_ns>``.

        A damaged file on a read-only disk keeps its name until the next save, which moves it first.

        Raises:
            CheckpointUnreadable: A file or the directory is there but cannot be read, or is a symbolic link;
                nothing was set aside.
        """
        loaded = self.peek()
        if not loaded.damaged:
            return loaded
        stamp = datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        kept: list[Damaged] = []
        with self._reading(self.path), self._directory(create=False) as fd:
            for found in loaded.damaged:
                name = found.path.name
                word = "other-version" if isinstance(found.error, CheckpointWrongVersion) else "damaged"
                aside = _free_name(fd, f"{name}.{word}-{stamp}")
                try:
                    _rename_aside(fd, name, aside)
                except OSError:
                    self._aside[name] = aside
                    aside = name
                kept.append(Damaged(found.path, self.path.with_name(aside), found.error))
        return Loaded(loaded.checkpoint, loaded.generation, tuple(kept))

    def peek(self) -> Loaded:
        """
        As `load`, but leaves damaged files where they are.

        Raises:
            CheckpointUnreadable: As `load`.
        """
        damaged: list[Damaged] = []
        for path, generation in ((self.path, Generation.CURRENT), (self.previous_path, Generation.PREVIOUS)):
            data = self._read(path)
            if data is None:
                continue
            try:
                return Loaded(decode(data, path), generation, tuple(damaged))
            except (CheckpointCorrupt, CheckpointWrongVersion) as exc:
                damaged.append(Damaged(path, path, exc))
        return Loaded(None, Generation.NONE, tuple(damaged))

    def _write_new(self, fd: int, data: bytes, step: Callable[[SaveStep], None]) -> None:
        _unlink(fd, self._new)
        new = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE, dir_fd=fd)
        try:
            os.fchmod(new, _MODE)
            step(SaveStep.CREATED)
            view = memoryview(data)
            while view:
                view = view[os.write(new, view) :]
            step(SaveStep.WRITTEN)
            os.fsync(new)
            step(SaveStep.SYNCED)
        finally:
            os.close(new)

    def _keep_previous(self, fd: int, step: Callable[[SaveStep], None]) -> None:
        """
        Give the present file the name ``.1`` as well.

        Through a second name, because link(2) does not replace. When both names are the same file already (a save
        that ended here), rename(2) does nothing and leaves the second name, so it is removed either way.
        """
        _unlink(fd, self._link)
        try:
            os.link(self.path.name, self._link, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        step(SaveStep.LINKED)
        os.rename(self._link, self.previous_path.name, src_dir_fd=fd, dst_dir_fd=fd)
        _unlink(fd, self._link)
        step(SaveStep.KEPT_PREVIOUS)

    def _read(self, path: Path) -> bytes | None:
        """Whole file, or ``None`` when it or its directory does not exist."""
        with self._reading(path):
            try:
                with self._directory(create=False) as directory:
                    return read_checkpoint(path.name, dir_fd=directory)
            except FileNotFoundError:
                return None

    @contextmanager
    def _directory(self, *, create: bool) -> Iterator[int]:
        parent = self.path.parent
        if create:
            parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise CheckpointUnwritable(str(self.path), f"cannot be saved: {self._reason(exc, self.path)}") from exc

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise CheckpointUnreadable(str(path), f"cannot be read: {self._reason(exc, path)}") from exc

    def _reason(self, exc: OSError, path: Path) -> str:
        code = errno.errorcode.get(exc.errno or 0, str(exc.errno))
        if exc.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG) and self.path.parent.is_symlink():
            parent = self.path.parent
            return f"its directory {parent} is a symbolic link, which is not followed ({code}); make it a directory"
        if exc.errno == errno.ELOOP:
            return f"{path.name} is a symbolic link, which is not followed ({code}); remove it"
        if exc.errno == errno.EINVAL:
            return f"{path.name} is no regular file ({code}); remove it"
        return f"{os.strerror(exc.errno or 0)} ({code})" + _HINTS.get(exc.errno or 0, "")


_HINTS = {
    errno.ENOSPC: "; free some space there, the next decision tries again",
    errno.EDQUOT: "; raise the quota, the next decision tries again",
    errno.EROFS: "; mount it read-write, the next decision tries again",
    errno.EACCES: "; numapin must run as root",
    errno.EPERM: "; numapin must run as root, and the directory must not be immutable",
}


def read_checkpoint(path: str | Path, *, dir_fd: int | None = None) -> bytes:
    """
    Content of a regular file; the last component is not followed when it is a symbolic link.

    Raises:
        OSError: Missing, unreadable, ELOOP for a symbolic link, EINVAL for what is no regular file, EFBIG.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if found.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with os.fdopen(fd, "rb", closefd=False) as file:  # a directory would make fdopen fail and keep the descriptor
            return file.read()
    finally:
        os.close(fd)


def _refuse_odd(fd: int, name: str) -> None:
    """Raise ELOOP or EINVAL when *name* is no regular file: whoever made it gets no write through or over it."""
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.ELOOP if stat.S_ISLNK(mode) else errno.EINVAL, "not a regular file")


def _free_name(fd: int, wanted: str) -> str:
    taken = set(os.listdir(fd))
    name, n = wanted, 1
    while name in taken:
        n += 1
        name = f"{wanted}-{n}"
    return name


def _rename_aside(fd: int, name: str, aside: str) -> None:
    with suppress(FileNotFoundError):
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)


def _unlink(fd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=fd)

"""The one user of inotify: watches by path and nothing lost without notice.

Owns: watch descriptors and their paths, the limit on watches. Must never: decide what a path means.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import NamedTuple, Self

from inotify_simple import INotify, flags

from numapin.model.errors import KernelReadError

CREATE, DELETE, MODIFY = int(flags.CREATE), int(flags.DELETE), int(flags.MODIFY)
MOVED_FROM, MOVED_TO, CLOSE_WRITE = int(flags.MOVED_FROM), int(flags.MOVED_TO), int(flags.CLOSE_WRITE)
_DIRECTORY = int(flags.ONLYDIR | flags.DONT_FOLLOW)
_LONG = errno.ENAMETOOLONG
"""Anybody with a delegated cgroup can nest directories beyond PATH_MAX; no runtime does."""
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
_WATCHES = "/proc/sys/fs/inotify/max_user_watches"


class Notice(NamedTuple):
    """Something happened to *name* in the watched *directory*, or to the watched file itself (*name* empty)."""

    directory: str
    name: str
    mask: int
    is_directory: bool


class Watches:
    """
    A set of watched paths behind one descriptor.

    Running out of watches is remembered in `missing`, not raised: what can be watched is, and the caller's slow
    pass catches the rest.

    Raises:
        KernelReadError: No inotify instance is left for this user (EMFILE).
    """

    def __init__(self) -> None:
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as exc:
            raise KernelReadError(_INSTANCES, exc.errno or 0) from exc
        self._paths: dict[int, str] = {}
        self._descriptors: dict[str, int] = {}
        self._missing: set[str] = set()

    def fileno(self) -> int:
        """Descriptor that becomes readable."""
        return int(self._inotify.fileno())

    def close(self) -> None:
        """Give every watch back."""
        self._inotify.close()

    @property
    def finding(self) -> str | None:
        """A sentence when some paths could not be watched, with the remedy."""
        if not self._missing:
            return None
        return (
            f"{len(self._missing)} directories cannot be watched, for example {min(self._missing)}: the limit on "
            f"inotify watches is reached; raise {_WATCHES} (sysctl fs.inotify.max_user_watches)"
        )

    def __contains__(self, path: str) -> bool:
        return path in self._descriptors

    def __len__(self) -> int:
        return len(self._descriptors)

    def add(self, path: str, mask: int, *, directory: bool = True) -> bool:
        """Watch *path*; false when it does not exist, or no watch is left (then it is in `finding`)."""
        try:
            descriptor = self._inotify.add_watch(path, mask | (_DIRECTORY if directory else 0))
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.ENOMEM):
                self._missing.add(path)
                return False
            self._missing.discard(path)
            if exc.errno in (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.EACCES, errno.ELOOP, _LONG):
                return False
            raise KernelReadError(path, exc.errno or 0) from exc
        self._missing.discard(path)
        before = self._descriptors.get(path)
        if before is not None and before != descriptor:  # the name was reused; the old watch would leak
            self._drop(before)
        self._paths[descriptor] = path
        self._descriptors[path] = descriptor
        return True

    def remove(self, path: str) -> None:
        """Stop watching *path*. Removed cgroups raise no IN_IGNORED before kernel 7.1: this must be called."""
        self._missing.discard(path)
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            self._paths.pop(descriptor, None)
            self._drop(descriptor)

    def remove_below(self, path: str) -> None:
        """Stop watching *path* and everything below it."""
        inside = path.rstrip("/") + "/"
        for other in [p for p in (*self._descriptors, *self._missing) if p == path or p.startswith(inside)]:
            self.remove(other)

    def paths(self) -> tuple[str, ...]:
        """Every watched path."""
        return tuple(self._descriptors)

    def read(self) -> Iterator[Notice | None]:
        """What happened since the last call, in order; ``None`` stands for a loss of events (overflow)."""
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                yield None
                continue
            path = self._paths.get(event.wd)
            if path is None:
                continue  # of a watch removed since
            if event.mask & flags.IGNORED:
                self._paths.pop(event.wd, None)
                if self._descriptors.get(path) == event.wd:
                    del self._descriptors[path]
                continue
            yield Notice(path, event.name, event.mask, bool(event.mask & flags.ISDIR))

    def _drop(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        with contextlib.suppress(OSError):  # the kernel may have dropped it with the directory
            self._inotify.rm_watch(descriptor)


class InotifyWatcher:
    """What all watchers share: one descriptor, a selector's interface, a context manager."""

    def __init__(self) -> None:
        self._watches = Watches()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Descriptor that becomes readable when it has something to take."""
        return self._watches.fileno()

    def close(self) -> None:
        """Stop watching."""
        self._watches.close()

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences about what cannot be watched, with the remedy."""
        return (self._watches.finding,) if self._watches.finding else ()

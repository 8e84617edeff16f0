"""A cgroup as an open directory, before any file of it has a meaning.

Owns: opening below the mount without following anything, telling "gone" from "not there", the same cgroup in
other controllers' hierarchies. Must never: leave the mount, create anything, know a file's format.
"""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.files import (
    list_subdirectories,
    open_beneath,
    open_directory,
    read_optional,
    read_text,
    write_text,
)
from numapin.kernel.processes import read_thread_group
from numapin.model.errors import CgroupGone, KernelReadError, KernelWriteError

_MOST_INSIDE = 1000
_PID = re.compile(r"[0-9]{1,9}")


class CgroupDirectory:
    """
    A directory of the cpuset hierarchy, held open; its files are reached from the descriptor.

    ``path`` is below the hierarchy's mount (``/`` is its root). ``inode`` tells it from a later cgroup of the
    same name, ``uid`` is its owner. Close it, or use it as a context manager.
    """

    __slots__ = ("_fd", "hierarchy", "inode", "path", "uid")

    def __init__(self, hierarchy: Hierarchy, path: str) -> None:
        """
        Open *path* below the cpuset mount.

        Raises:
            CgroupGone: It does not exist.
            KernelReadError: A component is a link or a file (ENOTDIR), is ``..`` (EINVAL), or not permitted.
        """
        self._fd = -1
        self.hierarchy = hierarchy
        self.path = path
        base = open_directory(hierarchy.cpuset_mount)
        try:
            self._fd = open_beneath(base, path_parts(path), shown=f"{hierarchy.cpuset_mount}{path}")
        except KernelReadError as exc:
            if exc.errno in (errno.ENOENT, errno.ENODEV):
                raise CgroupGone(path) from exc
            raise
        finally:
            os.close(base)
        found = os.fstat(self._fd)
        self.inode, self.uid = found.st_ino, found.st_uid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the directory go; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def duplicate(self) -> Self:
        """
        Another handle of this very cgroup, to be closed on its own.

        A thread that uses a handle needs its own: closing one under it could let its descriptor become another
        directory's.
        """
        twin = copy.copy(self)
        twin._fd = os.dup(self._fd)
        return twin

    def still_same(self) -> bool:
        """True while this very cgroup is at its path; false once removed, or another one has its name."""
        try:
            with CgroupDirectory(self.hierarchy, self.path) as now:
                return now.inode == self.inode
        except (CgroupGone, KernelReadError):
            return False

    def children(self) -> tuple[str, ...]:
        """
        Names of the child cgroups, sorted; empty when the cgroup is gone.

        Raises:
            KernelReadError: Unreadable.
        """
        return tuple(_children(self._fd))

    def _shown(self, name: str) -> str:
        return f"{self.hierarchy.cpuset_mount}{self.path.rstrip('/')}/{name}"

    @contextmanager
    def _below(self, path: str) -> Iterator[int]:
        """
        Descriptor of the cgroup *path* (``/a/b``) below this one, for as long as the block lasts.

        Raises:
            CgroupGone: It does not exist, or went meanwhile.
            KernelReadError: A component is no directory, or not permitted.
        """
        shown = f"{self.path.rstrip('/')}{path}"
        fd = -1
        try:
            fd = open_beneath(self._fd, path_parts(path), shown=self._shown(path[1:]))
            yield fd
        except KernelReadError as exc:
            if exc.errno in (errno.ENOENT, errno.ENODEV):
                raise CgroupGone(shown) from exc
            raise
        except CgroupGone as exc:
            raise CgroupGone(shown) from exc
        finally:
            if fd >= 0:
                os.close(fd)

    def _own(self, name: str) -> str:
        """Content of a file of the cpuset directory."""
        try:
            return read_text(name, dir_fd=self._fd, shown=self._shown(name), follow=False)
        except KernelReadError as exc:
            if exc.errno == errno.ENODEV or (exc.errno == errno.ENOENT and not self.still_same()):
                raise CgroupGone(self.path) from exc
            raise

    def _write(self, name: str, text: str) -> None:
        try:
            write_text(name, text, dir_fd=self._fd, shown=self._shown(name))
        except CgroupGone as exc:
            if self.still_same():  # the directory is there, so it is the controller that went
                raise KernelWriteError(self._shown(name), errno.ENOENT, text) from exc
            raise CgroupGone(self.path) from exc

    def _is_v2(self, controller: str) -> bool:
        mount = self.hierarchy.controllers.get(controller)
        return (mount.version if mount else self.hierarchy.version) is CgroupVersion.V2

    @contextmanager
    def _at(self, controller: str) -> Iterator[int | None]:
        """This cgroup's directory in a controller's hierarchy; ``None`` when the controller or it is not there."""
        mount = self.hierarchy.controllers.get(controller)
        if mount is None:
            yield None
        elif mount.path == self.hierarchy.cpuset_mount:
            yield self._fd
        else:
            fd = None
            try:
                base = open_directory(mount.path)
                try:
                    fd = open_beneath(base, path_parts(self.path), shown=f"{mount.path}{self.path}")
                finally:
                    os.close(base)
            except KernelReadError as exc:
                if exc.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
            try:
                yield fd
            finally:
                if fd is not None:
                    os.close(fd)

    def _get(self, fd: int | None, name: str) -> str | None:
        if fd is None:
            return None
        text = read_optional(name, dir_fd=fd, shown=self._shown(name), follow=False)
        if text is None and fd == self._fd and not self.still_same():
            raise CgroupGone(self.path)
        return text

    def _members(self) -> Iterator[int]:
        """Processes here and below; of the cgroups inside, which their owner may make without end, the first few."""
        pending: list[tuple[str, ...]] = [()]
        for _ in range(_MOST_INSIDE):
            if not pending:
                return
            parts = pending.pop()
            try:
                fd = open_beneath(self._fd, parts, shown=self._shown("/".join(parts)))
            except KernelReadError:
                continue  # removed meanwhile
            try:
                yield from _processes(self.hierarchy, fd)
                pending += [(*parts, name) for name in _children(fd)]
            finally:
                os.close(fd)


def path_parts(path: str) -> list[str]:
    """Components of a cgroup path; none for ``/``."""
    return path.strip("/").split("/") if path.strip("/") else []


def _children(fd: int) -> list[str]:
    try:
        return list_subdirectories(".", dir_fd=fd)
    except KernelReadError as exc:
        if exc.errno in (errno.ENOENT, errno.ENODEV):
            return []
        raise


def _processes(hierarchy: Hierarchy, fd: int) -> list[int]:
    try:
        return _pids(read_optional("cgroup.procs", dir_fd=fd))
    except KernelReadError as exc:
        if exc.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    # a threaded cgroup lists only threads
    threads = _pids(read_optional("cgroup.threads", dir_fd=fd))
    owners = (read_thread_group(hierarchy.root, t) for t in threads)
    return [p for p in owners if p is not None]


def _pids(text: str | None) -> list[int]:
    """The numbers in *text*; a word that is no pid (the kernel prints none) is nobody's."""
    return [int(word) for word in (text or "").split() if _PID.fullmatch(word)]

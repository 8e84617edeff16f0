"""The only ``open()`` of kernel files.

Owns: turning an errno into a typed error that carries the path. Must never: follow a symbolic link out of the
root, create or truncate a file, or read without a bound.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from numapin.model.errors import CgroupGone, KernelReadError, KernelWriteError

MAX_READ_BYTES = 4 << 20
"""A kernel or runtime file larger than this is refused (EFBIG); the largest seen was 300 KiB."""

_GONE = (errno.ENOENT, errno.ENODEV)


def read_text(
    path: str | Path,
    *,
    dir_fd: int | None = None,
    max_bytes: int = MAX_READ_BYTES,
    shown: str = "",
    follow: bool = True,
) -> str:
    """
    Whole content of a small file; bytes that are not UTF-8 become ``\\ufffd``.

    With *dir_fd* the path is relative to that open directory; errors show *shown*, or the path as given.
    Without *follow* a symbolic link as the last component is refused (ELOOP).

    Raises:
        KernelReadError: Missing (ENOENT), unreadable, a directory, or longer than *max_bytes* (EFBIG).
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
        fd = os.open(path, flags, dir_fd=dir_fd)
        try:
            data = os.read(fd, 65_536)
            if data:  # sysfs and cgroupfs answer in one read; larger files need more
                parts, size = [data], len(data)
                while size <= max_bytes and (data := os.read(fd, 1 << 20)):
                    parts.append(data)
                    size += len(data)
                if size > max_bytes:
                    raise KernelReadError(shown or str(path), errno.EFBIG)
                data = b"".join(parts)
        finally:
            os.close(fd)
    except (OSError, ValueError) as exc:
        raise KernelReadError(shown or str(path), _errno(exc)) from exc
    return data.decode("utf-8", "replace")


def read_optional(path: str | Path, *, dir_fd: int | None = None, shown: str = "", follow: bool = True) -> str | None:
    """
    Like `read_text`, but ``None`` when the file does not exist (ENOENT, ENOTDIR) or its cgroup went (ENODEV).

    Raises:
        KernelReadError: It exists and cannot be read.
    """
    try:
        return read_text(path, dir_fd=dir_fd, shown=shown, follow=follow)
    except KernelReadError as exc:
        if exc.errno in (*_GONE, errno.ENOTDIR):
            return None
        raise


def read_symlink(path: str | Path) -> str | None:
    """What the link at *path* says, not followed; ``None`` where there is no link, or none to be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def write_text(path: str, text: str, *, dir_fd: int, shown: str) -> None:
    """
    Write *text* to an existing kernel file with one ``write(2)``, so the errno is the kernel's own.

    *shown* is the full path for errors.

    Raises:
        CgroupGone: The directory behind *dir_fd* was removed.
        KernelWriteError: The kernel refused, or took less than all.
    """
    data = text.encode()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            if os.write(fd, data) != len(data):
                raise KernelWriteError(shown, errno.EIO, text)
        finally:
            os.close(fd)
    except OSError as exc:
        if exc.errno in _GONE:
            raise CgroupGone(shown) from exc
        raise KernelWriteError(shown, exc.errno or 0, text) from exc


def list_dir(path: str | Path) -> list[str]:
    """
    Names in a directory, sorted.

    Raises:
        KernelReadError: Missing or unreadable.
    """
    try:
        return sorted(os.listdir(path))
    except (OSError, ValueError) as exc:
        raise KernelReadError(str(path), _errno(exc)) from exc


def open_directory(path: str | Path) -> int:
    """
    Descriptor (``O_PATH``) of a directory; symbolic links in *path* are followed. The caller closes it.

    Raises:
        KernelReadError: Missing (ENOENT), not a directory (ENOTDIR), not permitted.
    """
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        raise KernelReadError(str(path), _errno(exc)) from exc


def open_beneath(dir_fd: int, parts: Sequence[str], *, shown: str, same_device: bool = True) -> int:
    """
    Descriptor (``O_PATH``) of the directory *parts* below *dir_fd*. The caller closes it and keeps *dir_fd*.

    No component may be a symbolic link or ``..``, so the result is below *dir_fd*; with *same_device* none may be
    on another file system.

    Raises:
        KernelReadError: ENOENT or ENODEV when it does not exist, ENOTDIR for a file or a link, EXDEV for
            another file system, EINVAL for a component that is no name.
    """
    if any(p in ("", ".", "..") or "/" in p or "\0" in p for p in parts):
        raise KernelReadError(shown, errno.EINVAL)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = -1
    try:
        fd = os.open(".", flags, dir_fd=dir_fd)
        device = os.fstat(fd).st_dev
        for part in parts:
            inner = os.open(part, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        if same_device and os.fstat(fd).st_dev != device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    except OSError as exc:
        if fd >= 0:
            os.close(fd)
        raise KernelReadError(shown, exc.errno or 0) from exc
    return fd


def is_directory(path: str | Path, *, follow: bool = True) -> bool:
    """True for a directory, with *follow* also by a link; what is missing or cannot be looked at is none."""
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=follow).st_mode)
    except (OSError, ValueError):
        return False


def list_subdirectories(path: str | Path, *, dir_fd: int | None = None, most: int | None = None) -> list[str]:
    """
    Names of the directories in a directory, sorted; symbolic links are left out.

    With *most* only so many are looked for: whichever the kernel names first.

    Raises:
        KernelReadError: Missing or unreadable.
    """
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
        with os.scandir(fd) as entries:
            names = (e.name for e in entries if e.is_dir(follow_symlinks=False))
            return sorted(names if most is None else islice(names, most))
    except (OSError, ValueError) as exc:
        raise KernelReadError(str(path), _errno(exc)) from exc
    finally:
        if fd >= 0:
            os.close(fd)


def file_stamp(name: str, *, dir_fd: int, shown: str = "", regular: bool = False) -> tuple[int, int, int] | None:
    """
    Inode, size and modification time of a file, to tell whether it was replaced; ``None`` when missing.

    Errors show *shown*, or the name as given.

    Raises:
        KernelReadError: Not permitted, or similar. With *regular* ELOOP for a symbolic link and EINVAL for anything
            else that is no regular file: to open a device can do something.
    """
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as exc:
        if exc.errno in (*_GONE, errno.ENOTDIR):
            return None
        raise KernelReadError(shown or name, exc.errno or 0) from exc
    if regular and not stat.S_ISREG(found.st_mode):
        raise KernelReadError(shown or name, errno.ELOOP if stat.S_ISLNK(found.st_mode) else errno.EINVAL)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _errno(exc: OSError | ValueError) -> int:
    """The error's number; EINVAL for a path that is none (a NUL in it), which Python refuses before the kernel."""
    return (exc.errno or 0) if isinstance(exc, OSError) else errno.EINVAL

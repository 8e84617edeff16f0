"""The only ``open()`` of kernel files.

Owns: turning an errno into a typed error that carries the path. Must never: follow a symbolic link out of the
root, create or truncate a file, or read without a bound.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from numapin.model.errors import CgroupGone, KernelReadError, KernelWriteError

MAX_READ_BYTES = 4 << 20
"""A kernel or runtime file larger than this is refused (EFBIG); the largest seen was 300 KiB."""

_GONE = (errno.ENOENT, errno.ENODEV)


def read_text(path: str | Path, *, dir_fd: int | None = None, max_bytes: int = MAX_READ_BYTES) -> str:
    """
    Whole content of a small file; bytes that are not UTF-8 become ``\\ufffd``.

    With *dir_fd* the path is relative to that open directory and errors show it as given.

    Raises:
        KernelReadError: Missing (ENOENT), unreadable, a directory, or longer than *max_bytes* (EFBIG).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
        try:
            data = os.read(fd, 65_536)
            if data:  # sysfs and cgroupfs answer in one read; larger files need more
                parts, size = [data], len(data)
                while size <= max_bytes and (data := os.read(fd, 1 << 20)):
                    parts.append(data)
                    size += len(data)
                if size > max_bytes:
                    raise KernelReadError(str(path), errno.EFBIG)
                data = b"".join(parts)
        finally:
            os.close(fd)
    except OSError as exc:
        raise KernelReadError(str(path), exc.errno or 0) from exc
    return data.decode("utf-8", "replace")


def read_optional(path: str | Path, *, dir_fd: int | None = None) -> str | None:
    """
    Like `read_text`, but ``None`` when the file does not exist (ENOENT, ENOTDIR) or its cgroup went (ENODEV).

    Raises:
        KernelReadError: It exists and cannot be read.
    """
    try:
        return read_text(path, dir_fd=dir_fd)
    except KernelReadError as exc:
        if exc.errno in (*_GONE, errno.ENOTDIR):
            return None
        raise


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
    except OSError as exc:
        raise KernelReadError(str(path), exc.errno or 0) from exc

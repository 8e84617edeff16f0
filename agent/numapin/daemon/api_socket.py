"""The API's socket file: its place, its owner and its mode.

Owns: what may be removed to make place for it. Must never: follow a link, take the place of a daemon that answers, or
be open to more than root and the group for a moment.
"""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from pathlib import Path

from numapin.model.errors import AlreadyRunning, NumapinError, SocketUnusable


def listen(path: Path, gid: int | None, backlog: int) -> tuple[socket.socket, int]:
    """
    A socket that listens on *path* without blocking, 0660 with the group *gid*, else 0600; and its inode number.

    Raises:
        AlreadyRunning: A daemon answers there.
        SocketUnusable: The place is taken by something else, or cannot be written.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _clear_place(path)
        listener.bind(str(path))
        # nobody can connect before listen(), so the mode that the umask left is never used
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(0o600 if gid is None else 0o660)
        inode = path.lstat().st_ino
        listener.listen(backlog)
    except OSError as exc:
        listener.close()
        raise SocketUnusable(str(path), _reason(exc)) from exc
    except NumapinError:
        listener.close()
        raise
    return listener, inode


def group_id(name: str) -> int | None:
    """Number of the group *name*, ``None`` when there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _clear_place(path: Path) -> None:
    """Remove the socket of a daemon that is gone; anything else in the way is refused."""
    if path.parent.is_symlink():
        raise SocketUnusable(str(path), f"{path.parent} is a symbolic link, which is not followed")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "no socket"
        raise SocketUnusable(str(path), f"what is there is {what} and is not replaced; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise AlreadyRunning(str(path), 0)


def _reason(exc: OSError) -> str:
    if exc.errno is None:  # "AF_UNIX path too long" has no number
        return str(exc)
    return f"{os.strerror(exc.errno)} ({errno.errorcode.get(exc.errno, str(exc.errno))})"

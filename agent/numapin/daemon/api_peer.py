"""Who is at the other end of a Unix socket.

Owns: the kernel's word about it (SO_PEERCRED, SO_PEERGROUPS). Must never: believe what the peer says.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
import struct
from dataclasses import dataclass

_SO_PEERGROUPS = 59
"""Linux 4.13, include/uapi/asm-generic/socket.h; Python has no name for it."""
_MAX_BUFFER_BYTES = 1024
"""The most that Python's getsockopt takes: 256 groups."""
_UCRED = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The client as it was when it connected. ``groups`` holds its primary and supplementary groups."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()

    @property
    def is_root(self) -> bool:
        """May change things."""
        return self.uid == 0


def read_peer(sock: socket.socket) -> Peer:
    """
    The peer of a connected Unix socket.

    Raises:
        OSError: Not such a socket.

    Source: unix(7), SO_PEERCRED; net/core/sock.c for SO_PEERGROUPS.
    """
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_BUFFER_BYTES)
        groups = frozenset(struct.unpack(f"{len(data) // 4}I", data))
    except OSError as exc:
        if exc.errno not in (errno.ERANGE, errno.ENOPROTOOPT):  # too many for the buffer, or an older kernel
            raise
        groups = _groups_of_user(uid, gid)
    return Peer(pid, uid, gid, groups | {gid})


def _groups_of_user(uid: int, gid: int) -> frozenset[int]:
    """Groups from the user database."""
    try:
        return frozenset(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        return frozenset()

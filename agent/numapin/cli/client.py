"""Asking the daemon.

Owns: the other end of `daemon.api`. Must never: import more than a start of ``python3`` can bear.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import struct
from collections.abc import Mapping

from numapin import API_VERSION
from numapin.cli.options import DEFAULT_SOCKET
from numapin.model.errors import ExitStatus, NoAnswer, NotPermitted, NotRunning, RequestFailed

_MAX_ANSWER_BYTES = 256 << 20


def request(
    socket_path: str | os.PathLike[str],
    verb: str,
    params: Mapping[str, object] | None = None,
    timeout_s: float = 10.0,
) -> dict[str, object]:
    """
    The daemon's result for one request; *timeout_s* bounds each step of it.

    Raises:
        NotRunning: Nobody listens there.
        NoAnswer: A daemon holds the socket and let *timeout_s* pass.
        NotPermitted: The socket or the daemon refuses this user.
        RequestFailed: The daemon's error, or an answer that is none.
    """
    line = json.dumps({"apiVersion": API_VERSION, "verb": verb, "params": dict(params or {})}).encode() + b"\n"
    try:
        data = _exchange(str(socket_path), line, timeout_s)
    except BlockingIOError as exc:
        raise NoAnswer(str(socket_path), timeout_s) from exc
    except OSError as exc:
        if exc.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(
                f"{socket_path} is for root and the group numapin; run this with sudo, "
                "or: sudo usermod -aG numapin $USER, and log in again"
            ) from exc
        raise NotRunning(str(socket_path), os.strerror(exc.errno) if exc.errno else str(exc)) from exc
    return _result(data, str(socket_path))


def ask(args: argparse.Namespace, verb: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
    """
    As `request`, on the socket of *args*; without one on the usual one, and where nobody listens there, on the one
    that is configured.

    ``args.socket`` is afterwards the one that was asked, for later questions. Raises: As `request`.
    """
    if args.socket is not None:
        return request(args.socket, verb, params)
    root = str(getattr(args, "root", None) or "/")
    # below another root it is the daemon of the machine there, and never this machine's
    args.socket = DEFAULT_SOCKET if root == "/" else f"{root}{DEFAULT_SOCKET}"
    try:
        return request(args.socket, verb, params)
    except NotRunning:
        from numapin.cli.configured import configured_socket

        if (other := configured_socket(args)) == args.socket:
            raise
        args.socket = other
        return request(other, verb, params)


def _exchange(path: str, line: bytes, timeout_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        # The kernel's own timeouts, not settimeout(): that makes the socket non-blocking, and then connect() to a
        # daemon whose queue is full for a moment fails at once (EAGAIN, unix(7)) where it should wait its turn.
        limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1_000_000) or 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.connect(path)
        try:
            sock.sendall(line)
        except BrokenPipeError:
            pass  # refused before it was read; the reason is in the answer
        parts, size = [], 0
        while data := sock.recv(1 << 16):
            parts.append(data)
            size += len(data)
            if size > _MAX_ANSWER_BYTES:
                raise RequestFailed("bad-answer", f"{path}: the answer is larger than {_MAX_ANSWER_BYTES} bytes")
        return b"".join(parts)


def _result(data: bytes, path: str) -> dict[str, object]:
    if not data:
        raise NotRunning(path, "the connection was closed without an answer")
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise RequestFailed("bad-answer", f"{path}: the answer is not JSON: {exc}") from exc
    if isinstance(answer, dict) and answer.get("apiVersion") == API_VERSION:
        result = answer.get("result")
        if answer.get("kind") == "Answer" and isinstance(result, dict):
            return result
        if answer.get("kind") == "Error":
            raise _error(answer)
    raise RequestFailed("bad-answer", f"{path}: what answers there does not speak {API_VERSION}")


def _error(answer: Mapping[str, object]) -> Exception:
    code, message, status = str(answer.get("code")), str(answer.get("message")), answer.get("exit")
    if code == NotPermitted.code:
        return NotPermitted(message)
    known = {s.value: s for s in ExitStatus}
    return RequestFailed(
        code, message, known.get(status, ExitStatus.FAILURE) if isinstance(status, int) else known[1]
    )

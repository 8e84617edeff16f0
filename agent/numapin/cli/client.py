"""Asking the daemon.

Owns: the other end of `daemon.api`. Must never: import more than a start of ``python3`` can bear.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Mapping

from numapin.model.errors import ExitStatus, NotPermitted, NotRunning, RequestFailed

API_VERSION = "numapin/v1"
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
        NotRunning: Nobody listens there, or no answer came in time.
        NotPermitted: The socket or the daemon refuses this user.
        RequestFailed: The daemon's error, or an answer that is none.
    """
    line = json.dumps({"apiVersion": API_VERSION, "verb": verb, "params": dict(params or {})}).encode() + b"\n"
    try:
        data = _exchange(str(socket_path), line, timeout_s)
    except TimeoutError as exc:
        raise NotRunning(str(socket_path), f"no answer within {timeout_s:g} s") from exc
    except OSError as exc:
        if exc.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(
                f"{socket_path} is for root and the group numapin; run this with sudo, "
                "or: sudo usermod -aG numapin $USER, and log in again"
            ) from exc
        raise NotRunning(str(socket_path), os.strerror(exc.errno) if exc.errno else str(exc)) from exc
    return _result(data, str(socket_path))


def _exchange(path: str, line: bytes, timeout_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
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

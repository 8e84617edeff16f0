#!/usr/bin/python3
"""
The guest's side of the exec channel; runs in the guest, with the standard library only.

One JSON object per line in each direction over a virtio-serial port. A request has ``id`` and
``op``; its answer has the same ``id`` and either the results or ``error``. Bytes are base64.
A line that is not a request is dropped without an answer: after a snapshot was loaded, the rest
of an old message may stand before the first new one. Each request has its own thread, so that
a command that was running when the snapshot was made cannot keep later ones waiting.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PORT = "/dev/virtio-ports/guest.exec"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "SHELL": "/bin/bash",
}


def hello(request: dict[str, Any]) -> dict[str, Any]:
    """Set the wall clock to the host's: a loaded snapshot has the time it was made."""
    time.clock_settime_ns(time.CLOCK_REALTIME, int(request["time_ns"]))
    return {}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """
    Run a script with bash in a session of its own.

    Output goes to memory files, not pipes: the answer does not wait for background children that
    keep them open. ``status`` is ``null`` when the time was up and the session was killed.
    """
    stdout, stderr, stdin = (os.memfd_create(name) for name in ("stdout", "stderr", "stdin"))
    try:
        if request.get("stdin") is not None:
            os.write(stdin, base64.b64decode(request["stdin"]))
            os.lseek(stdin, 0, os.SEEK_SET)
        process = subprocess.Popen(
            ["/bin/bash", "-c", request["script"]],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=ENVIRONMENT,
            cwd="/root",
            start_new_session=True,
        )
        in_time = wait(process.pid, float(request["timeout_s"]))
        if not in_time:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        return {
            "status": status if in_time else None,
            "stdout": encode(content(stdout)),
            "stderr": encode(content(stderr)),
        }
    finally:
        for descriptor in (stdout, stderr, stdin):
            os.close(descriptor)


def wait(pid: int, timeout_s: float) -> bool:
    """Whether the process *pid* ended within *timeout_s*; does not reap it."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def content(descriptor: int) -> bytes:
    """All of a memory file, whatever its position."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def encode(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Write or append to a file; the folder is made, the mode set."""
    path = request["path"]
    os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
    flags = os.O_WRONLY | (os.O_APPEND if request["append"] else os.O_CREAT | os.O_TRUNC)
    descriptor = os.open(path, flags, 0o644)
    try:
        data = memoryview(base64.b64decode(request["data"]))
        while data:
            data = data[os.write(descriptor, data) :]
        if request["mode"] is not None:
            os.fchmod(descriptor, int(request["mode"]))
    finally:
        os.close(descriptor)
    return {}


def read(request: dict[str, Any]) -> dict[str, Any]:
    """Up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
    offset, left, parts = int(request["offset"]), int(request["length"]), []
    descriptor = os.open(request["path"], os.O_RDONLY)
    try:
        while left > 0 and (part := os.pread(descriptor, left, offset)):
            parts.append(part)
            offset += len(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    return {"data": encode(b"".join(parts)), "at_end": left > 0}


OPERATIONS = {"hello": hello, "run": run, "write": write, "read": read}


class Port:
    """The virtio-serial port: lines in, whole lines out."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()

    def send(self, answer: dict[str, Any]) -> None:
        """One line, never mixed with another thread's."""
        line = memoryview(json.dumps(answer).encode("ascii") + b"\n")
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    def serve(self) -> None:
        """Answer for ever."""
        pending = bytearray()
        while True:
            part = os.read(self._descriptor, 1 << 16)
            if not part:  # nobody is connected on the host's side
                time.sleep(0.05)
            pending += part
            while (end := pending.find(b"\n")) >= 0:
                line = bytes(pending[:end])
                del pending[: end + 1]
                threading.Thread(target=self.answer, args=(line,), daemon=True).start()

    def answer(self, line: bytes) -> None:
        """Do what one line asks; drop what is no request."""
        try:
            request = json.loads(line)
            identity, operation = request["id"], OPERATIONS[request["op"]]
        except (ValueError, LookupError, TypeError):
            return
        try:
            self.send({"id": identity, **operation(request)})
        except Exception as exc:  # noqa: BLE001 - the host turns it into its own error
            self.send({"id": identity, "error": f"{type(exc).__name__}: {exc}"})


if __name__ == "__main__":
    Port(sys.argv[1] if len(sys.argv) > 1 else PORT).serve()

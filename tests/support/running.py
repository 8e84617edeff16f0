"""A real daemon process with a state directory and a socket of its own, and container-like cgroups (v1)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numapin.cli.client import request
from numapin.kernel.cgroup_mounts import Hierarchy

READY_S = 60.0
MIB = 1 << 20


def wait_for(condition: Callable[[], object], *, limit_s: float = 30.0) -> None:
    """Return once *condition* is true; fails after *limit_s*."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not reached within {limit_s} s"
        time.sleep(0.02)


class Numapin:
    """``numapin run`` below *home*; *root* is the machine it serves. Logs are JSON lines in ``home/log``."""

    def __init__(self, home: Path, *, root: Path = Path("/"), options: Sequence[str] = ()) -> None:
        self.home = home
        self.root = root
        self.config = home / "numapin.toml"
        base = home if root == Path("/") else Path("/own")
        self.state = base / "state/state.json" if root == Path("/") else root / "own/state/state.json"
        self.socket = base / "run/api.sock" if root == Path("/") else root / "own/run/api.sock"
        self.fixed = f'state_dir = "{base}/state"\nsocket = "{base}/run/api.sock"\n'
        self.log = home / "log"
        self.options = list(options)
        self.process: subprocess.Popen[bytes] | None = None
        self.configure("")

    def configure(self, settings: str) -> None:
        """Write the configuration file, with *settings* (TOML) after the paths."""
        self.config.write_text(self.fixed + settings + '\n[log]\nformat = "json"\n')

    @property
    def argv(self) -> list[str]:
        """The command line."""
        root = [] if self.root == Path("/") else ["--root", str(self.root)]
        return [sys.executable, "-m", "numapin", "run", "--config", str(self.config), *root, *self.options]

    def start(self) -> None:
        """Start and wait for READY=1."""
        address = self.home / "notify"
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self.log.open("ab") as log:
            ready.bind(str(address))
            ready.setblocking(False)
            self.process = subprocess.Popen(self.argv, env=os.environ | {"NOTIFY_SOCKET": str(address)}, stderr=log)
            wait_for(lambda: self._told(ready), limit_s=READY_S)

    def _told(self, ready: socket.socket) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return b"READY=1" in ready.recv(4096)
        except BlockingIOError:
            return False

    def once(self) -> subprocess.CompletedProcess[str]:
        """Start a daemon that is expected to end by itself."""
        return subprocess.run(self.argv, capture_output=True, text=True, timeout=READY_S, check=False)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit status and the seconds it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        self.process = None
        return status, time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def status(self) -> Any:
        """The status document."""
        return request(self.socket, "status", timeout_s=READY_S)

    def rows(self, below: str) -> dict[str, Any]:
        """Guaranteed containers below a cgroup, by path: others may live on this machine meanwhile."""
        return {c["cgroup"]: c for c in self.status()["containers"] if c["cgroup"].startswith(below + "/")}

    def states(self, below: str) -> dict[str, str]:
        """Their states."""
        return {path: row["state"] for path, row in self.rows(below).items()}

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Log lines of one event since the first start."""
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if line["event"] == event]


class Containers:
    """Cgroups of Docker's cgroupfs form on the real v1 hierarchies, below one private parent."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.parent = f"/numapin-test-{os.getpid()}"
        self.cpuset = hierarchy.cpuset_mount
        self.others = [hierarchy.controllers[name].path for name in ("memory", "cpu")]
        self._processes: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        """Make the parents, ready for use."""
        for base in (self.cpuset, *self.others):
            (base / self.parent[1:] / "docker").mkdir(parents=True)
        for path in (self.parent, f"{self.parent}/docker"):
            self.ready(path)

    def ready(self, path: str) -> None:
        """Give a cpuset its parent's CPUs and nodes."""
        directory = self.cpuset / path[1:]
        for file in ("cpuset.cpus", "cpuset.mems"):
            (directory / file).write_text((directory.parent / file).read_text())

    def path(self, number: int) -> str:
        """Cgroup of container *number*."""
        return f"{self.parent}/docker/{number:064x}"

    def start(self, number: int, *, mib: int = 1, guaranteed: bool = True) -> str:
        """A container without processes: its limits first, then its cpuset, which has no nodes yet."""
        path = self.path(number)
        memory, cpu = (base / path[1:] for base in self.others)
        for directory in (memory, cpu):
            directory.mkdir()
        (memory / "memory.limit_in_bytes").write_text(str(mib * MIB))
        if guaranteed:
            (cpu / "cpu.cfs_quota_us").write_text("50000")
        (self.cpuset / path[1:]).mkdir()
        return path

    def populate(self, path: str) -> int:
        """A sleeping process in a container whose cpuset is ready."""
        process = subprocess.Popen(["sleep", "300"])
        self._processes.append(process)
        (self.cpuset / path[1:] / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def remove(self, path: str) -> None:
        """The container ends."""
        for base in (self.cpuset, *self.others):
            (base / path[1:]).rmdir()

    def mems(self, path: str) -> str:
        """The kernel's ``cpuset.mems``."""
        return (self.cpuset / path[1:] / "cpuset.mems").read_text().strip()

    def close(self) -> None:
        """End the processes and remove everything."""
        for process in self._processes:
            process.kill()
            process.wait()
        for base in (self.cpuset, *self.others):
            top = base / self.parent[1:]
            for directory, _, _ in os.walk(top, topdown=False) if top.exists() else ():
                os.rmdir(directory)

"""
A daemon under measurement: its own configuration, state and socket, on this machine's real cgroups.

Owns: making container-like cgroups and taking them away again. Needs root and a cpuset controller.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numapin.cli.client import request
from numapin.kernel.cgroup_mounts import Hierarchy, find_hierarchy

LIMIT_BYTES = 8 << 20
READY_S = 30.0


class Unsuitable(Exception):
    """Why nothing can be measured here."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A private parent in every controller that tells a container's limits."""

    cpuset: Path
    memory: Path
    cpu: Path
    is_v1: bool

    def prepare(self, name: str) -> None:
        """Set the limits of a container, before its cpuset cgroup appears where hierarchies are separate (v1)."""
        if self.is_v1:
            for parent, file, value in (
                (self.memory, "memory.limit_in_bytes", str(LIMIT_BYTES)),
                (self.cpu, "cpu.cfs_quota_us", "50000"),
            ):
                (parent / name).mkdir()
                (parent / name / file).write_text(value)

    def appear(self, name: str) -> Path:
        """Make the container's cpuset cgroup and, on v2, set its limits; returns its directory."""
        path = self.cpuset / name
        path.mkdir()
        if not self.is_v1:
            (path / "memory.max").write_text(str(LIMIT_BYTES))
            (path / "cpu.max").write_text("50000 100000")
        return path

    def vanish(self, name: str) -> None:
        """Remove the container everywhere."""
        for parent in {self.cpuset, self.memory, self.cpu}:
            with suppress(OSError):
                (parent / name).rmdir()

    def names(self, count: int, salt: int) -> list[str]:
        """*count* names that look like Docker's under systemd."""
        return [f"docker-{salt:08x}{n:056x}.scope" for n in range(count)]


@contextmanager
def tree() -> Iterator[Tree]:
    """A private, initialised parent; everything below is removed at the end. Raises: Unsuitable."""
    if os.geteuid() != 0:
        raise Unsuitable("root is needed to make cgroups")
    hierarchy = find_hierarchy(Path("/"))
    made = _parents(hierarchy)
    try:
        yield made
    finally:
        for parent in {made.cpuset, made.memory, made.cpu}:
            for child in [c for c in parent.iterdir() if c.is_dir()]:
                with suppress(OSError):
                    child.rmdir()
            with suppress(OSError):
                parent.rmdir()


def _parents(hierarchy: Hierarchy) -> Tree:
    name = f"numapin-bench-{os.getpid()}"
    is_v1 = hierarchy.version.value == "v1"
    places = {
        key: (hierarchy.controllers[key].path if key in hierarchy.controllers else hierarchy.cpuset_mount) / name
        for key in ("memory", "cpu")
    }
    cpuset = hierarchy.cpuset_mount / name
    for place in dict.fromkeys((cpuset, *places.values())):
        place.mkdir()
    if is_v1:
        for file in ("cpuset.cpus", "cpuset.mems"):
            (cpuset / file).write_text((hierarchy.cpuset_mount / file).read_text())
    else:
        (cpuset / "cgroup.subtree_control").write_text("+cpuset +memory +cpu")
    return Tree(cpuset, places["memory"], places["cpu"], is_v1)


class Daemon:
    """One ``numapin run`` with everything of its own below *home*."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "run/api.sock"
        config = home / "numapin.toml"
        config.write_text(f'state_dir = "{home}/state"\nsocket = "{self.socket}"\n[log]\nlevel = "error"\n')
        self._argv = [sys.executable, "-m", "numapin", "run", "--config", str(config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start and wait for READY=1; returns the seconds that took."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(f"{folder}/notify")
            ready.settimeout(READY_S)
            began = time.perf_counter()
            environment = os.environ | {"NOTIFY_SOCKET": f"{folder}/notify"}
            self.process = subprocess.Popen(self._argv, env=environment)
            while b"READY=1" not in ready.recv(4096):
                pass
            return time.perf_counter() - began

    def stop(self) -> None:
        """Stop with SIGTERM and wait."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
            self.process = None

    def status(self) -> dict[str, Any]:
        """The status document."""
        return request(self.socket, "status")

    def pinned(self) -> int:
        """Containers pinned now, of all on the host."""
        return sum(1 for c in self.status()["containers"] if c["state"] == "pinned")


@contextmanager
def daemon(parent: Path | None = None) -> Iterator[Daemon]:
    """A daemon whose files live in a fresh folder below *parent* (default: the temporary directory)."""
    with tempfile.TemporaryDirectory(prefix="numapin-bench-", dir=parent) as folder:
        it = Daemon(Path(folder))
        try:
            yield it
        finally:
            it.stop()


def median(values: Sequence[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def judge(*limits: tuple[str, float, float]) -> int:
    """Print each *(what, figure, limit)* whose figure is not below its limit; returns 1 when there is one, else 0."""
    failed = [(what, figure, limit) for what, figure, limit in limits if not figure < limit]
    for what, figure, limit in failed:
        print(f"not held: {what}: {figure:.3f} is not below {limit:g}")
    return int(bool(failed))


def wait_until(condition: Callable[[], bool], *, limit_s: float, every_s: float = 0.02) -> float:
    """Seconds until *condition* held. Raises: TimeoutError after *limit_s*."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > limit_s:
            raise TimeoutError(f"not reached within {limit_s} s")
        time.sleep(every_s)
    return time.perf_counter() - began


def dump(name: str, figures: dict[str, object]) -> None:
    """One machine-readable line beside the table."""
    print(f"  {json.dumps({'bench': name, **figures}, sort_keys=True)}")

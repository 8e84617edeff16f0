"""A private part of this machine's real cpuset hierarchy."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy

ROOT = Path("/")


class RealTree:
    """Cgroups below one private parent. *base* is its directory, *path* its cgroup path."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.path = f"/numapin-test-{os.getpid()}"
        self.base = hierarchy.cpuset_mount / self.path[1:]
        self._processes: list[subprocess.Popen[bytes]] = []

    def make(self, name: str = "", *, ready: bool = True) -> str:
        """Make a cgroup below the parent (and what is missing above it); *ready* gives it CPUs and nodes."""
        directory = self.base
        for part in ["", *(p for p in name.split("/") if p)]:
            directory = directory / part
            if not directory.exists():
                directory.mkdir()
                if ready and self.hierarchy.version is CgroupVersion.V1:
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (directory / file).write_text((directory.parent / file).read_text())
        return f"{self.path}/{name}".rstrip("/")

    def populate(self, path: str) -> int:
        """A sleeping process in the cgroup *path*; its pid."""
        process = subprocess.Popen(["sleep", "300"])
        self._processes.append(process)
        (self.hierarchy.cpuset_mount / path[1:] / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def clear(self) -> None:
        """End the processes and remove every cgroup below the parent."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if self.base.exists():
            for directory, _, _ in os.walk(self.base, topdown=False):
                os.rmdir(directory)

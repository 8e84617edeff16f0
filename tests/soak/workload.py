"""
Containers with real processes on this machine's v1 cgroups, made, used and removed as a container runtime does it.

Owns: the order of a runtime's system calls and its patience with EBUSY. Must never: choose what happens next.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from support.running import MIB, Containers

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
PATIENCE_S = 5.0
"""How long a removal is tried; runc gives up after half a second, with less going on beside it."""


class Program(StrEnum):
    """What a container's first process does once it is in its cgroups; sh reads a line first, to be let loose."""

    SLEEPS = "read _; exec sleep 1000"
    FORKS = "read _; sleep 1000 & exec sleep 1000"
    ENDS = "read _; exec sleep 0.4"
    LEAVES_A_CHILD = "read _; sleep 1000 & exec sleep 0.4"
    FORKS_AND_ENDS = "read _; sleep 0.2 & sleep 0.3 & wait"


@dataclass
class Living:
    """One container: ``group`` is its processes' group, ``inner`` its child cpusets, outermost first."""

    path: str
    mib: int
    guaranteed: bool
    touched: bool = False
    """Its cpuset was given nodes by its runtime, or may have been by the daemon."""
    group: int | None = None
    inner: list[str] = field(default_factory=list)
    raw: str | None = None
    """A child cpuset that nobody set up."""


def adopt_orphans(wanted: bool) -> None:
    """Have the children of ended processes below this one become its own, so that they can be waited for; or not."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


class Runtime:
    """A container runtime on these cgroups. ``busy`` counts system calls that were tried again (EBUSY)."""

    def __init__(self, containers: Containers) -> None:
        self.busy = 0
        self._containers = containers
        self._bases = (containers.cpuset, *containers.others)

    def create(self, number: int, *, mib: int, guaranteed: bool, late_limits: bool) -> Living:
        """The container's cgroups, with its limits before the cpuset or after it, and without nodes yet."""
        path = self._containers.path(number)
        if late_limits:
            for base in self._bases:
                (base / path[1:]).mkdir()
            self._limit(path, mib=mib, guaranteed=guaranteed)
        else:
            self._containers.start(number, mib=mib, guaranteed=guaranteed)
        return Living(path, mib, guaranteed, touched=guaranteed)

    def _limit(self, path: str, *, mib: int, guaranteed: bool) -> None:
        memory, cpu = (base / path[1:] for base in self._containers.others)
        self._try(lambda: (memory / "memory.limit_in_bytes").write_text(str(mib * MIB)))
        (cpu / "cpu.cfs_quota_us").write_text("50000" if guaranteed else "-1")

    def update(self, living: Living, *, mib: int, guaranteed: bool) -> None:
        """Another memory limit, another class or both."""
        self._limit(living.path, mib=mib, guaranteed=guaranteed)
        living.mib, living.guaranteed = mib, guaranteed
        living.touched |= guaranteed

    def run(self, living: Living, program: Program) -> None:
        """Start the container's process, put it into its cgroups and let it loose."""
        self._initialise(living)
        out, into = os.pipe()
        try:
            living.group = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", program.value],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, out, 0)],
                setpgroup=0,
            )
            for base in self._bases:
                (base / living.path[1:] / "cgroup.procs").write_text(str(living.group))
            os.write(into, b"\n")
        finally:
            os.close(out)
            os.close(into)

    def nest(self, living: Living) -> None:
        """One more child cpuset, below the innermost one and with its CPUs and nodes."""
        self._initialise(living)
        path = f"{living.inner[-1] if living.inner else living.path}/inner"
        (self._containers.cpuset / path[1:]).mkdir()
        living.inner.append(path)
        self._try(lambda: self._containers.ready(path))

    def nest_raw(self, living: Living) -> None:
        """A child cpuset as ``mkdir`` leaves it, without nodes."""
        living.raw = f"{living.path}/raw"
        (self._containers.cpuset / living.raw[1:]).mkdir(exist_ok=True)

    def move_inside(self, living: Living) -> None:
        """What runs in the container moves into its innermost cpuset, as systemd in a container does."""
        if living.inner:
            target = self._containers.cpuset / living.inner[-1][1:] / "cgroup.procs"
            for pid in self._pids(living.path):
                with suppress(ProcessLookupError):
                    target.write_text(str(pid))

    def remove(self, living: Living) -> None:
        """Kill what runs and remove the cgroups from the inside out, which the kernel allows once all has ended."""
        for path in (living.path, *living.inner):
            for pid in self._pids(path):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if living.group is not None:
            with suppress(ProcessLookupError):
                os.killpg(living.group, signal.SIGKILL)  # one that was just forked is on no list yet
        inside = [*living.inner, living.raw] if living.raw else living.inner
        for directory in (self._containers.cpuset / path[1:] for path in reversed(inside)):
            self._try(directory.rmdir)
        for directory in (base / living.path[1:] for base in self._bases):
            self._try(directory.rmdir)
        if living.group is not None:
            _reap(living.group)

    def has_ended(self, living: Living) -> bool:
        """True when the container's first process has ended by itself."""
        if living.group is None:
            return False
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, living.group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def _initialise(self, living: Living) -> None:
        """What runc does before it adds a process: CPUs and nodes of the parent where there are none."""
        directory = self._containers.cpuset / living.path[1:]
        living.touched = True
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not (directory / file).read_text().strip():
                (directory / file).write_text((directory.parent / file).read_text())

    def _pids(self, path: str) -> list[int]:
        text = (self._containers.cpuset / path[1:] / "cgroup.procs").read_text()
        return [int(word) for word in text.split()]

    def _try(self, step: Callable[[], object]) -> None:
        """Do *step*, again and again while the kernel says EBUSY."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                step()
            except OSError as exc:
                if exc.errno != errno.EBUSY or time.monotonic() > end:
                    raise
                self.busy += 1
                time.sleep(0.005)
            else:
                return


def _reap(group: int) -> None:
    """Wait for every process of a group that was killed; none of them is anybody else's child."""
    with suppress(ChildProcessError):
        while True:
            os.waitid(os.P_PGID, group, os.WEXITED)

"""
Telling systemd what a container's scope is held to, so that systemd does not write something else there later.

Owns: the one thread that talks to systemd, and what counts as done. Must never: run in the loop, come before the
direct write (PID 1 would move the pages, and do nothing else), or be needed: the direct write is the pin.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from dataclasses import dataclass

from numapin.kernel.systemd import Systemd, unit_of
from numapin.model.errors import NoSuchUnit, SystemdAbsent, SystemdError
from numapin.model.nodeset import NodeSet


@dataclass(frozen=True, slots=True)
class UnitJob:
    """
    Make the property of the unit whose directory is the cgroup *path* say *nodes*; none resets it.

    With *replaces* only that value is replaced: another one is somebody else's.
    """

    path: str
    inode: int
    unit: str
    nodes: NodeSet
    replaces: NodeSet | None = None


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """
    What came of a job. ``found`` is what the property said before, ``None`` when that could not be read.

    ``problem`` is empty when the property now says what was asked and was read back; ``absent`` when the problem
    is that there is no systemd that could be told, which is the machine's and not this container's.
    """

    job: UnitJob
    found: NodeSet | None
    problem: str = ""
    absent: bool = False

    @property
    def differed(self) -> bool:
        """True when the unit was told other nodes by somebody."""
        return bool(self.found) and self.found not in (self.job.nodes, self.job.replaces)


def settle(systemd: Systemd, job: UnitJob) -> UnitOutcome:
    """
    Do one job; an unchanged value is not set again, and success is what is read back, not what was answered.

    Never raises: an error of systemd's becomes part of the outcome.
    """
    found: NodeSet | None = None
    try:
        cgroup = systemd.read_control_group(job.unit)
        if cgroup != job.path:
            return UnitOutcome(job, None, f"the unit {job.unit} is the cgroup {cgroup or '(none)'}, not this one")
        found = systemd.read_allowed_memory_nodes(job.unit)
        if found == job.nodes or (job.replaces is not None and found != job.replaces):
            return UnitOutcome(job, found)
        systemd.set_allowed_memory_nodes(job.unit, job.nodes)
        now = systemd.read_allowed_memory_nodes(job.unit)
    except SystemdError as exc:
        return UnitOutcome(job, found, _problem(exc), isinstance(exc, SystemdAbsent))
    if now != job.nodes:
        return UnitOutcome(
            job, found, f"systemd took AllowedMemoryNodes={job.nodes or '(none)'} and says {now or '(none)'}: ignored"
        )
    return UnitOutcome(job, found)


def _problem(error: SystemdError) -> str:
    if isinstance(error, NoSuchUnit):
        return f"systemd has no unit {error.unit}: another cgroup driver made it"
    return str(error)


class Units:
    """
    Does jobs in one thread, the newest per cgroup.

    ``fileno()`` becomes readable when some are done; `collect` then returns the outcomes. The thread is a daemon
    thread and starts with the first job: stopping the service does not wait for PID 1.
    """

    def __init__(self, systemd: Systemd) -> None:
        self._systemd = systemd
        self._jobs: dict[str, UnitJob] = {}
        self._turn: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[UnitOutcome] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None
        self._open: set[str] = set()
        self.finding = ""
        """A sentence while systemd cannot be told at all."""

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._wake

    @property
    def busy(self) -> frozenset[str]:
        """Cgroups whose job is not collected yet."""
        return frozenset(self._open)

    def submit(
        self, path: str, inode: int, nodes: NodeSet, *, replaces: NodeSet | None = None
    ) -> bool:  # fmt: skip
        """Ask for the property of the unit whose directory *path* is; false when it is none, and nothing is done."""
        unit = unit_of(path)
        if unit is None:
            return False
        self._jobs[path] = UnitJob(path, inode, unit, nodes, replaces)
        self._open.add(path)
        self._turn.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="numapin-systemd", daemon=True)
            self._thread.start()
        return True

    def collect(self) -> list[UnitOutcome]:
        """Outcomes of finished jobs; one that a newer job of the same cgroup overtook is left out."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        outcomes = []
        while not self._done.empty():
            outcome = self._done.get_nowait()
            if outcome.job.path not in self._jobs:
                self._open.discard(outcome.job.path)
                outcomes.append(outcome)
                self.finding = outcome.problem if outcome.absent else ""
        return outcomes

    def _work(self) -> None:
        while True:
            job = self._jobs.pop(self._turn.get(), None)
            if job is not None:
                self._done.put(settle(self._systemd, job))
                os.eventfd_write(self._wake, 1)

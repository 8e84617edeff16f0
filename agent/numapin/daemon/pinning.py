"""
Writing ``cpuset.mems`` and looking at what the kernel granted, in the loop or in a worker.

Owns: which writes may block the loop (none that move pages). Must never: decide nodes.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from numapin.kernel.cgroupfs import Cgroup
from numapin.kernel.clock import Clock
from numapin.model.errors import KernelError
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Verification

INLINE_BYTES = 8 << 20
"""A cgroup holding less than this is written in the loop: moving so little takes less than a thread's start."""

WORKERS = 4
"""Page migrations at the same time; the kernel serialises much of it, so more would only wait."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """
    Ask the kernel to hold *cgroup* to *nodes*. ``migrate`` is for cgroup v1: move existing pages too.

    ``below`` are masks that child cgroups of v1 shall have again, as an earlier outcome's ``below`` told them.
    """

    cgroup: Cgroup
    nodes: NodeSet
    migrate: bool
    below: Mapping[str, NodeSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What came of a job: a verification, or the error that stopped it.

    ``wrote`` is False when the value already stood there. ``took_ns`` is the time the write held its writer.
    """

    path: str
    inode: int
    nodes: NodeSet
    verification: Verification | None
    error: KernelError | None
    wrote: bool
    took_ns: int
    below: Mapping[str, NodeSet] = field(default_factory=dict)
    """On v1 the masks that child cgroups had before, where they had fewer nodes than their parent."""


def perform(job: WriteJob, clock: Clock) -> Outcome:
    """
    Write unless the value already stands, then read back what is asked and what is granted.

    Never raises: a kernel error becomes part of the outcome.
    """
    started = clock.monotonic_ns()
    cgroup, wrote = job.cgroup, False
    verification: Verification | None = None
    error: KernelError | None = None
    below: Mapping[str, NodeSet] = {}
    try:
        if cgroup.read_cpuset_mems() != job.nodes:
            if job.migrate:
                cgroup.set_memory_migrate()
            wrote = True
            below = cgroup.write_subtree_mems(job.nodes, job.below)
        verification = Verification(job.nodes, cgroup.read_cpuset_mems(), cgroup.read_cpuset_mems_effective())
    except KernelError as exc:
        error = exc
    took = clock.monotonic_ns() - started
    return Outcome(cgroup.path, cgroup.inode, job.nodes, verification, error, wrote, took, below)


class Writer:
    """
    Runs jobs: small ones at once, ones that move pages in threads, one at a time per cgroup.

    ``fileno()`` becomes readable when a thread finished; `collect` then returns the outcomes. The threads are
    daemon threads: stopping the service does not wait for a migration.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._running: set[str] = set()
        self._waiting: dict[str, WriteJob] = {}

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._wake

    @property
    def busy(self) -> int:
        """Jobs not finished yet."""
        return len(self._running) + len(self._waiting)

    def submit(self, job: WriteJob, held_bytes: int) -> Outcome | None:
        """
        Perform now and return the outcome, or hand over to a thread and return ``None``.

        *held_bytes* is what the cgroup holds at the moment. While any migration runs, every write goes to a
        thread: the kernel may make one writer wait for another's pages. Of several jobs for one cgroup only the
        newest is kept.
        """
        if not self._running and held_bytes <= INLINE_BYTES:
            return perform(job, self._clock)
        # a handle of its own: the container's view may close its one while the thread writes
        overtaken = self._waiting.pop(job.cgroup.path, None)
        if overtaken is not None:
            overtaken.cgroup.close()
        self._waiting[job.cgroup.path] = replace(job, cgroup=job.cgroup.duplicate())
        self._start_waiting()
        return None

    def is_writing(self, path: str) -> bool:
        """True while a thread writes this cgroup, or shall."""
        return path in self._running or path in self._waiting

    def cancel(self, path: str) -> None:
        """Drop a job of this cgroup that no thread has begun."""
        waiting = self._waiting.pop(path, None)
        if waiting is not None:
            waiting.cgroup.close()

    def _start_waiting(self) -> None:
        for path in [p for p in self._waiting if p not in self._running][: WORKERS - len(self._running)]:
            self._running.add(path)
            job = self._waiting.pop(path)
            threading.Thread(target=self._work, args=(job,), name="numapin-writer", daemon=True).start()

    def _work(self, job: WriteJob) -> None:
        with job.cgroup:
            self._done.put(perform(job, self._clock))
        os.eventfd_write(self._wake, 1)

    def collect(self) -> list[Outcome]:
        """Outcomes of finished jobs; one that a newer job of the same cgroup overtook is left out."""
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return []
        outcomes = []
        while not self._done.empty():
            outcome = self._done.get_nowait()
            self._running.discard(outcome.path)
            if outcome.path not in self._waiting:
                outcomes.append(outcome)
        self._start_waiting()
        return outcomes

"""
Writing ``cpuset.mems`` and looking at what the kernel granted, in the loop or in a worker.

Owns: which writes may block the loop (none that move pages). Must never: decide nodes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import Cgroup
from numapin.kernel.clock import Clock
from numapin.model.errors import KernelError, KernelWriteError
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Verification

INLINE_BYTES = 8 << 20
"""A cgroup holding less than this is written in the loop: moving so little takes less than a thread's start."""

WORKERS = 4
"""Page migrations at the same time; the kernel serialises much of it, so more would only wait."""


@dataclass(frozen=True, slots=True)
class Restore:
    """What a write brings back beside the nodes on v1; ``migrate`` as ``PinRecord.original_migrate``."""

    earlier: Earlier
    migrate: bool | None


@dataclass(frozen=True, slots=True)
class WriteJob:
    """
    Ask the kernel to hold *cgroup* to *nodes*. ``migrate`` is for cgroup v1: move existing pages too.

    With ``restore`` the write undoes an earlier one. ``found`` is the ``below`` of writes that this one overtook.
    """

    cgroup: Cgroup
    nodes: NodeSet
    migrate: bool
    restore: Restore | None = None
    found: Mapping[str, NodeSet] = field(default_factory=dict)


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
        if job.restore is not None:
            wrote = _restore(job, job.restore)
        elif cgroup.read_cpuset_mems() != job.nodes:
            wrote = True
            below = {**_pin(job), **job.found}
        verification = Verification(job.nodes, cgroup.read_cpuset_mems(), cgroup.read_cpuset_mems_effective())
    except KernelError as exc:
        error = exc
    took = clock.monotonic_ns() - started
    return Outcome(cgroup.path, cgroup.inode, job.nodes, verification, error, wrote, took, below)


def _pin(job: WriteJob) -> Mapping[str, NodeSet]:
    """Write the nodes; the masks below as they were. Raises: KernelError; a switch made for nothing is put back."""
    switched = job.migrate and job.cgroup.write_memory_migrate(True)
    try:
        return job.cgroup.write_subtree_mems(job.nodes)[1]
    except KernelWriteError:
        if switched:
            with contextlib.suppress(KernelError):
                job.cgroup.write_memory_migrate(False)
        raise


def _restore(job: WriteJob, restore: Restore) -> bool:
    """Write what was there before; whether that was anything else than what is. Raises: KernelError."""
    earlier = replace(restore.earlier, below={**job.found, **restore.earlier.below})
    wrote, _ = job.cgroup.write_subtree_mems(job.nodes, earlier)
    switched = restore.migrate is False and job.cgroup.write_memory_migrate(False)
    return wrote or switched


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
        self._found: dict[tuple[str, int], Mapping[str, NodeSet]] = {}  # of overtaken writes, by path and inode

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._wake

    @property
    def busy(self) -> int:
        """Jobs not finished yet."""
        return len(self._running) + len(self._waiting)

    def submit(self, job: WriteJob, held_bytes: int | None) -> Outcome | None:
        """
        Perform now and return the outcome, or hand over to a thread and return ``None``.

        *held_bytes* is what the cgroup holds at the moment, ``None`` where nobody knows (it may be much). While any
        migration runs, every write goes to a thread: the kernel may make one writer wait for another's pages. Of
        several jobs for one cgroup only the newest is kept.
        """
        if not self._running and held_bytes is not None and held_bytes <= INLINE_BYTES:
            return perform(self._with_found(job), self._clock)
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
            job = self._with_found(self._waiting.pop(path))
            threading.Thread(target=self._work, args=(job,), name="numapin-writer", daemon=True).start()

    def _with_found(self, job: WriteJob) -> WriteJob:
        """*job* with what earlier writes of its cgroup found, of which nobody was told."""
        found = self._found.pop((job.cgroup.path, job.cgroup.inode), None)
        return job if found is None else replace(job, found=found)

    def _work(self, job: WriteJob) -> None:
        with job.cgroup:
            self._done.put(perform(job, self._clock))
        os.eventfd_write(self._wake, 1)

    def collect(self) -> list[Outcome]:
        """
        Outcomes of finished jobs; one that a newer job of the same cgroup overtook is left out, and the newer one's
        ``below`` has what it found.
        """
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
            elif outcome.below:
                self._found[outcome.path, outcome.inode] = outcome.below
        self._start_waiting()
        if not self.busy:
            self._found.clear()  # their cgroups went, or nobody wants anything of them
        return outcomes

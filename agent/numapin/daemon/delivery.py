"""
Bringing a promise into its cgroup: hold the directory, check the room, write, verify, note the result.

Owns: when a pin is held back, and what a failed write does to the promise. Must never: choose nodes.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from numapin.daemon.ledger import Ledger
from numapin.daemon.machine import Machine
from numapin.daemon.pinning import Outcome, WriteJob, Writer
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import CgroupGone, KernelError, KernelWriteError
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_bytes

MARGIN_BYTES = 32 << 20
"""Left free on the target of a migration: below the kernel's watermarks it would reclaim and stall."""


class Opener(Protocol):
    """Opens a container's cgroup directory."""

    def open(self, path: str) -> Cgroup: ...


class DriftWatch(Protocol):
    """Reports writes to the ``cpuset.mems`` of pinned containers."""

    def watch_mems(self, path: str) -> None: ...

    def unwatch_mems(self, path: str) -> None: ...

    def prune(self, path: str) -> None: ...


class Delivery:
    """Writes and verifies for one agent."""

    def __init__(
        self,
        *,
        opener: Opener,
        drift: DriftWatch,
        ledger: Ledger,
        writer: Writer,
        reporter: Reporter,
        migrate_v1: bool,
        dry_run: bool,
    ) -> None:
        self._opener = opener
        self._drift = drift
        self._ledger = ledger
        self._writer = writer
        self._reporter = reporter
        self._migrate = migrate_v1
        self._dry_run = dry_run

    def hold(self, view: Tracked) -> Cgroup | None:
        """
        The view's open directory, opened if need be; ``None`` when the cgroup went or is another one now.

        Raises:
            KernelReadError: It is there and cannot be opened.
        """
        if view.cgroup is None:
            try:
                cgroup = self._opener.open(view.record.cgroup)
            except CgroupGone:
                return None
            if cgroup.inode != view.record.inode:
                cgroup.close()
                return None
            view.cgroup = cgroup
        return view.cgroup

    def keep(self, view: Tracked) -> None:
        """Nothing to write: hold the directory and watch for drift."""
        with contextlib.suppress(KernelError):
            if self.hold(view) is not None:
                self._drift.watch_mems(view.record.cgroup)

    def write(self, view: Tracked, machine: Machine) -> bool:
        """
        Start the write of a decided pin; its result comes to `verify`.

        False when it is held back (state DEFERRED): the container's pages would not fit on the target, or a node
        has no memory at the moment.
        """
        if self._dry_run:
            view.state = ContainerState.WOULD_PIN
            return True
        if lost := view.nodes - machine.topology.with_memory:
            return self._defer(view, f"node {lost} has no memory now; the reservation is kept until it has again")
        try:
            cgroup = self.hold(view)
        except KernelError as exc:
            self._give_back(view, str(exc), None)
            return True
        if cgroup is None:
            return True  # its removal is on the way
        try:
            held = cgroup.read_memory_current() or 0
            short = self._short_of_room(cgroup, view.nodes, held, machine)
        except KernelError:
            held, short = 0, None  # the write itself will say what is wrong
        if short is not None:
            return self._defer(view, short)
        view.state, view.message = ContainerState.PINNING, ""
        outcome = self._writer.submit(WriteJob(cgroup, view.nodes, self._migrate), held)
        if outcome is not None:
            self.verify(view, outcome)
        return True

    def _defer(self, view: Tracked, message: str) -> bool:
        view.state, view.message = ContainerState.DEFERRED, message
        self._ledger.update_pin(view.record.cgroup, phase=Phase.DEFERRED, message=message)
        self._reporter.container(view)
        return False

    def _short_of_room(self, cgroup: Cgroup, nodes: NodeSet, held: int, machine: Machine) -> str | None:
        """A sentence with the numbers when the pages that would move do not fit on *nodes* now, else ``None``."""
        if held <= MARGIN_BYTES:
            return None
        stat = cgroup.read_memory_numa_stat()
        if stat is None:
            return None
        outside = sum(size for node, size in stat.items() if node not in nodes)
        room = machine.available_bytes(nodes)
        if not outside or outside + MARGIN_BYTES <= room:
            return None
        return (
            f"{format_bytes(outside)} of its memory are on other nodes, and node {nodes} has room for "
            f"{format_bytes(room)}; the pin waits until there is room"
        )

    def verify(self, view: Tracked, outcome: Outcome) -> None:
        """Note what the kernel granted; a promise it did not grant is taken out of the books."""
        path = view.record.cgroup
        counters = self._reporter.counters
        counters.writes += outcome.wrote
        if isinstance(outcome.error, CgroupGone):
            return  # its removal event gives the memory back
        if not view.nodes or outcome.nodes != view.nodes:
            return  # a value restored after the promise ended
        if outcome.verification is not None and outcome.verification.ok:
            view.state, view.message = ContainerState.PINNED, self._pages_note(view)
            counters.pins += 1
            self._ledger.update_pin(path, phase=Phase.VERIFIED, message=view.message)
            self._drift.watch_mems(path)
            self._reporter.container(view, outcome)
        else:
            self._give_back(view, _failure(outcome), outcome)

    def _give_back(self, view: Tracked, message: str, outcome: Outcome | None) -> None:
        """No pin, so no promise either; a value that stands in the cgroup all the same is put back."""
        pin = self._ledger.pins.get(view.record.cgroup)
        view.state, view.nodes, view.message = ContainerState.FAILED, NodeSet(), message
        self._reporter.counters.failures += 1
        self._ledger.drop(view.record.cgroup)
        refused = outcome is None or isinstance(outcome.error, KernelWriteError)
        if pin is not None and not refused:
            self.restore(view, pin)
        self._reporter.container(view, outcome)

    def _pages_note(self, view: Tracked) -> str:
        if view.record.cgroup_v1 and not self._migrate and view.seen_ns == 0:
            return "pages it had before stay where they are (cgroup v1 without memory_migrate)"
        return ""

    def restore(self, view: Tracked, pin: PinRecord) -> None:
        """
        Give a cgroup back the value it had before our first write.

        A populated v2 cgroup cannot be made empty again (ENOSPC), so "inherited" becomes the parent's set.
        """
        if self._dry_run:
            return
        self._drift.unwatch_mems(pin.cgroup)
        target = pin.original_mems or view.record.parent_mems
        with contextlib.suppress(KernelError):
            cgroup = self.hold(view)
            if cgroup is not None:
                self._writer.submit(WriteJob(cgroup, target, self._migrate), cgroup.read_memory_current() or 0)

    def let_go(self, view: Tracked) -> None:
        """Somebody else's from now on: what was not written yet is not written any more, what stands there stands."""
        self._writer.cancel(view.record.cgroup)
        self.forget(view)

    def forget(self, view: Tracked) -> None:
        """The cgroup went: let go of its directory and its watch."""
        self._drift.unwatch_mems(view.record.cgroup)
        view.close()


def _failure(outcome: Outcome) -> str:
    if outcome.error is not None:
        return str(outcome.error)
    seen = outcome.verification
    granted, mems = (seen.effective, seen.mems) if seen is not None else (NodeSet(), NodeSet())
    return (
        f"asked for nodes {outcome.nodes}, the kernel grants {granted or 'none'} (cpuset.mems says {mems or 'none'})"
    )

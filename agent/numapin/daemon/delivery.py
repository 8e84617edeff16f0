"""
Bringing a promise into its cgroup: hold the directory, check the room, write, verify, note the result.

Owns: when a pin is held back, and what a failed write does to the promise. Must never: choose nodes.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import Protocol

from numapin.daemon.enabling import Enabler, enable_for
from numapin.daemon.ledger import Ledger
from numapin.daemon.leftovers import Leftovers
from numapin.daemon.machine import Machine
from numapin.daemon.pinning import Outcome, WriteJob, Writer
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.undo import End, Undo
from numapin.daemon.units import UnitOutcome, Units
from numapin.kernel.cgroup_controllers import enable_cpuset
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import CgroupGone, CheckpointError, KernelError, KernelWriteError
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
        leftovers: Leftovers,
        migrate_v1: bool,
        dry_run: bool,
        units: Units | None = None,
        enable: Enabler = enable_cpuset,
    ) -> None:
        self._enable = enable
        self.undo = Undo(ledger=ledger, writer=writer, units=units, reporter=reporter, dry_run=dry_run)
        self._units = units
        self._nobody_to_tell = False
        self._opener = opener
        self._drift = drift
        self._ledger = ledger
        self._writer = writer
        self._reporter = reporter
        self._leftovers = leftovers
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
        self.undo.cancel(view.record.cgroup)
        with contextlib.suppress(KernelError):
            if self.hold(view) is not None:
                self._drift.watch_mems(view.record.cgroup)
                self._leftovers.pinned(view.record.cgroup)
                pin = self._ledger.pins.get(view.record.cgroup)
                if pin is not None and pin.unit is None:
                    self._tell_unit(view)

    def write(self, view: Tracked, machine: Machine) -> bool:
        """
        Start the write of a decided pin; its result comes to `verify`.

        False when it is held back: the container's pages would not fit on the target (DEFERRED), or a node has no
        memory at the moment (LOST).
        """
        if self._dry_run:
            view.state = ContainerState.WOULD_PIN
            return True
        if lost := view.nodes - machine.topology.with_memory:
            return self._defer(view, _lost(lost, view.nodes - lost), ContainerState.LOST)
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
        try:
            self._note_children(view, cgroup)
        except CheckpointError as exc:
            return self._defer(view, str(exc))
        if view.record.cpuset_missing:
            if problem := enable_for(view, cgroup, self._enable, self._ledger, self._reporter.log):
                self._give_back(view, problem, None)
                return True
            view.record = replace(view.record, cpuset_missing=())
        view.state, view.message = ContainerState.PINNING, ""
        self.undo.cancel(view.record.cgroup)
        self._drift.watch_mems(view.record.cgroup)  # before the write: who writes after us is seen then
        outcome = self._writer.submit(WriteJob(cgroup, view.nodes, self._migrate), held)
        if outcome is not None:
            self.verify(view, outcome)
        return True

    def _note_children(self, view: Tracked, cgroup: Cgroup) -> None:
        """
        Child cpusets that came while a first write was held back are on disk too before it happens (v1).

        Raises:
            CheckpointError: They cannot be saved.
        """
        pin = self._ledger.pins.get(view.record.cgroup)
        if pin is None or pin.phase is not Phase.DEFERRED or not view.record.cgroup_v1:
            return
        with contextlib.suppress(KernelError):  # the write itself will say what is wrong
            if cgroup.read_cpuset_mems() == pin.original_mems:
                below = {**cgroup.read_masks_below(), **pin.original_below}
                if below != pin.original_below:
                    self._ledger.update_pin(view.record.cgroup, original_below=below)
                    self._ledger.save()

    def _defer(self, view: Tracked, message: str, state: ContainerState = ContainerState.DEFERRED) -> bool:
        if (view.state, view.message) == (state, message):
            return False  # known, and noted
        view.state, view.message = state, message
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
        if not view.nodes or outcome.nodes != view.nodes or view.state is ContainerState.FOREIGN:
            self.undo.finish(view, outcome)  # a value restored after the promise ended
            self._watch_again(view)
            return
        seen = outcome.verification
        if seen is not None and seen.ok:
            note = "; ".join(filter(None, (self._pages_note(view), self._moved_out(view), view.contest)))
            view.state, view.message = ContainerState.PINNED, note
            counters.pins += 1
            self._keep_masks(path, outcome)
            self._ledger.update_pin(path, phase=Phase.VERIFIED, message=view.message)
            self._leftovers.pinned(path)
            self._tell_unit(view)
            self._reporter.container(view, outcome)
        elif outcome.error is None and seen is not None and seen.mems != outcome.nodes:
            # a kernel that takes a value shows it: somebody wrote another one since, and the watch will tell
            view.state, view.message = ContainerState.CONTESTED, f"nodes {seen.mems} were written over ours at once"
            self._reporter.container(view)
        elif seen is not None and self._returning(path, outcome.nodes, seen.effective):
            # the value stands, and cpuset learns of a node's return in a work of its own (before Linux 6.10)
            message = (
                f"the kernel does not grant node {outcome.nodes - seen.effective} again yet; looked at again soon"
            )
            self._defer(view, message, ContainerState.LOST)
        elif self._above_lacks(path, outcome):
            # cgroup v1 takes a node that goes out of every cpuset and gives it back to none
            message = f"{_failure(outcome)}; the cgroups above lost a node and have to get it back, from the top down"
            self._defer(view, message, ContainerState.LOST)
        else:
            self._give_back(view, _failure(outcome), outcome)

    def _above_lacks(self, path: str, outcome: Outcome) -> bool:
        """True for a pin that was held back and that the cgroups above it do not allow (yet)."""
        pin = self._ledger.pins.get(path)
        refused = isinstance(outcome.error, KernelWriteError) and outcome.error.errno == errno.EACCES
        return refused and pin is not None and pin.phase is Phase.DEFERRED

    def _returning(self, path: str, nodes: NodeSet, effective: NodeSet) -> bool:
        """True for a pin that was held back and whose value stands, but for nodes that are not granted (yet)."""
        pin = self._ledger.pins.get(path)
        return pin is not None and pin.phase is Phase.DEFERRED and bool(nodes - effective)

    def _keep_masks(self, path: str, outcome: Outcome) -> None:
        """
        Remember also those v1 children that came between the decision and the first write.

        One inside our nodes may be the doing of a first write that was stopped half-way, and what a later write
        found is our doing anyway.
        """
        pin = self._ledger.pins.get(path)
        if pin is not None and pin.phase is not Phase.VERIFIED and outcome.below:
            new = {p: mask for p, mask in outcome.below.items() if not mask.issubset(pin.nodes)}
            self._ledger.update_pin(path, original_below={**new, **pin.original_below})

    def _tell_unit(self, view: Tracked) -> None:
        """
        Not while the runtime still sets the cgroup up: systemd would apply the whole unit again, its device filter
        included, under runc's hands, and the container's start fails (BPF_PROG_ATTACH: ENOENT, seen with Docker).
        `keep` does it when the container is settled.
        """
        if self._units is not None and view.record.settled:
            self._units.submit(view.record.cgroup, view.record.inode, view.nodes)

    def unit_done(self, view: Tracked, outcome: UnitOutcome) -> None:
        """Note whether systemd says the same as the cgroup; where it does not, the direct write stands alone."""
        if not outcome.job.nodes:
            view.unit_note = outcome.problem  # a reset
            with contextlib.suppress(KernelError):
                self.hold(view)
            self.undo.after_reset(view, outcome.job.path)
            if not view.nodes:
                view.close()
            return
        if outcome.job.nodes != view.nodes:
            return  # overtaken
        note = outcome.problem or f"AllowedMemoryNodes of {outcome.job.unit} says the same"
        self._ledger.update_pin(view.record.cgroup, unit=None if outcome.problem else outcome.job.unit)
        if outcome.problem and note != view.unit_note and not outcome.absent:
            self._reporter.log.info(
                "unit_not_told", container_id=view.record.id, cgroup=view.record.cgroup, reason=outcome.problem
            )
        if outcome.absent and not self._nobody_to_tell:
            self._reporter.log.info("no_unit_is_told", reason=outcome.problem)  # once: it is the machine's affair
        self._nobody_to_tell = outcome.absent
        view.unit_note = note

    def _give_back(self, view: Tracked, message: str, outcome: Outcome | None) -> None:
        """No pin, so no promise either; a value that stands in the cgroup all the same is put back."""
        pin = self._ledger.pins.get(view.record.cgroup)
        view.state, view.nodes, view.message = ContainerState.FAILED, NodeSet(), message
        self._reporter.counters.failures += 1
        self._ledger.drop(view.record.cgroup)
        self._drift.unwatch_mems(view.record.cgroup)
        refused = outcome is None or isinstance(outcome.error, KernelWriteError)
        if pin is not None and not refused:
            self.restore(view, pin)
        view.close()
        self._reporter.container(view, outcome)

    def _moved_out(self, view: Tracked) -> str:
        """cgroup v1 moves the processes of a cpuset that lost its last node to a cgroup above it, and never back."""
        pin = self._ledger.pins.get(view.record.cgroup)
        was_lost = pin is not None and pin.phase is Phase.DEFERRED
        if not view.record.cgroup_v1 or not was_lost or view.cgroup is None:
            return ""
        try:
            empty = not view.cgroup.is_populated()
        except KernelError:
            return ""
        return (
            "no process is in its cgroup: the kernel moved them out with the last node; restart it" if empty else ""
        )

    def _pages_note(self, view: Tracked) -> str:
        if view.record.cgroup_v1 and not self._migrate and view.seen_ns == 0:
            return "pages it had before stay where they are (cgroup v1 without memory_migrate)"
        return ""

    def restore(self, view: Tracked, pin: PinRecord, *, ends: bool = False) -> None:
        """
        Give a cgroup back the value it had before our first write. With *ends* the promise ends when that is done,
        else it is dropped already.
        """
        self._drift.unwatch_mems(pin.cgroup)
        with contextlib.suppress(KernelError):
            self.hold(view)
        self.undo.restore(view, pin, End.CLASS if ends else End.NONE)
        if not view.nodes:
            view.close()  # a thread that writes has a handle of its own, and nothing else needs one any more

    def release(self, view: Tracked) -> None:
        """Take the promise back for good; `Undo.pending` says when the cgroup is as before."""
        path = view.record.cgroup
        self._drift.unwatch_mems(path)
        self._writer.cancel(path)
        try:
            self.hold(view)
        except KernelError as exc:
            self.undo.fail(view, str(exc))
        else:
            self.undo.release(view)
        self._watch_again(view)

    def _watch_again(self, view: Tracked) -> None:
        """A release that failed leaves a pinned container."""
        if view.state is ContainerState.PINNED:
            self._drift.watch_mems(view.record.cgroup)

    def let_go(self, view: Tracked) -> None:
        """Somebody else's from now on: what was not written yet is not written any more, what stands there stands."""
        self._writer.cancel(view.record.cgroup)
        self.forget(view)

    def forget(self, view: Tracked) -> None:
        """The cgroup went: let go of its directory and its watch."""
        self._drift.unwatch_mems(view.record.cgroup)
        self._leftovers.forget(view.record.cgroup)
        self.undo.forget(view.record.cgroup)
        view.close()


def _lost(lost: NodeSet, left: NodeSet) -> str:
    where = f"the kernel keeps it to node {left}" if left else "the kernel lets it use what its parent cgroup may"
    return (
        f"node {lost} has no memory now (taken offline, or unplugged); {where} meanwhile. Its reservation stays, and "
        "it is pinned again as soon as the memory is back; numapin release would give the reservation up"
    )


def _failure(outcome: Outcome) -> str:
    if outcome.error is not None:
        return str(outcome.error)
    seen = outcome.verification
    granted, mems = (seen.effective, seen.mems) if seen is not None else (NodeSet(), NodeSet())
    return (
        f"asked for nodes {outcome.nodes}, the kernel grants {granted or 'none'} (cpuset.mems says {mems or 'none'})"
    )

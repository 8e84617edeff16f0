"""
Bringing a promise into its cgroup: hold the directory, check the room, write, verify, note the result.

Owns: when a pin is held back, and what a failed write does to the promise. Must never: choose nodes.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from numapin.daemon.enabling import Enabler, enable_for
from numapin.daemon.granting import failure, lost_nodes, not_granted_yet, notes_of_v1, short_of_room
from numapin.daemon.ledger import Ledger
from numapin.daemon.leftovers import Leftovers
from numapin.daemon.machine import Machine
from numapin.daemon.pinning import Outcome, WriteJob, Writer
from numapin.daemon.report import Reporter
from numapin.daemon.telling import Telling
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.undo import End, Undo
from numapin.daemon.units import UnitOutcome, Units
from numapin.kernel.cgroup_controllers import enable_cpuset
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import CgroupGone, CheckpointError, KernelError
from numapin.model.nodeset import NodeSet


class Opener(Protocol):
    """Opens a container's cgroup directory, and says what is granted above it."""

    def open(self, path: str) -> Cgroup: ...

    def granted_above(self, path: str) -> NodeSet: ...


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
        self.undo = Undo(
            ledger=ledger,
            writer=writer,
            units=units,
            reporter=reporter,
            dry_run=dry_run,
            above=opener.granted_above,
        )
        self._telling = Telling(units, ledger, reporter)
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

    def keep(self, view: Tracked, machine: Machine) -> None:
        """Nothing to write, unless a restore is: hold the directory and watch for drift."""
        if self.undo.restoring(view.record.cgroup):
            self.write(view, machine)  # our nodes are there yet, and will not be when the thread is done
            return
        with contextlib.suppress(KernelError):
            if self.hold(view) is not None:
                self._drift.watch_mems(view.record.cgroup)
                self._leftovers.pinned(view.record.cgroup)
                self._telling.tell_late(view)

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
            return self._defer(view, lost_nodes(lost, view.nodes - lost), ContainerState.LOST)
        try:
            cgroup = self.hold(view)
        except KernelError as exc:
            self._give_back(view, str(exc))
            return True
        if cgroup is None:
            return True  # its removal is on the way
        held: int | None = 0
        short = None
        with contextlib.suppress(KernelError):  # the write itself will say what is wrong
            held = cgroup.read_movable()
            short = short_of_room(cgroup, view.nodes, held, machine)
        if short is not None:
            return self._defer(view, short)
        try:
            self._note_children(view, cgroup)
            problem = enable_for(view, cgroup, self._enable, self._ledger, self._reporter.log)
        except CheckpointError as exc:
            return self._defer(view, str(exc))
        if problem:
            self._give_back(view, problem)
            return True
        view.state, view.message = ContainerState.PINNING, ""
        self.undo.cancel(view.record.cgroup)
        self._drift.watch_mems(view.record.cgroup)  # before the write: who writes after us is seen then
        outcome = self._writer.submit(WriteJob(cgroup, view.nodes, self._migrate), held)
        if outcome is not None:
            self.verify(view, outcome)
        return True

    def machine_changed(self, view: Tracked, machine: Machine) -> None:
        """
        A pin some of whose nodes have no memory now is lost: held back until they have it again.

        One that could not be put back yet is not pinned again, but a v1 kernel takes nodes out of its value too.
        """
        pin, state = self._ledger.pins.get(view.record.cgroup), view.state
        if pin is None or not pin.nodes - machine.topology.with_memory:
            return
        if state in (ContainerState.PINNED, ContainerState.PINNING, ContainerState.CONTESTED):
            self.write(view, machine)
        elif state is ContainerState.FAILED:
            self._ledger.update_pin(view.record.cgroup, phase=Phase.DEFERRED)

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
        shown = "; ".join(filter(None, (message, view.wish)))
        if (view.state, view.message) == (state, shown):
            return False  # known, and noted
        view.state, view.message = state, shown
        self._ledger.update_pin(view.record.cgroup, phase=Phase.DEFERRED, message=message)
        self._reporter.container(view)
        return False

    def verify(self, view: Tracked, outcome: Outcome) -> None:
        """Note what the kernel granted; a promise it did not grant is taken out of the books."""
        path = view.record.cgroup
        counters = self._reporter.counters
        counters.writes += outcome.wrote
        view.writes += outcome.wrote
        if isinstance(outcome.error, CgroupGone):
            return  # its removal event gives the memory back
        if not view.nodes or outcome.nodes != view.nodes or view.state is ContainerState.FOREIGN:
            self.undo.finish(view, outcome)  # a value restored after the promise ended
            self._watch_again(view)
            return
        if view.state is ContainerState.LOST:  # a node went while a thread was writing
            self._keep_masks(path, outcome)
            return
        seen, pin = outcome.verification, self._ledger.pins.get(path)
        if seen is not None and seen.ok:
            notes = [*notes_of_v1(view, pin, migrate=self._migrate), view.contest, view.wish]
            view.state, view.message = ContainerState.PINNED, "; ".join(filter(None, notes))
            counters.pins += 1
            self._keep_masks(path, outcome)
            self._ledger.update_pin(path, phase=Phase.VERIFIED, message=view.message)
            self._leftovers.pinned(path)
            self._telling.tell(view)
            self._reporter.container(view, outcome)
        elif outcome.error is None and seen is not None and seen.mems != outcome.nodes:
            # a kernel that takes a value shows it: somebody wrote another one since, and the watch will tell
            were = "were" if len(seen.mems) > 1 else "was"
            view.state, view.message = ContainerState.CONTESTED, f"{seen.mems.named} {were} written over ours at once"
            self._reporter.container(view)
        elif message := not_granted_yet(outcome, pin):
            self._defer(view, message, ContainerState.LOST)
        else:
            self._give_back(view, failure(outcome), outcome)

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
        self._telling.told(view, outcome)

    def _give_back(self, view: Tracked, message: str, outcome: Outcome | None = None) -> None:
        """
        No pin, so no promise either; a value that stands in the cgroup all the same is put back first. Where that
        fails the record stays, for it alone knows what to put back, and the next full pass tries again.
        """
        pin = self._ledger.pins.get(view.record.cgroup)
        view.state, view.nodes, view.message = ContainerState.FAILED, NodeSet(), message
        self._reporter.counters.failures += 1
        self._drift.unwatch_mems(view.record.cgroup)
        if pin is None or (view.cgroup is None and pin.original_mems == view.record.mems):
            self._ledger.drop(view.record.cgroup)  # nothing was written
        else:
            self.undo.restore(view, pin, End.GRANT)
        view.close()
        self._reporter.container(view, outcome)

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

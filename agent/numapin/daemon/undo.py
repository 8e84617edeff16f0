"""
Undo: a cgroup gets back what stood in it before our first write, and the container's promise ends.

Owns: in what order cgroup, unit, books and disk forget a pin. Must never: overwrite a value that somebody else put
there since (`numapin.daemon.standing` says whose it is).

A release writes first and drops the record after: a crash between the two leaves a record whose value can still be
put back. The marks of what was released are not on disk: whoever starts the daemon again wants it to decide again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from numapin.daemon.inherited import restored_by
from numapin.daemon.ledger import Ledger
from numapin.daemon.pinning import Outcome, WriteJob, Writer
from numapin.daemon.report import Reporter
from numapin.daemon.standing import LEFT, Standing, Whose, restore_of, restore_problem, what_stands
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.units import Units
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.container import ContainerRecord
from numapin.model.errors import KernelError
from numapin.model.nodeset import NodeSet

ALL_RELEASED = "numapin release --all: nothing is pinned until the daemon is started again"
ONE_RELEASED = "released by hand; it is decided again when it or the daemon is started again"


class End(Enum):
    """What ends when a cgroup is as before. The record goes then and not earlier."""

    NONE = "none"
    """The promise is dropped already."""
    RELEASE = "release"
    """It was released by hand."""
    CLASS = "class"
    """The container is not one of those that are placed any more."""
    GRANT = "grant"
    """The kernel did not grant it."""


@dataclass(slots=True)
class _Pending:
    """
    A restore on its way, and which promise ends with it; ``again`` when systemd put our value back after the first
    one: then its unit needs no word any more.
    """

    pin: PinRecord
    ends: End
    standing: Standing
    target: NodeSet
    again: bool = False


@dataclass(frozen=True, slots=True)
class _Before:
    """A view's state and nodes before a release."""

    state: ContainerState
    nodes: NodeSet


_STAYS = (
    ContainerState.LOST,
    ContainerState.DEFERRED,
    ContainerState.FAILED,
    ContainerState.UNPINNED,
    ContainerState.FOREIGN,
)
"""What a container stays whose release was refused; others have our nodes, and are pinned."""


class Undo:
    """Restores for one agent."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        writer: Writer,
        units: Units | None,
        reporter: Reporter,
        dry_run: bool,
        above: Callable[[str], NodeSet],
    ) -> None:
        """*above* says what a cgroup's parent grants now, empty when nothing does."""
        self.everything = False
        self.failed: dict[str, str] = {}
        """Cgroups that could not be released, and why."""
        self._ledger = ledger
        self._writer = writer
        self._units = units
        self._reporter = reporter
        self._dry_run = dry_run
        self._above = above
        self._released: dict[str, int] = {}  # cgroup -> inode
        self._before: dict[str, _Before] = {}  # of releases that are not done
        self._pending: dict[str, _Pending] = {}
        self._resets: dict[str, _Pending] = {}  # restores whose unit is being told nothing again

    def reason(self, record: ContainerRecord) -> str:
        """Why a container gets no pin now: it was released; empty when it was not, or could not be."""
        if record.cgroup in self.failed:
            return ""
        if self._released.get(record.cgroup) == record.inode:
            return ONE_RELEASED if not self.everything else ALL_RELEASED
        return ALL_RELEASED if self.everything else ""

    def applies(self, view: Tracked) -> bool:
        """
        True for a container that has a promise of ours, or could get one; one that is left alone while nobody knows
        whose it is has its promise still.
        """
        if view.state is ContainerState.FOREIGN:
            pin = self._ledger.pins.get(view.record.cgroup)
            return pin is not None and pin.phase is not Phase.FOREIGN and pin.inode == view.record.inode
        others = (ContainerState.UNMANAGED, ContainerState.WOULD_PIN, ContainerState.RELEASED)
        return view.state not in others

    def pending(self, path: str) -> bool:
        """True while the cgroup or its unit is still being put back."""
        return path in self._pending or (self._units is not None and path in self._units.busy)

    def restoring(self, path: str) -> bool:
        """True while the value from before is on its way into the cgroup."""
        return path in self._pending

    def restore(self, view: Tracked, pin: PinRecord, ends: End = End.NONE) -> None:
        """
        Give the view's open cgroup back the value before our first write; its unit's property follows.

        Unless *ends* is NONE, the promise is dropped once that has succeeded, and not before.
        """
        if self._dry_run:
            return
        if view.cgroup is None:
            if ends is not End.NONE:
                self._failed(view, ends, "its cgroup cannot be opened")
            return
        try:
            standing = what_stands(view.cgroup, pin, self._parent(view))
        except KernelError as exc:
            if ends is not End.NONE:
                self._failed(view, ends, str(exc))
            return
        pending = _Pending(pin, ends, standing, standing.target)
        if view.state is not ContainerState.FOREIGN and (standing.found or standing.whose is Whose.OURS):
            known = self._ledger.restored.get(pin.cgroup)
            left = restored_by(pin, standing.target, known, v1=view.record.cgroup_v1)
            self._ledger.set_restored(pin.cgroup, left)
        if ends is End.NONE or self._needs_write(view, pending):
            self._write(view, view.cgroup, pending)

    def _parent(self, view: Tracked) -> NodeSet:
        """What the parent grants now: the record may be older than what changed there."""
        return self._above(view.record.cgroup) or view.record.parent_mems

    def _write(self, view: Tracked, cgroup: Cgroup, pending: _Pending) -> None:
        self._pending[pending.pin.cgroup] = pending
        held: int | None = 0
        with contextlib.suppress(KernelError):  # the write itself will say what is wrong
            held = cgroup.read_movable()
        job = WriteJob(cgroup, pending.target, False, restore_of(pending.pin, pending.standing))
        outcome = self._writer.submit(job, held)
        if outcome is not None:
            self.finish(view, outcome)

    def after_reset(self, view: Tracked, path: str) -> None:
        """
        The unit's property was reset: where our value stands in the cgroup all the same, because systemd wrote it
        once more or never took it out, the value from before is written again, once.
        """
        pending = self._resets.pop(path, None)
        if pending is None or view.cgroup is None or view.nodes or path in self._pending:
            return
        try:
            standing = what_stands(view.cgroup, pending.pin, self._parent(view))
        except KernelError:
            return  # it went, or nothing can be written either
        if standing.whose is Whose.OURS:
            self._write(view, view.cgroup, _Pending(pending.pin, End.NONE, standing, standing.target, again=True))

    def _needs_write(self, view: Tracked, pending: _Pending) -> bool:
        """False when a promise has ended already: the old value stands, somebody else's, or none."""
        pin, whose = pending.pin, pending.standing.whose
        if whose is Whose.OURS or self._writer.is_writing(pin.cgroup):
            return True
        if whose is Whose.BEFORE and view.record.cgroup_v1:
            pending.target = pending.standing.found  # only for what else is to be put back
            return True
        known = self._ledger.restored.get(pin.cgroup)
        if whose is Whose.OTHERS and (known is None or pending.standing.found not in known.mems):
            view.message = f"{view.message}; {LEFT}"
        told = pin.unit is not None or pending.ends is not End.GRANT  # a unit is told after a grant
        units = self._units if told else None
        if units is not None and units.submit(pin.cgroup, pin.inode, NodeSet(), replaces=pin.nodes):
            self._resets[pin.cgroup] = pending
        self._ended(view, pending.ends)
        return False

    def finish(self, view: Tracked, outcome: Outcome) -> None:
        """A restore's write is done; outcomes of other writes are passed over."""
        pending = self._pending.get(outcome.path)
        if pending is None or outcome.nodes != pending.target:
            return
        del self._pending[outcome.path]
        problem = restore_problem(pending.target, outcome)
        if problem and pending.ends is not End.NONE:
            self._failed(view, pending.ends, problem)
            return
        if self._units is not None and not pending.again:
            kept = view.nodes if view.state is ContainerState.FOREIGN else NodeSet()
            if self._units.submit(outcome.path, outcome.inode, kept, replaces=pending.pin.nodes):
                self._resets[outcome.path] = pending
        if pending.ends is not End.NONE:
            self._ended(view, pending.ends, outcome)
        elif view.state is ContainerState.FOREIGN and not problem:
            self._ledger.update_pin(outcome.path, original_below={}, original_migrate=None)

    def _ended(self, view: Tracked, ends: End, outcome: Outcome | None = None) -> None:
        path = view.record.cgroup
        self._ledger.drop(path)
        self._before.pop(path, None)
        self.failed.pop(path, None)
        if ends is End.RELEASE:
            self._reporter.container(view, outcome)

    def _failed(self, view: Tracked, ends: End, problem: str) -> None:
        if ends is End.RELEASE:
            self.fail(view, problem)
            return
        # it is not placed (any more) and still has our nodes: its record stays and it is tried again
        why = f"{view.message}; " if ends is End.GRANT else ""
        view.state, view.message = ContainerState.FAILED, f"{why}its nodes could not be put back: {problem}"
        if (pin := self._ledger.pins.get(view.record.cgroup)) is not None:
            stay = "stays" if len(pin.nodes) == 1 else "stay"
            view.message += f"; {pin.nodes.named} {stay} written and reserved until that is done"
        self._reporter.container(view)

    def fail(self, view: Tracked, problem: str) -> None:
        """A release that the kernel refuses: the container is what it was, and where there is a promise it stands."""
        path = view.record.cgroup
        pin = self._ledger.pins.get(path)
        self._released.pop(path, None)
        self.failed[path] = problem
        before = self._before.pop(path, _Before(view.state, view.nodes))
        if before.state in _STAYS:
            view.state, view.nodes = before.state, before.nodes
        elif pin is not None:
            view.state, view.nodes = ContainerState.PINNED, pin.nodes
        view.message = f"could not be released: {problem}"
        self._reporter.container(view)

    def release(self, view: Tracked) -> None:
        """
        Take a container's promise back for good and restore its cgroup; `pending` says when that is done.

        The view's state is RELEASED at once, so that nothing repairs or decides about it meanwhile.
        """
        path = view.record.cgroup
        pin = self._ledger.pins.get(path)
        self.failed.pop(path, None)
        self._released[path] = view.record.inode
        if view.state is not ContainerState.RELEASED:
            self._before[path] = _Before(view.state, view.nodes)
        view.state, view.nodes, view.contest = ContainerState.RELEASED, NodeSet(), ""
        view.message = self.reason(view.record)
        if pin is None or view.cgroup is None:
            self._ended(view, End.RELEASE)
            return
        self.restore(view, pin, End.RELEASE)

    def cancel(self, path: str) -> None:
        """The container is pinned anew: an earlier restore is not waited for."""
        self._pending.pop(path, None)
        self._resets.pop(path, None)

    def forget(self, path: str) -> None:
        """The cgroup went."""
        self._released.pop(path, None)
        self._before.pop(path, None)
        self.failed.pop(path, None)
        self._pending.pop(path, None)
        self._resets.pop(path, None)

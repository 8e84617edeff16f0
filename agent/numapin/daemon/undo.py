"""
Undo: a cgroup gets back what stood in it before our first write, and the container's promise ends.

Owns: which value that is, and in what order cgroup, unit, books and disk forget a pin. Must never: overwrite a value
that somebody else put there since.

A release writes first and drops the record after: a crash between the two leaves a record whose value can still be
put back. The marks of what was released are not on disk: whoever starts the daemon again wants it to decide again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from numapin.daemon.ledger import Ledger
from numapin.daemon.pinning import Outcome, Restore, WriteJob, Writer
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.units import Units
from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.container import ContainerRecord
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.nodeset import NodeSet

ALL_RELEASED = "numapin release --all: nothing is pinned until the daemon is started again"
LEFT = "cpuset.mems was written by somebody else and is left as it is"
ONE_RELEASED = "released by hand; it is decided again when it or the daemon is started again"


def value_before(pin: PinRecord, parent: NodeSet, *, v1: bool) -> NodeSet:
    """
    What to write so that the cgroup is as before our first write; *parent* is what its parent grants now.

    "Inherited" becomes the parent's set, for a populated cgroup cannot be made empty again (ENOSPC). On v1 a child
    must stay inside its parent, which may have lost nodes meanwhile.
    """
    before = pin.original_mems
    if not before:
        return parent
    return before if not v1 or before.issubset(parent) else (before & parent) or parent


def restore_of(pin: PinRecord) -> Restore:
    """What to bring back beside the nodes."""
    return Restore(Earlier(pin.original_mems, pin.nodes, pin.original_below), pin.original_migrate)


def restore_problem(target: NodeSet, outcome: Outcome) -> str:
    """Why a cgroup is not as before, empty when it is. Its removal is no problem."""
    if outcome.error is not None:
        return "" if isinstance(outcome.error, CgroupGone) else str(outcome.error)
    mems = outcome.verification.mems if outcome.verification is not None else NodeSet()
    return "" if mems == target else f"nodes {target} were written back, and cpuset.mems says {mems or 'none'}"


class Standing(StrEnum):
    """What stands in a cgroup whose pin shall be undone."""

    OURS = "ours"
    BEFORE = "before"
    """The value before our first write: nothing to do."""
    OTHERS = "others"
    """Somebody wrote it since: left as it is."""


def what_stands(cgroup: Cgroup, pin: PinRecord, target: NodeSet) -> tuple[Standing, NodeSet]:
    """
    Whose value *cgroup* has, and that value; *target* is what a restore would write.

    On v1 a first write that was stopped half-way may have left both the old nodes and ours.

    Raises:
        KernelError: It cannot be read.
    """
    found = cgroup.read_cpuset_mems()
    if found in (pin.original_mems, target):
        return Standing.BEFORE, found
    ours = [pin.nodes, pin.original_mems | pin.nodes] if pin.phase is Phase.PLANNED else [pin.nodes]
    return (Standing.OURS if found in ours else Standing.OTHERS), found


class End(Enum):
    """What ends when a cgroup is as before. The record goes then and not earlier."""

    NONE = "none"
    """The promise is dropped already."""
    RELEASE = "release"
    """It was released by hand."""
    CLASS = "class"
    """The container is not one of those that are placed any more."""


@dataclass(slots=True)
class _Pending:
    """
    A restore on its way, and which promise ends with it; ``again`` when systemd put our value back after the first
    one: then its unit needs no word any more.
    """

    pin: PinRecord
    target: NodeSet
    ends: End
    again: bool = False


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
    ) -> None:
        self.everything = False
        self.failed: dict[str, str] = {}
        """Cgroups that could not be released, and why."""
        self._ledger = ledger
        self._writer = writer
        self._units = units
        self._reporter = reporter
        self._dry_run = dry_run
        self._released: dict[str, int] = {}  # cgroup -> inode
        self._pending: dict[str, _Pending] = {}
        self._resets: dict[str, _Pending] = {}  # restores whose unit is being told nothing again

    def reason(self, record: ContainerRecord) -> str:
        """Why a container gets no pin now: it was released; empty when it was not."""
        if self._released.get(record.cgroup) == record.inode:
            return ONE_RELEASED if not self.everything else ALL_RELEASED
        return ALL_RELEASED if self.everything else ""

    @staticmethod
    def applies(view: Tracked) -> bool:
        """True for a container that has a promise of ours, or could get one."""
        others = (ContainerState.UNMANAGED, ContainerState.FOREIGN, ContainerState.WOULD_PIN, ContainerState.RELEASED)
        return view.state not in others

    def pending(self, path: str) -> bool:
        """True while the cgroup or its unit is still being put back."""
        return path in self._pending or (self._units is not None and path in self._units.busy)

    def restore(self, view: Tracked, pin: PinRecord, ends: End = End.NONE) -> None:
        """
        Give the view's open cgroup back the value before our first write; its unit's property follows.

        Unless *ends* is NONE, the promise is dropped once that has succeeded.
        """
        if self._dry_run or view.cgroup is None:
            if ends is End.CLASS and not self._dry_run:
                self._not_left(view, "its cgroup cannot be opened")
            return
        target = value_before(pin, view.record.parent_mems, v1=view.record.cgroup_v1)
        pending = _Pending(pin, target, ends)
        if ends is not End.NONE and not self._needs_write(view, pending):
            return
        self._write(view, view.cgroup, pending)

    def _write(self, view: Tracked, cgroup: Cgroup, pending: _Pending) -> None:
        self._pending[pending.pin.cgroup] = pending
        try:
            held = cgroup.read_memory_current() or 0
        except KernelError:
            held = 0
        job = WriteJob(cgroup, pending.target, False, restore_of(pending.pin))
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
            standing, _ = what_stands(view.cgroup, pending.pin, pending.target)
        except KernelError:
            return  # it went, or nothing can be written either
        if standing is Standing.OURS:
            self._write(view, view.cgroup, _Pending(pending.pin, pending.target, End.NONE, again=True))

    def _needs_write(self, view: Tracked, pending: _Pending) -> bool:
        """False when a promise has ended already: the old value or somebody else's stands, or nothing can be read."""
        assert view.cgroup is not None
        pin = pending.pin
        try:
            standing, found = what_stands(view.cgroup, pin, pending.target)
        except KernelError as exc:
            self._failed(view, pending, str(exc))
            return False
        if standing is Standing.OURS or self._writer.is_writing(pin.cgroup):
            return True
        if standing is Standing.BEFORE and view.record.cgroup_v1:
            pending.target = found  # only for what else is to be put back
            return True
        if standing is Standing.OTHERS:
            view.message = f"{view.message}; {LEFT}"
        if self._units is not None and self._units.submit(pin.cgroup, pin.inode, NodeSet(), replaces=pin.nodes):
            self._resets[pin.cgroup] = _Pending(pin, pending.target, End.NONE)
        self._ledger.drop(pin.cgroup)
        if pending.ends is End.RELEASE:
            self._reporter.container(view)
        return False

    def finish(self, view: Tracked, outcome: Outcome) -> None:
        """A restore's write is done; outcomes of other writes are passed over."""
        pending = self._pending.get(outcome.path)
        if pending is None or outcome.nodes != pending.target:
            return
        del self._pending[outcome.path]
        problem = restore_problem(pending.target, outcome)
        if problem and pending.ends is not End.NONE:
            self._failed(view, pending, problem)
            return
        if self._units is not None and not pending.again:
            kept = view.nodes if view.state is ContainerState.FOREIGN else NodeSet()
            if self._units.submit(outcome.path, outcome.inode, kept, replaces=pending.pin.nodes):
                self._resets[outcome.path] = pending
        if pending.ends is not End.NONE:
            self._ledger.drop(outcome.path)
        elif view.state is ContainerState.FOREIGN:
            self._ledger.update_pin(outcome.path, original_below={}, original_migrate=None)
        if pending.ends is End.RELEASE:
            self._reporter.container(view, outcome)

    def _failed(self, view: Tracked, pending: _Pending, problem: str) -> None:
        if pending.ends is End.RELEASE:
            self.fail(view, problem)
        else:
            self._not_left(view, problem)

    def _not_left(self, view: Tracked, problem: str) -> None:
        """A container that is not placed any more still has our nodes: its record stays and it is tried again."""
        view.state, view.message = ContainerState.FAILED, f"its nodes could not be put back: {problem}"
        self._reporter.container(view)

    def fail(self, view: Tracked, problem: str) -> None:
        """A release that the kernel refuses: where there is a promise it stands, for the nodes do."""
        path = view.record.cgroup
        pin = self._ledger.pins.get(path)
        self._released.pop(path, None)
        self.failed[path] = problem
        if pin is not None:
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
        view.state, view.nodes, view.contest = ContainerState.RELEASED, NodeSet(), ""
        view.message = self.reason(view.record)
        if pin is None or view.cgroup is None:
            self._ledger.drop(path)
            self._reporter.container(view)
            return
        self.restore(view, pin, End.RELEASE)

    def cancel(self, path: str) -> None:
        """The container is pinned anew: an earlier restore is not waited for."""
        self._pending.pop(path, None)
        self._resets.pop(path, None)

    def forget(self, path: str) -> None:
        """The cgroup went."""
        self._released.pop(path, None)
        self.failed.pop(path, None)
        self._pending.pop(path, None)
        self._resets.pop(path, None)

"""
Values that we put back, and which are nobody's choice of nodes.

Owns: whose a cgroup's value is once its pin is undone, and whether it follows its parent. Must never: take a value
that we did not write for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.pinning import WriteJob, Writer
from numapin.daemon.presence import Finder
from numapin.daemon.tracked import Tracked
from numapin.model.checkpoint import Phase, PinRecord, Restored
from numapin.model.container import ContainerRecord
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.nodeset import NodeSet

KEPT = 3
"""So many values of ours may stand in one cgroup: what it had, and what a write that nobody saw end would leave."""


def is_restored(record: ContainerRecord, restored: Mapping[str, Restored]) -> bool:
    """True when the container's own nodes are a value that we put back, after which nobody wrote another one."""
    found = restored.get(record.cgroup)
    return found is not None and found.inode == record.inode and record.mems in found.mems


def restored_by(pin: PinRecord, nodes: NodeSet, before: Restored | None, *, v1: bool) -> Restored:
    """What an undo of *pin* leaves that writes *nodes*, where an earlier undo had left *before*."""
    known = before.mems if before is not None and before.inode == pin.inode else ()
    return about_to_get(Restored(pin.inode, known, follows=not v1 and not pin.original_mems), nodes)


def as_it_stands(found: Restored, record: ContainerRecord, with_memory: NodeSet) -> Restored | None:
    """
    *found* after a look at its cgroup, which has no pin of ours; ``None`` when another value stands there.

    *with_memory*: on v1 the kernel takes a node that goes out of every cpuset and gives it back to none.
    """
    if found.inode != record.inode:
        return None
    stripped = record.cgroup_v1 and any(mems & with_memory == record.mems for mems in found.mems)
    if not record.mems or not (record.mems in found.mems or stripped):
        return None
    return replace(found, mems=(record.mems,))


def about_to_get(found: Restored, nodes: NodeSet) -> Restored:
    """*found* while *nodes* are being written in its place."""
    return replace(found, mems=(*(m for m in found.mems if m != nodes), nodes)[-KEPT:])


def original_mems(record: ContainerRecord, restored: Mapping[str, Restored]) -> NodeSet:
    """What an undo shall bring back; what an earlier one left in place of inheriting is no value of its own."""
    found = restored.get(record.cgroup)
    inherits = found is not None and found.follows and is_restored(record, restored)
    return NodeSet() if inherits else record.mems


def look_at_restored(ledger: Ledger, record: ContainerRecord, with_memory: NodeSet) -> None:
    """Keep what *ledger* remembers of the record's cgroup true (unsaved); *with_memory* as in `as_it_stands`."""
    pin, found = ledger.pins.get(record.cgroup), ledger.restored.get(record.cgroup)
    pinned = pin is not None and pin.inode == record.inode and pin.phase is not Phase.FOREIGN
    if found is not None and not pinned and not record.doubts:
        ledger.set_restored(record.cgroup, as_it_stands(found, record, with_memory))


def to_follow(ledger: Ledger, record: ContainerRecord) -> NodeSet | None:
    """
    The parent's nodes, where it got more than a value of ours has that stands in place of inheriting; noted in
    *ledger* (unsaved) as about to be written.
    """
    found = ledger.restored.get(record.cgroup)
    if found is None or not found.follows or record.cgroup in ledger.pins or record.doubts:
        return None
    if record.parent_mems.issubset(record.mems) or not is_restored(record, ledger.restored):
        return None
    ledger.set_restored(record.cgroup, about_to_get(found, record.parent_mems))
    return record.parent_mems


class Following:
    """Gives a cgroup that we cannot make inherit again the nodes that its parent got since."""

    def __init__(self, *, finder: Finder, writer: Writer, ledger: Ledger, log: Log) -> None:
        self._finder = finder
        self._writer = writer
        self._ledger = ledger
        self._log = log

    def write(self, view: Tracked, nodes: NodeSet) -> None:
        """Write *nodes*, which the checkpoint names as ours already, unless somebody wrote another value."""
        path = view.record.cgroup
        ours = self._ledger.restored.get(path)
        try:
            with self._finder.open(path) as cgroup:
                if ours is None or cgroup.inode != ours.inode or cgroup.read_cpuset_mems() not in ours.mems:
                    return
                held = cgroup.read_movable()
                outcome = self._writer.submit(WriteJob(cgroup, nodes, False), held)
        except CgroupGone:
            return
        except KernelError as exc:
            problem: KernelError | None = exc
        else:
            problem = outcome.error if outcome is not None else None
        if problem is not None:
            self._log.warning(
                "nodes_not_followed", container_id=view.record.id, cgroup=path, mems=str(nodes), reason=str(problem)
            )

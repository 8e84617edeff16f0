"""
Whose value stands in a cgroup whose pin shall be undone, and what to write so that it is as before.

Owns: what counts as ours, as the value before and as somebody else's. Must never: write, or change a record.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum

from numapin.daemon.pinning import Outcome, Restore
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroup_subtree import Earlier
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.nodeset import NodeSet

LEFT = "cpuset.mems was written by somebody else and is left as it is"


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


class Whose(StrEnum):
    """Whose value it is."""

    OURS = "ours"
    BEFORE = "before"
    """The value before our first write: nothing to do."""
    OTHERS = "others"
    """Somebody wrote it since: left as it is."""
    NOBODYS = "nobodys"
    """The controller was taken away, and every value with it: nothing to do, and nothing to be done."""


@dataclass(frozen=True, slots=True)
class Standing:
    """``found`` is what ``cpuset.mems`` says; ``target`` is what a restore of our value writes."""

    whose: Whose
    found: NodeSet
    target: NodeSet


def what_stands(cgroup: Cgroup, pin: PinRecord, parent: NodeSet) -> Standing:
    """
    Whose value *cgroup* has, below a parent that grants *parent* now.

    Raises:
        KernelError: It cannot be read.
    """
    v1 = cgroup.hierarchy.version is CgroupVersion.V1
    target = value_before(pin, parent, v1=v1)
    try:
        found = cgroup.read_cpuset_mems()
    except KernelError as exc:
        if not _is_without_cpuset(exc):
            raise
        return Standing(Whose.NOBODYS, NodeSet(), target)
    if found in (pin.original_mems, target):
        return Standing(Whose.BEFORE, found, target)
    ours = found in _ours(pin) or (v1 and _is_what_is_left(found, pin, parent))
    return Standing(Whose.OURS if ours else Whose.OTHERS, found, target)


def _ours(pin: PinRecord) -> tuple[NodeSet, ...]:
    """What our writes leave; on v1 a first one that was stopped half-way may leave both the old nodes and ours."""
    return (pin.nodes,) if pin.phase is Phase.VERIFIED else (pin.nodes, pin.original_mems | pin.nodes)


def _is_what_is_left(found: NodeSet, pin: PinRecord, parent: NodeSet) -> bool:
    """
    True for our nodes without those that went: a v1 kernel takes them out of every cpuset and gives none back.

    Where the parent has them again already, the record of a pin that was held back says that they were gone.
    """
    if pin.phase is Phase.DEFERRED:
        return found.issubset(pin.nodes)
    return found in [nodes & parent for nodes in _ours(pin)]


def restore_of(pin: PinRecord, standing: Standing) -> Restore:
    """What to bring back beside the nodes."""
    less = standing.whose is Whose.OURS and standing.found and standing.found.issubset(pin.nodes)
    written = standing.found if less else pin.nodes  # where nodes went, the children lost them too
    return Restore(Earlier(pin.original_mems, written, pin.original_below), pin.original_migrate)


def restore_problem(target: NodeSet, outcome: Outcome) -> str:
    """Why a cgroup is not as before, empty when it is. Its removal is no problem, nor that of its controller."""
    if (error := outcome.error) is not None:
        return "" if isinstance(error, CgroupGone) or _is_without_cpuset(error) else str(error)
    mems = outcome.verification.mems if outcome.verification is not None else NodeSet()
    written = f"{target.named} {'was' if len(target) == 1 else 'were'} written back"
    return "" if mems == target else f"{written}, and cpuset.mems says {mems or 'none'}"


def _is_without_cpuset(error: KernelError) -> bool:
    """True when a cgroup that lives has no such file, for its parent's controller was switched off."""
    return not isinstance(error, CgroupGone) and error.errno == errno.ENOENT

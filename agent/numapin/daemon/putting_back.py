"""
An undo without a daemon's view of the container: from the record alone, here and now.

Owns: one cgroup put back from its record, its unit told, and a checkpoint without such records. Must never: be called
for a container that the daemon has a view of; `numapin.daemon.undo` does those without waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numapin.daemon.inherited import restored_by
from numapin.daemon.pinning import WriteJob, perform
from numapin.daemon.standing import LEFT, Whose, restore_of, restore_problem, what_stands
from numapin.daemon.tracked import ContainerState
from numapin.daemon.units import UnitJob, settle
from numapin.kernel.cgroup_mounts import CgroupVersion, find_hierarchy
from numapin.kernel.clock import Clock
from numapin.kernel.discovery import Discovery
from numapin.kernel.systemd import Systemd, unit_of
from numapin.model.checkpoint import Checkpoint, PinRecord, Restored, explained_owners
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import release

Row = dict[str, object]
"""One container in the answer to ``release``."""


def released_row(container_id: object, name: object, cgroup: object, message: str = "") -> Row:
    """A container that is released and of whose cgroup nothing is said yet."""
    return {
        "id": container_id,
        "name": name,
        "cgroup": cgroup,
        "state": ContainerState.RELEASED.value,
        "mems": None,
        "pending": False,
        "problem": None,
        "message": message,
    }


def without(checkpoint: Checkpoint, pins: Sequence[PinRecord], clock: Clock) -> Checkpoint:
    """*checkpoint* as of now without *pins*, what only they had reserved, and refusals."""
    gone = {p.cgroup for p in pins}
    left = {c: p for c, p in checkpoint.containers.items() if c not in gone}
    explained = explained_owners(left.values())
    owners = [o for o in checkpoint.books.assignments if o not in explained]
    return Checkpoint(
        policy=checkpoint.policy,
        boot_id=checkpoint.boot_id,
        saved_ns=clock.wall_ns(),
        books=release(checkpoint.books, *owners),
        containers=left,
        cpuset_enabled=checkpoint.cpuset_enabled,
        restored=checkpoint.restored,
        handed_over=checkpoint.handed_over,
    )


def put_back(root: Path, pin: PinRecord, clock: Clock) -> tuple[Row, Restored | None]:
    """Put one cgroup back as the daemon would; what stands there since, if it is the value of before."""
    hierarchy = find_hierarchy(root)
    v1 = hierarchy.version is CgroupVersion.V1
    row = released_row(pin.container_id, pin.name, pin.cgroup)
    discovery, left = Discovery(hierarchy, root), NodeSet()
    try:
        with discovery.open(pin.cgroup) as cgroup:
            if cgroup.inode != pin.inode:
                raise CgroupGone(pin.cgroup)
            standing = what_stands(cgroup, pin, discovery.granted_above(pin.cgroup))
            whose = standing.whose
            if whose is Whose.OURS or (whose is Whose.BEFORE and v1):
                target = standing.found if whose is Whose.BEFORE else standing.target
                outcome = perform(WriteJob(cgroup, target, False, restore_of(pin, standing)), clock)
                row["problem"] = restore_problem(target, outcome) or None
            elif whose is Whose.OTHERS:
                row["message"] = LEFT
            if not v1 and not row["problem"]:
                row["message"] = _reset_unit(root, pin) or row["message"]
            if whose is not Whose.NOBODYS:
                row["mems"] = str(stands := cgroup.read_cpuset_mems())
                left = stands if whose is not Whose.OTHERS and not row["problem"] else left
    except CgroupGone:
        row["message"] = "it has ended"
    except KernelError as exc:
        row["problem"] = str(exc)
    if row["problem"]:
        row["state"] = ContainerState.PINNED.value
    return row, restored_by(pin, left, None, v1=v1) if left else None


def _reset_unit(root: Path, pin: PinRecord) -> str:
    """Reset the property of the pin's unit, if it has one; a sentence when that failed."""
    unit = unit_of(pin.cgroup)
    with Systemd(root) as systemd:
        if unit is None or not systemd.present:
            return ""
        outcome = settle(systemd, UnitJob(pin.cgroup, pin.inode, unit, NodeSet(), replaces=pin.nodes))
    return outcome.problem if pin.unit is not None else ""

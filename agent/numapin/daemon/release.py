"""
``release``: by the running daemon, or from its checkpoint when there is none.

Owns: which containers are meant and what the answer says. Must never: wait for the kernel or for systemd in the
daemon; the client asks again with ``report`` until nothing is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from numapin import API_VERSION
from numapin.daemon.agent import Agent
from numapin.daemon.explain import find_container
from numapin.daemon.inherited import restored_by
from numapin.daemon.logs import Log
from numapin.daemon.pinning import WriteJob, perform
from numapin.daemon.standing import LEFT, Whose, restore_of, restore_problem, what_stands
from numapin.daemon.status import container_row
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.units import UnitJob, settle
from numapin.kernel.cgroup_mounts import CgroupVersion, find_hierarchy
from numapin.kernel.clock import Clock
from numapin.kernel.discovery import Discovery
from numapin.kernel.files import read_optional
from numapin.kernel.systemd import Systemd, unit_of
from numapin.model.checkpoint import Checkpoint, Phase, PinRecord, Restored
from numapin.model.errors import CgroupGone, ExitStatus, KernelError, RequestFailed
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import release
from numapin.state.checkpoint import CheckpointFile
from numapin.state.lock import DaemonLock

Row = dict[str, object]


def release_document(agent: Agent, params: Mapping[str, object]) -> dict[str, object]:
    """
    Release what *params* name (``container``, or ``all``: true) and say how far it is; ``report``: true only says.

    Raises:
        RequestFailed: A dry run, a checkpoint not read yet, an unknown or ambiguous container, or one without a
            promise of ours.
    """
    if agent.dry_run:
        raise RequestFailed("dry-run", "this daemon runs with --dry-run: it has written nothing that could be undone")
    if agent.ledger.held and agent.ledger.save_error is not None:
        why = f"nobody knows what was there before the first write: {agent.ledger.save_error}"
        raise RequestFailed(agent.ledger.save_error.code, why)
    wanted, everything, report = params.get("container"), params.get("all") is True, params.get("report") is True
    if everything == (wanted is not None):
        raise RequestFailed("bad-request", "release takes a container, or all", ExitStatus.USAGE)
    if everything:
        if not report:
            agent.release()
        views = [v for p, v in agent.views.items() if v.state is ContainerState.RELEASED or p in agent.undo.failed]
    else:
        row = find_container([container_row(v) for v in agent.views.values()], wanted, {"from": "daemon"})
        view = agent.views[str(row["cgroup"])]
        if view.state is not ContainerState.RELEASED and not agent.undo.applies(view):
            raise RequestFailed(
                "nothing-to-release", f"{row['name']} has no promise of numapin's: {view.state}, {view.message}"
            )
        if not report:
            agent.release([view.record.cgroup])
        views = [view]
    rows = [_row_of_view(agent, view) for view in sorted(views, key=lambda v: v.record.cgroup)]
    if not any(row["pending"] for row in rows):
        agent.flush()
    return _document({"from": "daemon"}, everything, rows, sorted(agent.ledger.enabled))


def _row_of_view(agent: Agent, view: Tracked) -> Row:
    record = view.record
    mems: str | None = None
    if view.cgroup is not None:
        try:
            mems = str(view.cgroup.read_cpuset_mems())
        except KernelError:
            mems = None  # it is going; its removal is on the way
    return {
        "id": record.id,
        "name": record.name,
        "cgroup": record.cgroup,
        "state": view.state.value,
        "mems": mems,
        "pending": agent.undo.pending(record.cgroup),
        "problem": agent.undo.failed.get(record.cgroup),
        "message": view.message,
    }


def _document(
    source: Mapping[str, object], everything: bool, rows: list[Row], enabled: Sequence[str] = ()
) -> dict[str, object]:
    """*enabled* are cgroups in which we enabled cpuset, which is not taken back: others may depend on it by now."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Release",
        "source": dict(source),
        "all": everything,
        "pending": sum(bool(row["pending"]) for row in rows),
        "containers": rows,
        "cpuset_left_enabled": list(enabled) if everything else [],
    }


def release_offline(root: Path, state: Path, lock: Path, *, why: str, clock: Clock) -> dict[str, object]:
    """
    Release everything that the checkpoint *state* promises on the machine below *root*, and save it without.

    *lock* is the daemon's: none may start meanwhile. What cannot be restored stays in the checkpoint.

    Raises:
        AlreadyRunning: There is a daemon after all.
        RequestFailed: There is a checkpoint, and no generation of it can be believed.
        NotPermitted, CheckpointError, NoCpusetController: As their makers say.
    """
    source: dict[str, object] = {"from": "checkpoint", "path": str(state), "why": why}
    with DaemonLock(lock):
        file = CheckpointFile(state)
        seen = file.peek()  # what nobody can believe stays where it is, for whoever can read it yet
        source["damaged"] = [d.reason for d in seen.damaged]
        if seen.checkpoint is None and seen.damaged:
            raise RequestFailed(
                seen.damaged[0].error.code,
                f"{'; '.join(d.reason for d in seen.damaged)}; so nobody knows what stood in the cgroups before: "
                "every pin stays as it is, until its container is started again",
            )
        checkpoint = file.load(wall_ns=clock.wall_ns()).checkpoint
        if checkpoint is None:
            return _document(source | {"found": False}, True, [])
        boot_id = (read_optional(root / "proc/sys/kernel/random/boot_id") or "").strip()
        ours = [p for p in checkpoint.containers.values() if p.phase is not Phase.FOREIGN]
        living = [p for p in ours if p.ended_ns is None] if checkpoint.boot_id == boot_id else []
        done = [_restore(root, pin, clock) for pin in sorted(living, key=lambda p: p.cgroup)] if living else []
        rows = [row for row, _ in done]
        failed = {str(row["cgroup"]) for row in rows if row["problem"]}
        left = _without(checkpoint, [p for p in ours if p.cgroup not in failed], clock)
        same_boot = checkpoint.boot_id == boot_id
        file.save(replace(left, restored=_restored(checkpoint, done) if same_boot else {}))
        enabled = checkpoint.cpuset_enabled if checkpoint.boot_id == boot_id else ()
        return _document(source | {"found": True}, True, rows, enabled)


def release_unreachable(
    root: Path, checkpoint: Checkpoint, boot_id: str, reachable: Callable[[str], bool], clock: Clock, log: Log
) -> Checkpoint:
    """
    *checkpoint* without the pins of living cgroups that are no container of ours any more, because ``cgroup.root``
    was changed: each gets back what stood there before. One that cannot be restored is named in the log, and let go.
    """
    same_boot = checkpoint.boot_id == boot_id
    pins = [p for p in checkpoint.containers.values() if same_boot and p.ended_ns is None and not reachable(p.cgroup)]
    for pin in [p for p in pins if p.phase is not Phase.FOREIGN]:
        row, _ = _restore(root, pin, clock)
        say = log.warning if row["problem"] else log.info
        reason = row["problem"] or row["message"] or "outside of cgroup.root now"
        facts = {"container_id": pin.container_id, "cgroup": pin.cgroup, "mems": row["mems"]}
        say("container_out_of_reach", **facts, reason=reason)
    if not pins:
        return checkpoint
    left = _without(checkpoint, pins, clock)
    return replace(left, saved_ns=checkpoint.saved_ns, refusals=checkpoint.refusals)


def _without(checkpoint: Checkpoint, pins: list[PinRecord], clock: Clock) -> Checkpoint:
    gone = {p.cgroup for p in pins}
    left = {c: p for c, p in checkpoint.containers.items() if c not in gone}
    explained = {p.owner for p in left.values()}
    owners = [o for o in checkpoint.books.assignments if o not in explained]
    return Checkpoint(
        policy=checkpoint.policy,
        boot_id=checkpoint.boot_id,
        saved_ns=clock.wall_ns(),
        books=release(checkpoint.books, *owners),
        containers=left,
        cpuset_enabled=checkpoint.cpuset_enabled,
        restored=checkpoint.restored,
    )


def _restored(checkpoint: Checkpoint, done: Sequence[tuple[Row, Restored | None]]) -> dict[str, Restored]:
    """The values that were put back, by cgroup: whoever finds them later shall not take them for a choice."""
    found = {str(row["cgroup"]): left for row, left in done if left is not None}
    return {**checkpoint.restored, **found}


def _restore(root: Path, pin: PinRecord, clock: Clock) -> tuple[Row, Restored | None]:
    """Put one cgroup back as the daemon would; what stands there since, if it is the value of before."""
    hierarchy = find_hierarchy(root)
    v1 = hierarchy.version is CgroupVersion.V1
    row: Row = {
        "id": pin.container_id,
        "name": pin.name,
        "cgroup": pin.cgroup,
        "state": ContainerState.RELEASED.value,
        "mems": None,
        "pending": False,
        "problem": None,
        "message": "",
    }
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

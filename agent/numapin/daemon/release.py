"""
``release``: by the running daemon, or from its checkpoint when there is none.

Owns: which containers are meant and what the answer says. Must never: wait for the kernel or for systemd in the
daemon; the client asks again with ``report`` until nothing is pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numapin import API_VERSION
from numapin.daemon.agent import Agent
from numapin.daemon.explain import ended_rows, find_container
from numapin.daemon.putting_back import Row, put_back, released_row, without
from numapin.daemon.status import container_row
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.clock import Clock
from numapin.kernel.files import read_optional
from numapin.model.checkpoint import Checkpoint, Phase, Restored
from numapin.model.errors import ExitStatus, RequestFailed
from numapin.state.checkpoint import CheckpointFile
from numapin.state.lock import DaemonLock, state_lock


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
    ended: list[Row] = []
    if everything:
        meant = _promised(agent)
        if not report:
            ended = [_row_of_ended(row) for row in ended_rows(agent.ledger.pins, agent.views)]
            agent.release()
        views = [
            v
            for p, v in agent.views.items()
            if (report or p in meant) and (v.state is ContainerState.RELEASED or p in agent.undo.failed)
        ]
    else:
        known = [*map(container_row, agent.views.values()), *ended_rows(agent.ledger.pins, agent.views)]
        row = find_container(known, wanted, {"from": "daemon"})
        if (cgroup := str(row["cgroup"])) not in agent.views:
            if not report:
                agent.release([cgroup])
                agent.flush()
            return _document({"from": "daemon"}, everything, [_row_of_ended(row)])
        view = agent.views[cgroup]
        if view.state is not ContainerState.RELEASED and cgroup not in _promised(agent):
            raise RequestFailed(
                "nothing-to-release",
                f"{row['name']} has no promise of numapin's, so there is nothing to take back: {view.state}, "
                f"{view.message}",
            )
        if not report:
            agent.release([view.record.cgroup])
        views = [view]
    rows = [*(_row_of_view(agent, view) for view in views), *ended]
    rows.sort(key=lambda row: str(row["cgroup"]))
    if everything and agent.out_of_reach is not None:
        rows += agent.out_of_reach.rows()
    if not any(row["pending"] for row in rows):
        agent.flush()
    return _document({"from": "daemon"}, everything, rows, sorted(agent.ledger.enabled))


def _promised(agent: Agent) -> set[str]:
    """Cgroups in which a release has something to do; those that never had nodes are not counted as released."""
    ours = {cgroup for cgroup, pin in agent.ledger.pins.items() if pin.phase is not Phase.FOREIGN}
    return ours | {path for path in agent.views if agent.undo.pending(path)}


def _row_of_ended(row: Mapping[str, Any]) -> Row:
    gone = "it had ended, and its memory waits for nobody any more"
    return released_row(row["id"], row["name"], row["cgroup"], gone)


def _row_of_view(agent: Agent, view: Tracked) -> Row:
    record = view.record
    mems = agent.mems_of(view)
    said = view.message.removeprefix(agent.undo.reason(record)).removeprefix("; ")
    return released_row(record.id, record.name, record.cgroup, said) | {
        "state": view.state.value,
        "mems": None if mems is None else str(mems),
        "pending": agent.undo.pending(record.cgroup),
        "problem": agent.undo.failed.get(record.cgroup),
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

    *lock* is beside the daemon's socket, and *state* has one of its own: none may start meanwhile. What cannot be
    restored stays in the checkpoint.

    Raises:
        AlreadyRunning: There is a daemon after all.
        RequestFailed: There is a checkpoint, and no generation of it can be believed.
        NotPermitted, CheckpointError, NoCpusetController: As their makers say.
    """
    source: dict[str, object] = {"from": "checkpoint", "path": str(state), "why": why}
    with DaemonLock(lock), state_lock(state.parent, besides=lock):
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
        same_boot = checkpoint.boot_id == boot_id
        ours = [p for p in checkpoint.containers.values() if p.phase is not Phase.FOREIGN]
        living = [p for p in ours if p.ended_ns is None] if same_boot else []
        done = [put_back(root, pin, clock) for pin in sorted(living, key=lambda p: p.cgroup)] if living else []
        rows = [row for row, _ in done]
        failed = {str(row["cgroup"]) for row in rows if row["problem"]}
        left = without(checkpoint, [p for p in ours if p.cgroup not in failed], clock)
        file.save(replace(left, restored=_restored(checkpoint, done) if same_boot else {}))
        enabled = checkpoint.cpuset_enabled if same_boot else ()
        return _document(source | {"found": True, "earlier_boot": not same_boot}, True, rows, enabled)


def _restored(checkpoint: Checkpoint, done: Sequence[tuple[Row, Restored | None]]) -> dict[str, Restored]:
    """The values that were put back, by cgroup: whoever finds them later shall not take them for a choice."""
    found = {str(row["cgroup"]): left for row, left in done if left is not None}
    return {**checkpoint.restored, **found}

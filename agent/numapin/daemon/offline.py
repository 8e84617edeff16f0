"""
What can be said without a running daemon: its checkpoint as a status document.

Owns: the shape of that document. Must never: write anything, or import the daemon's moving parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from numapin import API_VERSION
from numapin.daemon.documents import container_facts, kept_for_pods, node_tables
from numapin.kernel.clock import Clock
from numapin.kernel.names import Role, container_at, pod_at
from numapin.model.checkpoint import Checkpoint, Phase
from numapin.model.errors import CheckpointError, CheckpointWrongVersion
from numapin.model.memory import Block
from numapin.state.checkpoint import CheckpointFile, Damaged

_STATES = {
    Phase.PLANNED: "pinning",
    Phase.VERIFIED: "pinned",
    Phase.FAILED: "failed",
    Phase.DEFERRED: "deferred",
    Phase.FOREIGN: "pinned-by-others",
}


def not_used(found: Damaged, kept: str = "") -> tuple[str, str]:
    """The finding about a checkpoint that is not believed; a whole one of another version is not called damaged."""
    sentence = found.reason + kept
    if isinstance(found.error, CheckpointWrongVersion):
        return CheckpointWrongVersion.code, sentence
    return ("checkpoint-damaged", sentence)


def offline_status(state: Path, why: str, clock: Clock) -> dict[str, object]:
    """
    Status document of the checkpoint in *state*; *why* is the sentence about the daemon.

    Nothing in it was looked up on the machine: ``running`` is false, and states are the ones last saved. Where no
    generation can be read or believed, ``checkpoint.error`` says why and the rest is empty.
    """
    checkpoint, error, findings = _look(state)
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "running": False,
        "why": why,
        "checkpoint": {"path": str(state), "error": error, "found": checkpoint is not None},
        "nodes": [],
        "groups": [],
        "containers": [],
        "findings": findings,
    }
    if checkpoint is None:
        return document
    rows = [
        container_facts(
            id=pin.container_id,
            name=pin.name,
            pod_uid=pin.pod_uid,
            runtime=pin.runtime.value,
            cgroup=pin.cgroup,
            qos="Guaranteed",
            request=_sizes(checkpoint.books.assignments.get(pin.owner, ())),
            nodes=list(pin.nodes),
            state=_STATES[pin.phase] if pin.ended_ns is None else "ended",
            message=pin.message,
            unit=pin.unit,
        )
        for pin in checkpoint.containers.values()
    ]
    rows += [
        container_facts(
            id=refusal.container_id,
            name=refusal.name,
            runtime=_runtime(cgroup),
            cgroup=cgroup,
            qos="Guaranteed",
            # of a pod that was refused as a whole the record has the whole's sizes only
            request={} if refusal.explanation.whole_pod else dict(refusal.explanation.sizes),
            state="refused",
            message=refusal.message,
        )
        for cgroup, refusal in checkpoint.refusals.items()
    ]
    document |= {
        "policy": checkpoint.policy,
        "boot_id": checkpoint.boot_id,
        "saved_seconds": checkpoint.saved_ns // 1_000_000_000,
        "saved_seconds_ago": max(0, clock.wall_ns() - checkpoint.saved_ns) // 1_000_000_000,
        "nodes": node_tables(checkpoint.books, None),
        "groups": [list(g) for g in checkpoint.books.groups()],
        "kept_for_pods": kept_for_pods(checkpoint.books),
        "containers": sorted(rows, key=lambda r: str(r["cgroup"])),
    }
    return document


def _look(state: Path) -> tuple[Checkpoint | None, str | None, list[dict[str, str]]]:
    """The best generation, why there is none, and findings about damaged ones."""
    try:
        loaded = CheckpointFile(state).peek()
    except CheckpointError as exc:
        return None, str(exc), []
    findings = [{"code": code, "message": message} for code, message in map(not_used, loaded.damaged)]
    if loaded.checkpoint is None and loaded.damaged:
        return None, loaded.damaged[0].reason, findings
    return loaded.checkpoint, None, findings


def _runtime(cgroup: str) -> str | None:
    """What the cgroup's name says, for the record of a refusal does not; ``None`` where it says nothing."""
    parts = cgroup.strip("/").split("/")
    found = container_at(parts, pod_at(parts[:-1]))
    return found.runtime.value if found is not None and found.role is Role.CONTAINER else None


def _sizes(blocks: Iterable[Block]) -> dict[str, int]:
    """Bytes per type; somebody else's pin may have several blocks of one."""
    sizes: dict[str, int] = {}
    for block in blocks:
        sizes[block.type] = sizes.get(block.type, 0) + block.size_bytes
    return dict(sorted(sizes.items()))

"""
Answers without a running daemon: the checkpoint as a status, one look at a cgroup tree as a list.

Owns: what can be said then. Must never: write anything.
"""

from __future__ import annotations

from pathlib import Path

from numapin.daemon.admission import classify_record
from numapin.daemon.config import load_config
from numapin.daemon.status import API_VERSION, container_row, node_tables
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.cgroup_mounts import find_hierarchy
from numapin.kernel.discovery import Discovery
from numapin.model.checkpoint import Phase
from numapin.state.checkpoint import CheckpointFile

_STATES = {
    Phase.PLANNED: ContainerState.PINNING,
    Phase.VERIFIED: ContainerState.PINNED,
    Phase.FAILED: ContainerState.FAILED,
    Phase.DEFERRED: ContainerState.DEFERRED,
    Phase.FOREIGN: ContainerState.FOREIGN,
}


def offline_status(state: Path, why: str) -> dict[str, object]:
    """
    Status document of the checkpoint in *state*; *why* is the sentence about the daemon.

    Nothing in it was looked up on the machine: ``running`` is false, and states are the ones last saved.

    Raises:
        CheckpointError: There is a checkpoint and no generation of it can be believed.
    """
    checkpoint = CheckpointFile(state).peek().checkpoint
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "running": False,
        "why": why,
        "checkpoint": {"path": str(state), "error": None, "found": checkpoint is not None},
        "nodes": [],
        "groups": [],
        "containers": [],
        "findings": [],
    }
    if checkpoint is None:
        return document
    rows: list[dict[str, object]] = []
    for pin in checkpoint.containers.values():
        rows.append(
            {
                "id": pin.container_id,
                "name": pin.name,
                "pod_uid": pin.pod_uid,
                "runtime": pin.runtime.value,
                "cgroup": pin.cgroup,
                "qos": "Guaranteed",
                "request": {b.type: b.size_bytes for b in checkpoint.books.assignments.get(pin.owner, ())},
                "nodes": list(pin.nodes),
                "state": _STATES[pin.phase].value if pin.ended_ns is None else "ended",
                "message": pin.message,
            }
        )
    for cgroup, refusal in checkpoint.refusals.items():
        rows.append(
            {
                "id": refusal.container_id,
                "name": refusal.name,
                "pod_uid": None,
                "runtime": None,
                "cgroup": cgroup,
                "qos": "Guaranteed",
                "request": dict(refusal.explanation.sizes),
                "nodes": [],
                "state": ContainerState.REFUSED.value,
                "message": refusal.message,
            }
        )
    document |= {
        "policy": checkpoint.policy,
        "boot_id": checkpoint.boot_id,
        "saved_seconds": checkpoint.saved_ns // 1_000_000_000,
        "nodes": node_tables(checkpoint.books, None),
        "groups": [list(g) for g in checkpoint.books.groups()],
        "containers": sorted(rows, key=lambda r: str(r["cgroup"])),
    }
    return document


def found_containers(root: Path) -> dict[str, object]:
    """
    Containers document of one look at the cgroup tree below *root*, with classes but without any decision.

    Raises:
        NoCpusetController, KernelError: The tree cannot be read.
        ConfigError: The configuration below *root* is wrong.
    """
    config = load_config(root)
    discovery = Discovery(find_hierarchy(root), root)
    rows = []
    for record in sorted(discovery.scan(), key=lambda r: r.cgroup):
        verdict = classify_record(record, config)
        rows.append(container_row(Tracked(record, verdict, ContainerState.UNDECIDED, nodes=record.mems)))
    return {"apiVersion": API_VERSION, "kind": "Containers", "containers": rows}

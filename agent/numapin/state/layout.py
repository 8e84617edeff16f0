"""The shapes of a checkpoint on disk, and the records of the model in them.

Owns: key names, except those of explanations (`layout_explanation`). Must never: know about checksums or files. A
changed shape is a new `CHECKPOINT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from numapin.model.checkpoint import Phase, PinRecord, RefusalRecord, Restored
from numapin.model.container import ContainerId, Runtime
from numapin.model.memory import MemoryType, Owner
from numapin.model.plan import RefusalCode
from numapin.state.layout_explanation import ExplanationOnDisk, explanation, read_explanation
from numapin.state.path_text import path_from_text, path_text
from numapin.state.shape import Strict, node_set


class Header(msgspec.Struct, rename="camel"):
    """What every version of the file has."""

    kind: str
    version: int


class Table(Strict, frozen=True):
    """The kubelet's ``MemoryTable``; bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


class Node(Strict, frozen=True):
    """The kubelet's ``NUMANodeState``."""

    number_of_assignments: int
    memory_map: dict[MemoryType, Table]
    cells: tuple[int, ...]


class BlockOnDisk(Strict, frozen=True):
    """The kubelet's ``Block``; bytes."""

    numa_affinity: tuple[int, ...]
    type: str
    size: int


class OwnerOnDisk(Strict, frozen=True):
    """Whose an assignment is: its two keys in ``entries``."""

    pod: str
    container: str


class Pin(Strict, frozen=True, omit_defaults=True):
    """A container with nodes, keyed by its cgroup."""

    container_id: str
    name: str
    pod_uid: str | None
    runtime: Runtime
    inode: int
    owner: OwnerOnDisk
    phase: Phase
    nodes: str
    original_mems: str
    message: str
    ended_ns: int | None
    explanation: ExplanationOnDisk | None
    unit: str | None = None
    original_below: dict[str, str] = {}
    original_migrate: bool | None = None


class RefusalOnDisk(Strict, frozen=True):
    """A refused container, keyed by its cgroup."""

    container_id: str
    name: str
    inode: int
    owner: OwnerOnDisk
    code: RefusalCode
    kubelet_reason: str
    message: str
    explanation: ExplanationOnDisk


class RestoredOnDisk(Strict, frozen=True):
    """A cgroup whose own value we put back, keyed by its path; ``mems`` are values in list format, newest last."""

    inode: int
    mems: tuple[str, ...]
    follows: bool


class Document(Strict, frozen=True):
    """The whole file."""

    api_version: str
    kind: str
    version: int
    policy_name: str
    boot_id: str
    saved_ns: int
    machine_state: dict[int, Node]
    entries: dict[str, dict[str, list[BlockOnDisk]]]
    containers: dict[str, Pin]
    refusals: dict[str, RefusalOnDisk]
    checksum: str
    cpuset_enabled: tuple[str, ...] = ()
    restored: dict[str, RestoredOnDisk] = {}
    handed_over: dict[str, Pin] = {}


def plain(value: object) -> object:
    """Mappings of the model that are not plain dicts; the encoder's hook."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in a checkpoint")


def pin(record: PinRecord) -> Pin:
    """Shape of *record*; its cgroup is the key beside it."""
    return Pin(
        record.container_id,
        record.name,
        record.pod_uid,
        record.runtime,
        record.inode,
        OwnerOnDisk(*record.owner),
        record.phase,
        str(record.nodes),
        str(record.original_mems),
        record.message,
        record.ended_ns,
        None if record.explanation is None else explanation(record.explanation),
        record.unit,
        {path_text(path): str(mems) for path, mems in sorted(record.original_below.items())},
        record.original_migrate,
    )


def read_pin(cgroup: str, found: Pin) -> PinRecord:
    """
    Record of the container in *cgroup*.

    Raises:
        ValueError: A node set that is none.
    """
    return PinRecord(
        container_id=ContainerId(found.container_id),
        name=found.name,
        pod_uid=found.pod_uid,
        runtime=found.runtime,
        cgroup=cgroup,
        inode=found.inode,
        owner=Owner(found.owner.pod, found.owner.container),
        phase=found.phase,
        nodes=node_set(found.nodes),
        original_mems=node_set(found.original_mems),
        explanation=None if found.explanation is None else read_explanation(found.explanation),
        message=found.message,
        ended_ns=found.ended_ns,
        unit=found.unit,
        original_below={path_from_text(path): node_set(mems) for path, mems in found.original_below.items()},
        original_migrate=found.original_migrate,
    )


def refusal(record: RefusalRecord) -> RefusalOnDisk:
    """Shape of *record*; its cgroup is the key beside it."""
    return RefusalOnDisk(
        record.container_id,
        record.name,
        record.inode,
        OwnerOnDisk(*record.owner),
        record.code,
        record.kubelet_reason,
        record.message,
        explanation(record.explanation),
    )


def read_refusal(cgroup: str, found: RefusalOnDisk) -> RefusalRecord:
    """
    Record of the refused container; *cgroup* is only its key.

    Raises:
        ValueError: A node set that is none.
    """
    del cgroup
    return RefusalRecord(
        owner=Owner(found.owner.pod, found.owner.container),
        container_id=ContainerId(found.container_id),
        name=found.name,
        inode=found.inode,
        code=found.code,
        kubelet_reason=found.kubelet_reason,
        message=found.message,
        explanation=read_explanation(found.explanation),
    )


def restored(record: Restored) -> RestoredOnDisk:
    """Shape of *record*; its cgroup is the key beside it."""
    return RestoredOnDisk(record.inode, tuple([str(m) for m in record.mems]), record.follows)


def read_restored(cgroup: str, found: RestoredOnDisk) -> Restored:
    """
    Record of a value that was put back; *cgroup* is only its key.

    Raises:
        ValueError: A node set that is none.
    """
    del cgroup
    return Restored(found.inode, tuple(node_set(m) for m in found.mems), found.follows)

"""The shapes of a checkpoint on disk, and the records of the model in them.

Owns: key names. Must never: know about checksums or files. A changed shape is a new `CHECKPOINT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from numapin.model.checkpoint import Phase, PinRecord, RefusalRecord, Restored
from numapin.model.container import ContainerId, Runtime
from numapin.model.memory import MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Exclusion, Explanation, Hint, NodeView, ProviderHints, RefusalCode, TopologyPolicy
from numapin.state.path_text import path_from_text, path_text


class Strict(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """Every object of the file: an unknown key is an error, for a changed shape is another version."""


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


class HintOnDisk(Strict, frozen=True):
    """``nodes`` ``null`` means any."""

    nodes: str | None
    preferred: bool


class ProviderOnDisk(Strict, frozen=True):
    """``hints`` ``null`` means no preference."""

    resource: str
    hints: tuple[HintOnDisk, ...] | None


class View(Strict, frozen=True, omit_defaults=True):
    """One node as a decision saw it; bytes."""

    node: int
    allocatable: dict[MemoryType, int]
    free: dict[MemoryType, int]
    cells: str
    assignments: int
    exclusion: Exclusion | None = None
    kernel_free: dict[MemoryType, int] = {}
    normal: bool = True
    own: bool = False
    resident: int = 0
    ended: bool = False


class ExplanationOnDisk(Strict, frozen=True, omit_defaults=True):
    """Node sets are in the kernel's list format; ``chosen`` absent means none."""

    policy: TopologyPolicy
    sizes: dict[MemoryType, int]
    nodes: tuple[View, ...]
    width: int | None = None
    candidates: tuple[str, ...] = ()
    chosen: str | None = None
    preferred: bool = False
    tie_break: str = ""
    would_fit: str = ""
    hints: tuple[ProviderOnDisk, ...] = ()
    distances: dict[int, dict[int, int]] = {}
    whole_pod: bool = False


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
        nodes=_node_set(found.nodes),
        original_mems=_node_set(found.original_mems),
        explanation=None if found.explanation is None else read_explanation(found.explanation),
        message=found.message,
        ended_ns=found.ended_ns,
        unit=found.unit,
        original_below={path_from_text(path): _node_set(mems) for path, mems in found.original_below.items()},
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
    return Restored(found.inode, tuple(_node_set(m) for m in found.mems), found.follows)


def explanation(record: Explanation) -> ExplanationOnDisk:
    """Shape of a decision's record."""
    return ExplanationOnDisk(
        record.policy,
        _sizes(record.sizes),
        tuple([_view(v) for v in record.nodes]),
        record.width,
        tuple([str(c) for c in record.candidates]),
        None if record.chosen is None else str(record.chosen),
        record.preferred,
        record.tie_break,
        record.would_fit,
        tuple([_provider(p) for p in record.hints]) if record.hints else (),
        {int(a): {int(b): d for b, d in row.items()} for a, row in record.distances.items()},
        record.whole_pod,
    )


def read_explanation(found: ExplanationOnDisk) -> Explanation:
    """
    A decision's record.

    Raises:
        ValueError: A node set that is none.
    """
    return Explanation(
        policy=found.policy,
        sizes=found.sizes,
        nodes=tuple(_read_view(v) for v in found.nodes),
        width=found.width,
        candidates=tuple(_node_set(c) for c in found.candidates),
        chosen=None if found.chosen is None else _node_set(found.chosen),
        preferred=found.preferred,
        tie_break=found.tie_break,
        would_fit=found.would_fit,
        hints=tuple(_read_provider(p) for p in found.hints),
        distances={NodeId(a): {NodeId(b): d for b, d in row.items()} for a, row in found.distances.items()},
        whole_pod=found.whole_pod,
    )


def _view(view: NodeView) -> View:
    return View(
        view.node,
        _sizes(view.allocatable),
        _sizes(view.free),
        str(view.cells),
        view.assignments,
        view.exclusion,
        _sizes(view.kernel_free),
        view.normal,
        view.own,
        view.resident,
        view.ended,
    )


def _read_view(found: View) -> NodeView:
    return NodeView(
        node=NodeId(found.node),
        allocatable=found.allocatable,
        free=found.free,
        cells=_node_set(found.cells),
        assignments=found.assignments,
        exclusion=found.exclusion,
        kernel_free=found.kernel_free,
        normal=found.normal,
        own=found.own,
        resident=found.resident,
        ended=found.ended,
    )


def _provider(provider: ProviderHints) -> ProviderOnDisk:
    if provider.hints is None:
        return ProviderOnDisk(provider.resource, None)
    hints = tuple(HintOnDisk(None if h.affinity is None else str(h.affinity), h.preferred) for h in provider.hints)
    return ProviderOnDisk(provider.resource, hints)


def _read_provider(found: ProviderOnDisk) -> ProviderHints:
    if found.hints is None:
        return ProviderHints(found.resource, None)
    hints = tuple(Hint(None if h.nodes is None else _node_set(h.nodes), h.preferred) for h in found.hints)
    return ProviderHints(found.resource, hints)


def _sizes(sizes: Mapping[MemoryType, int]) -> dict[MemoryType, int]:
    """Keys in one order; the usual map of one type is not sorted again."""
    if len(sizes) < 2 and isinstance(sizes, dict):
        return sizes
    return dict(sorted(sizes.items()))


@lru_cache(maxsize=4096)
def _node_set(text: str) -> NodeSet:
    return NodeSet.parse(text)

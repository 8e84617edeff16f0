"""The shapes of explanations in a checkpoint: a decision's record with its nodes and hints.

Owns: their key names. Must never: know where in a checkpoint an explanation stands. A changed shape is a new
`CHECKPOINT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping

from numapin.model.memory import MemoryType
from numapin.model.nodeset import NodeId
from numapin.model.plan import Exclusion, Explanation, Hint, NodeView, ProviderHints, TopologyPolicy
from numapin.state.shape import Strict, node_set


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
        candidates=tuple(node_set(c) for c in found.candidates),
        chosen=None if found.chosen is None else node_set(found.chosen),
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
        cells=node_set(found.cells),
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
    hints = tuple(Hint(None if h.nodes is None else node_set(h.nodes), h.preferred) for h in found.hints)
    return ProviderHints(found.resource, hints)


def _sizes(sizes: Mapping[MemoryType, int]) -> dict[MemoryType, int]:
    """Keys in one order; the usual map of one type is not sorted again."""
    if len(sizes) < 2 and isinstance(sizes, dict):
        return sizes
    return dict(sorted(sizes.items()))

"""What is asked of the planner and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numapin.model.memory import Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet


class TopologyPolicy(StrEnum):
    """The kubelet's Topology Manager policies."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """The kubelet's Topology Manager scopes."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Hint:
    """One node set another provider could live with; ``affinity`` ``None`` means any."""

    affinity: NodeSet | None
    preferred: bool


@dataclass(frozen=True, slots=True)
class ProviderHints:
    """
    Hints of one provider for one resource (``cpu``, ``device /dev/…``).

    ``hints`` ``None`` means no preference; an empty tuple means nothing suits.
    """

    resource: str
    hints: tuple[Hint, ...] | None


@dataclass(frozen=True, slots=True)
class Rules:
    """The configured way to decide. ``distances`` are keyed by node id twice and may be empty."""

    policy: TopologyPolicy = TopologyPolicy.RESTRICTED
    prefer_closest: bool = False
    distances: Mapping[NodeId, Mapping[NodeId, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """
    Bytes per memory type for one owner, and what narrows the choice.

    ``allowed``: only these nodes (the cgroup's ancestors, CPU-less nodes left out); ``None`` is all nodes.
    ``normal``: a placement must hold at least one of these (nodes with normal memory); ``None`` is no rule.
    ``ceilings``: bytes the kernel itself has free, per node and type; it only lowers what the books offer.
    ``resident``: bytes the container already has per node, to break ties between equal sets; empty is unknown.
    ``reusable``: assignments of the same pod that ended and may be used first.
    ``affinity``: nodes decided for the whole pod; exactly these, or a refusal.
    """

    owner: Owner
    sizes: Mapping[MemoryType, int]
    allowed: NodeSet | None = None
    normal: NodeSet | None = None
    ceilings: Mapping[NodeId, Mapping[MemoryType, int]] = field(default_factory=dict)
    resident: Mapping[NodeId, int] = field(default_factory=dict)
    reusable: tuple[Owner, ...] = ()
    hints: tuple[ProviderHints, ...] = ()
    affinity: NodeSet | None = None


class Exclusion(StrEnum):
    """Why a node cannot serve a request."""

    NOT_ALLOWED = "not-allowed"
    """Outside the nodes that the container's parent cgroups or the configuration allow."""
    TYPE_MISSING = "type-missing"
    """The node has no memory of a requested type."""
    IN_GROUP = "in-group"
    """Tied into a group by a multi-node assignment."""
    HOLDS_SINGLE = "holds-single-node-assignments"
    """Serves single-node assignments, so it cannot join a group."""
    TOO_SMALL = "too-small"
    """Would not hold the request alone even when empty."""
    NOT_ENOUGH_FREE = "not-enough-free"
    """Free in the books is less than asked."""
    KERNEL_SHORT = "kernel-has-less"
    """The books offer enough, but the kernel has fewer free pages."""
    MEMORYLESS = "memoryless"
    """The node has no memory of any type."""
    NOT_NORMAL = "no-normal-memory"
    """Movable-only: it may serve together with a node that has normal memory, never alone."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """
    One node as the decision saw it; bytes per requested type.

    ``exclusion`` is why this node *alone* cannot take the request; ``None`` means it could. ``normal`` is false
    for a node that may only serve together with one that has normal memory. ``own``, ``resident`` (bytes) and
    ``ended`` are what makes a node wanted among equals: the owner's earlier assignment, pages the container has,
    ended assignments of its pod.
    """

    node: NodeId
    allocatable: Mapping[MemoryType, int]
    free: Mapping[MemoryType, int]
    cells: NodeSet
    assignments: int
    exclusion: Exclusion | None
    kernel_free: Mapping[MemoryType, int] = field(default_factory=dict)
    normal: bool = True
    own: bool = False
    resident: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    The record of one decision, enough to check the verdict again without anything else.

    ``width`` is the fewest nodes whose *allocatable* memory could hold the request, or ``None`` when even all
    together could not. ``candidates`` are sets considered, best first, at most a handful. ``tie_break`` names
    the rule that chose among equals. ``would_fit`` is a sentence about what would make a refusal fit.
    ``distances`` are there when the closest nodes were preferred and there are at most 64. ``whole_pod``: what was
    asked for is the container's pod as a whole.
    """

    policy: TopologyPolicy
    sizes: Mapping[MemoryType, int]
    nodes: tuple[NodeView, ...]
    width: int | None
    candidates: tuple[NodeSet, ...] = ()
    chosen: NodeSet | None = None
    preferred: bool = False
    tie_break: str = ""
    would_fit: str = ""
    hints: tuple[ProviderHints, ...] = ()
    distances: Mapping[NodeId, Mapping[NodeId, int]] = field(default_factory=dict)
    whole_pod: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """An admitted request: the nodes, the blocks, and the books as they are after it."""

    owner: Owner
    nodes: NodeSet
    blocks: tuple[Block, ...]
    books: Books
    explanation: Explanation


class RefusalCode(StrEnum):
    """Our own words for a refusal."""

    DOES_NOT_FIT = "does-not-fit"
    """Not even all allowed nodes together could ever hold it."""
    NO_ROOM = "no-room"
    """It could be held by an empty machine, but not by what is free now under the group rule."""
    NOT_FEWEST = "not-fewest-nodes"
    """Only a wider set than necessary is free, or only an existing group, and the policy forbids that."""
    NOT_SINGLE = "not-single-node"
    """The policy wants one node and no single node can hold it."""
    HINTS_DISAGREE = "hints-disagree"
    """Memory and another provider (CPUs, devices) cannot be served from the same nodes."""
    UNKNOWN_TYPE = "unknown-type"
    """No node has memory of a requested type."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    A request that is not kept: a value, not an error.

    ``kubelet_reason`` is the word the kubelet would use; empty where a kubelet would admit it, because it does not
    look at what stands in the way here.
    """

    owner: Owner
    code: RefusalCode
    kubelet_reason: str
    message: str
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Verification:
    """What was asked of the kernel and what it grants afterwards."""

    wanted: NodeSet
    mems: NodeSet
    effective: NodeSet

    @property
    def ok(self) -> bool:
        """True when the kernel grants exactly what was wanted."""
        return self.mems == self.wanted and self.effective == self.wanted

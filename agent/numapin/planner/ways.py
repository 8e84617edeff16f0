"""
What would make a refused request fit: the node or group that lacks least, and the smaller limit.

Owns: the arithmetic behind every remedy, from the views of the nodes alone. Must never: name a change after which the
request would be refused again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Exclusion, NodeView, ProviderHints, TopologyPolicy
from numapin.model.quantity import at_least
from numapin.planner.choice import combine

OUTSIDE = (Exclusion.NOT_ALLOWED, Exclusion.MEMORYLESS)
POD_AFFINITY = "nodes-of-its-pod"
"""The tie-break's word when the nodes were given: decided with the pod's first container, or those it has already."""
KEPT = "already-assigned"
"""The tie-break's word when nothing was decided anew."""
LAX = (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT)
"""Policies that take any set with room."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    What a decision may choose: its policy, the fewest nodes that could ever do, and what the others agree on.

    ``agreed`` are masks of nodes that all of them prefer, ``None`` among them is any; absent where nobody has a say.
    """

    policy: TopologyPolicy
    width: int | None
    agreed: frozenset[int | None] | None = None

    @classmethod
    def of(cls, policy: TopologyPolicy, width: int | None, hints: Sequence[ProviderHints]) -> Bounds:
        """The bounds under *hints*, which are put together once for all sets that are asked about."""
        if policy in LAX or not hints:
            return cls(policy, width)
        entries, _ = combine(hints, single=policy is TopologyPolicy.SINGLE_NUMA_NODE)
        return cls(policy, width, frozenset(entry.mask for entry in entries if entry.agreed))

    def admits(self, nodes: NodeSet | None, count: int) -> bool:
        """
        True when memory that fits on *nodes* only would be admitted there; ``None`` is any set of *count* nodes.

        What the others want of a set that is not known yet counts only where they can live with any.
        """
        if self.policy in LAX:
            return True
        single = self.policy is TopologyPolicy.SINGLE_NUMA_NODE
        if self.width is None or count > (1 if single else self.width):
            return False
        if self.agreed is None:
            return True
        return None in self.agreed or (nodes is not None and nodes.mask in self.agreed)


@dataclass(frozen=True, slots=True)
class Way:
    """*lacks*, bytes by type, more free on *nodes* (one node, or one group as it is), and the request fits there."""

    nodes: NodeSet
    lacks: Mapping[MemoryType, int]

    @property
    def place(self) -> str:
        """``on node 1`` or ``in group 0-1``."""
        return f"on node {self.nodes}" if len(self.nodes) == 1 else f"in group {self.nodes}"

    @property
    def more(self) -> str:
        """``2 GiB more free``, never less than what is lacking."""
        kinds = sorted(self.lacks, key=lambda k: (k != MEMORY, k))
        parts = [at_least(self.lacks[k]) + ("" if k == MEMORY else f" of {k}") for k in kinds]
        return f"{' and '.join(parts)} more free"


def nearest(views: Sequence[NodeView], sizes: Mapping[MemoryType, int], bounds: Bounds) -> Way | None:
    """The node or existing group that would take the request if more were free there, and lacks least."""
    by_node = {view.node: view for view in views}
    ways = [
        way
        for nodes in _places(views)
        if bounds.admits(nodes, len(nodes)) and (way := _freed(by_node, sizes, nodes)) is not None and way.lacks
    ]
    return min(ways, key=lambda w: (sum(w.lacks.values()), len(w.nodes), w.nodes), default=None)


def freed(views: Sequence[NodeView], sizes: Mapping[MemoryType, int], nodes: NodeSet) -> Way | None:
    """What exactly *nodes* lack; ``None`` where freeing memory there is not enough (too small, group rule)."""
    return _freed({view.node: view for view in views}, sizes, nodes)


def _freed(by_node: Mapping[NodeId, NodeView], sizes: Mapping[MemoryType, int], nodes: NodeSet) -> Way | None:
    members = members_of(by_node, nodes)
    if not may_serve(members, nodes) or any(sum(v.allocatable.get(k, 0) for v in members) < sizes[k] for k in sizes):
        return None
    return Way(nodes, {k: size - have for k, size in sizes.items() if (have := free_of(members, k)) < size})


def members_of(by_node: Mapping[NodeId, NodeView], nodes: NodeSet) -> list[NodeView]:
    """The views of *nodes*, ascending; nodes that the decision did not see are left out."""
    return [by_node[node] for node in nodes if node in by_node]


def may_serve(members: Sequence[NodeView], nodes: NodeSet) -> bool:
    """True when the group rule and the cgroups above let a request use exactly these nodes."""
    if len(members) != len(nodes) or any(v.exclusion in OUTSIDE for v in members):
        return False
    if any(len(v.cells) > 1 for v in members):
        apart = any(v.cells != nodes for v in members)
    else:
        apart = len(members) > 1 and any(v.assignments for v in members)
    return not apart and any(v.normal for v in members)


def free_of(members: Sequence[NodeView], kind: MemoryType) -> int:
    """Bytes of *kind* that both the books and the kernel have free; inside a group only the sums count."""
    if len(members) > 1 and any(len(v.cells) > 1 for v in members):
        kernel = sum(v.kernel_free.get(kind, v.allocatable.get(kind, 0)) for v in members)
        return min(sum(v.free.get(kind, 0) for v in members), kernel)
    return sum(offered(v, kind) for v in members)


def offered(view: NodeView, kind: MemoryType) -> int:
    """Bytes of *kind* that both the books and the kernel have free on the node."""
    free = view.free.get(kind, 0)
    return min(free, view.kernel_free.get(kind, free))


def _places(views: Sequence[NodeView]) -> Iterator[NodeSet]:
    """Nodes in no group, and groups, each once."""
    yield from dict.fromkeys(v.cells if len(v.cells) > 1 else NodeSet(1 << v.node) for v in views)

"""The books: what each node has, what is promised, to whom. All sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.quantity import format_page_size, parse_page_size

MemoryType = NewType("MemoryType", str)
"""``memory``, or ``hugepages-`` and the page size in binary units (``hugepages-2Mi``), as Kubernetes names them."""

MEMORY = MemoryType("memory")


def hugepages(size_bytes: int) -> MemoryType:
    """Memory type of pages of *size_bytes* (2097152 → ``hugepages-2Mi``)."""
    return MemoryType("hugepages-" + format_page_size(size_bytes))


def page_size_of(kind: MemoryType) -> int | None:
    """Bytes of one page of a type of huge pages; ``None`` for ``memory``."""
    return None if kind == MEMORY else parse_page_size(kind.removeprefix("hugepages-"))


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """
    One memory type on one node.

    ``allocatable`` = ``total`` minus ``system_reserved`` (for ``memory`` also minus the node's hugepage
    pools); ``free + reserved = allocatable`` outside a group. Inside a group only the sums over the group's
    nodes have a meaning. ``free`` is negative only after the machine shrank below what is promised.
    """

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NodeState:
    """
    One node's books.

    ``cells`` is the group the node belongs to, itself included; ``{self}`` when it is unused or serves only
    single-node assignments. ``number_of_assignments`` counts blocks, as the kubelet does.
    """

    memory_map: Mapping[MemoryType, MemoryTable]
    number_of_assignments: int
    cells: NodeSet


@dataclass(frozen=True, slots=True)
class NodeMap:
    """Every node that may hold assignments, keyed by id in ascending order."""

    nodes: Mapping[NodeId, NodeState]


@dataclass(frozen=True, slots=True)
class Block:
    """*size_bytes* of one memory type promised from the nodes in *affinity* together."""

    affinity: NodeSet
    type: MemoryType
    size_bytes: int


_SHARED = "*"
"""No name of a container: Kubernetes' are DNS labels."""


class Owner(NamedTuple):
    """
    Whose an assignment is.

    ``pod`` is the pod's uid and ``container`` the container's name in it, so a restarted container finds its
    predecessor's; outside Kubernetes both are the container's id.
    """

    pod: str
    container: str

    def __str__(self) -> str:
        if self.is_rest:
            return f"the other containers of pod {self.pod}"
        if self.is_shared:
            return f"the containers of pod {self.pod} together"
        return self.container if self.pod == self.container else f"{self.pod}/{self.container}"

    @property
    def is_rest(self) -> bool:
        """True for what is kept for the containers of a pod that are still to come (`rest_of`)."""
        return not self.container

    @property
    def is_shared(self) -> bool:
        """True for what a pod's containers share (`shared_of`)."""
        return self.container == _SHARED


def rest_of(pod: str) -> Owner:
    """Who holds what a pod was promised as a whole and none of its containers has taken yet."""
    return Owner(pod, "")


def shared_of(pod: str) -> Owner:
    """Who holds, once for the pod, what those of its containers may use that have no limit of their own."""
    return Owner(pod, _SHARED)


def of_pod(pod: str) -> tuple[Owner, Owner]:
    """Who holds what no single container of the pod does."""
    return rest_of(pod), shared_of(pod)


@dataclass(frozen=True, slots=True)
class Books:
    """A NodeMap and the assignments that explain it: the reserved bytes are the sum of the blocks."""

    node_map: NodeMap
    assignments: Mapping[Owner, tuple[Block, ...]] = field(default_factory=dict)

    def nodes_of(self, *owners: Owner) -> NodeSet:
        """Every node from which one of *owners* is promised something; empty when none holds anything."""
        nodes = NodeSet()
        for owner in owners:
            for block in self.assignments.get(owner, ()):
                nodes |= block.affinity
        return nodes

    def groups(self) -> tuple[NodeSet, ...]:
        """Groups of two nodes or more, ascending by lowest id; disjoint."""
        found = {s.cells for s in self.node_map.nodes.values() if len(s.cells) > 1}
        return tuple(sorted(found, key=lambda g: g.ids()))

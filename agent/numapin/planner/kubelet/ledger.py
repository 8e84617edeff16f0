"""
The Memory Manager's machine state, with the kubelet's own order of filling and giving back.

Owns: counts, cells, free and reserved per node, and the containers' blocks. Inside a group the split over the nodes
depends on the order of events, as in the kubelet, whose later answers can depend on it; that is why this is not
`numapin.model.memory.Books`. Must never: decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from numapin.model.memory import Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
from numapin.model.nodeset import NodeId, NodeSet


@dataclass(slots=True)
class Table:
    """One memory type on one node, in bytes; ``free`` and ``reserved`` change."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(slots=True)
class Node:
    """One node; ``cells`` is a mask, 0 where a given state left it empty."""

    count: int
    cells: int
    tables: dict[MemoryType, Table] = field(default_factory=dict)


class Ledger:
    """Nodes by ascending id, and blocks by pod and container."""

    __slots__ = ("entries", "nodes")

    def __init__(self, node_map: NodeMap) -> None:
        self.nodes = {
            node: Node(
                state.number_of_assignments,
                state.cells.mask,
                {
                    k: Table(t.total, t.system_reserved, t.allocatable, t.reserved, t.free)
                    for k, t in state.memory_map.items()
                },
            )
            for node, state in sorted(node_map.nodes.items())
        }
        self.entries: dict[str, dict[str, list[Block]]] = {}

    @classmethod
    def of(cls, books: Books) -> Ledger:
        """The ledger with the numbers of *books* as they are."""
        ledger = cls(books.node_map)
        for owner, blocks in books.assignments.items():
            ledger.entries.setdefault(owner.pod, {})[owner.container] = list(blocks)
        return ledger

    def node_map(self) -> NodeMap:
        """The nodes as model values."""
        return NodeMap(
            {
                node: NodeState(
                    {
                        k: MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved, t.free)
                        for k, t in state.tables.items()
                    },
                    state.count,
                    NodeSet(state.cells),
                )
                for node, state in self.nodes.items()
            }
        )

    def owners(self) -> Iterator[Owner]:
        """Every container with blocks."""
        for pod, containers in self.entries.items():
            for name in containers:
                yield Owner(pod, name)

    def blocks(self, pod: str, container: str) -> list[Block]:
        """Blocks of a container; empty when it has none."""
        return self.entries.get(pod, {}).get(container, [])

    def total(self, mask: int, kind: MemoryType) -> tuple[int, int]:
        """Allocatable and free over the nodes of *mask*; a node without that type adds nothing."""
        tables = [t for n in NodeSet(mask) if n in self.nodes and (t := self.nodes[n].tables.get(kind)) is not None]
        return sum(t.allocatable for t in tables), sum(t.free for t in tables)

    def charge(self, mask: int, kind: MemoryType, size: int) -> None:
        """Count one block on every node of *mask*, tie them, and take *size* from the lowest id upward."""
        left = size
        for n in NodeSet(mask):
            node = self.nodes[n]
            node.count += 1
            node.cells = mask
            table = node.tables.get(kind)
            if left and table is not None:
                part = max(0, min(table.free, left))
                table.reserved += part
                table.free -= part
                left -= part

    def remove(self, pod: str, container: str) -> None:
        """Forget a container and give its blocks back from the lowest id upward."""
        blocks = self.entries.get(pod, {}).pop(container, None)
        if blocks is None:
            return
        if not self.entries[pod]:
            del self.entries[pod]
        for block in blocks:
            left = block.size_bytes
            for n in block.affinity:
                node = self.nodes.get(n)
                if node is None:
                    continue
                node.count -= 1
                if node.count == 0:
                    node.cells = 1 << n
                table = node.tables.get(block.type)
                if left and table is not None:
                    part = min(table.reserved, left)
                    table.reserved -= part
                    table.free += part
                    left -= part

    def rebuilt_on(self, empty: NodeMap) -> Ledger:
        """The same entries booked afresh on *empty*; blocks on nodes that are not there are left out."""
        fresh = Ledger(empty)
        for owner in self.owners():
            for block in self.blocks(*owner):
                if all(n in fresh.nodes for n in block.affinity):
                    fresh.charge(block.affinity.mask, block.type, block.size_bytes)
        fresh.entries = {pod: {c: list(b) for c, b in containers.items()} for pod, containers in self.entries.items()}
        return fresh

    def same_machine(self, other: Ledger) -> bool:
        """The start-up comparison: totals per node, free and reserved per group."""
        if self.nodes.keys() != other.nodes.keys():
            return False
        for n, mine in self.nodes.items():
            theirs = other.nodes[n]
            if (mine.count, mine.cells) != (theirs.count, theirs.cells) or mine.tables.keys() != theirs.tables.keys():
                return False
            for kind, table in mine.tables.items():
                fixed = theirs.tables[kind]
                if (table.total, table.system_reserved, table.allocatable) != (
                    fixed.total, fixed.system_reserved, fixed.allocatable,
                ):  # fmt: skip
                    return False
                if self._cell_sums(mine.cells, kind) != other._cell_sums(theirs.cells, kind):
                    return False
        return True

    def _cell_sums(self, cells: int, kind: MemoryType) -> tuple[int, int]:
        tables = [t for n in NodeSet(cells) if n in self.nodes and (t := self.nodes[n].tables.get(kind)) is not None]
        return sum(t.free for t in tables), sum(t.reserved for t in tables)

    def node_ids(self) -> tuple[NodeId, ...]:
        """Ids ascending."""
        return tuple(self.nodes)

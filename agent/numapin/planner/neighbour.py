"""Accounting of what another memory manager on the host, such as the kubelet's, has promised."""

from __future__ import annotations

from collections.abc import Mapping

from numapin.model.memory import Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.quantity import format_bytes
from numapin.planner.settling import settled


def account_neighbour(books: Books, assignments: Mapping[Owner, tuple[Block, ...]]) -> tuple[Books, tuple[str, ...]]:
    """
    Take *assignments* out of the books on their nodes, lowest id first, as far as it is there; owners in their order.

    As with `foreign.account_foreign` the bytes become single-node blocks: our group rule does not bind the other
    manager. Nodes that are not in the books are not ours to give, so nothing is missed there. None of *assignments*
    may be in the books already.

    Returns the books, and a sentence for each owner some of whose bytes no node had left: somebody else has them too.
    """
    room = _Room(books)
    taken: dict[Owner, tuple[Block, ...]] = {}
    short: list[str] = []
    for owner, blocks in sorted(assignments.items()):
        mine: list[Block] = []
        for block in blocks:
            known = [n for n in block.affinity if n in books.node_map.nodes]
            left = block.size_bytes
            for node in known:
                if take := room.take(node, block.type, left):
                    mine.append(Block(NodeSet(1 << node), block.type, take))
                    left -= take
            if left and len(known) == len(block.affinity):
                short.append(
                    f"{format_bytes(left)} of {block.type} that {owner} has on {block.affinity.named} are promised "
                    "to others as well"
                )
        if mine:
            taken[owner] = tuple(mine)
    if not taken:
        return books, tuple(short)
    changed = [block for blocks in taken.values() for block in blocks]
    return settled(books, {**books.assignments, **taken}, changed), tuple(short)


class _Room:
    """
    Bytes that are left: per node for what is bound to it alone, per group for everything.

    Inside a group only the sum of free bytes has a meaning.
    """

    def __init__(self, books: Books) -> None:
        nodes = books.node_map.nodes
        self._groups = {node: state.cells.mask for node, state in nodes.items()}
        self._alone: dict[tuple[NodeId, MemoryType], int] = {}
        self._free: dict[tuple[int, MemoryType], int] = {}
        for node, state in nodes.items():
            for kind, table in state.memory_map.items():
                self._alone[node, kind] = table.allocatable
                group = (state.cells.mask, kind)
                self._free[group] = self._free.get(group, 0) + table.free
        for blocks in books.assignments.values():
            for block in blocks:
                if len(block.affinity) == 1:
                    (node,) = block.affinity
                    self._alone[node, block.type] = self._alone.get((node, block.type), 0) - block.size_bytes

    def take(self, node: NodeId, kind: MemoryType, wanted: int) -> int:
        """Take up to *wanted* bytes from one node; returns how many there were."""
        group = (self._groups[node], kind)
        size = max(0, min(wanted, self._alone.get((node, kind), 0), self._free.get(group, 0)))
        if size:
            self._alone[node, kind] -= size
            self._free[group] -= size
        return size

"""Accounting of nodes that somebody else chose for a container."""

from __future__ import annotations

from collections.abc import Mapping

from numapin.model.memory import Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.quantity import format_bytes
from numapin.planner.accounting import release, reserve


def account_foreign(
    books: Books, owner: Owner, request: Mapping[MemoryType, int], nodes: NodeSet
) -> tuple[Books, str]:
    """
    Take *request* (bytes per type) out of the books on *nodes*, lowest id first, as far as it is there.

    The group rule cannot bind somebody else's choice, so the bytes become single-node blocks, also on a node of a
    group, which they neither make larger nor keep alive. An earlier assignment of the owner is replaced.

    Returns the books and a sentence about bytes that no node had left, or an empty string.
    """
    if owner in books.assignments:
        books = release(books, owner)
    blocks: list[Block] = []
    missing: list[str] = []
    for kind, wanted in sorted(request.items()):
        left = wanted
        taken: dict[NodeSet, int] = {}  # by group, whose free bytes only have a meaning together
        for node in nodes:
            if left and (state := books.node_map.nodes.get(node)) is not None:
                before = taken.get(state.cells, 0)
                take = min(left, max(0, _room(books, node, kind, state.cells, before)))
                if take:
                    blocks.append(Block(NodeSet(1 << node), kind, take))
                    taken[state.cells] = before + take
                    left -= take
        if left:
            missing.append(f"{format_bytes(left)} of {kind} could not be accounted: the nodes are already promised")
    if blocks:
        books = reserve(books, owner, tuple(blocks))
    return books, "; ".join(missing)


def _room(books: Books, node: NodeId, kind: MemoryType, cells: NodeSet, taken: int) -> int:
    """Bytes that one node still has for itself alone, and its group, where *taken* go already, has free."""
    states = books.node_map.nodes
    table = states[node].memory_map.get(kind)
    if table is None:
        return 0
    alone = sum(
        b.size_bytes
        for blocks in books.assignments.values()
        for b in blocks
        if b.type == kind and b.affinity.mask == 1 << node
    )
    free = sum(states[n].memory_map[kind].free for n in cells if n in states and kind in states[n].memory_map)
    return min(table.allocatable - alone, free - taken)

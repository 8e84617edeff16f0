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

    The group rule cannot bind somebody else's choice, so the bytes become single-node blocks; on a node that
    belongs to a group the block is charged to the whole group. An earlier assignment of the owner is replaced.

    Returns the books and a sentence about bytes that no node had left, or an empty string.
    """
    if owner in books.assignments:
        books = release(books, owner)
    blocks: list[Block] = []
    missing: list[str] = []
    for kind, wanted in sorted(request.items()):
        left = wanted
        charged: set[NodeSet] = set()
        for node in nodes:
            cells = _cells(books, node)
            if not left or cells is None or cells in charged:
                continue
            charged.add(cells)
            tables = [books.node_map.nodes[n].memory_map.get(kind) for n in cells]
            take = min(left, sum(max(0, t.free) for t in tables if t is not None))
            if take:
                blocks.append(Block(cells, kind, take))
                left -= take
        if left:
            missing.append(f"{format_bytes(left)} of {kind} could not be accounted: the nodes are already promised")
    if blocks:
        books = reserve(books, owner, tuple(blocks))
    return books, "; ".join(missing)


def _cells(books: Books, node: NodeId) -> NodeSet | None:
    state = books.node_map.nodes.get(node)
    return None if state is None else state.cells

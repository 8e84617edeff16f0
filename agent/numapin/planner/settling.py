"""
Working out nodes from assignments: counts, groups, reserved and free.

Owns: the canonical split inside a group, what is bound to one node first, then the group's own blocks from the lowest
id upward; so the numbers never depend on the order of the assignments. Must never: decide where something goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from numapin.model.memory import Block, Books, MemoryTable, NodeMap, NodeState, Owner
from numapin.model.nodeset import NodeId, NodeSet


def settled(books: Books, assignments: dict[Owner, tuple[Block, ...]], changed: Iterable[Block]) -> Books:
    """Books with *assignments*, all nodes reachable from the *changed* blocks worked out anew."""
    touched = 0
    for block in changed:
        touched |= block.affinity.mask
    masks = {b.affinity.mask for blocks in assignments.values() for b in blocks}
    groups = _merge(m for m in masks if m & (m - 1))
    for group in groups:
        if group & touched:
            touched |= group
    here = [b for blocks in assignments.values() for b in blocks if b.affinity.mask & touched]
    nodes = dict(books.node_map.nodes)
    cells = {node: group for group in groups if group & touched for node in NodeSet(group)}
    ids = list(NodeSet(touched))
    grown = any(node not in nodes for node in ids)
    for node in ids:
        mine = [b for b in here if b.affinity.mask >> node & 1]
        state = nodes.get(node)
        memory_map = dict(state.memory_map) if state else {}
        for kind in {b.type for b in mine} - memory_map.keys():
            memory_map[kind] = MemoryTable(0, 0, 0, 0, 0)
        for kind, t in memory_map.items():
            alone = sum(b.size_bytes for b in mine if b.type == kind and b.affinity.mask == 1 << node)
            memory_map[kind] = MemoryTable(t.total, t.system_reserved, t.allocatable, alone, t.allocatable - alone)
        nodes[node] = NodeState(memory_map, len(mine), NodeSet(cells.get(node, 1 << node)))
    for block in sorted(here, key=lambda b: b.affinity.mask):
        if len(block.affinity) > 1:
            _fill(nodes, block)
    return Books(NodeMap(dict(sorted(nodes.items())) if grown else nodes), assignments)


def _merge(masks: Iterable[int]) -> list[int]:
    """Disjoint unions of overlapping sets of nodes (they only overlap when somebody else placed some of them)."""
    groups: list[int] = []
    for mask in masks:
        joined = mask
        for group in groups:
            if group & mask:
                joined |= group
        groups = [*(g for g in groups if not g & mask), joined]
    return groups


def _fill(nodes: dict[NodeId, NodeState], block: Block) -> None:
    """Charge a block over several nodes from the lowest id up; what nothing has room for goes to the lowest."""
    left = block.size_bytes
    order = list(block.affinity)
    for position, node in enumerate([*order, order[0]]):
        state = nodes[node]
        table = state.memory_map[block.type]
        part = left if position == len(order) else max(0, min(left, table.free))
        if part:
            changed = MemoryTable(
                table.total, table.system_reserved, table.allocatable, table.reserved + part, table.free - part
            )
            nodes[node] = NodeState(
                {**state.memory_map, block.type: changed}, state.number_of_assignments, state.cells
            )
            left -= part

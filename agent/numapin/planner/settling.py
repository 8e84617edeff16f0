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
    grown = any(node not in nodes for node in NodeSet(touched))
    on_node: dict[NodeId, list[Block]] = {node: [] for node in NodeSet(touched)}
    for block in here:
        for node in block.affinity:
            on_node[node].append(block)
        _ensure_table(nodes, block)
    for node, mine in on_node.items():
        state = nodes.get(node)
        memory_map = {}
        for kind, t in state.memory_map.items() if state else ():
            alone = sum(b.size_bytes for b in mine if b.type == kind and len(b.affinity) == 1)
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


def _ensure_table(nodes: dict[NodeId, NodeState], block: Block) -> None:
    """Zeros on the block's lowest node where none of its nodes has the type (any more), to carry what is promised."""
    if not any(n in nodes and block.type in nodes[n].memory_map for n in block.affinity):
        for node in block.affinity:
            state = nodes.get(node)
            tables = {**(state.memory_map if state else {}), block.type: MemoryTable(0, 0, 0, 0, 0)}
            nodes[node] = NodeState(tables, 0, block.affinity)
            return


def _fill(nodes: dict[NodeId, NodeState], block: Block) -> None:
    """Charge a block over several nodes from the lowest id up; what nothing has room for goes to the lowest."""
    left = block.size_bytes
    order = [n for n in block.affinity if block.type in nodes[n].memory_map]
    for position, node in enumerate([*order, order[0]]):
        state = nodes[node]
        t = state.memory_map[block.type]
        part = left if position == len(order) else max(0, min(left, t.free))
        if part:
            taken = MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved + part, t.free - part)
            tables = {**state.memory_map, block.type: taken}
            nodes[node] = NodeState(tables, state.number_of_assignments, state.cells)
            left -= part

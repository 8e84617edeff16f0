"""
Working out nodes from assignments: counts, groups, reserved and free.

Owns: the canonical split inside a group, what is bound to one node first, then the group's own blocks from the lowest
id upward; so the numbers never depend on the order of the assignments. Must never: decide where something goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from numapin.model.memory import Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
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
    cells = {node: NodeSet(group) for group in groups if group & touched for node in NodeSet(group)}
    counts = dict.fromkeys(NodeSet(touched), 0)
    grown = any(node not in nodes for node in counts)
    alone: dict[tuple[NodeId, MemoryType], int] = {}
    shared = []
    for block in here:
        mask = block.affinity.mask
        for node in block.affinity:
            counts[node] += 1
        if mask & (mask - 1):
            shared.append(block)
        else:
            key = NodeId(mask.bit_length() - 1), block.type
            alone[key] = alone.get(key, 0) + block.size_bytes
        _ensure_table(nodes, block)
    fresh: dict[NodeId, dict[MemoryType, MemoryTable]] = {}
    for node, count in counts.items():
        state = nodes.get(node)
        tables = fresh[node] = {}
        for kind, t in state.memory_map.items() if state else ():
            taken = alone.get((node, kind), 0)
            tables[kind] = t if t.reserved == taken else _charged(t, taken)
        nodes[node] = NodeState(tables, count, cells.get(node) or NodeSet(1 << node))
    for block in sorted(shared, key=lambda b: b.affinity.mask):
        _fill(fresh, block)
    return Books(NodeMap(dict(sorted(nodes.items())) if grown else nodes), assignments)


def _charged(table: MemoryTable, reserved: int) -> MemoryTable:
    free = table.allocatable - reserved
    return MemoryTable(table.total, table.system_reserved, table.allocatable, reserved, free)


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
    for node in block.affinity:
        if node in nodes and block.type in nodes[node].memory_map:
            return
    for node in block.affinity:
        state = nodes.get(node)
        tables = {**(state.memory_map if state else {}), block.type: MemoryTable(0, 0, 0, 0, 0)}
        nodes[node] = NodeState(tables, 0, block.affinity)
        return


def _fill(tables: dict[NodeId, dict[MemoryType, MemoryTable]], block: Block) -> None:
    """Charge a block over several nodes from the lowest id up; what nothing has room for goes to the lowest."""
    left = block.size_bytes
    order = [n for n in block.affinity if block.type in tables[n]]
    for position, node in enumerate([*order, order[0]]):
        t = tables[node][block.type]
        part = left if position == len(order) else max(0, min(left, t.free))
        if part:
            tables[node][block.type] = _charged(t, t.reserved + part)
            left -= part

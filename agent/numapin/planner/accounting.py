"""The books: building a NodeMap, reserving, releasing, re-basing and checking it.

Owns: every number in a `NodeMap`. The reserved bytes, the counts and the groups of a node are a pure function of its
tables and of the assignments, never of the order they came in. Must never: decide where something goes, or change
a value in place.

Inside a group only sums have a meaning; the split kept here is canonical: what is bound to one node of the group
first, then the group's own blocks from the lowest id upward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.quantity import at_least, format_available, format_bytes, format_page_size
from numapin.model.topology import NumaNode, Topology
from numapin.planner.settling import settled


@dataclass(frozen=True, slots=True)
class ReservationProblem:
    """One reservation that cannot be kept; bytes. *detail* is a whole sentence without the final stop."""

    node: NodeId
    type: MemoryType
    total: int
    hugepage_pools: int
    reserved: int
    detail: str

    def __str__(self) -> str:
        return f"node {self.node}, {self.type}: {self.detail}"


class ReservationError(ValueError):
    """System reservations that the machine cannot keep; ``problems`` holds every one, by node."""

    def __init__(self, problems: tuple[ReservationProblem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


def build_node_map(
    topology: Topology, system_reserved: Mapping[NodeId, Mapping[MemoryType, int]], usable: NodeSet
) -> NodeMap:
    """
    Books of an empty machine: one entry for each online node in *usable*, ascending.

    A node without memory is kept with zeros. Surplus hugepages are not promised (the kernel takes them back), but
    the memory they hold is not either. Bytes everywhere.

    Raises:
        ReservationError: A reservation names a node that is absent, unused or without memory, or a pool the node
            does not have; is not whole pages; or leaves less than nothing.
    """
    problems = [
        ReservationProblem(node, kind, 0, 0, size, _why_absent(topology, node))
        for node, sizes in sorted(system_reserved.items())
        if node not in topology.nodes or node not in usable
        for kind, size in sizes.items()
    ]
    states: dict[NodeId, NodeState] = {}
    for node in topology.nodes.values():
        if node.id in usable:
            tables, wrong = _tables(node, system_reserved.get(node.id, {}))
            states[node.id] = NodeState(tables, 0, NodeSet(1 << node.id))
            problems += wrong
    if problems:
        raise ReservationError(tuple(sorted(problems, key=lambda p: (p.node, p.type))))
    return NodeMap(dict(sorted(states.items())))


def _why_absent(topology: Topology, node: NodeId) -> str:
    if node not in topology.nodes:
        return f"memory is reserved on a node that is not online (online: {topology.online})"
    return (
        f"memory is reserved on a node that is not used for placements (node {node} is {topology.nodes[node].kind})"
    )


def _tables(
    node: NumaNode, reserved: Mapping[MemoryType, int]
) -> tuple[dict[MemoryType, MemoryTable], list[ReservationProblem]]:
    pools = sum(pool.total_bytes for pool in node.pools)
    totals = {MEMORY: node.memory_bytes}
    page_sizes: dict[MemoryType, int] = {}
    for pool in node.pools:
        kind = hugepages(pool.size_bytes)
        page_sizes[kind] = pool.size_bytes
        totals[kind] = max(0, pool.nr_hugepages - pool.surplus_hugepages) * pool.size_bytes
    problems = []
    tables = {}
    for kind in (*totals, *(k for k in reserved if k not in totals)):
        size, total = reserved.get(kind, 0), totals.get(kind, 0)
        taken = pools if kind == MEMORY else 0
        allocatable = total - size - taken
        if detail := _wrong(kind, size, total, taken, page_sizes.get(kind)):
            problems.append(ReservationProblem(node.id, kind, total, taken, size, detail))
        tables[kind] = MemoryTable(total, size, allocatable, 0, allocatable)
    return tables, problems


def _wrong(kind: MemoryType, size: int, total: int, taken: int, page_size: int | None) -> str:
    asked = f"{format_bytes(size)} reserved ({size} bytes)"
    if size < 0:
        return f"a reservation cannot be negative ({size} bytes)"
    if kind == MEMORY:
        if total == 0 and size:
            return f"{asked} on a node without memory"
        if (over := size + taken - total) > 0:
            pools = f", {format_bytes(taken)} of them in hugepage pools ({taken} bytes)" if taken else ""
            less = "reserve less or shrink the pools" if taken else "reserve less"
            has = f"the node has {format_bytes(total)} ({total} bytes){pools}"
            return f"{asked} is {at_least(over)} more than can be kept: {has}; {less}"
    elif page_size is None:
        return f"{asked}, but the node has no such pool" if size else ""
    elif size % page_size:
        return f"{asked} is not a multiple of the page size {format_page_size(page_size)}"
    elif size > total:
        return f"{asked} is more than the pool's {format_bytes(total)} ({total} bytes)"
    return ""


def reserve(books: Books, owner: Owner, blocks: tuple[Block, ...]) -> Books:
    """
    Books in which *owner* holds *blocks* and nothing else.

    Every node of a block counts one assignment more, and a block over several nodes ties them into a group. Free
    may go below zero: what is true is booked, whether it fits or not; `misfits` names it. A node or type missing
    in the NodeMap appears with zeros.
    """
    old = books.assignments.get(owner, ())
    return settled(books, {**books.assignments, owner: blocks}, (*old, *blocks))


def release(books: Books, *owners: Owner) -> Books:
    """
    Books without the assignments of *owners*; owners without one are ignored.

    A group dissolves with its last block. A node that went away stays, with zeros, until the next `rebase`.
    """
    leaving = books.assignments.keys() & set(owners)
    if not leaving:
        return books
    gone = [block for owner in leaving for block in books.assignments[owner]]
    left = {owner: blocks for owner, blocks in books.assignments.items() if owner not in leaving}
    return settled(books, left, gone)


def rebase(books: Books, node_map: NodeMap) -> Books:
    """
    The same assignments on another machine: totals, pools and nodes of *node_map*.

    No assignment is lost, moved or counted twice. A node that went is kept with zeros as long as something is
    promised from it, and where the machine shrank ``free`` is negative; `misfits` names whose promise that is.
    """
    bare = {
        node: NodeState(
            {
                k: MemoryTable(t.total, t.system_reserved, t.allocatable, 0, t.allocatable)
                for k, t in memory_map.items()
            },
            0,
            NodeSet(1 << node),
        )
        for node, state in node_map.nodes.items()
        for memory_map in (state.memory_map,)
    }
    every = [block for blocks in books.assignments.values() for block in blocks]
    return settled(Books(NodeMap(bare)), dict(books.assignments), every)


def gave_back(before: Books, after: Books) -> bool:
    """True when some owner's promise is smaller in *after*, or gone: what was refused may fit now."""
    if before.assignments is after.assignments:
        return False
    pods = {owner.pod for owner in after.assignments}
    return any(
        sum(b.size_bytes for b in blocks) > sum(b.size_bytes for b in after.assignments.get(owner, ()))
        for owner, blocks in before.assignments.items()
        # what is kept for a pod shrinks as its containers take it
        if after.assignments.get(owner) is not blocks and not (owner.is_rest and owner.pod in pods)
    )


def misfits(books: Books) -> Mapping[Owner, str]:
    """
    Owners whose promise the machine does not hold, each with a sentence; empty when everything fits.

    All owners that have some of what is short on a node or group are named: which of them is hurt is not ours to
    choose. Who has another memory type there is not among them.
    """
    short: dict[tuple[int, MemoryType], str] = {}
    for cells, states in _components(books.node_map):
        kinds = {kind for state in states for kind in state.memory_map}
        for kind in sorted(kinds):
            tables = [state.memory_map[kind] for state in states if kind in state.memory_map]
            free = sum(t.free for t in tables)
            if free < 0:
                label = cells.named
                short[cells.mask, kind] = (
                    f"{label} can promise {format_available(sum(t.allocatable for t in tables))} of {kind}, "
                    f"{format_bytes(sum(t.reserved for t in tables))} are promised"
                )
    found = {}
    for owner, blocks in books.assignments.items():
        said = [
            text
            for (mask, kind), text in short.items()
            if any(b.type == kind and b.affinity.mask & mask and b.size_bytes for b in blocks)
        ]
        if said:
            found[owner] = "; ".join(said)
    return found


def check(books: Books) -> tuple[str, ...]:
    """
    Every invariant that does not hold, a sentence each; empty for sound books.

    Looked at: allocatable is free plus reserved, per node and per group; reserved, counts and groups follow
    from the assignments; groups are disjoint; no node of an assignment is missing.
    """
    found = []
    nodes = books.node_map.nodes
    for node, state in nodes.items():
        if any(nodes[n].cells != state.cells for n in state.cells if n in nodes) or node not in state.cells:
            found.append(f"node {node}: its group {state.cells} is not shared by its members")
        if state.cells.mask & ~sum(1 << n for n in nodes):
            found.append(f"node {node}: its group {state.cells} names nodes that are not in the NodeMap")
        found += [
            f"node {node}, {kind}: free {t.free} plus reserved {t.reserved} is not allocatable {t.allocatable}"
            for kind, t in state.memory_map.items()
            if t.free + t.reserved != t.allocatable
        ]
    for owner, blocks in books.assignments.items():
        found += [f"{owner}: {b.type} has no nodes" for b in blocks if not b.affinity]
        found += [f"{owner}: node {n} is not in the NodeMap" for b in blocks for n in b.affinity if n not in nodes]
    if not found:
        again = rebase(books, books.node_map).node_map
        for (cells, states), (want, fresh) in zip(_components(books.node_map), _components(again), strict=False):
            if cells != want or _sums(states) != _sums(fresh):
                found.append(
                    f"nodes {cells}: the books say {_sums(states)}, the assignments {_sums(fresh)} on {want}"
                )
                break
    return tuple(found)


def _sums(states: list[NodeState]) -> tuple[tuple[int, ...], dict[MemoryType, int]]:
    reserved: dict[MemoryType, int] = {}
    for state in states:
        for kind, table in state.memory_map.items():
            reserved[kind] = reserved.get(kind, 0) + table.reserved
    return tuple(s.number_of_assignments for s in states), reserved


def _components(node_map: NodeMap) -> Iterator[tuple[NodeSet, list[NodeState]]]:
    """Groups and lone nodes, each once, ascending by lowest id."""
    seen = 0
    for node, state in node_map.nodes.items():
        if not seen >> node & 1:
            cells = NodeSet(state.cells.mask | 1 << node)
            seen |= cells.mask
            yield cells, [node_map.nodes[n] for n in cells if n in node_map.nodes]

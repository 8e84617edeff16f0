"""The books' arithmetic: building, reserving, releasing, re-basing, checking."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Plan
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from numapin.planner.accounting import (
    ReservationError,
    build_node_map,
    check,
    misfits,
    rebase,
    release,
    reserve,
)
from numapin.planner.placement import place
from support.cases import random_case
from support.strategies import empty_books, used_machines

GIB = 1 << 30
MIB = 1 << 20
HUGE = MemoryType("hugepages-2Mi")
A, B, C = Owner("p", "a"), Owner("p", "b"), Owner("p", "c")


def node(number: int, memory: int, *pools: tuple[int, int, int]) -> NumaNode:
    """A node with pools of (page size, pages, surplus)."""
    kind = NodeKind.MEMORY if memory else NodeKind.MEMORYLESS
    made = tuple(HugepagePool(size, pages, pages, surplus) for size, pages, surplus in pools)
    return NumaNode(NodeId(number), CpuSet(), kind, memory, pools=made)


def topology(*nodes: NumaNode) -> Topology:
    """A machine of these nodes."""
    return Topology({n.id: n for n in nodes})


def reserved(**sizes: int) -> dict[NodeId, dict[MemoryType, int]]:
    """``n0=5`` reserves five bytes of memory on node 0."""
    return {NodeId(int(name[1:])): {MEMORY: size} for name, size in sizes.items()}


def on(nodes: str, size: int, kind: MemoryType = MEMORY) -> tuple[Block, ...]:
    """One block."""
    return (Block(NodeSet.parse(nodes), kind, size),)


def sums(books: Books, nodes: str) -> tuple[int, int]:
    """Reserved and free memory over some nodes."""
    tables = [books.node_map.nodes[n].memory_map[MEMORY] for n in NodeSet.parse(nodes)]
    return sum(t.reserved for t in tables), sum(t.free for t in tables)


def test_allocatable_is_what_reservation_and_pools_leave() -> None:
    """Memory loses the reservation and the whole pools; a pool is a type of its own."""
    built = build_node_map(topology(node(0, 10 * GIB, (2 * MIB, 512, 0))), reserved(n0=GIB), NodeSet.of(0))

    assert built == NodeMap(
        {
            NodeId(0): NodeState(
                {
                    MEMORY: MemoryTable(10 * GIB, GIB, 8 * GIB, 0, 8 * GIB),
                    HUGE: MemoryTable(GIB, 0, GIB, 0, GIB),
                },
                0,
                NodeSet.of(0),
            )
        }
    )


def test_surplus_pages_are_not_promised() -> None:
    """Surplus pages take memory away, and are nothing that may be reserved."""
    built = build_node_map(topology(node(0, GIB, (2 * MIB, 12, 2))), {}, NodeSet.of(0)).nodes[NodeId(0)]

    assert (GIB - 24 * MIB, 20 * MIB) == (built.memory_map[MEMORY].allocatable, built.memory_map[HUGE].allocatable)


def test_only_usable_nodes_are_in_the_books() -> None:
    """Nodes that are not used are left out, in whatever order the topology lists them."""
    built = build_node_map(topology(node(7, GIB), node(2, GIB), node(3, GIB)), {}, NodeSet.of(2, 7))

    assert list(built.nodes) == [2, 7]


def test_memoryless_node_is_kept_with_nothing_to_give() -> None:
    """A node without memory is discovered and can give nothing."""
    built = build_node_map(topology(node(0, 0), node(1, GIB)), {}, NodeSet.of(0, 1))

    assert built.nodes[NodeId(0)].memory_map == {MEMORY: MemoryTable(0, 0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("system", "node_id", "kind", "facts"),
    [
        ({1: {MEMORY: 2 * GIB}}, 1, MEMORY, (4 * GIB, 3 * GIB, 2 * GIB)),
        ({9: {MEMORY: 1}}, 9, MEMORY, (0, 0, 1)),
        ({2: {MEMORY: 1}}, 2, MEMORY, (0, 0, 1)),
        ({3: {MEMORY: 1}}, 3, MEMORY, (0, 0, 1)),
        ({1: {HUGE: 3 * MIB}}, 1, HUGE, (3 * GIB, 0, 3 * MIB)),
        ({1: {HUGE: 4 * GIB}}, 1, HUGE, (3 * GIB, 0, 4 * GIB)),
        ({0: {HUGE: 2 * MIB}}, 0, HUGE, (0, 0, 2 * MIB)),
        ({0: {MEMORY: -1}}, 0, MEMORY, (4 * GIB, 0, -1)),
    ],
    ids=["below-zero", "unknown-node", "memoryless", "unused-node", "part-page", "above-pool", "no-pool", "negative"],
)
def test_impossible_reservations_are_refused_with_the_numbers(
    system: dict[int, dict[MemoryType, int]], node_id: int, kind: MemoryType, facts: tuple[int, int, int]
) -> None:
    """Each names the node, the type, the total, the pools and the reservation; nothing wraps or is cut."""
    machine = topology(node(0, 4 * GIB), node(1, 4 * GIB, (2 * MIB, 1536, 0)), node(2, 0), node(3, GIB))
    given = {NodeId(n): sizes for n, sizes in system.items()}

    with pytest.raises(ReservationError) as caught:
        build_node_map(machine, given, NodeSet.of(0, 1, 2))

    (problem,) = caught.value.problems
    assert (node_id, kind) == (problem.node, problem.type)
    assert facts == (problem.total, problem.hugepage_pools, problem.reserved)
    assert f"node {node_id}" in str(caught.value)


def test_every_problem_is_reported_at_once() -> None:
    """Two wrong reservations give two problems, by node."""
    with pytest.raises(ReservationError) as caught:
        build_node_map(topology(node(0, GIB), node(1, GIB)), reserved(n1=2 * GIB, n0=3 * GIB), NodeSet.of(0, 1))

    assert [p.node for p in caught.value.problems] == [0, 1]


def test_a_block_over_two_nodes_ties_them() -> None:
    """Both nodes count the block, share the group, and together give its size."""
    books = reserve(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}), A, on("0-1", 15))

    assert [(1, NodeSet.of(0, 1))] * 2 == [(s.number_of_assignments, s.cells) for s in books.node_map.nodes.values()]
    assert sums(books, "0-1") == (15, 5)
    assert check(books) == ()


def test_a_group_dissolves_with_its_last_block() -> None:
    """The first release leaves the group, the second frees the nodes."""
    empty = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    both = reserve(reserve(empty, A, on("0-1", 15)), B, on("0-1", 2))
    one = release(both, A)

    assert one.groups() == (NodeSet.of(0, 1),)
    assert sums(one, "0-1") == (2, 18)
    assert release(one, B) == empty


def test_release_of_a_stranger_changes_nothing() -> None:
    """An owner without an assignment is ignored."""
    books = reserve(empty_books({0: {MEMORY: 10}}), A, on("0", 4))

    assert release(books, B) == books


def test_reserve_replaces_what_the_owner_had() -> None:
    """A second reservation of one owner does not add to the first."""
    books = reserve(reserve(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}), A, on("0", 4)), A, on("1", 3))

    assert (sums(books, "0"), sums(books, "1")) == ((0, 10), (3, 7))


@settings(max_examples=200, deadline=None)
@given(used_machines(most_nodes=6), st.randoms(use_true_random=False))
def test_order_of_events_does_not_matter(books: Books, rng: Random) -> None:
    """Assignments reserved in another order, with others in between that go again, give equal books."""
    assert check(books) == ()
    again = rebase(Books(books.node_map), books.node_map)
    owners = list(books.assignments.items())
    rng.shuffle(owners)
    guest = Block(NodeSet.from_ids(books.node_map.nodes), MEMORY, 1)
    for number, (owner, blocks) in enumerate(owners):
        again = reserve(again, owner, blocks)
        if number == 0:
            again = release(reserve(again, Owner("guest", "g"), (guest,)), Owner("guest", "g"))

    assert books.node_map == again.node_map
    assert books == again


def test_reserve_then_release_restores_the_books() -> None:
    """Whatever place reserves, its release gives back to the byte."""
    rng = Random(3)
    placed = 0
    while placed < 500:
        books, request, rules = random_case(rng, most_nodes=8)
        answer = place(books, request, rules)
        if isinstance(answer, Plan) and request.owner not in books.assignments and not request.reusable:
            placed += 1

            assert books == release(answer.books, request.owner)


def test_rebase_follows_totals_pools_and_nodes() -> None:
    """A node that grew has more free; the assignment stays where it is."""
    books = reserve(empty_books({0: {MEMORY: 10}}), A, on("0", 4))
    moved = rebase(books, empty_books({0: {MEMORY: 12}, 1: {MEMORY: 5}}).node_map)

    assert sums(moved, "0") == (4, 8)
    assert moved.assignments == books.assignments
    assert (misfits(moved), check(moved)) == ({}, ())


def test_rebase_names_what_no_longer_fits() -> None:
    """A node that shrank below what is promised keeps the promise, and its owners are named with the numbers."""
    books = reserve(empty_books({0: {MEMORY: 10 * GIB}, 1: {MEMORY: GIB}}), A, on("0", 8 * GIB))
    moved = rebase(reserve(books, B, on("1", GIB)), empty_books({0: {MEMORY: 6 * GIB}, 1: {MEMORY: GIB}}).node_map)

    assert {A: "node 0 can promise 6 GiB of memory, 8 GiB are promised"} == misfits(moved)
    assert sums(moved, "0") == (8 * GIB, -2 * GIB)
    assert check(moved) == ()


def test_rebase_keeps_a_node_that_went() -> None:
    """Nothing promised from a node is lost with the node; its return gives the first books again."""
    books = reserve(reserve(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}), A, on("1", 4)), B, on("0", 1))
    without = rebase(books, empty_books({0: {MEMORY: 10}}).node_map)

    assert without.node_map.nodes[NodeId(1)].memory_map[MEMORY] == MemoryTable(0, 0, 0, 4, -4)
    assert list(misfits(without)) == [A]
    assert books == rebase(without, empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}).node_map)


def test_rebase_keeps_a_pool_that_went() -> None:
    """A page size that is gone stays in the books as long as it is promised."""
    books = reserve(empty_books({0: {MEMORY: 10, HUGE: 8}}), A, (*on("0", 4), *on("0", 6, HUGE)))
    without = rebase(books, empty_books({0: {MEMORY: 10}}).node_map)

    assert without.node_map.nodes[NodeId(0)].memory_map[HUGE] == MemoryTable(0, 0, 0, 6, -6)
    assert misfits(without) == {A: "node 0 can promise 0 of hugepages-2Mi, 6 B are promised"}


def test_a_thousand_changes_of_the_machine_lose_and_double_nothing() -> None:
    """After any series of machines the books equal a fresh computation from the same assignments."""
    rng = Random(11)
    books, _, _ = random_case(rng, most_nodes=6)
    while not books.assignments:
        books, _, _ = random_case(rng, most_nodes=6)
    first = books
    for _ in range(1_000):
        kept = [n for n in first.node_map.nodes if rng.random() < 0.8] or [NodeId(0)]
        other = empty_books({n: {MEMORY: rng.randint(0, 100), HUGE: rng.randint(0, 9)} for n in kept}).node_map
        books = rebase(books, other)

        assert check(books) == ()
        assert books.assignments == first.assignments
        assert books == rebase(first, other)
    assert rebase(books, first.node_map) == rebase(first, first.node_map)


def test_overlapping_groups_of_a_stranger_are_one_group() -> None:
    """Somebody else's blocks may overlap; their nodes then share one group, and apart again after release."""
    empty = empty_books({n: {MEMORY: 10} for n in range(3)})
    books = reserve(reserve(empty, A, on("0-1", 4)), B, on("1-2", 5))
    alone = release(books, B)

    assert books.groups() == (NodeSet.of(0, 1, 2),)
    assert (check(books), check(alone)) == ((), ())
    assert alone == reserve(empty, A, on("0-1", 4))


def broken(books: Books, number: int, **changes: object) -> Books:
    """The books with something of one node changed."""
    state = books.node_map.nodes[NodeId(number)]
    fields: dict[str, object] = {
        "memory_map": state.memory_map,
        "number_of_assignments": state.number_of_assignments,
        "cells": state.cells,
        **changes,
    }
    return Books(NodeMap({**books.node_map.nodes, NodeId(number): NodeState(**fields)}), books.assignments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_map": {MEMORY: MemoryTable(10, 0, 10, 4, 7)}}, "free 7 plus reserved 4 is not allocatable 10"),
        ({"memory_map": {MEMORY: MemoryTable(10, 0, 10, 5, 5)}}, "the assignments"),
        ({"number_of_assignments": 2}, "the assignments"),
        ({"cells": NodeSet.of(0, 1)}, "is not shared by its members"),
        ({"cells": NodeSet.of(0, 5)}, "names nodes that are not in the NodeMap"),
    ],
)
def test_check_finds_what_does_not_hold(changes: dict[str, object], words: str) -> None:
    """Each broken invariant gives a sentence with the node and the numbers."""
    books = reserve(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}), A, on("0", 4))

    found = check(broken(books, 0, **changes))

    assert any(words in sentence for sentence in found), found
    assert all(sentence.startswith("node") for sentence in found)


def test_check_finds_an_assignment_on_a_missing_node() -> None:
    """An assignment whose node is not in the NodeMap is named with its owner."""
    books = Books(empty_books({0: {MEMORY: 10}}).node_map, {C: on("3", 4)})

    assert check(books) == ("p/c: node 3 is not in the NodeMap",)


def test_a_misfit_has_some_of_what_is_short() -> None:
    """Who has only memory on a node whose pages are short is not named; two short types are both told."""
    books = reserve(empty_books({0: {MEMORY: 10}}), A, (*on("0", 4), *on("0", 2, HUGE)))
    books = reserve(books, B, on("0", 4))

    assert list(misfits(books)) == [A]
    both = reserve(books, B, on("0", 14))
    assert list(misfits(both)) == [A, B]
    assert "of hugepages-2Mi, 2 B are promised; node 0 can promise 10 B of memory, 18 B" in misfits(both)[A]

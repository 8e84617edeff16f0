"""Entries of section H of the bug log: sequences of placements, each with its right value."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from numapin.model.memory import MEMORY, Books, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules, TopologyPolicy
from numapin.planner.accounting import check, misfits, rebase, release
from numapin.planner.placement import place
from support.strategies import empty_books

GIB = 1 << 30
HUGE = MemoryType("hugepages-2Mi")
ALL = NodeSet.of(0, 1, 2, 3)


def machine(*sizes: float) -> Books:
    """An empty machine; GiB of each node."""
    return empty_books({n: {MEMORY: int(size * GIB)} for n, size in enumerate(sizes)})


def ask(
    books: Books,
    name: str,
    gib: float | Mapping[MemoryType, int],
    policy: TopologyPolicy = TopologyPolicy.RESTRICTED,
    *,
    pod: str = "",
    reusable: tuple[str, ...] = (),
) -> Plan | Refusal:
    """One container *name* (of *pod*, or of its own) asks; *reusable* ended ones of its pod leave their memory."""
    sizes = {MEMORY: int(gib * GIB)} if isinstance(gib, int | float) else dict(gib)
    owners = tuple(Owner(pod or name, r) for r in reusable)
    return place(books, Request(Owner(pod or name, name), sizes, reusable=owners), Rules(policy))


def given(books: Books, name: str, gib: float, nodes: str, **options: str | tuple[str, ...]) -> Books:
    """The books after a request that must be granted on *nodes*."""
    answer = ask(books, name, gib, **options)  # type: ignore[arg-type]  # pod and reusable
    assert isinstance(answer, Plan), answer
    assert str(answer.nodes) == nodes
    return answer.books


def promised(books: Books) -> float:
    """GiB of memory promised on the whole machine."""
    return sum(s.memory_map[MEMORY].reserved for s in books.node_map.nodes.values()) / GIB


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT])
def test_b091_no_group_over_a_single_tenant(policy: TopologyPolicy) -> None:
    """B091: 512 MiB on {0}; 1280 MiB on two nodes of 1024 is refused; after the first one's end it gets {0,1}."""
    books = given(machine(1, 1), "one", 0.5, "0")

    assert isinstance(ask(books, "two", 1.25, policy), Refusal)
    given(release(books, Owner("one", "one")), "two", 1.25, "0-1")


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT])
def test_b092_the_refusal_has_the_numbers(policy: TopologyPolicy) -> None:
    """B092: allocatable 83 and 94.4; after 85 on {1} another 85 fits nowhere, and the sentence says why per node."""
    books = given(machine(83, 94.4), "one", 85, "1")

    answer = ask(books, "two", 85, policy)

    assert isinstance(answer, Refusal)
    assert "node 0 has 83 GiB free, node 1 9.39 GiB" in answer.message
    assert "node 1 holds single-node containers" in answer.message


def test_b094_a_group_lives_as_long_as_its_last_tenant() -> None:
    """B094: 150 on {0,1}, 5 joins; when the large one ended, 10 has only the group, too wide, until that ends too."""
    books = given(machine(100, 100), "big", 150, "0-1")
    joined = ask(books, "small", 5, TopologyPolicy.BEST_EFFORT)
    assert isinstance(joined, Plan)
    books = release(joined.books, Owner("big", "big"))

    refused = ask(books, "next", 10)
    lax = ask(books, "next", 10, TopologyPolicy.BEST_EFFORT)

    assert isinstance(refused, Refusal)
    assert isinstance(lax, Plan)
    assert (str(lax.nodes), lax.explanation.width) == ("0-1", 1)
    given(release(books, Owner("small", "small")), "next", 10, "0")


@pytest.mark.parametrize(("size", "nodes"), [(25, None), (12, None), (8, "2")])
def test_b095_groups_never_overlap(size: int, nodes: str | None) -> None:
    """B095: 15 on {0,1} of three nodes of 10: 25 and 12 have no set, 8 gets {2}."""
    books = given(machine(10, 10, 10), "a", 15, "0-1")

    answer = ask(books, "b", size, TopologyPolicy.BEST_EFFORT)

    assert (str(answer.nodes) if isinstance(answer, Plan) else None) == nodes


def test_b097_init_containers_are_not_added() -> None:
    """B097: init 1, init 2, app 4 with 5 free: never more than 4; with an app of 1 the peak is 2, then 1."""
    for app, peaks in ((4, [1, 2, 4]), (1, [1, 2, 1])):
        books, seen = machine(5), []
        books = given(books, "init-1", 1, "0", pod="p")
        seen.append(promised(books))
        books = given(books, "init-2", 2, "0", pod="p", reusable=("init-1",))
        seen.append(promised(books))
        books = given(books, "app", app, "0", pod="p", reusable=("init-1", "init-2"))
        seen.append(promised(books))

        assert peaks == seen


def test_b098_a_pod_reuses_only_its_own() -> None:
    """B098: A's init 4, B 3, then A's app 4: A uses its own 4, 7 are promised, never 3 or 11."""
    books = given(machine(12), "init", 4, "0", pod="a")
    books = given(books, "b", 3, "0")
    books = given(books, "app", 4, "0", pod="a", reusable=("init",))

    assert promised(books) == 7
    assert {o.container for o in books.assignments} == {"app", "b"}


def test_b100_the_app_may_go_elsewhere() -> None:
    """B100: node 0 almost full takes the init container, the app of 32 goes to node 1 and is not refused."""
    books = given(machine(40, 40), "filler", 38, "0")
    books = given(books, "init", 1, "0", pod="p")

    given(books, "app", 32, "1", pod="p", reusable=("init",))


def test_b101_reserved_nodes_are_no_candidates() -> None:
    """B101: four of six nodes without anything to promise do not widen anything, for any size."""
    books = machine(10, 10, 0, 0, 0, 0)

    given(books, "a", 15, "0-1")
    assert isinstance(ask(books, "b", 25), Refusal)
    assert isinstance(ask(given(books, "c", 8, "0"), "d", 9), Plan)


def test_b103_pages_without_memory() -> None:
    """B103: a request for pages alone goes where the pages are, without any error."""
    books = empty_books({0: {MEMORY: 10 * GIB, HUGE: 0}, 1: {MEMORY: 10 * GIB, HUGE: GIB}})

    answer = ask(books, "a", {HUGE: GIB})

    assert isinstance(answer, Plan)
    assert answer.nodes == NodeSet.of(1)


def test_b109_three_of_twenty_four() -> None:
    """B109: what needs three nodes of 24 gets three, by memory alone, and 30 GiB go to the one node that has them."""
    given(machine(*[10] * 24), "wide", 25, "0-2")
    given(machine(8, 64), "one", 30, "1")


def test_b086_only_a_groups_sum_counts() -> None:
    """B086: 240 and 20 on {0,1} of 220 each, 20 goes, 10 comes: 250 of the group, in history as recomputed."""
    books = given(machine(220, 220), "a", 240, "0-1")
    for name, size in (("b", 20), ("c", 10)):
        answer = ask(books, name, size, TopologyPolicy.BEST_EFFORT)
        assert isinstance(answer, Plan)
        books = release(answer.books, Owner("b", "b")) if name == "b" else answer.books
        if name == "b":
            assert promised(books) == 240

    assert promised(books) == 250
    assert (check(books), misfits(books)) == ((), {})
    again = rebase(books, machine(220, 220).node_map)
    assert promised(again) == 250
    assert sum(s.memory_map[MEMORY].free for s in again.node_map.nodes.values()) == 190 * GIB

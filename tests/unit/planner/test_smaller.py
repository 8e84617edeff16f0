"""The largest size that fits now is the largest, is admitted, and so is all below it where that is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from numapin.model.memory import MEMORY, Block, Books, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules, TopologyPolicy
from numapin.model.quantity import at_most, at_most_bytes
from numapin.planner.accounting import reserve
from numapin.planner.explain import remedies
from numapin.planner.placement import place
from numapin.planner.smaller import largest_at_once
from support.cases import random_case
from support.strategies import empty_books

GIB, MIB = 1 << 30, 1 << 20
CASES = 4_000


def said(books: Books, size_mib: int, policy: TopologyPolicy = TopologyPolicy.RESTRICTED) -> tuple[str, ...]:
    """The remedies for so many MiB."""
    answer = place(books, Request(Owner("pod", "new"), {MEMORY: size_mib * MIB}), Rules(policy))

    assert isinstance(answer, Refusal)
    return remedies(answer.explanation)


def demo() -> Books:
    """An empty machine of four nodes of some 0.9 GiB."""
    return empty_books({n: {MEMORY: size * MIB} for n, size in enumerate((879, 778, 880, 879))})


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT])
def test_several_nodes_take_more_than_one(policy: TopologyPolicy) -> None:
    """What the empty machine takes as a whole is named beside what one node takes."""
    less = " or less" if policy is TopologyPolicy.BEST_EFFORT else ""

    assert said(demo(), 4096, policy) == (
        f"with a memory limit of 3.33 GiB{less} it would fit on nodes 0-3 now",
        "with a memory limit of 880 MiB or less it would fit on node 2 now",
    )


def test_one_node_only() -> None:
    """Under single-numa-node no set of several is named."""
    assert said(demo(), 4096, TopologyPolicy.SINGLE_NUMA_NODE)[-1] == (
        "with a memory limit of 880 MiB or less it would fit on node 2 now"
    )


def test_an_existing_group() -> None:
    """A group as wide as the smaller size needs can take it, and is called a group."""
    books = reserve(
        empty_books({n: {MEMORY: 10 * GIB} for n in (0, 1)}),
        Owner("pod", "a"),
        (Block(NodeSet.of(0, 1), MEMORY, 8 * GIB),),
    )

    assert said(books, 15 << 10) == (
        "with 3 GiB more free in group 0-1 it would fit there",
        "with a memory limit of 12 GiB it would fit on group 0-1 now",
    )


@pytest.mark.parametrize("several_types", [False, True])
def test_it_is_the_largest(several_types: bool) -> None:
    """In thousands of refusals every larger size is refused, the one named is admitted, and what is below it too."""
    rng = Random(7 + several_types)
    seen: Counter[str] = Counter()
    for number in range(CASES):
        books, request, rules = random_case(rng, most_nodes=5)
        request = replace(request, hints=(), owner=Owner("pod", "new"))
        if MEMORY not in request.sizes or (len(request.sizes) > 1) is not several_types:
            continue
        answer = place(books, request, rules)
        if isinstance(answer, Plan):
            continue
        found = largest_at_once(answer.explanation)
        best = max((s.size_bytes for s in found), default=0)
        fits = {
            size: isinstance(place(books, with_memory(request, size), rules), Plan)
            for size in range(1, request.sizes[MEMORY])
        }

        assert best == max((size for size, ok in fits.items() if ok), default=0) or several_types, number
        for one in found:
            seen["several" if len(one.nodes) > 1 else "one"] += 1
            assert fits[one.size_bytes], number
            assert not one.or_less or all(ok for size, ok in fits.items() if size <= one.size_bytes), number
        seen["missed"] += best < max((size for size, ok in fits.items() if ok), default=0)
    assert min(seen["several"], seen["one"]) > 20, seen
    assert seen["missed"] * 20 <= seen["one"], seen


def with_memory(request: Request, size: int) -> Request:
    """The request with another size of memory."""
    return replace(request, sizes={**request.sizes, MEMORY: size})


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, GIB - 1, GIB, 7 * GIB + 12345, 123456789012])
def test_the_bytes_that_are_spoken_of(size: int) -> None:
    """Never more than there is, and what the sentence says."""
    number, unit = at_most(size).split()
    factor = {"bytes": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB}[unit]

    assert at_most_bytes(size) == int(Decimal(number) * factor) <= size

"""What memory's sets leave inside other providers' masks, against the listing of every set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import combinations
from random import Random

from numapin.model.memory import MEMORY, Block, Books, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Request
from numapin.planner.accounting import reserve
from numapin.planner.offers import Offers
from numapin.planner.overlaps import Overlaps
from numapin.planner.ties import Taste
from support.cases import random_case
from support.strategies import empty_books

ANY = -1


def listed(offers: Offers, masks: set[int], wanted: int, taste: Taste) -> int | None:
    """The best overlap by listing every set that may take the request."""
    sets = [sum(1 << n for n in c) for size in range(1, len(offers.ids) + 1) for c in combinations(offers.ids, size)]
    found = {s & m for s in sets if offers.takes(s) for m in masks} - {0}

    def rank(overlap: int) -> tuple[int, int]:
        size = overlap.bit_count()
        return (0, 0) if size == wanted else (1, -size) if size < wanted else (2, size)

    return min(found, key=lambda overlap: (rank(overlap), taste.key(overlap)), default=None)


def random_masks(rng: Random, ids: list[NodeId]) -> set[int]:
    """Single nodes, some sets, all subsets of a few nodes, or any node."""
    few = rng.sample(ids, min(len(ids), rng.randint(1, 4)))
    families = [
        {1 << n for n in ids},
        {sum(1 << n for n in rng.sample(ids, rng.randint(1, len(ids)))) for _ in range(rng.randint(1, 4))},
        {sum(1 << n for n in c) for size in range(1, len(few) + 1) for c in combinations(few, size)},
        {ANY},
    ]
    return set().union(*rng.sample(families, rng.randint(1, 3)))


def test_equals_listing() -> None:
    """For any masks, any size wanted and any taste the overlap is the one that listing gives."""
    rng = Random(11)
    found = 0
    for _ in range(1_500):
        books, request, _ = random_case(rng, most_nodes=7)
        ids = list(books.node_map.nodes)
        masks, wanted = random_masks(rng, ids), rng.randint(1, len(ids))
        far = {a: {b: 10 if a == b else rng.randint(11, 14) for b in ids} for a in ids}
        weights = {n: (0, rng.randint(0, 2), rng.randint(0, 1)) for n in ids if rng.random() < 0.3}
        taste = rng.choice([Taste(), Taste(weights), Taste(weights, far)])
        offers = Offers(books, request, sorted(k for k, size in request.sizes.items() if size))
        answer = Overlaps(offers, masks).best(wanted, taste)
        found += answer is not None

        assert listed(offers, masks, wanted, taste) == answer, (books, request, masks, wanted, taste)
    assert found > 500


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile: a measure of work that a busy machine does not change."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def large(nodes: int) -> Offers:
    """Ten bytes on each node, a request for three nodes, a fourth of them in single use and some groups of two."""
    books: Books = empty_books({n: {MEMORY: 10 + n % 3} for n in range(nodes)})
    for n in range(0, nodes, 4):
        books = reserve(books, Owner("single", str(n)), (Block(NodeSet.of(n), MEMORY, 5),))
    for n in range(1, nodes // 2, 8):
        books = reserve(books, Owner("group", str(n)), (Block(NodeSet.of(n, n + 1), MEMORY, 5),))
    return Offers(books, Request(Owner("p", "c"), {MEMORY: 31}), (MEMORY,))


def test_a_mask_of_one_node_costs_no_search() -> None:
    """A thousand single nodes cost a few calls each, not a pass over all nodes each."""
    offers = large(1_024)
    masks = {1 << n for n in range(1_000)}

    assert calls_of(lambda: Overlaps(offers, masks).best(3, Taste())) < 20 * len(masks)


def test_all_subsets_of_eight_nodes_share_their_work() -> None:
    """The 255 subsets of eight nodes among a thousand cost about as much as a few passes over these eight."""
    offers = large(1_024)
    nodes = offers.unused[:8]
    masks = {sum(1 << n for n in c) for size in range(1, 9) for c in combinations(nodes, size)}

    assert calls_of(lambda: Overlaps(offers, masks).best(3, Taste())) < 40_000

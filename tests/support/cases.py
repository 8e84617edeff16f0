"""Random machines, books and requests from a seeded generator: the same shapes as `support.strategies`, but fast."""

from __future__ import annotations

from random import Random

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, Request, Rules, TopologyPolicy
from numapin.planner.accounting import reserve
from support.strategies import KINDS, empty_books


def random_case(rng: Random, *, most_nodes: int) -> tuple[Books, Request, Rules]:
    """A used machine, a request that often nearly fits, and rules."""
    books = _used(rng, rng.randint(1, most_nodes))
    return books, _request(rng, books), _rules(rng, books)


def _used(rng: Random, count: int) -> Books:
    kinds = KINDS[: rng.randint(1, 3)]
    high = rng.choice([2, 8, 100])
    alike = {k: rng.randint(0, high) for k in kinds} if rng.random() < 0.5 else None
    nodes: dict[int, dict[MemoryType, int]] = {}
    for node in rng.sample(range(71), count):
        sizes = alike or {k: rng.randint(0, high) for k in kinds}
        nodes[node] = {k: v for k, v in sizes.items() if k == MEMORY or rng.random() < 0.9}
    books = empty_books(nodes)
    left = rng.sample(sorted(nodes), count)
    number = 0
    while left and rng.random() < 0.7:
        size = rng.randint(1, min(4, len(left)))
        group, left = NodeSet.from_ids(left[:size]), left[size:]
        for _ in range(rng.randint(1, 3)):
            number += 1
            states = [books.node_map.nodes[n] for n in group]
            blocks = []
            for kind in kinds:
                free = sum(s.memory_map[kind].free for s in states if kind in s.memory_map)
                if free and rng.random() < 0.6:
                    blocks.append(Block(group, kind, rng.randint(1, free)))
            if blocks:
                books = reserve(books, Owner("pod", f"c{number}"), tuple(blocks))
    return books


def _request(rng: Random, books: Books) -> Request:
    nodes = books.node_map.nodes
    ids = list(nodes)
    kinds = sorted({k for s in nodes.values() for k in s.memory_map})
    sizes = {}
    for kind in rng.sample(kinds, rng.randint(1, len(kinds))):
        amounts = [s.memory_map[kind].allocatable for s in nodes.values() if kind in s.memory_map]
        sizes[kind] = rng.randint(1, max(1, rng.choice([max(amounts), sum(amounts) + 1, max(amounts)])))
    ceilings: dict[NodeId, dict[MemoryType, int]] = {}
    if rng.random() < 0.3:
        ceilings = {n: {k: rng.randint(0, 100)} for n in ids for k in kinds if rng.random() < 0.4}
    owners = sorted(books.assignments)
    return Request(
        owner=rng.choice(owners) if owners and rng.random() < 0.2 else Owner("pod", "new"),
        sizes=sizes,
        allowed=_some(rng, ids) if rng.random() < 0.25 else None,
        normal=_some(rng, ids) if rng.random() < 0.25 else None,
        ceilings=ceilings,
        resident={n: rng.randint(0, 5) for n in ids} if rng.random() < 0.25 else {},
        reusable=tuple(rng.sample(owners, rng.randint(0, len(owners)))) if rng.random() < 0.25 else (),
        hints=tuple(_hints(rng, ids) for _ in range(rng.randint(1, 2))) if rng.random() < 0.4 else (),
    )


def _some(rng: Random, ids: list[NodeId]) -> NodeSet:
    return NodeSet.from_ids(rng.sample(ids, rng.randint(1, len(ids))))


def _hints(rng: Random, ids: list[NodeId]) -> ProviderHints:
    if (draw := rng.random()) < 0.2:
        return ProviderHints("cpu", None if draw < 0.1 else ())
    count = rng.randint(1, 4)
    sets = [None if rng.random() < 0.1 else _some(rng, ids[: rng.randint(1, len(ids))]) for _ in range(count)]
    return ProviderHints("cpu", tuple(Hint(one, rng.random() < 0.6) for one in sets))


def _rules(rng: Random, books: Books) -> Rules:
    closest = rng.random() < 0.25
    distances: dict[NodeId, dict[NodeId, int]] = {}
    if closest:
        ids = list(books.node_map.nodes)
        distances = {a: {b: 10 if a == b else rng.choice([11, 12, 20, 31]) for b in ids} for a in ids}
    return Rules(rng.choice(list(TopologyPolicy)), closest, distances)

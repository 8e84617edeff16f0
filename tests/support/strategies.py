"""Random machines, books and requests for Hypothesis: few nodes, small numbers, so ties and shortages are common."""

from __future__ import annotations

from hypothesis import strategies as st

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, Request, Rules, TopologyPolicy
from numapin.planner.accounting import reserve

KINDS = (MEMORY, MemoryType("hugepages-2Mi"), MemoryType("hugepages-1Gi"))


def empty_books(nodes: dict[int, dict[MemoryType, int]]) -> Books:
    """Books of an empty machine: allocatable per node id and type."""
    return Books(
        NodeMap(
            {
                NodeId(n): NodeState({k: MemoryTable(v, 0, v, 0, v) for k, v in kinds.items()}, 0, NodeSet.of(n))
                for n, kinds in sorted(nodes.items())
            }
        )
    )


@st.composite
def machines(draw: st.DrawFn, *, most_nodes: int = 10, kinds: int = 3, same: bool | None = None) -> Books:
    """An empty machine of up to *most_nodes* nodes, ids with holes, all alike or not."""
    count = draw(st.integers(1, most_nodes))
    ids = draw(st.lists(st.integers(0, 70), min_size=count, max_size=count, unique=True))
    names = KINDS[: draw(st.integers(1, kinds))]
    high = draw(st.sampled_from([2, 8, 100]))
    values = st.integers(0, high)
    alike = draw(st.booleans()) if same is None else same
    first = {k: draw(values) for k in names}
    nodes = {}
    for n in ids:
        own = first if alike else {k: draw(values) for k in names}
        nodes[n] = {k: v for k, v in own.items() if k == MEMORY or draw(st.integers(0, 9)) > 0}
    return empty_books(nodes)


@st.composite
def used_machines(draw: st.DrawFn, *, most_nodes: int = 10, kinds: int = 3) -> Books:
    """A machine with single-node assignments and disjoint groups, each within what is free."""
    books = draw(machines(most_nodes=most_nodes, kinds=kinds))
    ids = list(books.node_map.nodes)
    left = draw(st.permutations(ids))
    number = 0
    while left and draw(st.integers(0, 4)) > 0:
        size = draw(st.integers(1, min(4, len(left))))
        nodes, left = left[:size], left[size:]
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            books = draw(_assigned(books, NodeSet.from_ids(nodes), number))
    return books


@st.composite
def _assigned(draw: st.DrawFn, books: Books, nodes: NodeSet, number: int) -> Books:
    states = [books.node_map.nodes[n] for n in nodes]
    blocks = []
    for kind in sorted({k for s in states for k in s.memory_map}):
        free = sum(s.memory_map[kind].free for s in states if kind in s.memory_map)
        if free and draw(st.booleans()):
            blocks.append(Block(nodes, kind, draw(st.integers(1, free))))
    return reserve(books, Owner("pod", f"c{number}"), tuple(blocks)) if blocks else books


def node_sets(ids: list[NodeId], *, smallest: int = 1) -> st.SearchStrategy[NodeSet]:
    """Sets of these nodes."""
    return st.lists(st.sampled_from(ids), min_size=smallest, unique=True).map(NodeSet.from_ids)


@st.composite
def requests(draw: st.DrawFn, books: Books, *, hints: bool = True) -> Request:
    """A request that often nearly fits, with any of the things that narrow a choice."""
    nodes = books.node_map.nodes
    ids = list(nodes)
    kinds = sorted({k for s in nodes.values() for k in s.memory_map})
    asked = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
    sizes = {}
    for kind in asked:
        tables = [s.memory_map[kind] for s in nodes.values() if kind in s.memory_map]
        most = max(t.allocatable for t in tables)
        total = sum(t.allocatable for t in tables)
        sizes[kind] = draw(st.integers(1, max(1, most)) | st.integers(1, max(1, total + 1)))
    maybe = st.integers(0, 3).map(lambda n: n == 0)
    amounts = st.dictionaries(st.sampled_from(kinds), st.integers(0, 100))
    owners = sorted(books.assignments)
    return Request(
        owner=Owner("pod", "new"),
        sizes=sizes,
        allowed=draw(node_sets(ids)) if draw(maybe) else None,
        normal=draw(node_sets(ids, smallest=0)) if draw(maybe) else None,
        ceilings=draw(st.dictionaries(st.sampled_from(ids), amounts)) if draw(maybe) else {},
        resident=draw(st.dictionaries(st.sampled_from(ids), st.integers(0, 5))) if draw(maybe) else {},
        reusable=draw(_some_of(owners)) if draw(maybe) else (),
        hints=tuple(draw(st.lists(provider_hints(ids), max_size=2))) if hints and draw(st.booleans()) else (),
    )


def _some_of(owners: list[Owner]) -> st.SearchStrategy[tuple[Owner, ...]]:
    return st.lists(st.sampled_from(owners), unique=True).map(tuple) if owners else st.just(())


@st.composite
def provider_hints(draw: st.DrawFn, ids: list[NodeId]) -> ProviderHints:
    """Another provider's hints: none, an empty list, or some sets."""
    name = draw(st.sampled_from(["cpu", "device /dev/a"]))
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return ProviderHints(name, None)
    if kind == 1:
        return ProviderHints(name, ())
    sets = node_sets(ids) | st.sampled_from(ids).map(NodeSet.of) | st.none()
    return ProviderHints(name, tuple(draw(st.lists(st.builds(Hint, sets, st.booleans()), min_size=1, max_size=4))))


@st.composite
def rules(draw: st.DrawFn, books: Books) -> Rules:
    """Any policy, with distances or without."""
    ids = list(books.node_map.nodes)
    closest = draw(st.integers(0, 3)) == 0
    numbers = st.sampled_from([11, 12, 20, 31])
    distances = {a: {b: 10 if a == b else draw(numbers) for b in ids} for a in ids} if closest else {}
    return Rules(draw(st.sampled_from(TopologyPolicy)), closest, distances)

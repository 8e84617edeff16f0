"""What another manager holds, in our books: `numapin.planner.neighbour`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.accounting import check, release, reserve
from numapin.planner.neighbour import account_neighbour

PAGES = MemoryType("hugepages-2Mi")


def empty(nodes: int = 3, size: int = 10) -> Books:
    """A machine of equal nodes, *size* bytes of memory and two of pages each."""
    return Books(
        NodeMap(
            {
                NodeId(n): NodeState(
                    {MEMORY: MemoryTable(size, 0, size, 0, size), PAGES: MemoryTable(2, 0, 2, 0, 2)},
                    0,
                    NodeSet.of(n),
                )
                for n in range(nodes)
            }
        )
    )


def block(nodes: tuple[int, ...], size: int, kind: MemoryType = MEMORY) -> Block:
    """One block."""
    return Block(NodeSet.of(*nodes), kind, size)


def theirs(*blocks: Block, name: str = "app") -> dict[Owner, tuple[Block, ...]]:
    """One assignment of theirs."""
    return {Owner("kubelet:p", name): blocks}


def reserved(books: Books, kind: MemoryType = MEMORY) -> list[int]:
    """Reserved bytes on each node."""
    return [state.memory_map[kind].reserved for state in books.node_map.nodes.values()]


def test_nothing_changes_nothing() -> None:
    """Without assignments the books are the same value."""
    books = empty()

    assert account_neighbour(books, {}) == (books, ())


def test_single_node() -> None:
    """Memory and pages are taken from the node they are on, and the node keeps out of every group."""
    books, short = account_neighbour(empty(), theirs(block((1,), 4), block((1,), 2, PAGES)))

    assert reserved(books) == [0, 4, 0]
    assert reserved(books, PAGES) == [0, 2, 0]
    assert books.groups() == ()
    assert short == ()
    assert check(books) == ()


def test_several_nodes_fill_from_the_lowest() -> None:
    """Memory over a group of theirs is taken from its lowest node first, and makes no group of ours."""
    books, short = account_neighbour(empty(), theirs(block((1, 2), 13)))

    assert reserved(books) == [0, 10, 3]
    assert books.groups() == ()
    assert short == ()


def test_what_is_ours_already_is_named() -> None:
    """Bytes that we have promised before are not promised back: they are named with both numbers and owner."""
    ours = reserve(empty(), Owner("a", "a"), (block((0,), 8),))

    books, short = account_neighbour(ours, theirs(block((0,), 5)))

    assert reserved(books) == [10, 0, 0]
    assert short == ("3 B of memory that kubelet:p/app has on node 0 are promised to others as well",)
    assert check(books) == ()


def test_beside_a_group_of_ours() -> None:
    """On a node of our group only what the group has free is left, and the group stays."""
    ours = reserve(empty(), Owner("a", "a"), (block((0, 1), 15),))

    books, short = account_neighbour(ours, theirs(block((0,), 7), block((1,), 1)))

    assert sum(reserved(books)) == 20
    assert len(short) == 2
    assert books.groups() == (NodeSet.of(0, 1),)
    assert check(books) == ()


def test_nodes_outside_the_books() -> None:
    """On nodes that we do not use there is nothing to account and nothing to complain about."""
    books, short = account_neighbour(empty(2), theirs(block((5,), 4), block((1, 5), 14)))

    assert reserved(books) == [0, 10]
    assert short == ()


def test_unknown_memory_type() -> None:
    """A type that the node does not have is named, not booked."""
    books, short = account_neighbour(empty(), theirs(block((0,), 1, MemoryType("hugepages-1Gi"))))

    assert books.assignments == {}
    assert len(short) == 1


_BLOCKS = st.lists(
    st.builds(
        block,
        st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(tuple),
        st.integers(0, 12),
        st.sampled_from([MEMORY, PAGES]),
    ),
    max_size=3,
).map(tuple)


@given(st.lists(_BLOCKS, max_size=5), st.lists(_BLOCKS, max_size=5))
def test_books_stay_sound(ours: list[tuple[Block, ...]], held: list[tuple[Block, ...]]) -> None:
    """Whatever we and they hold: the books add up, never exceed a node, and go back when they go (property)."""
    before = empty()
    for k, blocks in enumerate(ours):
        single = [b for b in blocks if len(b.affinity) == 1 and b.affinity.mask < 8]
        fits = [b for b in single if free(before, b) >= b.size_bytes]
        if fits:
            before = reserve(before, Owner(f"o{k}", "c"), (fits[0],))
    assignments = {Owner(f"kubelet:{k}", "c"): blocks for k, blocks in enumerate(held)}

    books, short = account_neighbour(before, assignments)

    assert check(books) == ()
    assert all(t.free >= 0 for s in books.node_map.nodes.values() for t in s.memory_map.values())
    assert before == release(books, *assignments)
    wanted = sum(b.size_bytes for blocks in held for b in blocks if b.affinity.mask < 8)
    got = sum(b.size_bytes for o in assignments for b in books.assignments.get(o, ()))
    assert short or got >= wanted


def free(books: Books, asked: Block) -> int:
    """Free bytes on the block's one node."""
    (node,) = asked.affinity
    return books.node_map.nodes[node].memory_map[asked.type].free

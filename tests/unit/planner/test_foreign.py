"""Bytes that somebody else bound to nodes: taken out of the books, never a reason for a group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.accounting import check, release, reserve
from numapin.planner.foreign import account_foreign

HUGE = hugepages(2 << 20)
OURS, THEIRS, OTHER = Owner("ours", "ours"), Owner("theirs", "theirs"), Owner("other", "other")


def machine(nodes: int = 3, size: int = 10) -> Books:
    """Empty books of nodes with *size* units of memory and 4 of hugepages each."""
    tables = {MEMORY: MemoryTable(size, 0, size, 0, size), HUGE: MemoryTable(4, 0, 4, 0, 4)}
    return Books(NodeMap({NodeId(n): NodeState(dict(tables), 0, NodeSet.of(n)) for n in range(nodes)}))


def free(books: Books, kind: MemoryType = MEMORY) -> list[int]:
    """Free units per node."""
    return [state.memory_map[kind].free for state in books.node_map.nodes.values()]


def test_one_node() -> None:
    """On one node the bytes are one block there."""
    books, note = account_foreign(machine(), THEIRS, {MEMORY: 6}, NodeSet.of(1))

    assert books.assignments == {THEIRS: (Block(NodeSet.of(1), MEMORY, 6),)}
    assert free(books) == [10, 4, 10]
    assert note == ""


def test_several_nodes_make_no_group() -> None:
    """Over several nodes the lowest is filled first, and no group comes of it."""
    books, note = account_foreign(machine(), THEIRS, {MEMORY: 14}, NodeSet.of(1, 2))

    assert free(books) == [10, 0, 6]
    assert books.groups() == ()
    assert note == ""


def test_all_types_together() -> None:
    """Each type is taken for itself."""
    books, note = account_foreign(machine(), THEIRS, {MEMORY: 3, HUGE: 5}, NodeSet.of(0, 1))

    assert free(books) == [7, 10, 10]
    assert free(books, HUGE) == [0, 3, 4]
    assert note == ""


def test_more_than_there_is() -> None:
    """What no node has left is named, with the number, and nobody's free becomes negative."""
    books = reserve(machine(), OURS, (Block(NodeSet.of(0), MEMORY, 8),))

    books, note = account_foreign(books, THEIRS, {MEMORY: 6}, NodeSet.of(0))

    assert free(books) == [0, 10, 10]
    assert note == "4 B of memory could not be accounted: the nodes are already promised"


def test_a_node_without_the_type_or_outside_the_books() -> None:
    """Unknown nodes and types take nothing."""
    books, note = account_foreign(machine(), THEIRS, {MemoryType("hugepages-1Gi"): 2}, NodeSet.of(0, 7))

    assert books.assignments == {}
    assert note == "2 B of hugepages-1Gi could not be accounted: the nodes are already promised"


def test_a_node_of_a_group() -> None:
    """A foreign pin inside a group is charged to its own node and leaves the group's size alone."""
    books = reserve(machine(), OURS, (Block(NodeSet.of(0, 1), MEMORY, 15),))

    books, note = account_foreign(books, THEIRS, {MEMORY: 4}, NodeSet.of(1))

    assert books.groups() == (NodeSet.of(0, 1),)
    assert sum(free(books)[:2]) == 1
    assert note == ""
    assert check(books) == ()
    after = release(books, OURS)
    assert after.groups() == ()
    assert free(after) == [10, 6, 10]


def test_a_group_s_free_is_taken_once() -> None:
    """Two nodes of one group together give no more than the group has."""
    books = reserve(machine(), OURS, (Block(NodeSet.of(0, 1), MEMORY, 15),))

    books, note = account_foreign(books, THEIRS, {MEMORY: 8}, NodeSet.of(0, 1))

    assert sum(free(books)[:2]) == 0
    assert note == "3 B of memory could not be accounted: the nodes are already promised"


def test_accounting_again_replaces() -> None:
    """A second look with another size or other nodes leaves nothing of the first."""
    first, _ = account_foreign(machine(), THEIRS, {MEMORY: 6}, NodeSet.of(0))
    again, _ = account_foreign(first, THEIRS, {MEMORY: 2}, NodeSet.of(2))

    assert free(again) == [10, 10, 8]
    assert release(again, THEIRS) == machine()


@given(
    group=st.integers(0, 20),
    single=st.integers(0, 10),
    wanted=st.integers(0, 40),
    nodes=st.sets(st.integers(0, 4), max_size=5),
)
def test_the_books_stay_sound(group: int, single: int, wanted: int, nodes: set[int]) -> None:
    """Whatever stands in the books: no free below zero, what is taken plus what is missing is what was asked."""
    books = machine()
    if group:
        books = reserve(books, OURS, (Block(NodeSet.of(0, 1), MEMORY, group),))
    if single:
        books = reserve(books, OTHER, (Block(NodeSet.of(2), MEMORY, single),))
    before = books

    books, note = account_foreign(books, THEIRS, {MEMORY: wanted}, NodeSet.of(*nodes))

    taken = sum(b.size_bytes for b in books.assignments.get(THEIRS, ()))
    assert check(books) == ()
    assert min(sum(free(books)[:2]), free(books)[2]) >= 0
    assert all(
        len(b.affinity) == 1 and b.affinity.issubset(NodeSet.of(*nodes)) for b in books.assignments.get(THEIRS, ())
    )
    assert (taken == wanted) == (note == "")
    assert before == release(books, THEIRS)

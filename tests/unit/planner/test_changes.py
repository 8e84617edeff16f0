"""Differences between two machines: which are told, and how."""

from __future__ import annotations

from numapin.model.memory import MEMORY, MemoryType, NodeMap
from numapin.planner.changes import changes
from support.strategies import empty_books

GIB = 1 << 30
HUGE = MemoryType("hugepages-2Mi")


def machine(*sizes: int, pages: int = 0) -> NodeMap:
    """Nodes of these bytes."""
    return empty_books({n: {MEMORY: size, HUGE: pages} for n, size in enumerate(sizes)}).node_map


def test_the_same_machine() -> None:
    """Nothing is said."""
    assert changes(machine(10, 20), machine(10, 20)) == ()


def test_each_difference_is_a_sentence() -> None:
    """Totals in bytes, pools too, nodes that came and went; by node."""
    assert changes(machine(10, 20, pages=4), machine(11, 20, pages=2)) == (
        "node 0, hugepages-2Mi: 2 bytes instead of 4",
        "node 0, memory: 11 bytes instead of 10",
        "node 1, hugepages-2Mi: 2 bytes instead of 4",
    )
    assert changes(machine(10, 20), machine(10)) == ("node 1 is gone",)
    assert changes(machine(10), machine(10, 20)) == ("node 1 is new",)

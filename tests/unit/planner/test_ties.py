"""Which of several equal node sets is taken, beyond what ten nodes allow to list."""

from __future__ import annotations

from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.subsets import Search
from numapin.planner.ties import Taste, best_subset
from numapin.planner.witness import Steps


def alike(count: int, need: int) -> tuple[Search, Steps]:
    """*count* nodes of ten, and *need*."""
    steps = Steps(count)
    return Search([(10,)] * count, (need,), steps), steps


def test_wanted_nodes_are_kept_on_large_machines() -> None:
    """Among 40 nodes and four needed, the wanted three are in the set and the rest is the lowest id."""
    search, steps = alike(40, 35)
    taste = Taste({NodeId(n): (0, n, 0) for n in (17, 30, 39)})

    assert best_subset(search, range(40), 4, 0, taste, steps) == NodeSet.of(0, 17, 30, 39).mask
    assert not search.exact


def test_near_nodes_are_found_on_large_machines() -> None:
    """Among 40 nodes in cliques of four, four needed are one clique."""
    search, steps = alike(40, 35)
    order = [(n * 7) % 40 for n in range(40)]
    clique = {node: place // 4 for place, node in enumerate(order)}
    distances = {
        NodeId(a): {NodeId(b): 10 if a == b else 12 if clique[a] == clique[b] else 40 for b in range(40)}
        for a in range(40)
    }
    taste = Taste(distances=distances)
    found = best_subset(search, range(40), 4, 0, taste, steps)

    assert found is not None
    assert len({clique[n] for n in NodeSet(found)}) == 1


def test_unreported_distances_count_as_far() -> None:
    """A pair without a distance is as far as the kernel's word for unreachable."""
    taste = Taste(distances={NodeId(0): {NodeId(0): 10}, NodeId(1): {NodeId(1): 10}})

    assert taste.distance(0b11) == 10 + 10 + 2 * 255


def test_deciding_rule_has_a_name() -> None:
    """The first criterion in which two sets differ is named."""
    taste = Taste({NodeId(1): (1, 0, 0), NodeId(2): (0, 5, 0), NodeId(3): (0, 0, 1)})

    assert [taste.deciding(1 << n, 1) for n in range(4)] == [
        "lowest-node-ids",
        "own-nodes",
        "resident-pages",
        "memory-of-ended-containers",
    ]


def test_impossible_is_none() -> None:
    """No set of that size, or none that is enough, gives nothing, with any taste."""
    for taste in (Taste(), Taste({NodeId(3): (0, 1, 0)})):
        search, steps = alike(5, 45)

        assert best_subset(search, range(5), 6, 0, taste, steps) is None
        assert best_subset(search, range(5), 4, 0, taste, steps) is None

"""Which of several equal node sets is taken, beyond what ten nodes allow to list."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

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


@pytest.mark.parametrize(("nodes", "k"), [(30, 1), (30, 2), (14, 3), (10, 5), (14, 12), (14, 13)])
def test_sets_compared_one_by_one_give_the_best_of_all(nodes: int, k: int) -> None:
    """Distance first, then the weights in their order, then the ids: what sorting all sets gives."""
    rng = Random(nodes * k)
    for _ in range(20):
        ids = sorted(rng.sample(range(100), nodes))
        far = {NodeId(a): {NodeId(b): 10 if a == b else rng.choice([20, 21]) for b in ids} for a in ids}
        weights = {NodeId(n): (rng.randint(0, 1), rng.randint(0, 3), rng.randint(0, 1)) for n in ids if n % 3}
        caps = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in ids]
        need = (rng.randint(1, 4 * k), rng.randint(1, 4 * k))
        for taste in (Taste(weights), Taste(weights, far), Taste(distances=far)):
            fitting = [
                sum(1 << ids[i] for i in chosen)
                for chosen in combinations(range(nodes), k)
                if all(sum(caps[i][t] for i in chosen) >= need[t] for t in range(2))
            ]
            steps = Steps(nodes)
            search = Search(caps, need, steps)

            assert min(fitting, key=taste.key, default=None) == best_subset(search, ids, k, 0, taste, steps)
            assert search.exact


def test_near_nodes_are_found_where_ample_nodes_are_not_enough() -> None:
    """One node of the set must be special, and no node has most of everything: still a clique is taken."""
    caps = [(10, int(n % 4 == 3)) for n in range(40)]
    steps = Steps(40)
    search = Search(caps, (40, 1), steps)
    distances = {
        NodeId(a): {NodeId(b): 10 if a == b else 12 if a // 4 == b // 4 else 40 for b in range(40)} for a in range(40)
    }
    found = best_subset(search, range(40), 4, 0, Taste(distances=distances), steps)

    assert found is not None
    assert len({n // 4 for n in NodeSet(found)}) == 1


def test_a_set_of_nearly_all_of_many_nodes_is_found_at_once() -> None:
    """With 999 of 1,000 nodes needed there are only a thousand sets, but each has a million distances."""
    search, steps = alike(1_000, 9_990)
    distances = {NodeId(0): {NodeId(n): 20 for n in range(1_000)}}

    assert (1 << 999) - 1 == best_subset(search, range(1_000), 999, 0, Taste(distances=distances), steps)

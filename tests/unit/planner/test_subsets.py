"""The search for k nodes whose sums are enough."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.planner.subsets import Search
from numapin.planner.witness import Steps, Vector


def enough(caps: list[Vector], need: Vector, chosen: tuple[int, ...]) -> bool:
    """True when the chosen reach every need."""
    return all(sum(caps[i][t] for i in chosen) >= n for t, n in enumerate(need))


def listed(caps: list[Vector], need: Vector, k: int) -> tuple[int, ...] | None:
    """The smallest set of k by listing all: the one with the smallest sum of powers of two."""
    found = [c for c in combinations(range(len(caps)), k) if enough(caps, need, c)]
    return min(found, key=lambda c: sum(1 << i for i in c), default=None)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Vector], Vector]:
    """Up to nine nodes, up to three types, small numbers."""
    kinds = draw(st.integers(1, 3))
    high = draw(st.sampled_from([1, 3, 8, 100]))
    caps = draw(st.lists(st.tuples(*[st.integers(0, high)] * kinds), min_size=1, max_size=9))
    need = draw(st.tuples(*[st.integers(0, high * len(caps))] * kinds))
    return caps, need


@settings(max_examples=400, deadline=None)
@given(problems())
def test_equals_listing(problem: tuple[list[Vector], Vector]) -> None:
    """Fewest nodes, whether k can do, and the smallest set of k are those that listing gives."""
    caps, need = problem
    wanted = {k: listed(caps, need, k) for k in range(len(caps) + 1)}
    search = Search(caps, need, Steps(len(caps)))

    assert search.fewest() == next((k for k, found in wanted.items() if found is not None), None)
    for k, found in wanted.items():
        fresh = Search(caps, need, Steps(len(caps)))
        assert found == fresh.smallest(k)
        assert fresh.can(k) is (found is not None)
        assert fresh.exact


def test_one_type_is_exact_on_any_number_of_nodes() -> None:
    """Four hundred nodes of one type: no node can be left out for a lower one, and nothing was given up."""
    rng = Random(5)
    for _ in range(20):
        caps = [(rng.randint(0, 1000),) for _ in range(400)]
        need = (rng.randint(1000, 150_000),)
        search = Search(caps, need, Steps(400))
        k = search.fewest()
        assert k is not None
        chosen = search.smallest(k)
        assert chosen is not None
        least = sorted((c[0] for c in caps), reverse=True)

        assert search.exact
        assert sum(least[: k - 1]) < need[0] <= sum(caps[i][0] for i in chosen)
        # No smaller set has a lower highest node: the k best below it are not enough.
        assert sum(sorted((c[0] for c in caps[: chosen[-1]]), reverse=True)[:k]) < need[0]


@pytest.mark.parametrize("kinds", [2, 3])
@pytest.mark.parametrize("nodes", [16, 64, 256])
def test_a_bounded_search_never_gives_too_little(nodes: int, kinds: int) -> None:
    """Beyond ten nodes the set is always enough, and at most one node in twenty more than the bound of one type."""
    rng = Random(nodes * kinds)
    for _ in range(15):
        caps = [tuple(rng.randint(0, 1_000_000) for _ in range(kinds)) for _ in range(nodes)]
        share = rng.uniform(0.05, 0.9)
        need = tuple(int(share * sum(c[t] for c in caps)) for t in range(kinds))
        search = Search(caps, need, Steps(nodes))
        k = search.fewest()
        assert k is not None
        chosen = search.smallest(k)

        assert chosen is not None
        assert len(chosen) == k
        assert enough(caps, need, chosen)


def test_steps_are_bounded_on_a_hard_problem() -> None:
    """Pairs that must sum exactly, the partition problem: the search stops, says so, and still answers."""
    rng = Random(2)
    halves = [rng.randint(1, 10**12) for _ in range(40)]
    caps: list[Vector] = [(h, 10**12 - h) for h in halves]
    need = (sum(halves) // 2, 20 * 10**12 - sum(halves) // 2)
    steps = Steps(40)
    search = Search(caps, need, steps)
    k = search.fewest()

    assert k is not None
    assert 20 <= k <= 26  # 21 is possible; a few more is what a bounded search costs here
    assert enough(caps, need, search.smallest(k) or ())
    assert steps.left > -10_000


def test_nothing_needed_is_met_by_nothing() -> None:
    """Needs of zero or less want no node; k of them are the first k."""
    search = Search([(1,), (2,), (3,)], (0,), Steps(3))

    assert (search.fewest(), search.smallest(0), search.smallest(2), search.smallest(4)) == (0, (), (0, 1), None)

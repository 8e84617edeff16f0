"""The topology manager's merge, where its rules meet; the vectors hold 167 further cases."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.kubelet.bounds import TooManyNodes
from numapin.planner.kubelet.merge import admits, merge
from support.listing import merged

NONE, BEST, RESTRICTED, SINGLE = TopologyPolicy
NODES = NodeSet.of(0, 1, 2, 3)


def hints(*texts: str) -> ProviderHints:
    """``0-1!`` is the set preferred, ``*`` any node."""
    made = []
    for text in texts:
        nodes = text.rstrip("!")
        made.append(Hint(None if nodes == "*" else NodeSet.parse(nodes), text.endswith("!")))
    return ProviderHints("r", tuple(made))


@pytest.mark.parametrize(
    ("policy", "lists", "result"),
    [
        (BEST, [], "0-3!"),
        (BEST, [hints("0!", "1!"), hints("1!")], "1!"),
        (BEST, [hints("0!", "0-1"), hints("1!", "0-1")], "0"),
        (BEST, [hints("0!"), hints("1!")], "0-3"),
        (BEST, [hints("1-2!", "0,3!")], "1-2!"),
        (BEST, [hints("0-1!"), hints("0-1")], "0-1"),
        (BEST, [hints("0-1", "0-2"), hints("0-3")], "0-2"),
        (BEST, [hints("0-1"), hints("0-2")], "0-1"),
        (SINGLE, [hints("0-1!")], "*"),
        (SINGLE, [hints("2!", "0-1!")], "2!"),
        (SINGLE, [hints("*!")], "*!"),
        (NONE, [hints("0!")], "*"),
        (RESTRICTED, [ProviderHints("r", None), hints("3!")], "3!"),
        (RESTRICTED, [ProviderHints("r", ()), hints("3!")], "3"),
    ],
)
def test_merge(policy: TopologyPolicy, lists: list[ProviderHints], result: str) -> None:
    """Preferred first, then the size the neediest list allows, then the smaller mask."""
    best = merge(lists, NODES, policy)

    assert hints(result).hints == (best,)


def test_single_node_on_a_machine_of_one() -> None:
    """One node is all nodes, so the result is "any", still preferred and admitted."""
    best = merge([hints("0!")], NodeSet.of(0), SINGLE)

    assert best == Hint(None, True)
    assert admits(SINGLE, best)


def test_closest() -> None:
    """With distances the nearer pair wins, but never under single-numa-node."""
    far = {NodeId(a): {NodeId(b): 10 if a == b else 12 if a + b == 5 else 30 for b in range(4)} for a in range(4)}

    assert merge([hints("0-1!", "2-3!")], NODES, RESTRICTED, far) == Hint(NodeSet.of(2, 3), True)
    assert merge([hints("0-1!", "2-3!")], NODES, RESTRICTED) == Hint(NodeSet.of(0, 1), True)


@pytest.mark.parametrize("preferred", [True, False])
def test_admission(preferred: bool) -> None:
    """Lax policies always admit, strict ones what is preferred."""
    best = Hint(NodeSet.of(0), preferred)

    assert [True, True, preferred, preferred] == [admits(policy, best) for policy in TopologyPolicy]


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_lists(data: st.DataObject) -> None:
    """Few hints or many, nodes that are not there, up to four lists: forming every combination gives the same."""
    count = data.draw(st.integers(1, 5))
    ids = data.draw(st.permutations(range(8)))[:count]
    sets = st.sets(st.sampled_from([*ids, 9]), min_size=1, max_size=count).map(NodeSet.from_ids)
    hint = st.builds(Hint, sets | st.none(), st.booleans())
    few = st.lists(hint, max_size=4)
    many = st.lists(hint, min_size=min(20, 2**count), max_size=40)
    hints = st.one_of(st.none(), few.map(tuple), many.map(tuple))
    lists = data.draw(st.lists(st.builds(ProviderHints, st.just("r"), hints), max_size=4))
    policy = data.draw(st.sampled_from([BEST, RESTRICTED, SINGLE]))
    far = {NodeId(a): {NodeId(b): data.draw(st.sampled_from([10, 12, 20])) for b in ids} for a in ids}
    distances = far if data.draw(st.booleans()) else None
    nodes = NodeSet.from_ids(ids)

    assert merged(lists, nodes, policy, distances) == merge(lists, nodes, policy, distances)


def test_long_lists_are_counted() -> None:
    """Six to eight nodes and lists of a hundred hints, whose combinations are not formed, give the same too."""
    rng = Random(2)
    for _ in range(8):
        nodes = NodeSet.from_ids(rng.sample(range(12), rng.randint(6, 8)))
        lists = []
        for _ in range(rng.choice([2, 3])):
            sets = [NodeSet.from_ids(rng.sample(nodes.ids(), rng.randint(3, len(nodes)))) for _ in range(100)]
            lists.append(ProviderHints("r", tuple(Hint(s, rng.random() < 0.1) for s in sets)))

        assert merged(lists, nodes, BEST, None) == merge(lists, nodes, BEST)


def test_lists_on_sixteen_nodes() -> None:
    """Three lists of all 65,535 sets take a moment; on more nodes long lists are an answer of their own."""
    every = ProviderHints("r", tuple(Hint(NodeSet(mask), False) for mask in range(1, 1 << 16)))
    before = process_time()

    assert merge([every] * 3, NodeSet((1 << 16) - 1), BEST) == Hint(NodeSet.of(0), False)
    assert process_time() - before < 5
    with pytest.raises(TooManyNodes, match="20 nodes"):
        merge([every] * 3, NodeSet((1 << 20) - 1), BEST)

"""The topology manager's merge, where its rules meet; the vectors hold 167 further cases."""

from __future__ import annotations

import pytest

from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.kubelet.merge import admits, merge

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

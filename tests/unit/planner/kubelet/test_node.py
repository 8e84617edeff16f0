"""A kubelet's life: admission, start, end, sweep, restart. The vectors check the rest."""

from __future__ import annotations

from decimal import Decimal

import pytest

from numapin.model.memory import MEMORY, Block, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint, Scope, TopologyPolicy
from numapin.planner.accounting import reserve
from numapin.planner.kubelet.bounds import TooManyNodes, Unanswered
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.node import Kubelet, StartFailed, started
from numapin.planner.kubelet.pods import Pod, PodContainer
from support.strategies import empty_books

RESTRICTED = TopologyPolicy.RESTRICTED


def pod(uid: str, **containers: int) -> Pod:
    """A Guaranteed pod; a container whose name begins with ``init`` is a regular init container."""
    made = []
    for name, memory in containers.items():
        amounts = {"cpu": Decimal(1), "memory": Decimal(memory)}
        made.append(PodContainer(name, amounts, amounts, init=name.startswith("init")))
    return Pod(uid, tuple(made))


def kubelet(*sizes: int, policy: TopologyPolicy = RESTRICTED, scope: Scope = Scope.CONTAINER) -> Kubelet:
    """A kubelet on nodes from 0 up."""
    return Kubelet(empty_books({n: {MEMORY: s} for n, s in enumerate(sizes)}).node_map, policy, scope)


def test_refused_containers_leave_what_the_others_got_until_the_sweep() -> None:
    """The first container keeps its blocks when the second is refused, until the next sweep."""
    node = kubelet(10, 10)
    answer = node.admit(pod("a", c1=8, c2=8, c3=8))

    assert (answer.admitted, answer.reason) == (False, "UnexpectedAdmissionError")
    assert answer.detail.startswith("c3: ")
    assert {"c1": NodeSet.of(0), "c2": NodeSet.of(1)} == answer.mems
    node.sweep()
    assert list(node.ledger.owners()) == []


def test_pod_scope_gives_all_containers_one_set() -> None:
    """Two containers that would fit one node each get the two nodes their sum needs."""
    node = kubelet(10, 10, scope=Scope.POD)
    answer = node.admit(pod("a", c1=8, c2=8))

    assert {"c1": NodeSet.of(0, 1), "c2": NodeSet.of(0, 1)} == answer.mems
    assert {"c1": Hint(NodeSet.of(0, 1), True), "c2": Hint(NodeSet.of(0, 1), True)} == answer.affinity


def test_init_memory_is_used_again() -> None:
    """The app container takes over what the init container had, and is charged the rest only."""
    node = kubelet(10)

    assert node.admit(pod("a", init=6, app=8)).admitted
    assert [(0, "init"), (8, "app")] == [(node.ledger.blocks("a", c)[0].size_bytes, c) for c in ("init", "app")]
    assert node.ledger.total(1, MEMORY) == (10, 2)


def test_starting_frees_the_init_containers_before() -> None:
    """When the app starts, the larger init container's rest is free for other pods."""
    node = kubelet(10)
    node.admit(pod("a", init=9, app=4))
    before = node.admit(pod("b", c=5)).admitted
    node.start("a", "app")

    assert not before
    assert node.admit(pod("b", c=5)).admitted


def test_only_started_containers_are_known_by_their_id() -> None:
    """Removing a container that never started changes nothing; one that ran gives its memory back."""
    node = kubelet(10)
    node.admit(pod("a", c=4))
    node.remove_container("a", "c")
    kept = list(node.ledger.owners())
    node.start("a", "c")
    node.remove_container("a", "c")

    assert ([Owner("a", "c")], []) == (kept, list(node.ledger.owners()))


def test_restart_keeps_assignments_and_restores_hints() -> None:
    """On the same machine every pod is admitted again to where it was."""
    node = kubelet(10, 10)
    for uid, size in (("a", 15), ("b", 4)):
        node.admit(pod(uid, c=size))
    before = [(owner, node.ledger.blocks(*owner)) for owner in node.ledger.owners()]
    node.restart()
    answers = list(node.readmit())

    assert [("a", True)] == [(a.uid, a.admitted) for a in answers]
    assert before == [(owner, node.ledger.blocks(*owner)) for owner in node.ledger.owners()]


def test_over_books_that_are_in_use() -> None:
    """A kubelet over live books sees their assignments and sweeps none of them away."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    books = reserve(books, Owner("x", "c"), (Block(NodeSet.of(0), MEMORY, 8),))
    node = Kubelet.over(books, RESTRICTED, Scope.CONTAINER)
    answer = node.admit(pod("a", c=5))

    assert {"c": NodeSet.of(1)} == answer.mems
    assert sorted(node.ledger.owners()) == [Owner("a", "c"), Owner("x", "c")]
    node.end("a")
    assert list(node.ledger.owners()) == [Owner("x", "c")]


def test_more_nodes_than_a_kubelet_starts_on() -> None:
    """Above its limit it refuses to start, except under the policy none or where the limit is raised."""
    node_map = empty_books({n: {MEMORY: 10} for n in range(9)}).node_map

    with pytest.raises(TooManyNodes, match="9 nodes") as caught:
        Kubelet(node_map, RESTRICTED, Scope.CONTAINER)
    assert caught.value.why is Unanswered.NOT_STARTED
    assert Kubelet(node_map, RESTRICTED, Scope.CONTAINER, most_nodes=9).admit(pod("a", c=5)).admitted
    assert Kubelet(node_map, TopologyPolicy.NONE, Scope.CONTAINER).admit(pod("a", c=5)).admitted


@pytest.mark.parametrize(
    "change",
    ["count", "cells", "free", "total", "node", "type", "no-state"],
)
def test_start_fails_on_a_state_its_entries_do_not_give(change: str) -> None:
    """Each thing the start compares is a reason not to start."""
    empty = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}).node_map
    books = reserve(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}}), Owner("a", "c"), (Block(NodeSet(1), MEMORY, 4),))
    stored = Ledger.of(books)
    assert started(stored, empty) is stored
    node = stored.nodes[next(iter(stored.nodes))]
    if change == "count":
        node.count += 1
    elif change == "cells":
        node.cells = 0b11
    elif change == "free":
        node.tables[MEMORY].free += 1
    elif change == "total":
        node.tables[MEMORY].total += 1
    elif change == "node":
        del stored.nodes[next(iter(stored.nodes))]
    elif change == "type":
        stored.entries["a"]["c"] = [Block(NodeSet(1), MemoryType("hugepages-2Mi"), 4)]
    else:
        stored.nodes.clear()

    with pytest.raises(StartFailed):
        started(stored, empty)


def test_nothing_stored_starts_afresh() -> None:
    """Without state and entries the default map is taken."""
    empty = empty_books({0: {MEMORY: 10}}).node_map
    stored = Ledger(empty_books({}).node_map)

    assert started(stored, empty).node_map() == empty

"""Where the kubelet is wrong, numapin's own placement is right; and repeating the kubelet never crashes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Hint, Plan, ProviderHints, Request, Rules, Scope, TopologyPolicy
from numapin.model.topology import NodeKind, NumaNode, Topology
from numapin.planner.accounting import ReservationError, build_node_map, check, rebase, reserve
from numapin.planner.kubelet.node import Kubelet
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.placement import place
from support.strategies import empty_books

HUGE = MemoryType("hugepages-2Mi")
BEST = Rules(TopologyPolicy.BEST_EFFORT)


def placed(books: Books, sizes: dict[MemoryType, int], rules: Rules = Rules(), **more: object) -> Plan:  # noqa: B008
    """A plan for a new container."""
    answer = place(books, Request(Owner("pod", "new"), sizes, **more), rules)  # type: ignore[arg-type]
    assert isinstance(answer, Plan), answer
    return answer


def guaranteed(uid: str, **sizes: int) -> Pod:
    """A Guaranteed pod of one container."""
    amounts = {"cpu": Decimal(1), **{k.replace("_", "-"): Decimal(v) for k, v in sizes.items()}}
    return Pod(uid, (PodContainer("c", amounts, amounts),))


def test_a_page_size_missing_on_one_node() -> None:
    """The node counts as having none of it; upstream's process ends."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10, HUGE: 4}})
    kubelet = Kubelet(books.node_map, TopologyPolicy.RESTRICTED, Scope.CONTAINER)
    answer = kubelet.admit(guaranteed("a", memory=5, hugepages_2Mi=4))

    assert placed(books, {MEMORY: 5, HUGE: 4}).nodes == NodeSet.of(1)
    assert (answer.admitted, answer.mems) == (True, {"c": NodeSet.of(1)})


def test_node_ids_of_64_and_more() -> None:
    """Ids have no upper limit but the kernel's; upstream's masks end at 63."""
    books = empty_books({63: {MEMORY: 10}, 64: {MEMORY: 10}, 1023: {MEMORY: 10}})

    assert placed(books, {MEMORY: 25}).nodes == NodeSet.of(63, 64, 1023)


def test_distances_with_sparse_ids() -> None:
    """Distances belong to ids, not to positions; upstream looks beyond its table."""
    ids = [NodeId(n) for n in (1, 4, 9)]
    distances = {a: {b: 10 if a == b else 12 if {a, b} == {4, 9} else 40 for b in ids} for a in ids}
    books = empty_books({n: {MEMORY: 10} for n in ids})
    kubelet = Kubelet(books.node_map, TopologyPolicy.RESTRICTED, Scope.CONTAINER, distances)
    rules = Rules(prefer_closest=True, distances=distances)

    assert placed(books, {MEMORY: 15}, rules).nodes == NodeSet.of(4, 9)
    assert kubelet.admit(guaranteed("a", memory=15)).mems == {"c": NodeSet.of(4, 9)}


def test_reservations_above_a_node() -> None:
    """They are refused with the numbers; upstream wraps to a node without end."""
    machine = Topology({NodeId(0): NumaNode(NodeId(0), CpuSet(), NodeKind.MEMORY, 1 << 30)})

    with pytest.raises(ReservationError, match="is 1 GiB more than can be kept"):
        build_node_map(machine, {NodeId(0): {MEMORY: 2 << 30}}, NodeSet.of(0))


def test_a_single_node_hint_inside_a_group() -> None:
    """The group serves as a whole and stays a group; upstream splits it and may not start again."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    books = reserve(books, Owner("pod", "big"), (Block(NodeSet.of(0, 1), MEMORY, 15),))
    hints = (ProviderHints("device /dev/x", (Hint(NodeSet.of(1), True),)),)
    plan = placed(books, {MEMORY: 2}, BEST, hints=hints)

    assert plan.nodes == NodeSet.of(0, 1)
    assert check(plan.books) == ()


def test_ended_init_containers_after_a_restart() -> None:
    """A restart re-bases what is assigned and adds nothing; upstream charges ended init containers again."""
    books = empty_books({0: {MEMORY: 10}})
    init = Owner("pod", "init")
    books = placed(reserve(books, init, (Block(NodeSet.of(0), MEMORY, 8),)), {MEMORY: 9}, reusable=(init,)).books
    after = rebase(books, books.node_map)

    assert after == books
    assert list(after.assignments) == [Owner("pod", "new")]
    assert (
        place(after, Request(Owner("pod", "new"), {MEMORY: 9}), Rules()).explanation.tie_break == "already-assigned"
    )


def test_two_types_get_as_few_nodes_as_one() -> None:
    """Under best-effort a second type does not widen the set; upstream meets between two sets of its own list."""
    sizes = {0: 4, 1: 4, 2: 9, 3: 9}
    one = empty_books({n: {MEMORY: s} for n, s in sizes.items()})
    two = empty_books({n: {MEMORY: s, HUGE: s} for n, s in sizes.items()})
    taken = Block(NodeSet.of(3), MEMORY, 1)
    one, two = (reserve(b, Owner("pod", "x"), (taken,)) for b in (one, two))

    assert placed(one, {MEMORY: 16}, BEST).nodes == placed(two, {MEMORY: 16, HUGE: 16}, BEST).nodes


def test_a_type_that_only_an_init_container_wants() -> None:
    """Containers are placed one by one with all their types; upstream's pod scope forgets it."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10, HUGE: 4}})

    assert placed(books, {MEMORY: 3, HUGE: 2}).nodes == NodeSet.of(1)


def test_a_pod_of_two_containers_after_a_restart() -> None:
    """Each container's own blocks are found again; upstream compares them with the whole pod and loses the hint."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    for name, size in (("c1", 2), ("c2", 3)):
        books = reserve(books, Owner("pod", name), (Block(NodeSet.of(1), MEMORY, size),))

    for name, size in (("c1", 2), ("c2", 3)):
        answer = place(books, Request(Owner("pod", name), {MEMORY: size}), Rules())

        assert isinstance(answer, Plan)
        assert (answer.nodes, answer.books) == (NodeSet.of(1), books)

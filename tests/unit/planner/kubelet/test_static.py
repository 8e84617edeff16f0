"""The Static policy's own choice of nodes: searched for, and the same as the best of the whole list."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from random import Random
from time import process_time

import pytest

from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, Scope, TopologyPolicy
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.node import Kubelet
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.kubelet.static import AllocationError, StaticPolicy
from support.listing import listed
from support.strategies import empty_books

HUGE = MemoryType("hugepages-2Mi")
NONE = Hint(None, False)


def container(name: str, *, init: bool = False, restartable: bool = False, **sizes: int) -> PodContainer:
    """A container that a Guaranteed pod may have; ``memory`` and ``huge`` in bytes."""
    limits = {"cpu": Decimal(1), "memory": Decimal(sizes["memory"])}
    if "huge" in sizes:
        limits[HUGE] = Decimal(sizes["huge"])
    return PodContainer(name, {}, limits, init, restartable)


def random_static(rng: Random) -> tuple[StaticPolicy, Pod]:
    """Up to seven nodes with gaps in their ids, some pods on them, and a pod some of whose containers are placed."""
    kinds = [MEMORY, HUGE][: rng.choice([1, 1, 2])]
    ids = rng.sample(range(9), rng.randint(1, 7))
    static = StaticPolicy(Ledger(empty_books({n: {k: rng.randint(0, 12) for k in kinds} for n in ids}).node_map))
    asked = ["memory", "huge"][: len(kinds)]

    def made(name: str, most: int) -> PodContainer:
        init, restartable = rng.choice([(False, False), (True, False), (True, True)])
        return container(name, init=init, restartable=restartable, **{k: rng.randint(1, most) for k in asked})

    for number in range(rng.randint(0, 4)):
        other = Pod(f"o{number}", (made("c", 16),))
        allocated(static, other, other.containers[0])
    pod = Pod("p", tuple(made(f"c{i}", 20) for i in range(4)))
    for placed in pod.containers[: rng.randint(0, 3)]:
        allocated(static, pod, placed)
    return static, pod


def allocated(static: StaticPolicy, pod: Pod, placed: PodContainer) -> None:
    """Place it where the policy none would, if anywhere."""
    try:
        static.allocate(pod, placed, NONE)
    except AllocationError:
        return


@pytest.mark.parametrize(
    ("given", "sizes", "says"),
    [
        (Hint(NodeSet.of(0), False), (30, 1), "node 0 has too little memory free, also together with others"),
        (Hint(NodeSet.of(0, 1), False), (30, 1), "nodes 0-1 have too little memory free, also together with others"),
        (Hint(NodeSet.of(0), True), (5, 4), "node 0 has too little hugepages-2Mi free, also together with others"),
        (Hint(NodeSet.of(0, 1), True), (30, 4), "nodes 0-1 have too little memory and hugepages-2Mi free, also .*"),
        (
            Hint(NodeSet.of(0), True),
            (15, 1),
            "node 0 has too little memory free, and with others it would be more .*",
        ),
        (NONE, (30, 1), "no NUMA nodes have enough memory"),
    ],
)
def test_nodes_that_are_not_enough_are_named(given: Hint, sizes: tuple[int, int], says: str) -> None:
    """Where the topology manager's nodes and all sets around them have too little, that is said, and of what."""
    static = StaticPolicy(Ledger(empty_books({n: {MEMORY: 10, HUGE: 1} for n in (0, 1)}).node_map))
    static.ledger.nodes[NodeId(0)].tables[MEMORY].allocatable = 20
    pod = Pod("p", (container("c", memory=sizes[0], huge=sizes[1]),))

    with pytest.raises(AllocationError, match=f"^{says}$"):
        static.allocate(pod, pod.containers[0], given)


@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_pages_that_no_node_has_are_named(policy: TopologyPolicy) -> None:
    """A pool that is empty or missing everywhere is what the sentence is about, under every policy."""
    for tables in ({MEMORY: 10}, {MEMORY: 10, HUGE: 0}):
        books = empty_books(dict.fromkeys(range(8), tables))
        answer = Kubelet(books.node_map, policy, Scope.CONTAINER).admit(Pod("p", (container("a", memory=2, huge=1),)))

        assert answer.detail == "a: no node has any hugepages-2Mi"


def test_the_choice_is_the_best_of_the_list() -> None:
    """Whatever is on the nodes, with memory that may be used again, around any set of nodes."""
    rng = Random(9)
    seen: Counter[str] = Counter()
    for _ in range(3_000):
        static, pod = random_static(rng)
        asked = pod.containers[-1].memory_requests()
        ids = static.ledger.node_ids()
        around = NodeSet.from_ids(rng.sample(ids, rng.randint(0, min(2, len(ids)))))
        inside = [
            h
            for h in listed(static.ledger, asked, static.reusable.get(pod.uid, {}))
            if h.affinity is not None and around.issubset(h.affinity)
        ]
        expected = min(inside, key=lambda h: (len(h.affinity or ()), h.affinity or NodeSet()), default=None)
        seen["none" if expected is None else f"preferred: {expected.preferred}"] += 1
        seen["again"] += bool(static.reusable.get(pod.uid))

        assert expected == static.sets(pod, asked).best(around=around.mask)
    assert min(seen.values()) > 200, seen
    assert len(seen) == 4


@pytest.mark.parametrize("nodes", [16, 64])
def test_many_nodes_under_the_policy_none(nodes: int) -> None:
    """Hundreds of containers are placed without listing a single set."""
    books = empty_books({n: {MEMORY: 40, HUGE: 4} for n in range(nodes)})
    kubelet = Kubelet(books.node_map, TopologyPolicy.NONE, Scope.CONTAINER)
    pod = Pod("p", (*(container(f"c{i}", memory=3, huge=1) for i in range(60)), container("wide", memory=100)))
    before = process_time()
    answer = kubelet.admit(pod)

    assert answer.admitted == (nodes == 64)
    assert NodeSet.of(14) == answer.mems["c59"]
    assert process_time() - before < 2


def test_hundreds_of_containers() -> None:
    """Five hundred containers with two types on eight nodes are answered in a moment."""
    books = empty_books({n: {MEMORY: 1 << 20, HUGE: 1 << 20} for n in range(8)})
    kubelet = Kubelet(books.node_map, TopologyPolicy.RESTRICTED, Scope.CONTAINER)
    before = process_time()
    answer = kubelet.admit(Pod("p", tuple(container(f"c{i}", memory=3, huge=1) for i in range(500))))

    assert answer.admitted
    assert process_time() - before < 5

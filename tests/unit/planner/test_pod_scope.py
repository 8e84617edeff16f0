"""Pod scope, container after container."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from numapin.model.memory import MEMORY, Books, Owner, rest_of
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Plan, Refusal, RefusalCode, Request, Rules, TopologyPolicy
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from numapin.planner.accounting import build_node_map, check
from numapin.planner.pod_scope import place_in_pod


def machine(nodes: int = 4, size: int = 10) -> Books:
    """*nodes* nodes of *size* bytes."""
    topology = Topology(
        {NodeId(i): NumaNode(NodeId(i), CpuSet.of(i), NodeKind.MEMORY, memory_bytes=size) for i in range(nodes)}
    )
    return Books(build_node_map(topology, {}, topology.online))


def arrive(
    books: Books, name: str, size: int, pod: int, *, policy: TopologyPolicy = TopologyPolicy.RESTRICTED
) -> Plan | Refusal:
    """A container of pod p asks for *size* of the pod's *pod* bytes (0: the pod has no limit of its own)."""
    request = Request(Owner("p", name), {MEMORY: size})
    return place_in_pod(books, request, Rules(policy), pod_sizes={MEMORY: pod} if pod else {})


def test_all_containers_of_a_pod_get_the_nodes_of_the_whole() -> None:
    """A pod of 12 on nodes of 10 gets two nodes, and so does its container of 4."""
    first = arrive(machine(), "a", 4, 12)
    assert isinstance(first, Plan)
    second = arrive(first.books, "b", 8, 12)
    assert isinstance(second, Plan)

    assert (first.nodes, second.nodes) == (NodeSet.of(0, 1), NodeSet.of(0, 1))
    assert check(second.books) == ()


def test_a_pod_that_fits_one_node_stays_on_it() -> None:
    """Containers of a small pod share its node even where another is emptier."""
    first = arrive(machine(), "a", 4, 8)
    assert isinstance(first, Plan)
    second = arrive(first.books, "b", 4, 8)

    assert isinstance(second, Plan)
    assert second.nodes == first.nodes == NodeSet.of(0)


def test_a_pod_too_large_for_what_is_free_is_refused_at_its_first_container() -> None:
    """The pod's whole size counts, not that of the container that happens to come first."""
    books = machine(2)
    other = place_in_pod(books, Request(Owner("q", "x"), {MEMORY: 8}), Rules(), pod_sizes={})
    assert isinstance(other, Plan)

    refused = arrive(other.books, "a", 2, 15)

    assert isinstance(refused, Refusal)
    assert refused.owner == Owner("p", "a")
    assert "its pod as a whole" in refused.message


def test_a_container_beyond_its_pods_nodes_is_refused() -> None:
    """Where the pod's limit was not told, a later container that does not fit beside the first is refused."""
    first = arrive(machine(), "a", 8, 0)
    assert isinstance(first, Plan)

    refused = arrive(first.books, "b", 4, 0)

    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.NO_ROOM


def test_ended_containers_of_the_pod_make_room_on_its_nodes() -> None:
    """What an init container held is used first by the next container, on the same nodes."""
    init = arrive(machine(), "init", 8, 8)
    assert isinstance(init, Plan)
    request = Request(Owner("p", "app"), {MEMORY: 8}, reusable=(Owner("p", "init"),))

    app = place_in_pod(init.books, request, Rules(), pod_sizes={MEMORY: 8})

    assert isinstance(app, Plan)
    assert app.nodes == NodeSet.of(0)
    assert set(app.books.assignments) == {Owner("p", "app")}


def test_types_only_another_container_asks_for_count() -> None:
    """A hugepage pool that the pod needs later draws the whole pod, also a first container without hugepages."""
    base = machine(2)
    pool = HugepagePool(2, 4, 4, 0)
    topology = Topology(
        {
            NodeId(i): NumaNode(NodeId(i), CpuSet.of(i), NodeKind.MEMORY, 20, pools=(pool,) if i else ())
            for i in range(2)
        }
    )
    kind = next(t for t in build_node_map(topology, {}, topology.online).nodes[NodeId(1)].memory_map if t != MEMORY)
    books = replace(base, node_map=build_node_map(topology, {}, topology.online))

    plan = place_in_pod(books, Request(Owner("p", "a"), {MEMORY: 4}), Rules(), pod_sizes={MEMORY: 8, kind: 8})

    assert isinstance(plan, Plan)
    assert plan.nodes == NodeSet.of(1)


def test_what_is_not_taken_yet_is_kept() -> None:
    """After the first container the books hold the whole pod; after the last one nothing is kept beside it."""
    first = arrive(machine(), "a", 4, 12)
    assert isinstance(first, Plan)
    second = arrive(first.books, "b", 8, 12)
    assert isinstance(second, Plan)

    assert {o: [b.size_bytes for b in blocks] for o, blocks in first.books.assignments.items()} == {
        Owner("p", "a"): [4],
        rest_of("p"): [8],
    }
    assert set(second.books.assignments) == {Owner("p", "a"), Owner("p", "b")}


def test_a_pod_that_was_accepted_gets_all_its_containers() -> None:
    """In 400 seeded sequences of pods that arrive mixed, only first containers are refused, and the books add up."""
    refused = later = 0
    for seed in range(400):
        rng = Random(seed)
        pods = {f"p{i}": [rng.randint(1, 7) for _ in range(rng.randint(1, 4))] for i in range(6)}
        arrivals = [(pod, n) for pod, sizes in pods.items() for n in range(len(sizes))]
        rng.shuffle(arrivals)
        policy = rng.choice(list(TopologyPolicy))
        books, known, gone = machine(), set[str](), set[str]()
        for pod, n in arrivals:
            if pod in gone:
                continue
            request = Request(Owner(pod, str(n)), {MEMORY: pods[pod][n]})
            answer = place_in_pod(books, request, Rules(policy), pod_sizes={MEMORY: sum(pods[pod])})
            if isinstance(answer, Refusal):
                refused += 1
                assert pod not in known
                gone.add(pod)
                continue
            later += pod in known
            known.add(pod)
            books = answer.books
            assert check(books) == ()
            assert not any(t.free < 0 for s in books.node_map.nodes.values() for t in s.memory_map.values())
    assert min(refused, later) > 200

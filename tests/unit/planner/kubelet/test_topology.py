"""The topology manager's answers without lists: the same as from the whole lists, and for any number of nodes."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from random import Random
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numapin.model.memory import MEMORY, Books, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, Rules, Scope, TopologyPolicy
from numapin.planner.kubelet.bounds import TooManyNodes, Unanswered
from numapin.planner.kubelet.merge import merge
from numapin.planner.kubelet.node import POD, Admission, Kubelet
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.kubelet.sets import Sets
from numapin.planner.kubelet.topology import answer, lists
from support.cases import random_case
from support.listing import ListingKubelet
from support.strategies import KINDS, empty_books, provider_hints, rules, used_machines

NONE, BEST, RESTRICTED, SINGLE = TopologyPolicy
HUGE = MemoryType("hugepages-2Mi")


def container(
    name: str, sizes: dict[MemoryType, int], *, init: bool = False, restartable: bool = False
) -> PodContainer:
    """A container that a Guaranteed pod may have."""
    limits = {"cpu": Decimal(1), **{str(kind): Decimal(size) for kind, size in sizes.items()}}
    return PodContainer(name, {}, limits, init, init and restartable)


def even(nodes: int, *kinds: MemoryType, size: int = 10) -> Books:
    """An empty machine of equal nodes."""
    return empty_books({n: dict.fromkeys(kinds, size) for n in range(nodes)})


def kubelet(books: Books, policy: TopologyPolicy, *, closest: bool = False) -> Kubelet:
    """A kubelet that starts on any number of nodes; with *closest*, four nodes are near each other."""
    ids = list(books.node_map.nodes)
    near = {a: {b: 10 if a == b else 12 if a // 4 == b // 4 else 32 for b in ids} for a in ids}
    return Kubelet(books.node_map, policy, Scope.CONTAINER, near if closest else None, most_nodes=4_096)


# ---- the same as from the lists ------------------------------------------------------------------------------------


@st.composite
def pods(draw: st.DrawFn, books: Books) -> Pod:
    """Up to four containers, init containers and sidecars among them, that often nearly fit."""
    nodes = books.node_map.nodes.values()
    kinds = sorted({k for s in nodes for k in s.memory_map} | set(KINDS[: draw(st.integers(1, 2))]))
    made = []
    for number in range(draw(st.integers(1, 4))):
        sizes = {}
        for kind in kinds:
            tables = [s.memory_map[kind] for s in nodes if kind in s.memory_map]
            most, total = max((t.allocatable for t in tables), default=0), sum(t.allocatable for t in tables)
            if kind == MEMORY or draw(st.booleans()):
                sizes[kind] = draw(st.integers(1, max(1, most)) | st.integers(0, total + 1))
        sizes[MEMORY] = max(1, sizes[MEMORY])
        made.append(container(f"c{number}", sizes, init=draw(st.booleans()), restartable=draw(st.booleans())))
    return Pod("new", tuple(sorted(made, key=lambda c: not c.init)))


def both(
    books: Books, rule: Rules, scope: Scope, asked: list[tuple[Pod, dict[str, list[ProviderHints]]]]
) -> tuple[list[object], list[object]]:
    """What the kubelet and the one with lists answer to these pods one after the other, and their books after it."""
    distances = rule.distances if rule.prefer_closest else None
    searching = Kubelet.over(books, rule.policy, scope, distances, most_nodes=64)
    listing = ListingKubelet.over(books, rule.policy, scope, distances, most_nodes=64)
    assert isinstance(listing, ListingKubelet)
    listing.use_lists()
    told: tuple[list[object], list[object]] = ([], [])
    for pod, others in asked:
        for node, said in zip((searching, listing), told, strict=True):
            found = node.admit(pod, others)
            said.append((_verdict(found), node.ledger.node_map(), dict(node.static.reusable)))
    return told


def _verdict(found: Admission) -> tuple[object, ...]:
    return found.admitted, found.reason, found.affinity, found.mems


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_pod_on_any_machine(data: st.DataObject) -> None:
    """Groups, several types, init containers, both scopes, closeness, others' hints: the lists give the same."""
    books = data.draw(used_machines(most_nodes=6))
    pod = data.draw(pods(books))
    others: dict[str, list[ProviderHints]] = {}
    if data.draw(st.booleans()):
        ids = list(books.node_map.nodes)
        for name in (POD, *(c.name for c in pod.containers)):
            others[name] = data.draw(st.lists(provider_hints(ids), max_size=2))
    searching, listing = both(books, data.draw(rules(books)), data.draw(st.sampled_from(Scope)), [(pod, others)])

    assert listing == searching


@pytest.mark.parametrize(("most_nodes", "cases"), [(4, 4_000), (7, 700)])
def test_many_random_pods(most_nodes: int, cases: int) -> None:
    """The same for thousands of seeded cases of several pods one after the other, all verdicts among them."""
    rng = Random(most_nodes)
    seen: Counter[str] = Counter()
    for _ in range(cases):
        books, request, rule = random_case(rng, most_nodes=most_nodes)
        kinds = sorted({k for s in books.node_map.nodes.values() for k in s.memory_map} | {MEMORY})
        asked = []
        for number in range(3):
            made = []
            for c in range(rng.choice([1, 1, 2, 3])):
                sizes = {
                    k: max(1, rng.randint(0, 2 * max(request.sizes.values()))) for k in kinds if rng.random() < 0.8
                }
                init = c < 2 and rng.random() < 0.3
                made.append(container(f"c{c}", {MEMORY: 1, **sizes}, init=init, restartable=rng.random() < 0.5))
            asked.append(
                (Pod(f"p{number}", tuple(sorted(made, key=lambda c: not c.init))), dict[str, list[ProviderHints]]())
            )
            if request.hints and number == 1:
                asked[-1][1].update({POD: list(request.hints), "c0": list(request.hints)})
        searching, listing = both(books, rule, rng.choice(list(Scope)), asked)
        seen.update(str(said[0][1]) or str(rule.policy) for said in searching if isinstance(said, tuple))

        assert listing == searching
    assert min(seen.values()) > cases // 20, seen
    assert len(seen) == 6


@pytest.mark.parametrize("policy", [BEST, RESTRICTED, SINGLE])
def test_more_nodes_than_are_searched_through(policy: TopologyPolicy) -> None:
    """On eleven to thirteen nodes the whole lists merge to the same."""
    rng = Random(13)
    for _ in range(40):
        kinds = [MEMORY, HUGE][: rng.choice([1, 2])]
        ids = rng.sample(range(20), rng.randint(11, 13))
        books = empty_books({n: {k: rng.randint(1, 40) for k in kinds} for n in ids})
        node = kubelet(books, policy, closest=rng.random() < 0.5)
        for number in range(4):
            asked = container("c", {k: rng.choice([5, 20, 45, 70]) for k in kinds})
            pod = Pod(f"p{number}", (asked,))
            own = node.static.of_container(pod, asked)
            assert isinstance(own, Sets)
            whole = merge(lists(own.hints()), node.nodes, policy, node.distances)
            short = answer(own, (), node.nodes, policy, node.distances)

            assert whole.preferred == short.preferred
            if policy is BEST or whole.preferred:
                assert whole == short
            node.admit(pod)


# ---- any number of nodes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [10, 16, 64, 300])
@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_three_types_on_many_nodes(nodes: int, policy: TopologyPolicy) -> None:
    """A pod of ten containers with three types of memory is placed on any number of nodes, at once."""
    small = dict.fromkeys(KINDS, 6)
    pod = Pod("p", tuple(container(f"c{n}", small) for n in range(10)))
    before = process_time()
    found = kubelet(even(nodes, *KINDS), policy).admit(pod)

    assert (found.admitted, found.mems["c9"]) == (True, NodeSet.of(9))
    assert process_time() - before < 2


@pytest.mark.parametrize("policy", [RESTRICTED, SINGLE])
def test_a_rejection_on_many_nodes(policy: TopologyPolicy) -> None:
    """Where one node would do when empty and two have room, the strict policies say no and name these."""
    node = kubelet(even(40, MEMORY, HUGE), policy)
    node.admit(Pod("a", tuple(container(f"c{n}", {MEMORY: 6, HUGE: 1}) for n in range(38))))
    for n in (38, 39):
        table = node.ledger.nodes[NodeId(n)].tables[MEMORY]
        table.free, table.reserved = 5, 5
    found = node.admit(Pod("b", (container("c", {MEMORY: 7, HUGE: 1}),)))

    assert (found.reason, found.detail) == (
        "TopologyAffinityError",
        "c: no set of nodes is one that every resource prefers; nodes 38-39 have room",
    )


def test_others_hints_on_many_nodes() -> None:
    """What other resources prefer too is found without a list, and so is that there is nothing."""
    node = kubelet(even(64, MEMORY, HUGE), RESTRICTED)
    pod = Pod("p", (container("c", {MEMORY: 15, HUGE: 1}),))
    cpus = ProviderHints("cpu", tuple(Hint(NodeSet.of(n, n + 1), True) for n in range(5, 60)))
    wide = ProviderHints("cpu", (Hint(NodeSet.of(1, 2, 3), True),))

    assert {"c": NodeSet.of(5, 6)} == node.admit(pod, {"c": [cpus]}).mems
    assert node.admit(Pod("q", pod.containers), {"c": [wide]}).reason == "TopologyAffinityError"


def test_two_lists_that_meet_elsewhere() -> None:
    """Best-effort with two types and no preferred set: the lists meet in a set that neither holds, up to 16 nodes."""
    for nodes in (5, 16):
        node = kubelet(even(nodes, MEMORY, HUGE), BEST)
        for n in range(nodes):
            node.ledger.nodes[NodeId(n)].tables[MEMORY].free = 4
        found = node.admit(Pod("p", (container("c", {MEMORY: 9, HUGE: 1}),)))

        assert {"c": Hint(NodeSet.of(0, 1, 2), False)} == found.affinity
    with pytest.raises(TooManyNodes, match="where no set of nodes that 2 kinds of memory all prefer") as caught:
        crowded = kubelet(even(17, MEMORY, HUGE), BEST)
        for n in range(17):
            crowded.ledger.nodes[NodeId(n)].tables[MEMORY].free = 4
        crowded.admit(Pod("p", (container("c", {MEMORY: 9, HUGE: 1}),)))
    assert (caught.value.why, caught.value.limit) == (Unanswered.ALL_COMPARED, 16)


def test_the_closest_of_too_many_sets() -> None:
    """Ten of 64 nodes cannot be compared for closeness; a few of them, or up to 16 nodes, can."""
    wide = Pod("p", (container("c", {MEMORY: 95}),))

    with pytest.raises(
        TooManyNodes, match="which of all the sets of 64 nodes that would do is the closest"
    ) as caught:
        kubelet(even(64, MEMORY), RESTRICTED, closest=True).admit(wide)
    assert caught.value.why is Unanswered.CLOSEST
    assert kubelet(even(16, MEMORY), RESTRICTED, closest=True).admit(wide).admitted
    pair = Pod("q", (container("c", {MEMORY: 35}),))
    assert {"c": NodeSet.parse("0-3")} == kubelet(even(64, MEMORY), RESTRICTED, closest=True).admit(pair).mems


def test_the_fewest_nodes_for_two_types_are_hard_to_find() -> None:
    """Sizes that make a puzzle of it end in a sentence that names the kinds of memory, in seconds."""
    rng = Random(3)
    high = 1 << 40
    first = [rng.randrange(high) for _ in range(40)]
    books = empty_books({n: {MEMORY: high + v, HUGE: 2 * high - v} for n, v in enumerate(first)})
    half = sum(sorted(rng.sample(first, 20)))
    pod = Pod("p", (container("c", {MEMORY: 20 * high + half, HUGE: 40 * high - half + 1}),))
    before = process_time()

    with pytest.raises(TooManyNodes, match="which of 40 nodes are the fewest that have enough of 2 kinds of memory"):
        kubelet(books, RESTRICTED).admit(pod)
    assert process_time() - before < 15


def test_lists_are_bounded_for_the_whole_pod() -> None:
    """Where every set counts and the containers are many, that is said before anybody waits."""
    kinds = (*KINDS, MemoryType("hugepages-64Ki"))
    node = kubelet(even(16, *kinds), BEST)
    for n in range(16):
        node.ledger.nodes[NodeId(n)].tables[MEMORY].free = 3
    pod = Pod("p", tuple(container(f"c{n}", {**dict.fromkeys(kinds, 1), MEMORY: 4}) for n in range(8)))
    before = process_time()

    with pytest.raises(TooManyNodes, match="16 nodes counts for each of the containers, and for 4 kinds") as caught:
        node.admit(pod)
    assert caught.value.why is Unanswered.CONTAINERS
    assert process_time() - before < 10
    assert node.admit(Pod("q", pod.containers[:1])).admitted

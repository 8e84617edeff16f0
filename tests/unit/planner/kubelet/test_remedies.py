"""What is said to help a rejected pod does help: each remedy is read from its words, done, and asked again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random
from time import process_time

import pytest

from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Plan, Request, Rules, Scope, TopologyPolicy
from numapin.planner.accounting import release, reserve
from numapin.planner.kubelet.node import Kubelet
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.kubelet.rejection import Situation, record, rejected
from numapin.planner.kubelet.remedies import remedies
from numapin.planner.placement import place
from support.strategies import empty_books

GIB = 1 << 30
HUGE = MemoryType("hugepages-2Mi")
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": GIB, "TiB": 1 << 40}
RESTRICTED, SINGLE = TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE


def container(name: str, gib: float, huge: int = 0, *, kind: str = "app") -> PodContainer:
    """A container of so many GiB; *kind* is app, init or sidecar."""
    limits = {"cpu": Decimal(1), "memory": Decimal(int(gib * GIB))}
    if huge:
        limits[HUGE] = Decimal(huge * GIB)
    return PodContainer(name, {}, limits, kind != "app", kind == "sidecar")


def machine(*sizes: float, **held: tuple[str, float]) -> Books:
    """Nodes from 0 up with so many GiB, and ``name=(nodes, GiB)`` on them."""
    books = empty_books({n: {MEMORY: int(size * GIB)} for n, size in enumerate(sizes)})
    for name, (nodes, size) in held.items():
        books = reserve(books, Owner(name, "c"), (Block(NodeSet.parse(nodes), MEMORY, int(size * GIB)),))
    return books


def situation(
    books: Books, *containers: PodContainer, policy: TopologyPolicy = RESTRICTED, scope: Scope
) -> Situation:
    """The question about one pod."""
    return Situation(books, Pod("p", containers), policy, scope, None, 8)


def said(asked: Situation) -> tuple[str, ...] | None:
    """The remedies, or ``None`` where the pod is admitted."""
    kubelet = asked.kubelet()
    answer = kubelet.admit(asked.pod)
    if answer.admitted:
        return None
    stopped = next(c for c in asked.pod.containers if c.name not in answer.mems)
    found = rejected(asked, kubelet, None if asked.asks_whole_pod else stopped)

    assert found is not None
    return remedies(found)


# ---- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [9, 8])
def test_the_whole_pod_is_what_pod_scope_asks_for(first: int) -> None:
    """No remedy is true of one container only: 14 GiB do not fit where 9 GiB would with a little more."""
    asked = situation(
        machine(10, 10, x=("0", 2), y=("1", 9)), container("a", first), container("b", 5), scope=Scope.POD
    )

    assert (
        "with a memory limit of 3 GiB for a it would be admitted now, on node 0",
        "with all nodes empty it would be admitted",
    ) == said(asked)


def test_memory_that_is_used_again_counts() -> None:
    """What an init container leaves is free for the next one, in the table and in every remedy."""
    asked = situation(
        machine(10, 4),
        container("proxy", 2, kind="sidecar"), container("restore", 6, kind="init"), container("main", 8.5),
        policy=SINGLE, scope=Scope.CONTAINER,
    )  # fmt: skip
    kubelet = asked.kubelet()
    kubelet.admit(asked.pod)
    found = rejected(asked, kubelet, asked.pod.containers[2])

    assert found is not None
    assert [8 * GIB, 4 * GIB] == [view.free[MEMORY] for view in record(found).nodes]
    assert ("with a memory limit of 8 GiB for main it would be admitted now, on node 0",) == remedies(found)
    held = replace(asked, books=machine(12, 4, x=("0", 2)))
    assert ("with 512 MiB more free on node 0 it would be admitted" in (said(held) or ())) is True


def test_no_later_container_is_forgotten() -> None:
    """What must become free is enough for the whole pod, not for the container that was rejected first."""
    asked = situation(machine(10, x=("0", 6)), container("a", 5), container("b", 2), scope=Scope.CONTAINER)

    assert "with 3 GiB more free on node 0 it would be admitted" in (said(asked) or ())


def test_another_scope_is_named_where_it_helps() -> None:
    """Containers that fit one by one need no single set of nodes."""
    asked = situation(machine(10, 10, x=("0", 2), y=("1", 2)), container("a", 7), container("b", 7), scope=Scope.POD)

    assert "the topology manager scope container would admit it now, on nodes 0-1" in (said(asked) or ())


def test_a_type_that_no_node_has() -> None:
    """Without the pool nothing helps, so nothing else is said."""
    asked = situation(machine(10, 10), container("a", 1, 1), scope=Scope.CONTAINER)

    assert ("add hugepages-2Mi to a node (write the pool's nr_hugepages)",) == said(asked)


def test_remedies_take_no_longer_than_they_are_worth() -> None:
    """On eight nodes with hundreds of containers few are tried, and the answer comes."""
    books = machine(*[10] * 8, **{f"x{n}": (str(n), 6) for n in range(8)})
    asked = situation(books, *(container(f"c{i}", 1) for i in range(200)), scope=Scope.CONTAINER)
    before = process_time()

    assert said(asked) is not None
    assert process_time() - before < 10


@pytest.mark.parametrize("nodes", [16, 128])
@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_many_nodes(nodes: int, policy: TopologyPolicy) -> None:
    """Of many places those that lack least are tried, and what is found is as on a few nodes."""
    books = empty_books({n: {MEMORY: 10 * GIB, HUGE: 10 * GIB} for n in range(nodes)})
    for n in range(nodes):
        held = (5 if n == nodes - 1 else 8) * GIB
        books = reserve(books, Owner(f"x{n}", "c"), (Block(NodeSet.of(n), MEMORY, held),))
    asked = replace(situation(books, container("a", 7, 1), policy=policy, scope=Scope.CONTAINER), most_nodes=nodes)
    before = process_time()

    assert (
        f"with 2 GiB more free on node {nodes - 1} it would be admitted",
        f"with a memory limit of 5 GiB it would be admitted now, on node {nodes - 1}",
    ) == said(asked)
    assert process_time() - before < 10


# ---- every remedy is true ------------------------------------------------------------------------------------------


def random_situation(rng: Random) -> Situation:
    """Two to four nodes with a few pods on them, and a pod of up to five containers."""
    kinds = [MEMORY, HUGE][: rng.choice([1, 1, 2])]
    nodes = {n: {k: rng.choice([4, 8, 10, 12]) * GIB for k in kinds} for n in range(rng.choice([2, 2, 3, 4]))}
    books = empty_books(nodes)
    for number in range(rng.randint(0, 4)):
        sizes = {k: rng.choice([1, 2, 3, 5, 11]) * GIB for k in kinds}
        answer = place(books, Request(Owner(f"o{number}", "c"), sizes), Rules(TopologyPolicy.BEST_EFFORT))
        books = answer.books if isinstance(answer, Plan) else books
    made = []
    for number in range(rng.choice([1, 1, 2, 3, 4])):
        kind = rng.choice(["app", "init", "sidecar"]) if number else "app"
        made.append(container(f"c{number}", rng.choice([0.5, 1, 2, 3, 5, 7, 9, 11]), len(kinds) - 1, kind=kind))
    made.sort(key=lambda c: not c.init)
    policy, scope = rng.choice(list(TopologyPolicy)), rng.choice(list(Scope))
    return situation(books, *made, policy=policy, scope=scope)


def with_limit(pod: Pod, name: str, size: int) -> Pod:
    """The pod with another memory limit of one container."""
    return replace(
        pod,
        containers=tuple(
            replace(c, limits={**c.limits, "memory": Decimal(size)}) if c.name == name else c for c in pod.containers
        ),
    )


def with_free(books: Books, nodes: NodeSet, kind: MemoryType, size: int) -> Books:
    """The books with so much of what is promised given back."""
    states = dict(books.node_map.nodes)
    for n in nodes:
        table = states[n].memory_map[kind]
        part = min(size, table.reserved)
        size -= part
        given = MemoryTable(table.total, 0, table.allocatable, table.reserved - part, table.free + part)
        states[n] = replace(states[n], memory_map={**states[n].memory_map, kind: given})
    return Books(NodeMap(states), books.assignments)


def done(remedy: str, asked: Situation) -> Situation:
    """The situation with the remedy applied as it is worded."""
    if found := re.match(r"with (.+) more free (?:on node|in group) ([\d,-]+) it would be admitted$", remedy):
        books = asked.books
        for amount in found[1].split(" and "):
            number, unit, *of = amount.split()
            kind = MemoryType(of[1]) if of else MEMORY
            size = -int(-Decimal(number) * UNITS[unit])
            books = with_free(books, NodeSet.parse(found[2]), kind, size)
        return replace(asked, books=books)
    if found := re.match(r"with a memory limit of ([\d.]+) (\w+)(?: for (\S+))? it would be admitted now", remedy):
        size = int(Decimal(found[1]) * UNITS[found[2]])
        return replace(asked, pod=with_limit(asked.pod, found[3] or asked.pod.containers[0].name, size))
    if found := re.match(r"the policy (\S+) would admit it now", remedy):
        return replace(asked, policy=TopologyPolicy(found[1]))
    if remedy.startswith("the topology manager scope container would admit it now"):
        return replace(asked, scope=Scope.CONTAINER)
    if found := re.match(r"with (?:node|group) ([\d,-]+) empty it would be admitted", remedy):
        mask = NodeSet.parse(found[1]).mask
        owners = [o for o, b in asked.books.assignments.items() if any(block.affinity.mask & mask for block in b)]
        return replace(asked, books=release(asked.books, *owners))
    assert remedy == "with all nodes empty it would be admitted"
    return replace(asked, books=release(asked.books, *asked.books.assignments))


def test_every_remedy_is_true() -> None:
    """In hundreds of rejections each remedy, done as it is worded, makes the kubelet admit the pod where it says."""
    rng = Random(5)
    seen: Counter[str] = Counter()
    for _ in range(1_500):
        asked = random_situation(rng)
        for remedy in said(asked) or ():
            kind = " ".join(re.findall(r"[a-z]+", remedy)[:4])
            seen[kind] += 1
            then = done(remedy, asked)
            kubelet = Kubelet.over(then.books, then.policy, then.scope)
            answer = kubelet.admit(then.pod)

            assert answer.admitted, (remedy, asked, answer)
            if named := re.search(r", (?:with \S+ )?on (?:node|nodes) ([\d,-]+)$", remedy):
                nodes = NodeSet.from_ids(NodeId(n) for mems in answer.mems.values() for n in mems)
                assert NodeSet.parse(named[1]).issubset(nodes)
    assert len(seen) >= 6, seen
    assert sum(seen.values()) > 500, seen

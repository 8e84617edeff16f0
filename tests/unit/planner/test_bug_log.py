"""Entries of the bug log that the planner answers: what went wrong for others, with the right value."""

from __future__ import annotations

from time import process_time

import pytest

from numapin.model.memory import MEMORY, Books, MemoryType, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Exclusion, Plan, Refusal, Request, Rules, TopologyPolicy
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from numapin.planner.accounting import ReservationError, build_node_map, reserve
from numapin.planner.placement import place

GIB = 1 << 30
MIB = 1 << 20
HUGE = MemoryType("hugepages-2Mi")
OWNER = Owner("pod", "c")


def node(number: int, memory: int, kind: NodeKind = NodeKind.MEMORY, pages: int = 0) -> NumaNode:
    """A node, with 2 MiB pages when *pages* is given."""
    pools = (HugepagePool(2 * MIB, pages, pages, 0),) if pages else ()
    return NumaNode(NodeId(number), CpuSet(), kind, memory, pools=pools)


def topology(*nodes: NumaNode) -> Topology:
    """A machine of these nodes."""
    return Topology({n.id: n for n in nodes})


@pytest.mark.parametrize("policy", list(TopologyPolicy))
@pytest.mark.parametrize("size", [50, 100, 128])
def test_b005_nodes_without_memory(policy: TopologyPolicy, size: int) -> None:
    """B005: nodes without memory are kept with nothing to give, and never stand in a placement."""
    empty = NodeKind.MEMORYLESS
    machine = topology(node(0, 0, empty), node(1, 64 * GIB), node(2, 64 * GIB), node(3, 0, empty))
    node_map = build_node_map(machine, {}, NodeSet.of(0, 1, 2, 3))
    answer = place(Books(node_map), Request(OWNER, {MEMORY: size * GIB}), Rules(policy))

    assert list(node_map.nodes) == [0, 1, 2, 3]
    assert [0, 0] == [node_map.nodes[NodeId(n)].memory_map[MEMORY].allocatable for n in (0, 3)]
    assert answer.explanation.nodes[0].exclusion is Exclusion.MEMORYLESS
    if isinstance(answer, Plan):
        assert answer.nodes.issubset(NodeSet.of(1, 2))
    else:
        assert policy is TopologyPolicy.SINGLE_NUMA_NODE


def test_b005_reservation_on_a_node_without_memory() -> None:
    """B005: memory reserved on such a node is an error that names it."""
    machine = topology(node(0, 0, NodeKind.MEMORYLESS), node(1, 64 * GIB))

    with pytest.raises(ReservationError, match=r"node 0, memory: .* on a node without memory"):
        build_node_map(machine, {NodeId(0): {MEMORY: GIB}}, NodeSet.of(0, 1))


@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_b007_thirty_four_nodes(policy: TopologyPolicy) -> None:
    """B007: 34 nodes, all of them usable: node 0, or node 1 when 0 is full, in milliseconds."""
    machine = topology(*(node(n, 240 * GIB if n < 2 else 96 * GIB) for n in range(34)))
    books = Books(build_node_map(machine, {}, machine.online))
    begin = process_time()
    first = place(books, Request(OWNER, {MEMORY: 8 * GIB}), Rules(policy))
    assert isinstance(first, Plan)
    full = place(books, Request(Owner("pod", "full"), {MEMORY: 240 * GIB}), Rules(policy))
    assert isinstance(full, Plan)
    second = place(full.books, Request(OWNER, {MEMORY: 8 * GIB}), Rules(policy))
    assert isinstance(second, Plan)

    assert process_time() - begin < 0.5
    assert (first.nodes, full.nodes, second.nodes) == (NodeSet.of(0), NodeSet.of(0), NodeSet.of(1))


def test_b008_gpu_memory_is_not_used_unless_named() -> None:
    """B008: 300 GiB on two nodes of 240 with GPU memory beside them is the group of the two."""
    gpus = (node(n, 96 * GIB, NodeKind.CPU_LESS) for n in range(2, 10))
    machine = topology(node(0, 240 * GIB), node(1, 240 * GIB), *gpus)
    request = Request(OWNER, {MEMORY: 300 * GIB})
    without = place(Books(build_node_map(machine, {}, NodeSet.of(0, 1))), request, Rules())
    with_two = place(Books(build_node_map(machine, {}, NodeSet.of(0, 1, 2))), request, Rules())

    assert isinstance(without, Plan)
    assert isinstance(with_two, Plan)
    assert (without.nodes, with_two.nodes) == (NodeSet.of(0, 1), NodeSet.of(0, 1))
    assert list(with_two.books.node_map.nodes) == [0, 1, 2]


def test_b022_reservation_and_pools_above_the_node() -> None:
    """B022: 4 GiB less 3 GiB of pages less 2 GiB reserved is an error with the three numbers."""
    machine = topology(node(0, 4 * GIB), node(1, 4 * GIB, pages=1536))

    with pytest.raises(ReservationError) as caught:
        build_node_map(machine, {NodeId(1): {MEMORY: 2 * GIB}}, NodeSet.of(0, 1))

    (problem,) = caught.value.problems
    assert (problem.node, problem.type) == (1, MEMORY)
    assert (problem.total, problem.hugepage_pools, problem.reserved) == (4 * GIB, 3 * GIB, 2 * GIB)


def test_b026_pages_the_kernel_does_not_have() -> None:
    """B026: 1 GiB free in the books, 100 pages free in the kernel: 256 pages go to another node or nowhere."""
    machine = topology(node(0, 8 * GIB, pages=512), node(1, 8 * GIB, pages=512))
    books = Books(build_node_map(machine, {}, NodeSet.of(0, 1)))
    short = {HUGE: 200 * MIB}
    request = Request(OWNER, {MEMORY: GIB, HUGE: 512 * MIB}, ceilings={NodeId(0): short})
    plan = place(books, request, Rules())
    both = Request(OWNER, {MEMORY: GIB, HUGE: 512 * MIB}, ceilings={NodeId(0): short, NodeId(1): short})
    denied = place(books, both, Rules())

    assert isinstance(plan, Plan)
    assert plan.nodes == NodeSet.of(1)
    assert isinstance(denied, Refusal)
    assert "1 GiB of hugepages-2Mi" in denied.message
    assert "the kernel only 200 MiB of hugepages-2Mi" in denied.message


def test_b026_more_in_the_kernel_raises_nothing() -> None:
    """B026: what the books have promised is not offered again, however much the kernel has free."""
    machine = topology(node(0, 8 * GIB, pages=512))
    books = Books(build_node_map(machine, {}, NodeSet.of(0)))
    first = place(books, Request(OWNER, {MEMORY: GIB, HUGE: GIB}), Rules())
    assert isinstance(first, Plan)
    second = Request(Owner("pod", "d"), {MEMORY: GIB, HUGE: 2 * MIB}, ceilings={NodeId(0): {HUGE: GIB}})

    assert isinstance(place(first.books, second, Rules()), Refusal)


@pytest.mark.parametrize(
    ("size", "words"),
    [(10 * MIB, ""), (11 * MIB, "not a multiple of the page size 2Mi"), (40 * MIB, "more than the pool's 20 MiB")],
)
def test_b031_reserved_hugepages(size: int, words: str) -> None:
    """B031: 10 MiB of a pool of ten pages is kept back; part of a page or more than the pool is refused."""
    machine = topology(node(0, 8 * GIB, pages=10))
    reserved = {NodeId(0): {MEMORY: 993 * MIB, HUGE: size}}
    if not words:
        table = build_node_map(machine, reserved, NodeSet.of(0)).nodes[NodeId(0)].memory_map[HUGE]

        assert table.allocatable == 10_485_760
        return
    with pytest.raises(ReservationError) as caught:
        build_node_map(machine, reserved, NodeSet.of(0))

    assert words in str(caught.value)
    assert "node 0, hugepages-2Mi" in str(caught.value)


def test_b031_reserved_pages_are_not_promised() -> None:
    """B031: what is reserved for daemons is not given to a container."""
    machine = topology(node(0, 8 * GIB, pages=10))
    books = Books(build_node_map(machine, {NodeId(0): {HUGE: 10 * MIB}}, NodeSet.of(0)))

    assert isinstance(place(books, Request(OWNER, {MEMORY: GIB, HUGE: 12 * MIB}), Rules()), Refusal)
    assert isinstance(place(books, Request(OWNER, {MEMORY: GIB, HUGE: 10 * MIB}), Rules()), Plan)
    assert reserve(books, OWNER, ()).node_map == books.node_map

"""Hints of CPUs and devices."""

from __future__ import annotations

from dataclasses import replace

from numapin.model.memory import MEMORY, Books, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Hint, Plan, ProviderHints, Refusal, RefusalCode, Request, Rules, TopologyPolicy
from numapin.model.topology import NodeKind, NumaNode, Topology
from numapin.planner.accounting import build_node_map
from numapin.planner.placement import place
from numapin.planner.providers import cpu_hints, device_hints


def machine(nodes: int, cpus_each: int = 2) -> Topology:
    """*nodes* nodes of 10 bytes, each with its own CPUs in order."""
    return Topology(
        {
            NodeId(i): NumaNode(
                id=NodeId(i),
                cpus=CpuSet.from_ids(range(i * cpus_each, (i + 1) * cpus_each)),
                kind=NodeKind.MEMORY,
                memory_bytes=10,
            )
            for i in range(nodes)
        }
    )


def answer(topology: Topology, size: int, *hints: ProviderHints, policy: TopologyPolicy) -> Plan | Refusal:
    """What an empty machine answers to a request of *size* bytes with these hints."""
    books = Books(build_node_map(topology, {}, topology.online))
    return place(books, Request(Owner("p", "c"), {MEMORY: size}, hints=hints), Rules(policy))


def test_all_cpus_are_no_hint() -> None:
    """A container that may run everywhere, or of whose CPUs nothing is known, has no CPU provider."""
    topology = machine(2)

    assert cpu_hints(None, topology, topology.online) is None
    assert cpu_hints(CpuSet.parse("0-3"), topology, topology.online) is None
    assert cpu_hints(CpuSet.parse("0-99"), topology, topology.online) is None
    assert cpu_hints(CpuSet.parse("64-70"), topology, topology.online) is None


def test_cpus_of_two_nodes_prefer_each_and_both() -> None:
    """Memory is local on any of the nodes that the CPUs belong to."""
    topology = machine(3)

    hints = cpu_hints(CpuSet.parse("0,2"), topology, topology.online)

    assert hints == ProviderHints(
        "cpu", (Hint(NodeSet.of(0), True), Hint(NodeSet.of(1), True), Hint(NodeSet.of(0, 1), True))
    )


def test_cpus_of_unusable_nodes_have_no_preference() -> None:
    """CPUs on a node that cannot hold memory do not forbid the others."""
    topology = machine(2)

    assert cpu_hints(CpuSet.parse("0"), topology, NodeSet.of(1)) == ProviderHints("cpu", None)


def test_many_nodes_are_listed_singly_and_together() -> None:
    """The number of hints does not double with each node."""
    topology = machine(65)

    hints = cpu_hints(CpuSet.parse("0-127"), topology, topology.online)

    assert hints is not None and hints.hints is not None
    assert 64 + 1 == len(hints.hints)


def test_memory_follows_the_cpus() -> None:
    """A container confined to node 1's CPUs gets node 1 although node 0 is free."""
    topology = machine(2)
    hints = cpu_hints(CpuSet.parse("2-3"), topology, topology.online)
    assert hints is not None

    plan = answer(topology, 4, hints, policy=TopologyPolicy.RESTRICTED)

    assert isinstance(plan, Plan)
    assert plan.nodes == NodeSet.of(1)


def test_memory_larger_than_the_cpus_node_is_refused_when_strict() -> None:
    """Two nodes' worth of memory cannot be local to one node's CPUs; best-effort takes two nodes all the same."""
    topology = machine(2)
    hints = cpu_hints(CpuSet.parse("2-3"), topology, topology.online)
    assert hints is not None

    strict = answer(topology, 15, hints, policy=TopologyPolicy.RESTRICTED)
    relaxed = answer(topology, 15, hints, policy=TopologyPolicy.BEST_EFFORT)

    assert isinstance(strict, Refusal)
    assert strict.code is RefusalCode.HINTS_DISAGREE
    assert isinstance(relaxed, Plan)
    assert relaxed.nodes == NodeSet.of(0, 1)


def test_device_draws_memory_to_its_node() -> None:
    """Memory goes to the device's node under every policy that merges hints."""
    topology = machine(4)
    hints = device_hints([("/dev/nvme0n1", NodeId(2)), ("/dev/nvme0n2", NodeId(2))], topology.online)

    assert [h.resource for h in hints] == ["device /dev/nvme0n1 and 1 more"]
    for policy in (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
        plan = answer(topology, 4, *hints, policy=policy)
        assert isinstance(plan, Plan)
        assert plan.nodes == NodeSet.of(2)


def test_devices_on_two_nodes_disagree() -> None:
    """No node is near both devices: refused when strict, placed somewhere under best-effort."""
    topology = machine(2)
    hints = device_hints([("/dev/a", NodeId(0)), ("/dev/b", NodeId(1))], topology.online)

    assert isinstance(answer(topology, 4, *hints, policy=TopologyPolicy.RESTRICTED), Refusal)
    assert isinstance(answer(topology, 4, *hints, policy=TopologyPolicy.BEST_EFFORT), Plan)


def test_device_on_a_node_without_memory_has_no_preference() -> None:
    """A device on a memoryless node forbids nothing."""
    topology = machine(2)
    bare = replace(topology.nodes[NodeId(1)], kind=NodeKind.MEMORYLESS, memory_bytes=0)
    usable = NodeSet.of(0)

    (hint,) = device_hints([("/dev/a", bare.id)], usable)

    assert hint == ProviderHints("device /dev/a", None)

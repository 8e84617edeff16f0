"""The machine as the books see it: usable nodes, reservations, pools read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.config import Config, Reserved
from numapin.daemon.machine import Machine
from numapin.model.container import ContainerId, ContainerKind, ContainerRecord, Limits, OciFacts, Runtime
from numapin.model.errors import ConfigError, KernelFormatError, KernelReadError
from numapin.model.memory import MEMORY, hugepages
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Hint, TopologyPolicy
from support.daemon import BARE
from support.machines import GIB, MIB, NODES, Node, Pool, even, write_flat_machine, write_machine
from support.trees import write_tree

HUGE = hugepages(2 * MIB)


def test_nodes_without_cpus_are_used_only_when_named(tmp_path: Path) -> None:
    """GPU or CXL memory is no place for containers unless the administrator says so."""
    write_machine(tmp_path, [*even(2), Node(4, ""), Node(6, "", 0)])

    assert Machine.read(tmp_path, BARE).usable == NodeSet.of(0, 1)
    named = Machine.read(tmp_path, replace(BARE, cpu_less_nodes=NodeSet.of(4)))
    assert named.usable == NodeSet.of(0, 1, 4)
    assert list(named.node_map.nodes) == [0, 1, 4]


def test_the_machine_again(tmp_path: Path) -> None:
    """What is free at the moment makes no other machine; less memory does, and so do other distances."""
    write_machine(tmp_path, even(2, memory=10 * GIB))
    machine = Machine.read(tmp_path, BARE)
    write_machine(tmp_path, [Node(0, "0-1", 10 * GIB, free=GIB), Node(1, "2-3", 10 * GIB, free=0)])
    busier = machine.again()
    write_machine(tmp_path, [Node(0, "0-1", 10 * GIB), Node(1, "2-3", 4 * GIB)])
    smaller = machine.again()

    assert busier.is_as(machine)
    assert not smaller.is_as(machine)
    assert smaller.node_map.nodes[NodeId(1)].memory_map[MEMORY].allocatable == 4 * GIB


def test_a_reservation_that_the_machine_no_longer_holds(tmp_path: Path) -> None:
    """At the start it is an error; on a machine that shrank since, as much as there is is kept, and it is named."""
    write_machine(tmp_path, even(2, memory=10 * GIB))
    config = replace(BARE, reserved=Reserved(0, 0, {NodeId(1): {MEMORY: 6 * GIB}}))
    machine = Machine.read(tmp_path, config)
    write_machine(tmp_path, [Node(0, "0-1", 10 * GIB), Node(1, "2-3", 4 * GIB)])

    with pytest.raises(ConfigError):
        Machine.read(tmp_path, config)
    table = machine.again().node_map.nodes[NodeId(1)].memory_map[MEMORY]
    assert (table.system_reserved, table.allocatable) == (4 * GIB, 0)
    assert machine.again().trouble.startswith("node 1, memory: 6 GiB reserved (6442450944 bytes) is 2 GiB more")


def test_all_memory_without_cpus(tmp_path: Path) -> None:
    """Where all CPUs sit on a memoryless node there is no other choice."""
    write_machine(tmp_path, [Node(0, "0-3", 0), Node(1, ""), Node(2, "")])

    assert Machine.read(tmp_path, BARE).usable == NodeSet.of(1, 2)


def test_no_numa(tmp_path: Path) -> None:
    """A kernel without NUMA is one node 0 with its memory."""
    write_flat_machine(tmp_path, memory=8 * GIB)

    machine = Machine.read(tmp_path, BARE)

    assert machine.topology.synthetic
    assert machine.node_map.nodes[NodeId(0)].memory_map[MEMORY].allocatable == 8 * GIB


def test_the_default_reservation(tmp_path: Path) -> None:
    """5 % of each node, at least 64 MiB, and no more than a node has beside its pools."""
    nodes = [Node(0, "0", 10 * GIB), Node(1, "1", GIB), Node(2, "2", 100 * MIB, pools={2 * MIB: 40})]
    write_machine(tmp_path, nodes)

    tables = Machine.read(tmp_path, Config()).node_map.nodes

    reserved = [tables[NodeId(n)].memory_map[MEMORY].system_reserved for n in range(3)]
    assert reserved == [10 * GIB // 20, 64 * MIB, 20 * MIB]
    assert tables[NodeId(2)].memory_map[MEMORY].allocatable == 0


def test_a_reservation_that_does_not_fit(tmp_path: Path) -> None:
    """Every problem is told with node and numbers, at the key of the file it came from."""
    write_machine(tmp_path, even(2))
    reserved = Reserved(0, 0, {NodeId(1): {MEMORY: 2 * GIB}, NodeId(7): {MEMORY: GIB}})
    config = replace(BARE, reserved=reserved, sources={"reserved.node.1.memory": "/etc/a.toml"})

    with pytest.raises(ConfigError) as caught:
        Machine.read(tmp_path, config)

    assert [(file, key) for file, key, _ in caught.value.problems] == [
        ("/etc/a.toml", "reserved.node.1.memory"),
        ("configuration", "reserved.node.7.memory"),
    ]
    assert "2 GiB" in caught.value.problems[0][2]


def test_a_reservation_on_a_node_that_went(tmp_path: Path) -> None:
    """It counts for nothing while a node that was used before is away, and again when it is back; pools or not."""
    config = replace(BARE, reserved=Reserved(0, 0, {NodeId(1): {MEMORY: GIB // 2}}))
    write_machine(tmp_path, even(2))
    before = Machine.read(tmp_path, config)
    write_machine(tmp_path, even(1))

    without = Machine.read(tmp_path, config, before.known)

    assert (before.known, before.gone, without.gone) == (NodeSet.of(0, 1), NodeSet(), NodeSet.of(1))
    assert list(without.node_map.nodes) == [0, 1]  # with zeros, so that the checkpoint remembers it
    assert without.node_map.nodes[NodeId(1)].memory_map[MEMORY].allocatable == 0
    write_machine(tmp_path, even(2))
    again = Machine.read(tmp_path, config, without.known)
    assert (again.node_map, again.gone) == (before.node_map, NodeSet())
    write_machine(tmp_path, [even(2)[0], Node(1, "2-3", 0)])
    assert Machine.read(tmp_path, config, before.known).gone == NodeSet.of(1)
    write_machine(tmp_path, even(1))
    with pytest.raises(ConfigError, match="not online"):
        Machine.read(tmp_path, config)


@pytest.mark.parametrize(
    ("file", "text"),
    [("online", "0-\n"), ("online", ""), ("node1/meminfo", "rubbish\n"), ("node1/cpulist", "x\n")],
)
def test_garbled_sysfs(tmp_path: Path, file: str, text: str) -> None:
    """What cannot be understood is an error with its path, never a guess."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/{file}": text})

    with pytest.raises((KernelFormatError, KernelReadError)) as caught:
        Machine.read(tmp_path, BARE)

    assert f"{NODES}/{file}" in str(caught.value)


def test_pools_are_read_again(tmp_path: Path) -> None:
    """The same machine is the same object; other sizes make another; other free counts only change the ceilings."""
    write_machine(tmp_path, even(2, pools={2 * MIB: 100}))
    machine = Machine.read(tmp_path, BARE)
    assert machine.with_pools() is machine

    write_machine(tmp_path, even(2, pools={2 * MIB: Pool(100, free=7)}))
    used = machine.with_pools()
    assert used.node_map == machine.node_map
    assert used.ceilings({HUGE: 1}) == {0: {HUGE: 14 * MIB}, 1: {HUGE: 14 * MIB}}

    write_machine(tmp_path, even(2, pools={2 * MIB: 50}))
    shrunk = machine.with_pools()
    assert shrunk.node_map.nodes[NodeId(0)].memory_map[HUGE].total == 100 * MIB
    assert shrunk.node_map.nodes[NodeId(0)].memory_map[MEMORY].allocatable == GIB - 100 * MIB


def test_memory_alone_needs_no_ceilings(tmp_path: Path) -> None:
    """Free memory of the kernel is no bound for the books: page cache makes room."""
    write_machine(tmp_path, even(2))

    assert Machine.read(tmp_path, BARE).ceilings({MEMORY: GIB}) == {}


def test_pools_that_became_unreadable(tmp_path: Path) -> None:
    """A vanished file is an error with its path."""
    write_machine(tmp_path, even(1, pools={2 * MIB: 10}))
    machine = Machine.read(tmp_path, BARE)
    (tmp_path / NODES / "node0/hugepages/hugepages-2048kB/free_hugepages").unlink()

    with pytest.raises(KernelReadError, match="free_hugepages"):
        machine.with_pools()


def test_room_is_free_and_reclaimable(tmp_path: Path) -> None:
    """What the kernel could give on some nodes at once."""
    write_machine(tmp_path, [Node(0, "0", GIB, free=100 * MIB), Node(1, "1", GIB, free=200 * MIB)])

    assert Machine.read(tmp_path, BARE).available_bytes(NodeSet.of(0, 1)) == 300 * MIB


@pytest.mark.parametrize("closest", [False, True])
def test_rules_carry_distances_only_when_they_count(tmp_path: Path, closest: bool) -> None:
    """``prefer_closest`` is what makes distances part of the rules."""
    write_machine(tmp_path, even(2), distances=[[10, 21], [21, 10]])
    config = replace(BARE, policy=TopologyPolicy.BEST_EFFORT, prefer_closest=closest)

    rules = Machine.read(tmp_path, config).rules()

    assert (rules.policy, rules.prefer_closest) == (TopologyPolicy.BEST_EFFORT, closest)
    assert bool(rules.distances) == closest


def test_cpus_that_are_not_written_yet(tmp_path: Path) -> None:
    """At the first look the CPUs are those of the metadata, like the sizes; later the cgroup's count."""
    write_machine(tmp_path, even(2))
    machine = Machine.read(tmp_path, BARE)
    told = OciFacts("config.json", Limits(memory_bytes=GIB, cpus=CpuSet.parse("3")))
    young = ContainerRecord(
        id=ContainerId("a" * 64),
        name="pg",
        cgroup="/system.slice/docker-a.scope",
        inode=1,
        runtime=Runtime.DOCKER,
        kind=ContainerKind.CONTAINER,
        limits=Limits(),
        mems=NodeSet(),
        effective_mems=NodeSet.of(0, 1),
        parent_mems=NodeSet.of(0, 1),
        oci=told,
        settled=False,
    )
    (early,) = machine.hints(young)
    (later,) = machine.hints(replace(young, limits=Limits(memory_bytes=GIB, cpus=CpuSet.parse("0")), settled=True))

    assert (Hint(NodeSet.of(1), True),) == early.hints
    assert (Hint(NodeSet.of(0), True),) == later.hints

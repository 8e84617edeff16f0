"""Topology from sysfs: nodes, kinds and memory of every shape of machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from numapin.kernel.sysfs import read_topology
from numapin.model.nodeset import CpuSet, NodeId
from numapin.model.topology import NodeKind
from support.machines import (
    CPUS,
    GIB,
    NODES,
    Node,
    even,
    write_machine,
)
from support.trees import write_tree

N0 = NodeId(0)
N1 = NodeId(1)
N2 = NodeId(2)


def test_a_plain_machine(tmp_path: Path) -> None:
    """Four nodes come with ids, CPUs, memory, free memory and distances, and without a warning."""
    write_machine(tmp_path, [Node(i, f"{2 * i}-{2 * i + 1}", 4 * GIB, free=GIB) for i in range(4)])

    topology = read_topology(tmp_path)

    assert str(topology.online) == "0-3"
    assert not topology.synthetic
    assert topology.warnings == ()
    node = topology.nodes[N2]
    assert (node.cpus, node.kind) == (CpuSet.parse("4-5"), NodeKind.MEMORY)
    assert (node.memory_bytes, node.free_bytes, node.pools) == (4 * GIB, GIB, ())
    assert node.distances == {0: 20, 1: 20, 2: 10, 3: 20}


def test_only_online_nodes_are_opened(tmp_path: Path) -> None:
    """Possible nodes without a directory do not exist (B001)."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/possible": "0-19\n", f"{NODES}/power/control": "auto\n", f"{NODES}/uevent": ""})

    assert list(read_topology(tmp_path).nodes) == [0, 1]


def test_a_vanished_node_is_skipped_with_one_warning(tmp_path: Path) -> None:
    """A node listed online whose directory went away costs one warning and no crash (B001)."""
    write_machine(tmp_path, even(3), distances=[[10, 11, 12], [11, 10, 13], [12, 13, 10]])
    shutil.rmtree(tmp_path / NODES / "node1")

    topology = read_topology(tmp_path)

    assert list(topology.nodes) == [0, 2]
    assert topology.nodes[N2].distances == {0: 12, 2: 10}
    assert topology.warnings == (f"{tmp_path / NODES}/online names node 1, whose directory is gone; skipped",)


def test_memoryless_nodes_stay_with_their_cpus(tmp_path: Path) -> None:
    """Nodes with CPUs and no memory are discovered, but are not among those with memory (B005)."""
    nodes = [Node(0, "0-1", 0), Node(1, "2-3", 64 * GIB), Node(2, "4-5", 64 * GIB), Node(3, "6-7", 0)]
    write_machine(tmp_path, nodes)

    topology = read_topology(tmp_path)

    assert str(topology.online) == "0-3"
    assert str(topology.with_memory) == "1-2"
    kinds = [node.kind for node in topology.nodes.values()]
    assert kinds == [NodeKind.MEMORYLESS, NodeKind.MEMORY, NodeKind.MEMORY, NodeKind.MEMORYLESS]


def test_cpus_and_memory_may_be_on_different_nodes(tmp_path: Path) -> None:
    """One node with all CPUs and no memory beside CPU-less ones: nothing is dropped (B005, variant)."""
    write_machine(tmp_path, [Node(0), Node(1), Node(2, "0-7", 0), Node(3)])

    topology = read_topology(tmp_path)

    assert [node.kind.value for node in topology.nodes.values()] == ["cpu-less", "cpu-less", "memoryless", "cpu-less"]
    assert str(topology.nodes[N2].cpus) == "0-7"
    assert str(topology.with_memory) == "0-1,3"


def test_an_empty_node_that_is_filled_later_is_seen(tmp_path: Path) -> None:
    """A zero-byte node is kept and re-evaluated at the next reading (B124)."""
    write_machine(tmp_path, [Node(0, "0"), Node(2, "", 0)])
    before = read_topology(tmp_path).nodes[N2]

    write_machine(tmp_path, [Node(0, "0"), Node(2, "", 32 * GIB)])
    after = read_topology(tmp_path).nodes[N2]

    assert (before.kind, before.memory_bytes) == (NodeKind.MEMORYLESS, 0)
    assert (after.kind, after.memory_bytes) == (NodeKind.CPU_LESS, 32 * GIB)


def test_movable_memory_is_told_apart(tmp_path: Path) -> None:
    """In has_memory but not in has_normal_memory: movable-only, with or without CPUs."""
    write_machine(tmp_path, [Node(0, "0-1"), Node(1, "2-3", movable=True), Node(2, movable=True)])

    topology = read_topology(tmp_path)

    assert [node.kind.value for node in topology.nodes.values()] == ["memory", "movable-only", "movable-only"]
    assert str(topology.with_normal_memory) == "0"


def test_gpu_trays_are_read_whole(tmp_path: Path) -> None:
    """34 nodes of which two have CPUs: all read, each with its kind (B007, B008)."""
    nodes = [Node(i, f"{i}", 240 * GIB) for i in range(2)]
    nodes += [Node(i, "", 96 * GIB if i < 10 else 0) for i in range(2, 34)]
    write_machine(tmp_path, nodes)

    topology = read_topology(tmp_path)

    kinds = [node.kind for node in topology.nodes.values()]
    assert [kinds.count(kind) for kind in (NodeKind.MEMORY, NodeKind.CPU_LESS, NodeKind.MEMORYLESS)] == [2, 8, 24]


def test_cpus_come_from_the_node_alone(tmp_path: Path) -> None:
    """CPUs without a file ``online`` of their own are online when cpulist says so (B125)."""
    write_machine(tmp_path, [Node(0, "0-3")])
    write_tree(tmp_path, {f"{NODES}/node0/cpu0/": "", f"{CPUS}/possible": "0-7\n", f"{CPUS}/present": "0-7\n"})

    assert str(read_topology(tmp_path).nodes[N0].cpus) == "0-3"


def test_a_node_whose_cpus_go_offline_keeps_its_memory(tmp_path: Path) -> None:
    """With all CPUs offline a node is CPU-less, its memory unchanged (B125)."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/node1/cpulist": "\n"})

    node = read_topology(tmp_path).nodes[N1]

    assert (node.kind, node.memory_bytes) == (NodeKind.CPU_LESS, GIB)


def test_the_agents_own_limits_do_not_matter(tmp_path: Path) -> None:
    """Inventory is sysfs; what the own process may use is not looked at (B016)."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {"proc/self/status": "Mems_allowed_list:\t0\nCpus_allowed_list:\t0-127\n"})

    topology = read_topology(tmp_path)

    assert str(topology.online) == "0-1"
    assert [str(node.cpus) for node in topology.nodes.values()] == ["0-1", "2-3"]


def test_an_offline_node_with_a_directory_is_not_counted(tmp_path: Path) -> None:
    """The file ``online`` decides, whatever directories lie about (B001)."""
    write_machine(tmp_path, even(3))
    write_tree(tmp_path, {f"{NODES}/online": "0,2\n"})

    topology = read_topology(tmp_path)

    assert list(topology.nodes) == [0, 2]
    assert topology.nodes[N0].distances is None  # three values do not belong to two nodes


def test_a_cpu_less_node_keeps_its_memory(tmp_path: Path) -> None:
    """A cpulist of one newline is no CPUs, and the node's memory counts (B004)."""
    write_machine(tmp_path, [Node(0, "0-3", 3949332 * 1024), Node(1, "", 4111376 * 1024)])

    node = read_topology(tmp_path).nodes[N1]

    assert (node.cpus, node.kind, node.memory_bytes) == (CpuSet(), NodeKind.CPU_LESS, 4210049024)


def test_a_node_the_kernel_says_has_no_memory_is_memoryless(tmp_path: Path) -> None:
    """``has_memory`` decides even when meminfo still counts some, since cpuset.mems refuses the node (B124)."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/has_memory": "0\n"})

    assert read_topology(tmp_path).nodes[N1].kind is NodeKind.MEMORYLESS


def test_the_nodes_own_total_counts(tmp_path: Path) -> None:
    """The machine-wide meminfo is not used, however far it is off (B014)."""
    write_machine(tmp_path, [Node(0, "0", 9529548 * 1024)])
    write_tree(tmp_path, {"proc/meminfo": "MemTotal: 24684084 kB\n"})

    assert read_topology(tmp_path).nodes[N0].memory_bytes == 9529548 * 1024

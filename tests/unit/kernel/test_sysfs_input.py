"""Topology from sysfs: old kernels, kernels without NUMA, garbled and unreadable files."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from numapin.kernel.sysfs import read_hugepage_pools, read_node_available, read_node_free, read_topology
from numapin.model.errors import KernelFormatError, KernelReadError
from numapin.model.nodeset import NodeId
from numapin.model.topology import HugepagePool, NodeKind
from support.machines import (
    CPUS,
    NODES,
    PAGE_2M,
    Node,
    Pool,
    even,
    write_flat_machine,
    write_machine,
)
from support.privilege import public_directory, unprivileged
from support.trees import write_tree

N0 = NodeId(0)


def test_no_node_left_is_an_error(tmp_path: Path) -> None:
    """A topology is never empty: when every listed node vanished, the error names the first."""
    write_machine(tmp_path, even(1))
    shutil.rmtree(tmp_path / NODES / "node0")

    with pytest.raises(KernelReadError) as caught:
        read_topology(tmp_path)

    assert caught.value.path.endswith("/node0")


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,\n", "0-3"), (" 0-1, 3 \n", "0-1,3"), ("0\0", "0"), ("1-2\n\0", "1-2")]
)
def test_sloppy_cpu_lists_are_read(tmp_path: Path, text: str, cpus: str) -> None:
    """Trailing commas, blanks and a final NUL byte are tolerated (B004)."""
    write_machine(tmp_path, even(1))
    write_tree(tmp_path, {f"{NODES}/node0/cpulist": text})

    assert cpus == str(read_topology(tmp_path).nodes[N0].cpus)


@pytest.mark.parametrize("file", ["node0/cpulist", "online", "has_memory", "has_normal_memory"])
@pytest.mark.parametrize("text", ["0-x\n", "3-1\n", "0-\n", "0 1\n", "70000\n", "-1\n", "\x80\n"])
def test_garbled_lists_name_their_file(tmp_path: Path, file: str, text: str) -> None:
    """Garbage in a list is an error with the path and the text, not a guess (B004)."""
    write_machine(tmp_path, even(1))
    (tmp_path / NODES / file).write_bytes(text.encode("latin-1"))

    with pytest.raises(KernelFormatError) as caught:
        read_topology(tmp_path)

    assert caught.value.path == str(tmp_path / NODES / file)
    assert "0-3,8" in caught.value.expected


def test_an_empty_online_file_is_an_error(tmp_path: Path) -> None:
    """A kernel without one online node does not exist."""
    write_machine(tmp_path, even(1))
    write_tree(tmp_path, {f"{NODES}/online": "\n"})

    with pytest.raises(KernelFormatError, match="at least one online node"):
        read_topology(tmp_path)


def test_old_kernels_without_state_files(tmp_path: Path) -> None:
    """Without online, has_* and cpulist the directories, MemTotal and the CPU mask tell the same."""
    write_machine(tmp_path, [Node(0, "0-1"), Node(4, "32"), Node(5), Node(6, "3", 0)], with_distances=False)
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        (tmp_path / NODES / name).unlink()
    masks = {0: "00000000,00000003", 4: "00000001,00000000", 5: "00000000,00000000", 6: "8"}
    for node, mask in masks.items():
        (tmp_path / NODES / f"node{node}" / "cpulist").unlink()
        write_tree(tmp_path, {f"{NODES}/node{node}/cpumap": mask + "\n\0"})
    write_tree(tmp_path, {f"{NODES}/node07/meminfo": "", f"{NODES}/nodes/": "", f"{NODES}/node99999/": ""})

    topology = read_topology(tmp_path)

    assert [(node.id, str(node.cpus), node.kind.value) for node in topology.nodes.values()] == [
        (0, "0-1", "memory"),
        (4, "32", "memory"),
        (5, "", "cpu-less"),
        (6, "3", "memoryless"),
    ]


def test_has_normal_memory_alone_is_not_believed(tmp_path: Path) -> None:
    """A kernel without has_memory has no movable-only nodes; its has_normal_memory was seen with wrong ids."""
    write_machine(tmp_path, even(2, ids=[0, 33]))
    write_tree(tmp_path, {f"{NODES}/has_normal_memory": "0-1\n", f"{NODES}/has_cpu": "\n"})
    (tmp_path / NODES / "has_memory").unlink()

    assert {node.kind for node in read_topology(tmp_path).nodes.values()} == {NodeKind.MEMORY}


def test_neither_cpu_file_is_an_error(tmp_path: Path) -> None:
    """A node directory without cpulist and cpumap is not understood; the newer name is shown."""
    write_machine(tmp_path, even(1))
    (tmp_path / NODES / "node0/cpulist").unlink()

    with pytest.raises(KernelReadError) as caught:
        read_topology(tmp_path)

    assert (caught.value.path, caught.value.errno) == (str(tmp_path / NODES / "node0/cpulist"), errno.ENOENT)


def test_a_garbled_cpu_mask_names_its_file(tmp_path: Path) -> None:
    """A mask that is none is an error with the path."""
    write_machine(tmp_path, even(1))
    (tmp_path / NODES / "node0/cpulist").unlink()
    write_tree(tmp_path, {f"{NODES}/node0/cpumap": "0000000g\n"})

    with pytest.raises(KernelFormatError) as caught:
        read_topology(tmp_path)

    assert caught.value.path == str(tmp_path / NODES / "node0/cpumap")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Node 0 MemFree: 5 kB\n", "Node 0 MemFree: 5 kB"),
        ("Node 0 MemTotal:\n", "Node 0 MemTotal:"),
        ("Node 0 MemTotal: 12 MB\n", "Node 0 MemTotal: 12 MB"),
        ("Node 0 MemTotal: -12 kB\n", "Node 0 MemTotal: -12 kB"),
        ("Node 0 MemTotal: 12x kB\n", "Node 0 MemTotal: 12x kB"),
        ("Node 0 MemTotal: 9999999999999999999999 kB\n", "Node 0 MemTotal: 9999999999999999999999 kB"),
        ("", ""),
        ("\0\0\0", ""),
    ],
)
def test_a_missing_total_names_file_and_field(tmp_path: Path, text: str, shown: str) -> None:
    """Without a believable MemTotal there is no topology; the error says which field of which file (B013)."""
    write_machine(tmp_path, even(1))
    write_tree(tmp_path, {f"{NODES}/node0/meminfo": text})

    with pytest.raises(KernelFormatError) as caught:
        read_topology(tmp_path)

    assert caught.value.path == str(tmp_path / NODES / "node0/meminfo")
    assert "MemTotal" in caught.value.expected
    assert shown == caught.value.text


def test_a_missing_free_count_is_a_warning(tmp_path: Path) -> None:
    """Free memory is for show: without it the node stands, with one warning for all such nodes."""
    write_machine(tmp_path, even(3))
    for i in range(3):
        write_tree(tmp_path, {f"{NODES}/node{i}/meminfo": f"Node {i} MemTotal: 8 kB\n"})

    topology = read_topology(tmp_path)

    assert [node.free_bytes for node in topology.nodes.values()] == [0, 0, 0]
    assert topology.warnings == (
        f"{tmp_path / NODES}/node0/meminfo (and of node 1-2): no MemFree; free memory is taken as 0",
    )


def test_a_directory_in_place_of_a_file_names_it(tmp_path: Path) -> None:
    """What cannot be read at all is an error with path and errno, never half a topology (B017)."""
    write_machine(tmp_path, even(2))
    (tmp_path / NODES / "node1/meminfo").unlink()
    write_tree(tmp_path, {f"{NODES}/node1/meminfo/": ""})

    with pytest.raises(KernelReadError) as caught:
        read_topology(tmp_path)

    assert (caught.value.path, caught.value.errno) == (str(tmp_path / NODES / "node1/meminfo"), errno.EISDIR)


def test_a_missing_meminfo_in_a_living_directory_is_an_error(tmp_path: Path) -> None:
    """Only a node whose directory is gone is skipped; a directory without meminfo is not understood (B017)."""
    write_machine(tmp_path, even(2))
    (tmp_path / NODES / "node1/meminfo").unlink()

    with pytest.raises(KernelReadError) as caught:
        read_topology(tmp_path)

    assert caught.value.path == str(tmp_path / NODES / "node1/meminfo")


@pytest.mark.parametrize("closed", ["node1", "node1/meminfo", "online", "", "node1/hugepages"])
def test_no_permission_names_the_path(closed: str) -> None:
    """An unreadable file or directory is EACCES with its path, not a machine without it (B017)."""
    with public_directory() as root:
        write_machine(root, even(2, pools={PAGE_2M: 1}))
        (root / NODES / closed).chmod(0)

        with unprivileged(), pytest.raises(KernelReadError) as caught:
            read_topology(root)

        (root / NODES / closed).chmod(0o755)

    assert caught.value.errno == errno.EACCES
    assert caught.value.path.startswith(str(root / NODES / closed))


def test_only_meminfo_is_still_a_machine(tmp_path: Path) -> None:
    """With /proc/meminfo alone the node has memory and unknown CPUs, and is not taken for CPU-less (B010)."""
    write_tree(tmp_path, {"proc/meminfo": "MemTotal:       16384000 kB\nMemFree: 4 kB\n"})

    topology = read_topology(tmp_path)

    assert topology.synthetic
    assert (topology.nodes[N0].memory_bytes, topology.nodes[N0].kind) == (16384000 * 1024, NodeKind.MEMORY)
    assert topology.warnings == (f"{tmp_path / CPUS} is missing; the machine's CPUs are unknown",)


def test_unknown_memory_is_none_to_give(tmp_path: Path) -> None:
    """CPUs without /proc/meminfo, as in one old recording: the node has no memory, and a warning says why."""
    write_tree(tmp_path, {f"{CPUS}/online": "0-1\n"})

    topology = read_topology(tmp_path)

    assert (topology.nodes[N0].memory_bytes, topology.nodes[N0].kind) == (0, NodeKind.MEMORYLESS)
    assert topology.warnings == (
        f"{tmp_path}/proc/meminfo is missing; the machine's memory is unknown and taken as 0",
    )


def test_an_empty_root_is_not_a_machine(tmp_path: Path) -> None:
    """A mistyped root is an error that names where nodes were looked for, not an empty machine (B010)."""
    with pytest.raises(KernelReadError) as caught:
        read_topology(tmp_path / "typo")

    assert (caught.value.path, caught.value.errno) == (str(tmp_path / "typo" / NODES), errno.ENOENT)


@pytest.mark.parametrize(
    "text",
    [
        "Node 0 MemTotal:        9529548 kB\nNode 0 Mystery\nNode 0 New_Field:  a b c\nNode 0 MemFree: 4 kB\n",
        "Node 0 HugePages_Total:     0\nNode 0 MemTotal: 9529548 kB\nNode 0 Truncated:\nNode 0 MemFree: 4 kB\0",
        "\nMemTotal: 9529548 kB\nMemFree:4 kB",
    ],
)
def test_unknown_meminfo_lines_are_ignored(tmp_path: Path, text: str) -> None:
    """Labels alone, unknown labels and counts without a unit disturb nothing and warn of nothing (B013)."""
    write_machine(tmp_path, even(1))
    write_tree(tmp_path, {f"{NODES}/node0/meminfo": text})

    topology = read_topology(tmp_path)

    assert topology.nodes[N0].memory_bytes == 9529548 * 1024
    assert topology.nodes[N0].free_bytes == 4096
    assert topology.warnings == ()


def test_no_numa_makes_one_node(tmp_path: Path) -> None:
    """A kernel without NUMA gives one node 0 of all memory, CPUs and pools, marked as made up (B010)."""
    write_flat_machine(tmp_path, cpus="0-3", memory=16384000 * 1024, pools={PAGE_2M: Pool(8, 3)})

    topology = read_topology(tmp_path)

    assert topology.synthetic
    assert topology.warnings == ()
    assert list(topology.nodes) == [0]
    node = topology.nodes[N0]
    assert (str(node.cpus), node.kind, node.memory_bytes) == ("0-3", NodeKind.MEMORY, 16384000 * 1024)
    assert (node.pools, node.distances) == ((HugepagePool(PAGE_2M, 8, 3, 0),), None)
    assert node.pools == read_hugepage_pools(tmp_path, N0)
    assert read_node_free(tmp_path, N0) == 16384000 * 1024
    assert read_node_available(tmp_path, N0) == 16384000 * 1024


def test_no_numa_and_no_cpu_list(tmp_path: Path) -> None:
    """Without a list of online CPUs, every CPU with a directory counts: no file means online (B125)."""
    write_flat_machine(tmp_path)
    (tmp_path / CPUS / "online").unlink()
    write_tree(tmp_path, {f"{CPUS}/cpu0/": "", f"{CPUS}/cpu3/topology/": "", f"{CPUS}/cpuidle/": ""})

    assert str(read_topology(tmp_path).nodes[N0].cpus) == "0,3"

"""Topology from sysfs: hugepage pools and the cheap readings of one node."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from numapin.kernel.sysfs import read_hugepage_pools, read_node_available, read_node_free, read_topology
from numapin.model.errors import KernelFormatError, KernelReadError
from numapin.model.memory import hugepages
from numapin.model.nodeset import NodeId
from numapin.model.topology import HugepagePool
from support.machines import (
    GIB,
    MIB,
    NODES,
    PAGE_1G,
    PAGE_2M,
    Node,
    Pool,
    even,
    write_flat_machine,
    write_machine,
)
from support.trees import write_tree

N0 = NodeId(0)
N1 = NodeId(1)
N3 = NodeId(3)


def test_pages_become_bytes_once(tmp_path: Path) -> None:
    """The directory's kB and the file's pages multiply to bytes (B019)."""
    write_machine(tmp_path, [Node(0, "0", 300 * GIB, pools={PAGE_2M: 512, PAGE_1G: 224})])

    pools = read_topology(tmp_path).nodes[N0].pools

    assert [pool.total_bytes for pool in pools] == [1073741824, 240518168576]


def test_every_size_of_every_node(tmp_path: Path) -> None:
    """Two sizes over two nodes are seen per node, whatever meminfo's one size says (B020)."""
    write_machine(tmp_path, even(2, memory=8 * GIB, pools={PAGE_1G: 1, PAGE_2M: 512}))
    write_tree(tmp_path, pool_counts("sys/kernel/mm/hugepages", size_kb=2048, pages=1024))

    pools = [[(p.size_bytes, p.nr_hugepages) for p in n.pools] for n in read_topology(tmp_path).nodes.values()]

    assert pools == [[(PAGE_2M, 512), (PAGE_1G, 1)]] * 2


def test_pages_of_one_node_only(tmp_path: Path) -> None:
    """Pages set on node 0 alone are on node 0 alone (B020)."""
    write_machine(tmp_path, [Node(0, "0", pools={PAGE_2M: 4}), Node(1, "1", pools={PAGE_2M: 0})])

    pools = [node.pools[0].nr_hugepages for node in read_topology(tmp_path).nodes.values()]

    assert pools == [4, 0]


def test_pools_are_read_anew(tmp_path: Path) -> None:
    """Pages set after the start are seen at the next reading (B023), and what the kernel gave counts (B029)."""
    write_machine(tmp_path, even(1, pools={PAGE_2M: 0}))
    before = read_hugepage_pools(tmp_path, N0)
    write_tree(tmp_path, pool_counts(f"{NODES}/node0/hugepages", size_kb=2048, pages=29))
    middle = read_hugepage_pools(tmp_path, N0)
    write_tree(tmp_path, pool_counts(f"{NODES}/node0/hugepages", size_kb=2048, pages=32))
    after = read_hugepage_pools(tmp_path, N0)

    assert [pool.nr_hugepages for pools in (before, middle, after) for pool in pools] == [0, 29, 32]


def test_two_sizes_with_pages_at_once(tmp_path: Path) -> None:
    """Both pools of a node are tracked when both have pages (B025)."""
    write_machine(tmp_path, even(1, memory=32 * GIB, pools={PAGE_2M: 16, PAGE_1G: 16}))

    assert [pool.nr_hugepages for pool in read_topology(tmp_path).nodes[N0].pools] == [16, 16]


def test_free_and_surplus_pages_are_kept_apart(tmp_path: Path) -> None:
    """What the kernel has free is its own number beside the total, and so is the surplus (B026)."""
    write_machine(tmp_path, even(1, memory=2 * GIB, pools={PAGE_2M: Pool(512, free=100, surplus=7)}))

    assert read_hugepage_pools(tmp_path, N0) == (HugepagePool(PAGE_2M, 512, 100, 7),)


def test_unusual_page_sizes_have_binary_names(tmp_path: Path) -> None:
    """Sizes of arm64 and ppc64, and any other, are carried through under binary units (B028)."""
    sizes_kb = [64, 2048, 32768, 1048576, 524288, 16384, 16777216, 12]
    write_machine(tmp_path, even(1, pools={kb * 1024: 1 for kb in sizes_kb}))

    names = [hugepages(pool.size_bytes) for pool in read_topology(tmp_path).nodes[N0].pools]

    expected = ["12Ki", "64Ki", "2Mi", "16Mi", "32Mi", "512Mi", "1Gi", "16Gi"]
    assert [f"hugepages-{size}" for size in expected] == names


def test_only_the_three_counts_of_a_pool_are_opened(tmp_path: Path) -> None:
    """A control file that cannot be read, text files and foreign names in the tree do no harm (B032)."""
    write_machine(tmp_path, even(1, pools={PAGE_1G: 2}))
    base = f"{NODES}/node0/hugepages"
    write_tree(
        tmp_path,
        {
            f"{base}/hugepages-1048576kB/demote/": "",  # opening a directory fails even for root
            f"{base}/hugepages-1048576kB/demote_size": "2048kB\n",
            f"{base}/hugepages-x/": "",
            f"{base}/hugepages-0kB/": "",
            f"{base}/README": "",
        },
    )

    assert read_topology(tmp_path).nodes[N0].pools == (HugepagePool(PAGE_1G, 2, 2, 0),)


@pytest.mark.parametrize("text", ["", "x\n", "-1\n", "1 2\n", "2048kB\n", "٣\n"])
def test_a_garbled_count_names_its_file(tmp_path: Path, text: str) -> None:
    """A page count that is no number is an error with the path, also when pools alone are read again."""
    write_machine(tmp_path, even(1, pools={PAGE_2M: 1}))
    path = f"{NODES}/node0/hugepages/hugepages-2048kB/free_hugepages"
    write_tree(tmp_path, {path: text})

    for read in (lambda: read_topology(tmp_path), lambda: read_hugepage_pools(tmp_path, N0)):
        with pytest.raises(KernelFormatError) as caught:
            read()
        assert caught.value.path == str(tmp_path / path)


def test_a_missing_count_names_its_file(tmp_path: Path) -> None:
    """A pool without one of its counts is not guessed."""
    write_machine(tmp_path, even(1, pools={PAGE_2M: 1}))
    path = tmp_path / NODES / "node0/hugepages/hugepages-2048kB/surplus_hugepages"
    path.unlink()

    with pytest.raises(KernelReadError) as caught:
        read_hugepage_pools(tmp_path, N0)

    assert (caught.value.path, caught.value.errno) == (str(path), errno.ENOENT)


def test_a_memoryless_node_has_no_pools(tmp_path: Path) -> None:
    """The kernel gives a memoryless node no hugepages directory; that is no pools, not an error."""
    write_machine(tmp_path, [Node(0, "0", pools={PAGE_2M: 1}), Node(1, "1", 0)])

    assert read_hugepage_pools(tmp_path, N1) == ()
    assert read_topology(tmp_path).nodes[N1].pools == ()


@pytest.mark.parametrize("read", [read_hugepage_pools, read_node_free, read_node_available])
@pytest.mark.parametrize("flat", [False, True])
def test_a_node_that_is_not_there_is_an_error(tmp_path: Path, read: object, flat: bool) -> None:
    """Re-reading a node that went away says so with its directory, instead of giving zero."""
    _ = write_flat_machine(tmp_path) if flat else write_machine(tmp_path, even(2))

    assert callable(read)
    with pytest.raises(KernelReadError) as caught:
        read(tmp_path, N3)

    assert (caught.value.path, caught.value.errno) == (str(tmp_path / NODES / "node3"), errno.ENOENT)


def test_free_memory_of_one_node(tmp_path: Path) -> None:
    """MemFree is in bytes; what could be given adds the page cache and nothing else."""
    write_machine(tmp_path, [Node(0, "0", GIB, free=256 * MIB)])
    meminfo = tmp_path / NODES / "node0/meminfo"
    text = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 262144 kB\nNode 0 Active: 9 kB\nNode 0 Active(anon): 7 kB\n"
    meminfo.write_text(
        text + "Node 0 Active(file): 1024 kB\nNode 0 Inactive(file): 2048 kB\nNode 0 SReclaimable: 8 kB\n"
    )

    assert read_node_free(tmp_path, N0) == 256 * MIB
    assert read_node_available(tmp_path, N0) == 259 * MIB

    meminfo.write_text(text)

    assert read_node_available(tmp_path, N0) == 256 * MIB


@pytest.mark.parametrize("read", [read_node_free, read_node_available])
def test_free_memory_is_not_guessed(tmp_path: Path, read: object) -> None:
    """Without MemFree the answer is an error that names field and file."""
    write_machine(tmp_path, even(1))
    write_tree(tmp_path, {f"{NODES}/node0/meminfo": "Node 0 MemTotal: 8 kB\n"})

    assert callable(read)
    with pytest.raises(KernelFormatError, match="MemFree"):
        read(tmp_path, N0)


def pool_counts(base: str, *, size_kb: int, pages: int) -> dict[str, str]:
    """The three files of one pool with all its pages free."""
    path = f"{base}/hugepages-{size_kb}kB"
    return {
        f"{path}/nr_hugepages": f"{pages}\n",
        f"{path}/free_hugepages": f"{pages}\n",
        f"{path}/surplus_hugepages": "0\n",
    }

"""``numapin topology`` as people see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.cli.main import main
from numapin.cli.render_topology import distance_lines, format_cpus
from numapin.kernel.sysfs import read_topology
from numapin.model.nodeset import CpuSet
from support.machines import GIB, PAGE_1G, PAGE_2M, Node, Pool, even, write_flat_machine, write_machine


def _table(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["topology", "--root", str(root)]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_whole_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes with sums, pools with equal nodes on one row, the distance matrix, and what each odd kind means."""
    pools: dict[int, Pool | int] = {PAGE_2M: Pool(512, 500, 3), PAGE_1G: 0}
    nodes = [Node(i, f"{4 * i}-{4 * i + 3}", 8 * GIB, free=6 * GIB, pools=pools) for i in range(2)]
    nodes += [Node(3, "", 4 * GIB, pools={PAGE_1G: 2}), Node(4, "8-11", 0), Node(9, "", GIB, movable=True)]
    row = [10, 21, 40, 21, 255]
    write_machine(tmp_path, nodes, distances=[row] * 5)

    assert _table(tmp_path, capsys) == [
        "5 NUMA nodes online: 0-1,3-4,9",
        "",
        "NODE  KIND          MEMORY    FREE  CPUS  CPU LIST",
        "   0  memory         8 GiB   6 GiB     4  0-3",
        "   1  memory         8 GiB   6 GiB     4  4-7",
        "   3  cpu-less       4 GiB   4 GiB     0  -",
        "   4  memoryless         0       0     4  8-11",
        "   9  movable-only   1 GiB   1 GiB     0  -",
        " all                21 GiB  17 GiB    12",
        "",
        "NODE  HUGEPAGES  TOTAL  PAGES  FREE  SURPLUS",
        " 0-1        2Mi  1 GiB    512   500        3",
        "   3        1Gi  2 GiB      2     2        0",
        "",
        "DISTANCE     0    1    3    4    9",
        "       0    10   21   40   21  255",
        "       1    10   21   40   21  255",
        "       3    10   21   40   21  255",
        "       4    10   21   40   21  255",
        "       9    10   21   40   21  255",
        "",
        "cpu-less (node 3): no CPUs of its own (CXL, HBM or GPU memory); not used unless nodes.cpu_less names it.",
        "memoryless (node 4): no memory now; nothing can be placed there.",
        "movable-only (node 9): no memory for the kernel itself; a placement needs another node beside it.",
        "Without CPUs too (node 9): not used unless nodes.cpu_less names it.",
    ]


def test_a_kernel_without_numa(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The made-up node is named as such, and what is unknown is said in words."""
    write_flat_machine(tmp_path)

    lines = _table(tmp_path, capsys)

    assert lines[0] == "This kernel knows no NUMA nodes: the whole machine counts as node 0."
    assert "   0  memory   1 GiB  1 GiB     2  0-1" in lines
    assert lines[-3:] == ["No hugepage pools.", "", "Distances: the kernel tells none."]


def test_empty_pools_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes the kernel knows are named also when no node has pages, so an admin sees what could be reserved."""
    write_machine(tmp_path, even(1, pools={PAGE_2M: 0, PAGE_1G: 0}))

    lines = _table(tmp_path, capsys)

    assert lines[0] == "1 NUMA node online: 0"
    assert "No hugepages on any node (sizes: 2Mi, 1Gi)." in lines


def test_where_all_memory_is_cpu_less_it_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The note about CPU-less nodes says what the agent really does on a machine that has no other memory."""
    write_machine(tmp_path, [Node(0, "0-7", 0), Node(1), Node(2)])

    assert (
        "cpu-less (nodes 1-2): no CPUs of its own (CXL, HBM or GPU memory); used, since no node has both"
        in "\n".join(_table(tmp_path, capsys))
    )


@pytest.mark.parametrize(
    ("cpus", "shown"),
    [
        ("", "-"),
        ("5", "5"),
        ("0-31", "0-31"),
        ("0,4,8", "0,4,8"),
        ("0,4,8,12", "0-12:4"),
        ("1,3,5,8", "1,3,5,8"),
        ("0-15,64-79", "0-15,64-79"),
        ("0-1,10-11,20-21,30-31,40-41", "0-1, 10-11, 20-21, 30-31, 40-41"),
    ],
)
def test_cpu_lists_are_short(cpus: str, shown: str) -> None:
    """Ranges, strides for interleaved CPUs, and blanks to fold at where a list is long all the same."""
    assert shown == format_cpus(CpuSet.parse(cpus))


@pytest.mark.parametrize("columns", ["80", "100", "237"])
def test_a_large_machine_is_not_mangled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """64 nodes and 1,024 CPUs stay within the terminal, one line per node in each part."""
    monkeypatch.setenv("COLUMNS", columns)
    cpus = [str(CpuSet.from_ids(range(i, 1024, 64))) for i in range(64)]
    write_machine(tmp_path, [Node(i, cpus[i], 64 * GIB) for i in range(64)])

    lines = _table(tmp_path, capsys)

    assert max(map(len, lines)) <= int(columns)
    assert "   7  memory  64 GiB  64 GiB    16  7-967:64" in lines
    assert sum(line.startswith("   7  memory") for line in lines) == 1


@pytest.mark.parametrize("width", [1, 20, 80, 198, 10_000])
def test_every_distance_is_shown_once(tmp_path: Path, width: int) -> None:
    """However narrow the terminal, the blocks of columns together hold each pair of nodes exactly once."""
    count = 64
    write_machine(tmp_path, even(count), distances=[[i + j + 10 for j in range(count)] for i in range(count)])

    found: dict[tuple[int, int], int] = {}
    columns: list[int] = []
    for line in distance_lines(read_topology(tmp_path), width=width):
        assert len(line) <= max(width, 13)
        label, *cells = line.split() or [""]
        if label == "DISTANCE":
            columns = [int(cell) for cell in cells]
        elif label:
            pairs = {(int(label), to): int(cell) for to, cell in zip(columns, cells, strict=True)}
            assert not pairs.keys() & found.keys()
            found |= pairs

    assert found == {(i, j): i + j + 10 for i in range(count) for j in range(count)}


def test_unknown_rows_are_dashes(tmp_path: Path) -> None:
    """A node without distances has dashes in its row, the others their values."""
    write_machine(tmp_path, even(2))
    (tmp_path / "sys/devices/system/node/node0/distance").unlink()

    lines = list(distance_lines(read_topology(tmp_path), width=80))

    assert lines == ["DISTANCE    0   1", "       0    -   -", "       1   20  10"]

"""Topology from sysfs: distances, which are advisory and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.sysfs import read_topology
from numapin.model.nodeset import NodeId, NodeSet
from support.machines import (
    NODES,
    even,
    write_machine,
)
from support.trees import write_tree

N0 = NodeId(0)
N1 = NodeId(1)
N3 = NodeId(3)


def test_distance_columns_belong_to_online_ids(tmp_path: Path) -> None:
    """The k-th value is the distance to the k-th online node, so node 3 finds itself in column 2 (B002)."""
    online = NodeSet.parse("0-1,3-9,11-17,19-25,27-33")
    write_machine(tmp_path, even(30, ids=online.ids(), cpus_each=1))

    topology = read_topology(tmp_path)

    assert online == topology.online
    assert list(topology.nodes) == list(online)
    distances = topology.nodes[N3].distances
    assert distances is not None
    assert distances.keys() == set(online)
    assert {node for node, value in distances.items() if value == 10} == {3}


def test_missing_distances_are_unknown(tmp_path: Path) -> None:
    """Without its distance file a node is kept, with distances unknown and one warning (B011 a)."""
    write_machine(tmp_path, even(3))
    (tmp_path / NODES / "node1/distance").unlink()

    topology = read_topology(tmp_path)

    assert topology.nodes[N1].distances is None
    assert topology.nodes[N0].distances == {0: 10, 1: 20, 2: 20}
    assert topology.warnings == (f"{tmp_path / NODES}/node1/distance: missing; distances from there are unknown",)


def test_no_distances_at_all_are_one_warning(tmp_path: Path) -> None:
    """64 nodes without tables are one sentence, not 64 (B011 a, B133)."""
    write_machine(tmp_path, even(64), with_distances=False)

    topology = read_topology(tmp_path)

    assert len(topology.nodes) == 64
    assert topology.warnings == (
        f"{tmp_path / NODES}/node0/distance (and of node 1-63): missing; distances from there are unknown",
    )


def test_flat_and_lopsided_tables_are_taken_as_they_are(tmp_path: Path) -> None:
    """A flat table and one that is not symmetric are both accepted without a word (B011 b, c)."""
    write_machine(tmp_path, even(2), distances=[[10, 21], [31, 10]])
    lopsided = read_topology(tmp_path)

    assert (lopsided.nodes[N0].distances, lopsided.nodes[N1].distances) == ({0: 10, 1: 21}, {0: 31, 1: 10})
    assert lopsided.warnings == ()

    write_machine(tmp_path, even(8))
    flat = read_topology(tmp_path).nodes[N0].distances

    assert flat == {0: 10, 1: 20, 2: 20, 3: 20, 4: 20, 5: 20, 6: 20, 7: 20}


def test_each_value_of_a_row_counts(tmp_path: Path) -> None:
    """A row is one value per node, not one number (B011 d)."""
    write_machine(tmp_path, even(4), distances=[[10, 51, 31, 41]] * 4)

    assert read_topology(tmp_path).nodes[N0].distances == {0: 10, 1: 51, 2: 31, 3: 41}


@pytest.mark.parametrize("text", ["10 20 30\n", "10\n", "\n", "", "10 x\n", "10 -20\n", "1020\n", "\0", "10 ²\n"])
def test_odd_distances_never_fail(tmp_path: Path, text: str) -> None:
    """A row that does not fit the nodes is no row: one warning, and the node stands (B011)."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/node0/distance": text})

    topology = read_topology(tmp_path)

    assert topology.nodes[N0].distances is None
    assert topology.nodes[N1].distances is not None
    assert len(topology.warnings) == 1
    assert topology.warnings[0].startswith(f"{tmp_path / NODES}/node0/distance: expected 2 numbers")


def test_an_unreadable_distance_file_never_fails(tmp_path: Path) -> None:
    """Distances are advisory even when their file cannot be read at all (B011)."""
    write_machine(tmp_path, even(2))
    (tmp_path / NODES / "node0/distance").unlink()
    write_tree(tmp_path, {f"{NODES}/node0/distance/": ""})

    topology = read_topology(tmp_path)

    assert topology.nodes[N0].distances is None
    assert "Is a directory" in topology.warnings[0]

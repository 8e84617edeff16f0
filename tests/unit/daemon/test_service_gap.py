"""Nodes that do not add up to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.shortcomings import memory_gap
from numapin.kernel.sysfs import read_topology
from support.machines import even, write_machine

GIB = 1 << 30


@pytest.mark.parametrize(("whole", "told"), [(4 * GIB, False), (5 * GIB, False), (8 * GIB, True), (2 * GIB, True)])
def test_a_large_gap_is_told(tmp_path: Path, whole: int, told: bool) -> None:
    """B014: both numbers are named when they differ by more than a quarter; the nodes' own are the ones used."""
    write_machine(tmp_path, even(4, memory=GIB))
    topology = read_topology(tmp_path)

    assert [code for code, _ in memory_gap(topology, whole)] == ["memory-totals-differ"] * told

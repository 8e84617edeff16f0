"""
Topology of real machines as they were recorded, against an independent reader's values.

The recordings lie outside the repository: ``../shared/sysfs`` beside the checkout, or where
``NUMAPIN_RECORDED_SYSFS`` says.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from numapin.kernel.sysfs import read_topology
from numapin.model.topology import Topology

CHECKOUT = Path(__file__).parents[3]
RECORDED = Path(os.environ.get("NUMAPIN_RECORDED_SYSFS", CHECKOUT.parent / "shared" / "sysfs"))
EXPECTED = RECORDED / "expected.jsonl"
WANTED = (
    "/proc/meminfo",
    "/sys/devices/system/node/",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/cpu",
    "/sys/kernel/mm/hugepages/",
)

needs_recordings = pytest.mark.skipif(
    not EXPECTED.is_file(),
    reason="optional: recordings of real machines are not part of the repository; NUMAPIN_RECORDED_SYSFS names a "
    "directory with them and their expected.jsonl",
)


def _machines() -> list[dict[str, Any]]:
    if not EXPECTED.is_file():
        return []
    return [json.loads(line) for line in EXPECTED.read_text().splitlines()]


def _unpack(machine: dict[str, Any], into: Path) -> Path:
    """The recording's root directory, with the files a topology is made of."""
    with tarfile.open(RECORDED / f"{machine['archive']}.tar.bz2") as archive:
        for member in archive:
            path = into / member.name
            inside = "/" + member.name.removeprefix(machine["name"]).lstrip("/")
            if not inside.startswith(WANTED) or ".." in path.parts:
                continue
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg() and (content := archive.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    return into / str(machine["name"])


@needs_recordings
@pytest.mark.parametrize("machine", _machines(), ids=lambda machine: machine["archive"])
def test_a_recorded_machine_is_read_right(tmp_path: Path, machine: dict[str, Any]) -> None:
    """Online ids, memory, CPUs, pools and distance rows of a recorded machine are the independent reader's."""
    topology = read_topology(_unpack(machine, tmp_path))

    if not machine["nodes"]:
        assert topology.synthetic
        assert list(topology.nodes) == [0]
        return
    assert not topology.synthetic
    assert machine["online"] == list(topology.nodes)
    assert machine["nodes"] == _as_recorded(topology)


@needs_recordings
def test_every_recording_is_tried() -> None:
    """Each archive in the directory has its expected values, so none is left out of the test above."""
    archives = {path.name.removesuffix(".tar.bz2") for path in RECORDED.glob("*.tar.bz2")}

    assert archives == {machine["archive"] for machine in _machines()}


def _as_recorded(topology: Topology) -> dict[str, Any]:
    return {
        str(node.id): {
            "mem_total_bytes": node.memory_bytes,
            "cpus": list(node.cpus),
            "hugepages": {str(pool.size_bytes): pool.nr_hugepages for pool in node.pools},
            "distance_row": None if node.distances is None else list(node.distances.values()),
        }
        for node in topology.nodes.values()
    }

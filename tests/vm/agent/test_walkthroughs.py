"""
The walk-throughs of the Memory Manager article, on nodes of 10 units of 80 MiB.

Reservations leave nodes 0 and 1 exactly 10 units and nodes 2 and 3 nothing.
"""

from __future__ import annotations

import pytest

from support.installed import Numapin, Status, reserve_all_but, reserved
from support.workloads import CRUN, MIB, RUNC, Box, Driver, Workloads, burstable, guaranteed

UNIT_MIB = 80
NODE = 10 * UNIT_MIB * MIB


class Stage:
    """Starts one container after the other and knows each by its size in units."""

    def __init__(self, numapin: Numapin, workloads: Workloads) -> None:
        self.numapin = numapin
        self.workloads = workloads
        self.cgroups: dict[str, str] = {}

    def set(self, policy: str) -> None:
        """Put the policy and the nodes of 10 units into force."""
        nodes = reserve_all_but(self.numapin.status(), {0: NODE, 1: NODE})
        self.numapin.configure(f'policy = "{policy}"\n{nodes}')
        self.numapin.reload(lambda status: status["policy"] == policy and allocatable(status) == [NODE, NODE, 0, 0])

    def enter(self, name: str, units: int, driver: Driver = RUNC) -> tuple[str, dict[str, object]]:
        """Start one; gives the nodes that the kernel grants and numapin's row."""
        self.workloads.start((driver, Box(name, guaranteed(units * UNIT_MIB))))
        self.cgroups[name] = self.workloads.look([name])[name].cgroup
        row = self.numapin.wait_for({name: self.cgroups[name]})[name]
        return self.granted(name), row

    def granted(self, name: str) -> str:
        """The nodes that the kernel grants a container now."""
        seen = self.workloads.look([name])[name]
        assert seen.effective == seen.allowed
        return seen.effective


def allocatable(status: Status) -> list[int]:
    """Bytes of memory to give away, by node."""
    return [node["memory_map"]["memory"]["allocatable"] for node in status["nodes"]]


@pytest.fixture
def stage(numapin: Numapin, workloads: Workloads) -> Stage:
    """Nothing started yet."""
    return Stage(numapin, workloads)


def test_a_group_under_restricted(stage: Stage) -> None:
    """
    15 makes the group 0-1; 5 is refused though the group has room; one that is not Guaranteed runs; when 15 goes the
    group is gone and the refused one gets a node of its own.
    """
    stage.set("restricted")
    fifteen, _ = stage.enter("fifteen", 15, CRUN)
    grouped = stage.numapin.status()
    five, refused = stage.enter("five", 5)
    stage.workloads.start((CRUN, Box("bystander", burstable(5 * UNIT_MIB))))
    bystander = stage.granted("bystander")
    full = stage.numapin.status()
    stage.workloads.remove("fifteen")
    alone = stage.numapin.wait("five to get a node", lambda status: not status["groups"] and sum(memory(status)) > 0)
    later = stage.granted("five")

    assert "0-1" == fifteen
    assert [[0, 1]] == grouped["groups"]
    assert 15 * UNIT_MIB * MIB == sum(memory(grouped))
    assert ("0-3", "refused") == (five, refused["state"])
    assert "0-3" == bystander
    assert memory(grouped) == memory(full)
    assert [5 * UNIT_MIB * MIB, 0, 0, 0] == memory(alone)
    assert "0" == later


def test_a_group_under_best_effort(stage: Stage) -> None:
    """Under best-effort 5 joins the group of 15, which stays for as long as one of them lives."""
    stage.set("best-effort")
    fifteen, _ = stage.enter("fifteen", 15, CRUN)
    five, joined = stage.enter("five", 5)
    both = stage.numapin.status()
    stage.workloads.remove("fifteen")
    left = stage.numapin.wait("the memory of 15", lambda status: sum(memory(status)) == 5 * UNIT_MIB * MIB)
    kept = stage.granted("five")
    stage.workloads.remove("five")
    empty = stage.numapin.wait("the memory of 5", lambda status: not sum(memory(status)))

    assert ("0-1", "0-1", "pinned") == (fifteen, five, joined["state"])
    assert [[0, 1]] == both["groups"] == left["groups"]
    assert 20 * UNIT_MIB * MIB == sum(memory(both))
    assert "0-1" == kept
    assert [] == empty["groups"]


def test_single_nodes_fill_up(stage: Stage) -> None:
    """2 and 6 share a node, 3 goes to the next, 8 is refused although what is left in sum would do."""
    stage.set("restricted")
    granted = [stage.enter(name, units)[0] for name, units in (("two", 2), ("six", 6), ("three", 3))]
    eight, refused = stage.enter("eight", 8)
    status = stage.numapin.status()
    free = [node["memory_map"]["memory"]["free"] for node in status["nodes"]]

    assert ["0", "0", "1"] == granted
    assert ("0-3", "refused") == (eight, refused["state"])
    assert [] == status["groups"]
    assert [2 * UNIT_MIB * MIB, 7 * UNIT_MIB * MIB, 0, 0] == free
    assert sum(free) > 8 * UNIT_MIB * MIB


def memory(status: Status) -> list[int]:
    """Bytes reserved, by node."""
    return list(reserved(status).values())

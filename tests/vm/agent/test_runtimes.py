"""
Every runtime and cgroup driver: who is pinned, where the memory is, and what the books say.

All containers are started once; the tests look at what was seen while they ran and after they were removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from support.guest.machine import Guest
from support.installed import Installation, Numapin, Status, reserved, rows_by_name
from support.workloads import BEST_EFFORT, DRIVERS, MIB, Box, Driver, Seen, Workloads, burstable, guaranteed

HELD_MIB = 100
LIMIT_MIB = 128
ALL = "0-3"
CLASSES = {
    "Guaranteed": Box("guaranteed", guaranteed(LIMIT_MIB), hold_mib=HELD_MIB),
    "Burstable": Box("burstable", burstable(LIMIT_MIB), hold_mib=1),
    "BestEffort": Box("besteffort", BEST_EFFORT, hold_mib=1),
}


def name_of(driver: Driver, qos: str) -> str:
    """The name of the container of a class."""
    return f"{driver.name}-{qos.lower()}"


@dataclass(frozen=True, slots=True)
class Population:
    """What was seen while all containers ran, and what numapin said then and after they were gone."""

    seen: Mapping[str, Seen]
    status: Status
    rows: Mapping[str, dict[str, Any]]
    after: Status


@pytest.fixture(scope="module")
def population(machine: Guest, installed: Installation) -> Population:
    """One container of each class for every driver."""
    machine.load("installed")
    numapin, workloads = Numapin(machine), Workloads(machine)
    workloads.start(
        *(
            (driver, Box(name_of(driver, qos), box.limits, box.hold_mib))
            for driver in DRIVERS
            for qos, box in CLASSES.items()
        )
    )
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    numapin.wait_for({name: cgroup for name, cgroup in cgroups.items() if name.endswith("guaranteed")})
    seen = workloads.holding()
    status, rows = numapin.status(), rows_by_name(numapin.containers(), cgroups)
    workloads.remove()
    after = numapin.wait("an empty list", lambda status: not sum(status["counts"].values()))
    return Population(seen, status, rows, after)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_guaranteed(population: Population, driver: Driver) -> None:
    """The process may use one node only, all its anonymous memory lies there, and numapin says the same."""
    name = name_of(driver, "Guaranteed")
    seen, row = population.seen[name], population.rows[name]
    (node,) = row["nodes"]

    assert ("pinned", "Guaranteed", driver.runtime) == (row["state"], row["qos"], row["runtime"])
    assert {"memory": LIMIT_MIB * MIB} == row["request"]
    assert name == row["name"]
    assert (str(node), str(node)) == (seen.effective, seen.allowed)
    assert 0 == seen.stray(node)
    assert seen.anonymous[node] >= HELD_MIB * MIB


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
@pytest.mark.parametrize("qos", ["Burstable", "BestEffort"])
def test_others(population: Population, driver: Driver, qos: str) -> None:
    """A container of another class keeps all nodes, and numapin tells its class and that it leaves it alone."""
    name = name_of(driver, qos)
    seen, row = population.seen[name], population.rows[name]

    assert (ALL, ALL) == (seen.effective, seen.allowed)
    assert (qos, "not-managed", []) == (row["qos"], row["state"], row["nodes"])


def test_the_books(population: Population) -> None:
    """Each node has exactly the requests of its containers reserved; no group was needed."""
    expected = dict.fromkeys(range(4), 0)
    for driver in DRIVERS:
        (node,) = population.rows[name_of(driver, "Guaranteed")]["nodes"]
        expected[node] += LIMIT_MIB * MIB

    assert expected == reserved(population.status)
    assert [] == population.status["groups"]
    counted = {qos: population.status["counts"][qos] for qos in CLASSES}
    assert dict.fromkeys(CLASSES, len(DRIVERS)) == counted
    assert (0, 0) == (population.status["counters"]["failures"], population.status["counters"]["repairs"])


def test_removal(population: Population) -> None:
    """When the containers are gone nothing is reserved any more."""
    assert dict.fromkeys(range(4), 0) == reserved(population.after)
    assert [0] * 4 == [node["assignments"] for node in population.after["nodes"]]
    assert [] == population.after["containers"]

"""Undo: what the kernel says of every cgroup before numapin's first write, and after its last."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from support.guest.machine import Guest
from support.installed import Installation, Numapin, reserved
from support.workloads import (
    CONTAINERD,
    CRUN_SYSTEMD,
    DOCKER,
    MIB,
    PODMAN,
    RUNC,
    Box,
    Workloads,
    burstable,
    guaranteed,
)

SNAPSHOT = "all-pinned"
UNITS = "systemctl show --property Id,AllowedMemoryNodes '*.scope' '*.slice'"
BOXES = (
    (DOCKER, Box("docker", guaranteed(100), hold_mib=20)),
    (PODMAN, Box("podman", guaranteed(100), hold_mib=20)),
    (CONTAINERD, Box("containerd", guaranteed(100))),
    (RUNC, Box("runc", guaranteed(100))),
    (CRUN_SYSTEMD, Box("crun", guaranteed(1200))),
    (DOCKER, Box("chosen", guaranteed(100, mems="2-3"))),
    (RUNC, Box("burstable", burstable(100))),
)
PINNED = ("docker", "podman", "containerd", "runc", "crun")


def dump(guest: Guest, file: str) -> dict[str, str]:
    """What each cgroup's file of that name says; the root is empty text."""
    text = guest.run(f"cd /sys/fs/cgroup && grep -srH --include={file} '' . || test $? = 2").stdout
    found = {}
    for line in text.splitlines():
        path, _, value = line.partition(f"/{file}:")
        found[path.removeprefix(".")] = value
    return found


def told(guest: Guest) -> dict[str, str]:
    """The memory nodes that systemd has been told for every scope and slice."""
    found = {}
    for unit in guest.run(UNITS).stdout.split("\n\n"):
        properties = dict(line.split("=", 1) for line in unit.splitlines() if line)
        found[properties["Id"]] = properties["AllowedMemoryNodes"]
    return found


@dataclass(frozen=True, slots=True)
class Before:
    """What was seen when the containers ran and the service never had: cgroups, granted nodes, units, processes."""

    workloads: Workloads
    mems: dict[str, str]
    effective: dict[str, str]
    units: dict[str, str]
    pids: dict[str, int]


@pytest.fixture(scope="module")
def unpinned(machine: Guest, installed: Installation) -> Before:
    """Containers of every kind ran before the service; all that can be is pinned now, and kept as a snapshot."""
    machine.load("installed")
    numapin, workloads = Numapin(machine), Workloads(machine)
    machine.run("systemctl stop numapin", timeout_s=120)
    workloads.start(*BOXES)
    pids = {name: seen.pid for name, seen in workloads.holding().items()}
    before = Before(
        workloads, dump(machine, "cpuset.mems"), dump(machine, "cpuset.mems.effective"), told(machine), pids
    )
    machine.run("systemctl start numapin", timeout_s=120)
    rows = numapin.wait_for({name: seen.cgroup for name, seen in workloads.look(PINNED).items()})
    assert ["pinned"] * len(PINNED) == [row["state"] for row in rows.values()]
    numapin.wait(
        "systemd to be told",
        lambda status: sum("says the same" in (row["unit"] or "") for row in status["containers"]) == 3,
    )
    machine.save(SNAPSHOT)
    return before


@pytest.fixture
def snapshot(unpinned: Before) -> str:
    """Tests start with all pinned."""
    return SNAPSHOT


@pytest.fixture
def before(guest: Guest, unpinned: Before) -> Before:
    """The dumps; the guest is as in the snapshot."""
    return unpinned


def pinned_effectively(guest: Guest, before: Before) -> int:
    """How many cgroups are granted other nodes than before."""
    now = dump(guest, "cpuset.mems.effective")
    return sum(now[cgroup] != nodes for cgroup, nodes in before.effective.items() if cgroup in now)


def check_as_before(guest: Guest, before: Before) -> None:
    """Effective sets, values (an inherited one may be written out), units and processes are as they were."""
    mems, effective = dump(guest, "cpuset.mems"), dump(guest, "cpuset.mems.effective")
    both = before.effective.keys() & effective.keys()
    assert {cgroup: before.effective[cgroup] for cgroup in both} == {cgroup: effective[cgroup] for cgroup in both}
    for cgroup in before.mems.keys() & mems.keys():
        was, parent = before.mems[cgroup], effective.get(cgroup.rpartition("/")[0])
        assert mems[cgroup] in ((was,) if was else ("", parent)), cgroup
    units = told(guest)
    known = units.keys() & before.units.keys()
    assert {unit: before.units[unit] for unit in known} == {unit: units[unit] for unit in known}
    assert before.pids == {name: seen.pid for name, seen in before.workloads.look().items()}


def test_release_all(guest: Guest, numapin: Numapin, before: Before) -> None:
    """After ``release --all`` every cgroup is granted what it had before, also when systemd looks again."""
    during = pinned_effectively(guest, before)
    answer = json.loads(guest.run("numapin release --all -o json", timeout_s=120).stdout)
    check_as_before(guest, before)
    guest.run("systemctl daemon-reload; docker update --cpus 0.3 docker; sleep 1", timeout_s=120)
    check_as_before(guest, before)

    assert during >= len(PINNED)
    assert len(PINNED) == sum(row["state"] == "released" for row in answer["containers"])
    assert (0, []) == (answer["pending"], [row for row in answer["containers"] if row["problem"]])
    left = reserved(numapin.status())
    assert (0, 0, 100 * MIB) == (left[0], left[1], left[2] + left[3])  # what another chose stays accounted


def test_release_one(guest: Guest, before: Before) -> None:
    """One container is released alone; the others stay pinned."""
    pins = {name: seen.effective for name, seen in before.workloads.look().items()}
    guest.run("numapin release docker; sleep 1", timeout_s=120)
    now = {name: seen.effective for name, seen in before.workloads.look().items()}

    assert {**pins, "docker": "0-3"} == now
    assert "0-3" not in [pins[name] for name in PINNED]


def test_without_the_service(guest: Guest, before: Before) -> None:
    """With the service stopped ``release --all`` works from the checkpoint."""
    guest.run("systemctl stop numapin", timeout_s=120)
    during = pinned_effectively(guest, before)
    guest.run("numapin release --all", timeout_s=120)
    check_as_before(guest, before)

    assert during >= len(PINNED)


def test_removal_of_the_package(guest: Guest, before: Before) -> None:
    """Removing the package releases all and stops the service; every container runs on."""
    during = pinned_effectively(guest, before)
    guest.run("DEBIAN_FRONTEND=noninteractive apt-get remove --quiet --yes numapin", timeout_s=300)
    check_as_before(guest, before)

    assert during >= len(PINNED)
    assert "inactive" == guest.run("systemctl is-active numapin", check=False).stdout.strip()
    assert 1 == guest.run("pgrep -f /usr/bin/numapin", check=False).status

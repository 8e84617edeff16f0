"""More than a node has: several containers, large ones, hugepages."""

from __future__ import annotations

import pytest

from support.guest.machine import Guest
from support.installed import Numapin, Status, reserved
from support.workloads import (
    CRUN,
    CRUN_SYSTEMD,
    MIB,
    RUNC,
    RUNC_SYSTEMD,
    Box,
    Driver,
    Seen,
    Workloads,
    guaranteed,
)

HUGETLBFS = "mkdir -p /run/huge; mount -t hugetlbfs -o pagesize=2M none /run/huge"


def place(numapin: Numapin, workloads: Workloads, driver: Driver, box: Box) -> tuple[Seen, dict[str, object], Status]:
    """Start one container, wait for the decision; gives what the kernel, its row and the whole status say."""
    workloads.start((driver, box))
    cgroup = workloads.look([box.name])[box.name].cgroup
    row = numapin.wait_for({box.name: cgroup})[box.name]
    return workloads.look([box.name])[box.name], row, numapin.status()


def nodes_of(text: str) -> set[int]:
    """The nodes of a kernel's list without long ranges, as in ``0-1`` or ``2``."""
    nodes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        nodes |= set(range(int(first), int(last or first) + 1))
    return nodes


def test_two_that_do_not_fit_together(numapin: Numapin, workloads: Workloads) -> None:
    """Two Guaranteed containers of 600 MiB go to different nodes, each with its memory where it is pinned."""
    workloads.start(
        (CRUN, Box("first", guaranteed(600), hold_mib=100)), (RUNC, Box("second", guaranteed(600), hold_mib=100))
    )
    numapin.wait_for({name: seen.cgroup for name, seen in workloads.look().items()})
    seen = workloads.holding()
    first, second = nodes_of(seen["first"].effective), nodes_of(seen["second"].effective)

    assert (1, 1) == (len(first), len(second))
    assert not first & second
    assert (0, 0) == (seen["first"].stray(*first), seen["second"].stray(*second))
    assert {n: 600 * MIB * (n in first | second) for n in range(4)} == reserved(numapin.status())


def test_larger_than_a_node(numapin: Numapin, workloads: Workloads) -> None:
    """One of 1200 MiB gets a group of two nodes, and nobody else is put on one of the two alone."""
    large, row, status = place(numapin, workloads, CRUN, Box("large", guaranteed(1200), hold_mib=100))
    group = nodes_of(large.effective)
    others = []
    for k in range(3):
        seen, _, after = place(numapin, workloads, CRUN, Box(f"small{k}", guaranteed(400)))
        others.append(nodes_of(seen.effective))
    second, refused, last = place(numapin, workloads, RUNC, Box("second-large", guaranteed(1200)))

    assert 2 == len(group)
    assert sorted(group) == row["nodes"]
    assert [sorted(group)] == status["groups"] == after["groups"]
    assert large.effective == large.allowed
    assert 0 == workloads.holding()["large"].stray(*group)
    assert all(len(nodes) == 1 and not nodes & group for nodes in others)
    assert 3 * 400 * MIB == sum(size for node, size in reserved(last).items() if node not in group)
    assert "refused" == refused["state"]
    assert "0-3" == second.effective


@pytest.mark.parametrize("driver", [RUNC, CRUN_SYSTEMD], ids=lambda driver: driver.name)
def test_hugepages_are_counted_per_node(guest: Guest, numapin: Numapin, workloads: Workloads, driver: Driver) -> None:
    """Hugepages are reserved beside memory on the same node, and there the container's pages come from."""
    workloads.start((driver, Box("huge", guaranteed(100, hugepages_mib=40))))
    cgroup = workloads.look()["huge"].cgroup
    row = numapin.wait_for({"huge": cgroup})["huge"]
    (node,) = row["nodes"]
    status = numapin.status()
    guest.run(f"{HUGETLBFS}; echo $$ >/sys/fs/cgroup{cgroup}/cgroup.procs; fallocate -l {32 * MIB} /run/huge/pages")
    free = [
        int(guest.read(f"/sys/devices/system/node/node{n}/hugepages/hugepages-2048kB/free_hugepages"))
        for n in range(4)
    ]

    assert {"memory": 100 * MIB, "hugepages-2Mi": 40 * MIB} == row["request"]
    assert {n: 40 * MIB * (n == node) for n in range(4)} == reserved(status, "hugepages-2Mi")
    assert {n: 100 * MIB * (n == node) for n in range(4)} == reserved(status)
    assert [16 if n == node else 32 for n in range(4)] == free


def test_more_hugepages_than_a_node_has(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """96 MiB of hugepages need two nodes of 64 MiB; then 48 MiB go to a node alone, and 300 MiB nowhere."""
    two, _, status = place(numapin, workloads, RUNC_SYSTEMD, Box("two", guaranteed(64, hugepages_mib=96)))
    one, _, after = place(numapin, workloads, RUNC, Box("one", guaranteed(64, hugepages_mib=48)))
    none, refused, last = place(numapin, workloads, RUNC, Box("none", guaranteed(64, hugepages_mib=300)))
    group = nodes_of(two.effective)

    assert 2 == len(group)
    assert [sorted(group)] == status["groups"]
    assert 96 * MIB == sum(reserved(status, "hugepages-2Mi").values())
    assert 1 == len(nodes_of(one.effective))
    assert not nodes_of(one.effective) & group
    assert (96 + 48) * MIB == sum(reserved(after, "hugepages-2Mi").values())
    assert "0-3" == none.effective
    assert "refused" == refused["state"]
    assert "300 MiB" in str(refused["message"])
    assert reserved(after, "hugepages-2Mi") == reserved(last, "hugepages-2Mi")


def test_pages_in_use_are_not_promised(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """A node whose hugepages somebody outside all containers uses is not chosen for them."""
    guest.run(f"{HUGETLBFS}; numactl --membind 0 fallocate -l {40 * MIB} /run/huge/pages")

    seen, row, _ = place(numapin, workloads, RUNC, Box("huge", guaranteed(64, hugepages_mib=40)))

    assert "pinned" == row["state"]
    assert "1" == seen.effective

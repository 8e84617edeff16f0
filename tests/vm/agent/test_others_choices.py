"""What others decided: pins that somebody else chose, and parents that allow fewer nodes."""

from __future__ import annotations

from support.guest.machine import Guest
from support.installed import Numapin, reserved
from support.workloads import CRUN, DOCKER, MIB, RUNC, Box, Workloads, guaranteed


def test_a_pin_of_the_runtime(numapin: Numapin, workloads: Workloads) -> None:
    """A container started on nodes of its owner's choice stays there, and its memory is in the books there."""
    workloads.start(
        (DOCKER, Box("chosen", guaranteed(200, mems="1"))), (CRUN, Box("spread", guaranteed(200, mems="2-3")))
    )
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    rows = numapin.wait_for(cgroups)
    seen = workloads.look()
    status = numapin.status()

    assert ("1", "2-3") == (seen["chosen"].effective, seen["spread"].effective)
    assert ["pinned-by-others"] * 2 == [rows[name]["state"] for name in ("chosen", "spread")]
    assert {0: 0, 1: 200 * MIB, 2: 200 * MIB, 3: 0} == reserved(status)
    assert (0, []) == (status["counters"]["writes"], status["groups"])


def test_a_pin_by_hand(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """With numapin away somebody pins a container; when it comes it accounts the pin and does not touch it."""
    guest.run("systemctl stop numapin")
    workloads.start((RUNC, Box("manual", guaranteed(200))))
    cgroup = workloads.look()["manual"].cgroup
    guest.run(f"echo 3 >/sys/fs/cgroup{cgroup}/cpuset.mems; systemctl start numapin", timeout_s=120)
    row = numapin.wait_for({"manual": cgroup})["manual"]

    assert "pinned-by-others" == row["state"]
    assert "3" == workloads.look()["manual"].effective
    assert {0: 0, 1: 0, 2: 0, 3: 200 * MIB} == reserved(numapin.status())


def test_parents_that_allow_fewer_nodes(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """Below a slice that allows nodes 2 and 3 a container gets one of them; one too large for it is refused."""
    guest.run(
        "systemctl set-property --runtime narrow.slice AllowedMemoryNodes=2-3;"
        " systemd-run --quiet --slice narrow.slice --unit holder sleep infinity;"
        " grep -qx 2-3 /sys/fs/cgroup/narrow.slice/cpuset.mems.effective"
    )
    inside = Box("inside", guaranteed(200), hold_mib=50, parent="/narrow.slice")
    workloads.start((CRUN, inside), (RUNC, Box("large", guaranteed(2500), parent="/narrow.slice")))
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    rows = numapin.wait_for(cgroups)
    seen = workloads.holding()
    (node,) = rows["inside"]["nodes"]

    assert all(cgroup.startswith("/narrow.slice/") for cgroup in cgroups.values())
    assert "pinned" == rows["inside"]["state"]
    assert node in (2, 3)
    assert (str(node), 0) == (seen["inside"].effective, seen["inside"].stray(node))
    assert "refused" == rows["large"]["state"]
    assert "2-3" == seen["large"].effective

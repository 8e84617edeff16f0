"""Containers whose pages have to move, because they ran before the service did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import support.migration_race
from support.guest.machine import Guest
from support.installed import Numapin, reserve_all_but, reserved
from support.workloads import MIB, RUNC, Box, Driver, Seen, Workloads, guaranteed

SOURCE, TARGET = 2, 3
LARGE_MIB = 1024
PLUGGED_MIB = 512
"""The guest's nodes have 1 GiB, of which the system uses some."""
FILLER = f"""
setsid numactl --membind {TARGET} sh /srv/rootfs/usr/local/bin/hold-memory 600 >/tmp/filler 2>&1 &
echo $! >/tmp/filler.pid
until grep -q holding /tmp/filler; do sleep 0.2; done
"""


def plug(guest: Guest, numapin: Numapin) -> None:
    """Give the two nodes more memory."""
    before = {n["id"]: n["memory_map"]["memory"]["total"] for n in numapin.status()["nodes"]}
    guest.run("echo online_movable >/sys/devices/system/memory/auto_online_blocks")
    for node in (SOURCE, TARGET):
        more = {"qom-type": "memory-backend-ram", "id": f"more{node}", "size": PLUGGED_MIB * MIB}
        guest.monitor("object-add", more)
        guest.monitor("device_add", {"driver": "pc-dimm", "id": f"dimm{node}", "memdev": f"more{node}", "node": node})
    grown = {node: before[node] + PLUGGED_MIB * MIB for node in (SOURCE, TARGET)}
    numapin.wait(
        "the memory",
        lambda s: grown == {n["id"]: n["memory_map"]["memory"]["total"] for n in s["nodes"] if n["id"] in grown},
    )


def run_unpinned(guest: Guest, numapin: Numapin, workloads: Workloads, hold_mib: int, driver: Driver = RUNC) -> Seen:
    """
    A running container, free to use all nodes, whose pages are on SOURCE; the service is stopped and may give away
    memory on TARGET only.
    """
    numapin.configure(
        'full_pass_interval = "2s"\n' + reserve_all_but(numapin.status(), {TARGET: (hold_mib + 200) * MIB})
    )
    guest.run("systemctl stop numapin", timeout_s=120)
    workloads.start((driver, Box("big", guaranteed(hold_mib + 40), hold_mib)))
    cgroup = workloads.look()["big"].cgroup
    guest.run(f"echo {SOURCE} >/sys/fs/cgroup{cgroup}/cpuset.mems")
    workloads.holding(timeout_s=300)
    guest.run(f"echo 0-3 >/sys/fs/cgroup{cgroup}/cpuset.mems")
    seen = workloads.look()["big"]
    assert (seen.effective, seen.anonymous[TARGET]) == ("0-3", 0)
    assert seen.anonymous[SOURCE] >= hold_mib * MIB
    return seen


def test_another_is_pinned_meanwhile(
    guest: Guest, numapin: Numapin, workloads: Workloads, record_property: Callable[[str, object], None]
) -> None:
    """While a gigabyte of one container moves, a new one gets its node."""
    plug(guest, numapin)
    before = run_unpinned(guest, numapin, workloads, LARGE_MIB)
    guest.push(Path(support.migration_race.__file__), "/root/migration_race.py")
    done = guest.run(f"python3 /root/migration_race.py {before.cgroup} {TARGET}", timeout_s=300)
    seen = json.loads(done.stdout)
    status = numapin.wait(
        "both pinned", lambda s: [r["state"] for r in s["containers"]] == ["pinned", "pinned"], timeout_s=60
    )
    after = workloads.look()["big"]
    record_property(
        "figure",
        f"{LARGE_MIB} MiB moved in {seen['big_s']:.2f} s; meanwhile a new container had its node after "
        f"{seen['small_s']:.2f} s ({seen['still_elsewhere'] // MIB} MiB were still to move); "
        f"the kernel let its process in after {seen['join_s']:.2f} s more",
    )

    assert seen["still_elsewhere"] > 0
    assert seen["small_s"] < seen["big_s"]
    assert seen["first"]
    assert (str(TARGET), str(TARGET)) == (after.effective, after.allowed)
    assert after.anonymous[TARGET] >= LARGE_MIB * MIB
    assert after.stray(TARGET) <= MIB
    assert {SOURCE: 0, TARGET: (LARGE_MIB + 40 + 50) * MIB} == {n: reserved(status)[n] for n in (SOURCE, TARGET)}


def test_pages_that_do_not_fit_yet(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """A container whose pages the target has no room for keeps them, with its reservation, until there is room."""
    before = run_unpinned(guest, numapin, workloads, 400)
    guest.run(FILLER, timeout_s=120)
    guest.run("systemctl start numapin", timeout_s=120)
    row = numapin.wait_for({"big": before.cgroup})["big"]
    deferred, status = workloads.look()["big"], numapin.status()
    guest.run("kill -- -$(cat /tmp/filler.pid)")
    numapin.wait("room", lambda s: s["containers"][0]["state"] == "pinned")
    after = workloads.look()["big"]

    assert "deferred" == row["state"]
    assert f"node {TARGET} has room for" in row["message"]
    assert ("0-3", 0) == (deferred.effective, deferred.anonymous[TARGET])
    assert 440 * MIB == reserved(status)[TARGET]
    assert str(TARGET) == after.effective
    assert after.anonymous[TARGET] >= 400 * MIB
    assert after.stray(TARGET) <= MIB

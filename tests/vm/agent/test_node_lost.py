"""A node whose memory all goes while containers are promised some of it, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.books_log import BooksLog
from support.guest.machine import Guest
from support.installed import Numapin, Status, reserve_all_but, reserved
from support.workloads import MIB, RUNC, Box, Workloads, guaranteed

NODE = 4
"""Has neither CPUs nor memory until some is plugged, all of it movable, so that all of it can go."""
PLUGGED_MIB, KEPT_MIB = 256, 56
SOON_S = 5.0
"""A second is to be held; an emulator on a busy machine is several times slower."""

ONLINE_AT_ONCE = "echo online_movable >/sys/devices/system/memory/auto_online_blocks"
OFFLINE = f"for block in /sys/devices/system/node/node{NODE}/memory[0-9]*; do echo offline >$block/state; done"
HAS_MEMORY = f"until grep -q {NODE} /sys/devices/system/node/has_memory; do sleep 0.1; done"
NOT_ONLINE = f"until ! test -d /sys/devices/system/node/node{NODE}; do sleep 0.1; done"
VERIFY = "numapin checkpoint verify"


def plug(guest: Guest, name: str) -> None:
    """A module of memory in the node."""
    guest.monitor("object-add", {"qom-type": "memory-backend-ram", "id": f"in-{name}", "size": PLUGGED_MIB * MIB})
    guest.monitor("device_add", {"driver": "pc-dimm", "id": name, "memdev": f"in-{name}", "node": NODE})
    guest.run(HAS_MEMORY)


def rows(status: Status) -> dict[str, dict[str, Any]]:
    """numapin's rows by name."""
    return {row["name"]: row for row in status["containers"]}


def states(status: Status) -> dict[str, str]:
    """The containers' states by name."""
    return {name: row["state"] for name, row in rows(status).items()}


def mems(guest: Guest, cgroup: str) -> list[str]:
    """What the cgroup asks for and what the kernel grants."""
    return guest.run(
        f"cat /sys/fs/cgroup{cgroup}/cpuset.mems /sys/fs/cgroup{cgroup}/cpuset.mems.effective"
    ).stdout.split()


def test_a_node_loses_all_its_memory_and_gets_it_back(
    guest: Guest, numapin: Numapin, workloads: Workloads, record_property: Callable[[str, object], None]
) -> None:
    """
    The container's pin is lost and says so; its reservation stays, over the node's end and the service's restart too,
    and nobody else gets of it; with new memory the kernel grants the node again, and the next in line gets the rest.
    """
    sizes = reserve_all_but(numapin.status(), {0: 300 * MIB})
    guest.run(ONLINE_AT_ONCE)
    plug(guest, "first")
    own = f"[reserved.node.{NODE}]\nmemory = {KEPT_MIB * MIB}\n"
    numapin.configure(f'policy = "best-effort"\nnodes.cpu_less = [{NODE}]\n{sizes}\n{own}')
    numapin.reload(lambda status: reserved(status).get(NODE) == 0)
    workloads.start((RUNC, Box("wide", guaranteed(400))))
    wide = workloads.look()["wide"].cgroup
    pinned = numapin.wait_for({"wide": wide})["wide"]
    whole = mems(guest, wide)
    log = BooksLog.start(guest)

    guest.run(OFFLINE, timeout_s=120)
    lost = numapin.wait("the loss", lambda status: states(status) == {"wide": "pin-lost"})
    narrowed = mems(guest, wide)
    lost_s = log.lateness(lambda entry: entry["states"].get("wide") == "pin-lost")
    told = guest.run(f"numapin explain wide; {VERIFY}", check=False)
    workloads.start((RUNC, Box("late", guaranteed(100))))
    late = workloads.look(["late"])["late"].cgroup
    numapin.wait_for({"late": late})

    guest.monitor("device_del", {"id": "first"})
    guest.run(f"{NOT_ONLINE}; systemctl restart numapin", timeout_s=120)
    gone = numapin.wait("the service", lambda status: len(states(status)) == 2)

    plug(guest, "second")
    back = numapin.wait("the return", lambda status: states(status) == {"wide": "pinned", "late": "pinned"})
    again = mems(guest, wide)
    back_s = log.lateness(lambda entry: entry["states"].get("wide") == "pinned")
    record_property(
        "figure", f"a node without memory: its pin is called lost {lost_s * 1000:.0f} ms after the last uevent"
    )
    record_property("figure", f"its memory is back: pinned again {back_s * 1000:.0f} ms after the last uevent")

    assert ([0, NODE], ["0,4", "0,4"]) == (pinned["nodes"], whole)
    assert ["0,4", "0"] == narrowed
    assert f"node {NODE} has no memory now" in rows(lost)["wide"]["message"]
    assert "Pin lost, nodes 0,4 stay reserved" in told.stdout
    assert (1, True) == (told.status, "entries[wide]" in told.stdout)
    assert 400 * MIB == sum(reserved(lost).values())
    assert {"wide": "pin-lost", "late": "refused"} == states(gone)
    assert ([0, NODE], 400 * MIB) == (rows(gone)["wide"]["nodes"], sum(reserved(gone).values()))
    assert [] == [f for f in gone["findings"] if f["code"] == "cpu-less-nodes"]
    assert ["0,4", "0,4"] == again
    assert {0: 300 * MIB, 1: 0, 2: 0, 3: 0, NODE: 200 * MIB} == reserved(back)
    assert ["0,4", "0,4"] == mems(guest, late)
    assert 0 == guest.run(VERIFY).status
    assert lost_s < SOON_S
    assert back_s < SOON_S

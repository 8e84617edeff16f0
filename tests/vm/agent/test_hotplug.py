"""Memory that comes and goes, and hugepage pools that change, while the service runs."""

from __future__ import annotations

from collections.abc import Callable

from support.books_log import BooksLog
from support.guest.machine import Guest
from support.installed import Numapin, Status, reserve_all_but, reserved
from support.workloads import CRUN, MIB, RUNC, Box, Workloads, guaranteed

NODE = 2
PLUGGED_MIB = 256
SOON_S = 5.0
"""A second is to be held; an emulator on a busy machine is several times slower."""

ONLINE_AT_ONCE = "echo online_movable >/sys/devices/system/memory/auto_online_blocks"
OFFLINE = """
for block in /sys/devices/system/node/node2/memory[0-9]*; do
    if grep -qx Movable $block/valid_zones; then echo offline >$block/state || exit 1; fi
done
"""


def total_in_kernel(guest: Guest, node: int) -> int:
    """Bytes of memory that the kernel has on the node."""
    return int(guest.run(f"awk '/MemTotal/ {{print $4}}' /sys/devices/system/node/node{node}/meminfo").stdout) << 10


def memory(status: Status, node: int) -> dict[str, int]:
    """The node's books for memory."""
    table: dict[str, int] = status["nodes"][node]["memory_map"]["memory"]
    return table


def pages(guest: Guest, node: int, count: int) -> None:
    """The pool of 2 MiB pages on *node* has so many."""
    file = f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
    guest.run(f"echo {count} >{file}; grep -qx {count} {file}")


def test_memory_comes_and_goes(
    guest: Guest, numapin: Numapin, workloads: Workloads, record_property: Callable[[str, object], None]
) -> None:
    """
    Plugged memory is in the NodeMap soon after its uevent, and a refused container gets it; blocks taken offline
    are taken out again, and the promise that does not fit any more is kept and named.
    """
    before = numapin.status()
    numapin.configure(reserve_all_but(before, {NODE: 300 * MIB}))
    numapin.reload(lambda status: memory(status, NODE)["allocatable"] == 300 * MIB)
    workloads.start((RUNC, Box("waits", guaranteed(500))))
    cgroup = workloads.look()["waits"].cgroup
    refused = numapin.wait_for({"waits": cgroup})["waits"]
    log = BooksLog.start(guest)
    guest.run(ONLINE_AT_ONCE)

    guest.monitor("object-add", {"qom-type": "memory-backend-ram", "id": "more", "size": PLUGGED_MIB * MIB})
    guest.monitor("device_add", {"driver": "pc-dimm", "id": "dimm", "memdev": "more", "node": NODE})
    grown = memory(before, NODE)["total"] + PLUGGED_MIB * MIB
    plugged = numapin.wait("the memory", lambda status: memory(status, NODE)["total"] == grown)
    in_kernel = total_in_kernel(guest, NODE)
    numapin.wait("a node for it", lambda status: status["containers"][0]["state"] == "pinned")
    seen = workloads.look()["waits"]
    plugged_s = log.lateness(lambda entry: entry["total"][str(NODE)] == grown)

    guest.run(OFFLINE, timeout_s=120)
    total = memory(before, NODE)["total"]
    shrunk = numapin.wait("the memory to go", lambda status: memory(status, NODE)["total"] == total)
    less_in_kernel = total_in_kernel(guest, NODE)
    offline_s = log.lateness(lambda entry: entry["total"][str(NODE)] == total)
    record_property("figure", f"plugged memory is in the books {plugged_s * 1000:.0f} ms after the last uevent")
    record_property("figure", f"memory taken offline is out of them {offline_s * 1000:.0f} ms after the last uevent")

    assert "refused" == refused["state"]
    assert grown == in_kernel
    assert 300 * MIB + PLUGGED_MIB * MIB == memory(plugged, NODE)["allocatable"]
    assert (str(NODE), str(NODE)) == (seen.effective, seen.allowed)
    assert (total, 300 * MIB) == (less_in_kernel, memory(shrunk, NODE)["allocatable"])
    assert ["pinned"] == [row["state"] for row in shrunk["containers"]]
    assert 500 * MIB == reserved(shrunk)[NODE]
    assert "promise-does-not-fit" in [finding["code"] for finding in shrunk["findings"]]
    assert str(NODE) == workloads.look()["waits"].effective
    assert plugged_s < SOON_S
    assert offline_s < SOON_S


def test_pools_that_change(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """The next container that needs hugepages is decided by the pools as they are then, larger or gone."""
    before = numapin.status()
    pages(guest, 1, 60)
    workloads.start((CRUN, Box("many", guaranteed(64, hugepages_mib=100))))
    many = numapin.wait_for({"many": workloads.look()["many"].cgroup})["many"]
    grown = numapin.status()
    pages(guest, 0, 0)
    workloads.start((RUNC, Box("few", guaranteed(64, hugepages_mib=40))))
    few = numapin.wait_for({"few": workloads.look(["few"])["few"].cgroup})["few"]
    shrunk = numapin.status()
    seen = workloads.look()

    assert ([1], "1") == (many["nodes"], seen["many"].effective)
    assert 120 * MIB == grown["nodes"][1]["memory_map"]["hugepages-2Mi"]["allocatable"]
    assert memory(before, 1)["allocatable"] - 56 * MIB == memory(grown, 1)["allocatable"]
    assert ([2], "2") == (few["nodes"], seen["few"].effective)
    assert 0 == shrunk["nodes"][0]["memory_map"]["hugepages-2Mi"]["total"]
    assert memory(before, 0)["allocatable"] + 64 * MIB == memory(shrunk, 0)["allocatable"]
    assert {0: 0, 1: 100 * MIB, 2: 40 * MIB, 3: 0} == reserved(shrunk, "hugepages-2Mi")


def test_pages_that_the_kernel_does_not_have(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """Pages that somebody outside took after the books were made are not promised; freed, they are again."""
    numapin.configure('full_pass_interval = "2s"\n')
    numapin.reload(lambda status: status["running"])
    guest.run("mkdir -p /run/huge; mount -t hugetlbfs -o pagesize=2M none /run/huge")
    guest.run(f"for n in 0 1 2 3; do numactl --membind $n fallocate -l {40 * MIB} /run/huge/pages$n; done")
    workloads.start((RUNC, Box("huge", guaranteed(64, hugepages_mib=40))))
    cgroup = workloads.look()["huge"].cgroup
    group = numapin.wait_for({"huge": cgroup})["huge"]
    books = numapin.status()
    without = workloads.look()["huge"]
    guest.run("rm /run/huge/pages3")
    numapin.wait("the pages of node 3", lambda status: status["containers"][0]["state"] == "pinned")

    assert "refused" == group["state"]
    assert "0-3" == without.effective
    assert dict.fromkeys(range(4), 0) == reserved(books, "hugepages-2Mi")
    assert "3" == workloads.look()["huge"].effective

"""A container below a cgroup without cpuset: left alone, and pinned with ``cgroup.enable_cpuset`` (B058)."""

from __future__ import annotations

from collections.abc import Callable

from support.guest.machine import Guest
from support.installed import Numapin, reserved
from support.workloads import MIB, RUNC, Box, Workloads, guaranteed

CONTROL = "cgroup.subtree_control"
KEY = "[cgroup]\nenable_cpuset = true\n"


def controllers(guest: Guest, cgroup: str) -> set[str]:
    """What a cgroup enables for its children."""
    return set(guest.run(f"cat /sys/fs/cgroup{cgroup}/{CONTROL}").stdout.split())


def disable(guest: Guest, cgroup: str, *names: str) -> None:
    """Take controllers from a cgroup's children: runtimes enable all of them on the way to their containers."""
    guest.run("".join(f"echo -{name} >/sys/fs/cgroup{cgroup}/{CONTROL} && " for name in names) + "true")


def affinity(guest: Guest, pid: str) -> str:
    """CPUs that a process may use."""
    return guest.run(f"taskset -cp {pid}").stdout.rpartition(": ")[2].strip()


def test_a_slice_without_cpuset(
    guest: Guest, numapin: Numapin, workloads: Workloads, record_property: Callable[[str, object], None]
) -> None:
    """
    First left alone with the command in its row; with the key the controller is enabled on the way down to the
    container and nowhere else, and the kernel holds it to its node. A release leaves the controller as it is.
    """
    guest.run("systemctl stop numapin; mkdir -p /sys/fs/cgroup/odd/beside /sys/fs/cgroup/other")
    workloads.start((RUNC, Box("inside", guaranteed(200), hold_mib=50, parent="/odd/deep")))
    cgroup = workloads.look()["inside"].cgroup
    beside = guest.run(
        "sleep infinity >/dev/null 2>&1 & echo $! >/sys/fs/cgroup/odd/beside/cgroup.procs;"
        " taskset -cp 0 $! >/dev/null; echo $!"
    ).stdout.strip()
    disable(guest, "/odd/deep", "cpuset")
    disable(guest, "/odd", "cpuset")
    root, other = controllers(guest, "/"), controllers(guest, "/other")
    guest.run("systemctl start numapin", timeout_s=120)
    left = numapin.wait_for({"inside": cgroup})["inside"]

    assert cgroup == "/odd/deep/inside"
    assert "unpinned" == left["state"]
    assert (
        f"echo +cpuset > /sys/fs/cgroup/odd/{CONTROL} && echo +cpuset > /sys/fs/cgroup/odd/deep/" in left["message"]
    )
    assert "cpuset" not in controllers(guest, "/odd")

    numapin.configure(KEY)
    status = numapin.reload(lambda s: [c["state"] for c in s["containers"]] == ["pinned"])
    (row,) = status["containers"]
    (node,) = row["nodes"]
    seen = workloads.holding()["inside"]

    assert (str(node), str(node), 0) == (seen.effective, seen.allowed, seen.stray(node))
    assert {n: 200 * MIB if n == node else 0 for n in range(4)} == reserved(status)
    assert all("cpuset" in controllers(guest, path) for path in ("/odd", "/odd/deep"))
    assert (root, other) == (controllers(guest, "/"), controllers(guest, "/other"))
    assert "cpuset" not in controllers(guest, "/odd/beside")
    assert "/odd, /odd/deep" in {f["code"]: f["message"] for f in status["findings"]}["cpuset-enabled"]
    events = [line["event"] for line in numapin.journal()]
    assert events.index("cpuset_enabling") < events.index("cpuset_enabled")
    record_property(
        "figure",
        f"affinity of a process beside, CPU 0 before enabling cpuset above it: {affinity(guest, beside)} after",
    )
    said = guest.run("numapin release --all", timeout_s=120).stdout
    assert f"enabled cpuset in /sys/fs/cgroup/odd/{CONTROL}; it stays enabled" in said
    assert "cpuset" in controllers(guest, "/odd/deep")
    assert "0-3" == workloads.look()["inside"].effective
    guest.run(f"kill {beside}")


def test_processes_in_the_way(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """Where processes live beside the container the kernel refuses (EBUSY): said with the remedy, and tried again."""
    guest.run("systemctl stop numapin")
    workloads.start((RUNC, Box("blocked", guaranteed(200), parent="/busy")))
    cgroup = workloads.look()["blocked"].cgroup
    disable(guest, "/busy", *controllers(guest, "/busy"))
    pid = guest.run("sleep infinity >/dev/null 2>&1 & echo $! | tee /sys/fs/cgroup/busy/cgroup.procs").stdout.strip()
    numapin.configure(KEY)
    guest.run("systemctl start numapin", timeout_s=120)
    row = numapin.wait_for({"blocked": cgroup})["blocked"]

    assert "failed" == row["state"]
    assert f"/sys/fs/cgroup/busy/{CONTROL}" in row["message"]
    assert "EBUSY" in row["message"]
    assert "child cgroup" in row["message"]
    assert 0 == sum(reserved(numapin.status()).values())

    guest.run(f"kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; systemctl reload numapin")
    status = numapin.wait(
        "a pin after the process is gone", lambda s: [c["state"] for c in s["containers"]] == ["pinned"]
    )
    assert [str(n) for c in status["containers"] for n in c["nodes"]] == [workloads.look()["blocked"].effective]

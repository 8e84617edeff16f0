"""The service going and coming back, and running dry: what is written to the cgroups, seen from outside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from support.guest.machine import Guest
from support.installed import Numapin, node_map, reserved
from support.workloads import CRUN, DOCKER, MIB, RUNC, RUNC_SYSTEMD, Box, Seen, Workloads, burstable, guaranteed

LISTING = "ls -lai --full-time --ignore=lock /var/lib/numapin"

WATCHER = """
import json, sys, time
sys.path.append("/usr/lib/numapin/python")
from inotify_simple import INotify, flags
watch = INotify()
paths = {watch.add_watch(path, flags.MODIFY): path for path in sys.argv[2:]}
print("watching", flush=True)
with open(sys.argv[1], "w", buffering=1) as out:
    while True:
        for event in watch.read():
            out.write(json.dumps(paths[event.wd]) + "\\n")
"""


def watch_writes(guest: Guest, cgroups: Iterable[str]) -> None:
    """From now on every write to one of these ``cpuset.mems`` is written down; the kernel reports them."""
    files = " ".join(f"/sys/fs/cgroup{cgroup}/cpuset.mems" for cgroup in cgroups)
    guest.write("/tmp/watcher.py", WATCHER.encode())
    guest.run(
        f"python3 /tmp/watcher.py /tmp/writes {files} >/tmp/watching 2>&1 & "
        "until grep -q watching /tmp/watching; do sleep 0.1; done"
    )


def writes(guest: Guest) -> list[str]:
    """The files written so far, in order."""
    return [json.loads(line) for line in guest.read("/tmp/writes").decode().splitlines()]


def granted(seen: Mapping[str, Seen]) -> dict[str, tuple[int, str, str]]:
    """Process and nodes of each container."""
    return {name: (one.pid, one.allowed, one.effective) for name, one in seen.items()}


def test_stop_and_start(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """Over a stop and a start every pin stays, the NodeMap is the same, and no cgroup is written, again or anew."""
    workloads.start(
        (DOCKER, Box("docker", guaranteed(300), hold_mib=50)),
        (RUNC, Box("runc", guaranteed(300, hugepages_mib=20))),
        (CRUN, Box("large", guaranteed(1000))),
        (RUNC_SYSTEMD, Box("other", burstable(100))),
    )
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    managed = {name: cgroup for name, cgroup in cgroups.items() if name != "other"}
    rows = numapin.wait_for(managed)
    before, pins = numapin.status(), workloads.holding()
    watch_writes(guest, (row["cgroup"] for row in [*rows.values(), {"cgroup": cgroups["other"]}]))

    guest.run("systemctl stop numapin", timeout_s=120)
    stopped = workloads.look()
    away = guest.run("numapin status -o json", check=False)
    guest.run("systemctl start numapin", timeout_s=120)
    after = numapin.wait("the containers", lambda status: len(status["containers"]) == len(managed))
    started, written = workloads.look(), writes(guest)
    guest.run(f"cat /sys/fs/cgroup{rows['runc']['cgroup']}/cpuset.mems >/tmp/now")
    guest.run(f"cat /tmp/now >/sys/fs/cgroup{rows['runc']['cgroup']}/cpuset.mems; sleep 0.5")
    control = writes(guest)

    assert [] == written
    assert {f"/sys/fs/cgroup{rows['runc']['cgroup']}/cpuset.mems"} == set(control)  # the watch does see a write
    assert granted(pins) == granted(stopped) == granted(started)
    assert node_map(before) == node_map(after)
    assert before["groups"] == after["groups"]
    assert ["pinned"] * len(managed) == [row["state"] for row in after["containers"]]
    assert 0 == after["counters"]["writes"]
    assert 3 == away.status
    assert node_map(before) == [
        {**node, "kind": "memory"} for node in node_map(json.loads(away.stdout))
    ]  # the checkpoint knows the books, not the machine


def test_gone_while_away(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """What ended while the service was away is given back at its start, what came is pinned then."""
    workloads.start((RUNC, Box("ends", guaranteed(300))), (CRUN, Box("lives", guaranteed(300))))
    numapin.wait_for({name: seen.cgroup for name, seen in workloads.look().items()})
    guest.run("systemctl stop numapin", timeout_s=120)
    workloads.remove("ends")
    workloads.start((RUNC, Box("comes", guaranteed(700), hold_mib=100)))
    late = workloads.holding()["comes"]
    guest.run("systemctl start numapin", timeout_s=120)
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    rows = numapin.wait_for(cgroups)
    seen, status = workloads.look(), numapin.status()
    (node,) = rows["comes"]["nodes"]

    assert "0-3" == late.effective
    assert ["pinned"] * 2 == [rows[name]["state"] for name in ("lives", "comes")]
    assert (str(node), str(node)) == (seen["comes"].effective, seen["comes"].allowed)
    assert 0 == seen["comes"].stray(node)  # its pages were moved
    assert 1000 * MIB == sum(reserved(status).values())


def test_dry_run(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """A dry run decides and reports, and writes neither a cgroup nor the checkpoint."""
    guest.run(f"systemctl stop numapin; {LISTING} >/tmp/before", timeout_s=120)
    workloads.start((RUNC, Box("there", guaranteed(200))))
    there = workloads.look()["there"]
    watch_writes(guest, [there.cgroup])
    guest.run("numapin run --dry-run >/tmp/dry.out 2>/tmp/dry.err & echo $! >/tmp/dry.pid")
    numapin.wait("the dry run", lambda status: status["dry_run"])
    workloads.start((CRUN, Box("comes", guaranteed(200))))
    rows = numapin.wait_for({name: seen.cgroup for name, seen in workloads.look().items()})
    seen = workloads.look()
    status = numapin.status()
    guest.run(f"kill $(cat /tmp/dry.pid); {LISTING} >/tmp/after")

    assert ["would-pin"] * 2 == [rows[name]["state"] for name in ("there", "comes")]
    assert [1, 1] == [len(rows[name]["nodes"]) for name in ("there", "comes")]
    assert ["0-3"] * 4 == [text for one in seen.values() for text in (one.effective, one.allowed)]
    assert [] == writes(guest)
    assert "" == guest.run(f"cat /sys/fs/cgroup{seen['comes'].cgroup}/cpuset.mems").stdout.strip()
    assert (400 * MIB, 0) == (sum(reserved(status).values()), status["counters"]["writes"])
    assert guest.read("/tmp/before") == guest.read("/tmp/after")

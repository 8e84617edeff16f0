"""The package and its service, as an administrator meets them."""

from __future__ import annotations

from support.guest.machine import Guest
from support.installed import Installation, Numapin, node_map, reserve_all_but
from support.workloads import MIB, RUNC, Box, Workloads, guaranteed

DENIALS = ("denied", "not permitted", "Traceback", "Read-only file system", "audit")


def test_the_administrator_decides(installed: Installation) -> None:
    """Installing neither enables nor starts the service; enabling it does both."""
    assert ("loaded", "disabled", "inactive") == tuple(
        installed.before[name] for name in ("LoadState", "UnitFileState", "ActiveState")
    )
    assert ("enabled", "active") == (installed.after["UnitFileState"], installed.after["ActiveState"])


def test_the_service_manager_is_told(numapin: Numapin, workloads: Workloads) -> None:
    """The unit waits for READY, and its status text follows the containers, as the group may read the status."""
    idle = numapin.unit("Type", "ActiveState", "SubState", "StatusText", "WatchdogUSec")

    workloads.start((RUNC, Box("told", guaranteed(64))))
    numapin.wait_for({name: seen.cgroup for name, seen in workloads.look().items()})
    busy = numapin.unit("StatusText", "NRestarts")

    assert ("notify", "active", "running") == (idle["Type"], idle["ActiveState"], idle["SubState"])
    assert "30s" == idle["WatchdogUSec"]
    assert "0 pinned, 0 not managed" == idle["StatusText"]
    assert ("1 pinned, 0 not managed", "0") == (busy["StatusText"], busy["NRestarts"])


def test_hardening_denies_nothing_that_is_needed(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """With the unit's sandbox in force a container is pinned, and neither journal nor kernel tells of a refusal."""
    workloads.start((RUNC, Box("sandboxed", guaranteed(64))))
    seen = workloads.look()
    rows = numapin.wait_for({name: one.cgroup for name, one in seen.items()})
    process = guest.run(
        "pid=$(systemctl show --property MainPID --value numapin);"
        " grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status | tr -d '\\t';"
        " for name in mnt net ipc; do readlink /proc/$pid/ns/$name /proc/1/ns/$name | uniq | wc -l; done"
    ).stdout.split()
    messages = guest.run("journalctl --unit numapin --output cat --no-pager; journalctl -k --output cat --no-pager")
    bad = [line for line in messages.stdout.splitlines() if any(word in line for word in DENIALS)]

    assert "pinned" == rows["sandboxed"]["state"]
    assert ["CapBnd:0000000000000004", "NoNewPrivs:1", "Seccomp:2", "2", "2", "2"] == process
    assert [] == [line for line in bad if "numapin" in line or line.startswith("{")]
    assert [] == [line for line in numapin.journal() if line["level"] not in ("info", "debug")]


def test_the_group_may_read_the_status(guest: Guest) -> None:
    """A member of the group numapin may ask for the status, a stranger may not."""
    guest.run("useradd --groups numapin member; useradd stranger")

    member = guest.run("setpriv --reuid member --init-groups numapin status", check=False)
    stranger = guest.run("setpriv --reuid stranger --regid stranger --init-groups numapin status", check=False)

    assert 0 == member.status, member.stderr
    assert "0 pinned" in member.stdout
    assert 4 == stranger.status
    assert "is for root and the group numapin" in stranger.stderr
    assert "Traceback" not in stranger.stderr


def test_reload(numapin: Numapin) -> None:
    """
    A reload puts a new policy and new reservations into force; a wrong file makes it fail, changes nothing, and is
    named in journal and status.
    """
    pid = numapin.unit("MainPID")["MainPID"]
    before = numapin.status()
    numapin.configure('policy = "best-effort"\n' + reserve_all_but(before, {0: 100 * MIB, 2: 300 * MIB}))
    after = numapin.reload(lambda status: status["policy"] == "best-effort")
    numapin.configure('policy = "fastest"\n')
    reload = numapin.guest.run("systemctl reload numapin", check=False).status
    numapin.guest.run("sleep 2")
    still = numapin.status()

    allocatable = {node["id"]: node["memory_map"]["memory"]["allocatable"] for node in after["nodes"]}
    assert {0: 100 * MIB, 1: 0, 2: 300 * MIB, 3: 0} == allocatable
    assert 0 != reload
    assert ["config-refused"] == [f["code"] for f in still["findings"] if f["code"].startswith("config-")]
    assert ("best-effort", node_map(after)) == (still["policy"], node_map(still))
    refused = [line for line in numapin.journal() if line["event"] == "configuration_refused"]
    assert 1 == len(refused)
    assert "policy" in refused[0]["reason"]
    assert "50-test.toml" in refused[0]["reason"]
    assert pid == numapin.unit("MainPID")["MainPID"]


def test_removing_the_package(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """
    Removing the package gives the nodes back and stops the service; purging removes what numapin wrote.

    Installing it again: `test_drift_guest.test_package_upgrades`.
    """
    workloads.start((RUNC, Box("stays", guaranteed(64))))
    cgroup = workloads.look()["stays"].cgroup
    numapin.wait_for({"stays": cgroup})
    pinned = workloads.look()["stays"].effective

    guest.run("DEBIAN_FRONTEND=noninteractive apt-get remove --quiet --yes numapin", timeout_s=300)
    removed = workloads.look()["stays"]
    active = guest.run("systemctl is-active numapin", check=False).stdout.strip()
    guest.run("dpkg --purge numapin")
    left = guest.run("ls -d /var/lib/numapin /etc/numapin /run/numapin /usr/lib/numapin", check=False).stdout

    assert pinned in ("0", "1", "2", "3")
    assert ("0-3", "0-3") == (removed.effective, removed.allowed)
    assert "inactive" == active
    assert "" == left

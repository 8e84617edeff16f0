"""Somebody else writes a pinned container's nodes, or gives systemd or the runtime reason to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from support.guest.machine import Guest
from support.installed import Installation, Numapin, reserved
from support.mems_log import MemsLog, Wrong, in_words
from support.workloads import DOCKER, MIB, PODMAN, Box, Seen, Workloads, guaranteed

SNAPSHOT = "pinned-pair"
HELD_MIB = 20
BY_HAND, BY_SYSTEMD, BY_RUNTIME = "by-hand-or-another-program", "systemd-unit-change", "runtime-update"
SOON_S = 5.0
"""A second is to be held; an emulator on a busy machine is several times slower."""

NEIGHBOUR = """
mkdir -p /tmp/neighbour/DEBIAN /tmp/neighbour/usr/lib/systemd/system
cd /tmp/neighbour
printf '%s\\n' '[Service]' 'Type=oneshot' 'ExecStart=true' >usr/lib/systemd/system/neighbour.service
cat >DEBIAN/postinst <<'END'
#!/bin/sh
set -e
systemctl --system daemon-reload
deb-systemd-invoke restart neighbour.service
deb-systemd-invoke reload numapin.service
systemctl daemon-reexec
END
chmod 755 DEBIAN/postinst
printf '%s\\n' 'Package: neighbour' 'Version: 1' 'Architecture: all' 'Maintainer: nobody' \\
    'Description: has a maintainer script' >DEBIAN/control
dpkg-deb -Znone --build . /tmp/neighbour.deb
"""
"""A package whose maintainer script does what those of services, and systemd's own, do."""

RIGHT = """
right() {  # CGROUP NODES: wait until the kernel says so; starts no program, which takes long in an emulator
    try=0
    asks=/sys/fs/cgroup$1/cpuset.mems
    until read -r asked <"$asks" && read -r granted <"$asks.effective" && test "$asked $granted" = "$2 $2"; do
        try=$((try + 1))
        test $try -lt 200 || { echo "$1 has $asked, not $2" >&2; return 1; }
        sleep 0.05
    done
}
told() {  # UNIT NODES: wait until systemd says so too
    try=0
    until test "$(systemctl show --property AllowedMemoryNodes --value "$1")" = "$2"; do
        try=$((try + 1))
        test $try -lt 200 || { echo "$1 was not told $2" >&2; return 1; }
        sleep 0.05
    done
}
"""

UPDATE = """
case $scope in docker*) r=docker;; *) r=podman;; esac
size="--memory $((200 - n))m --memory-swap $((200 - n))m"
test $((n % 2)) = 0 || size="--cpus 0.$((20 + n))"
$r update $size in$r
"""
"""The n-th update by the container's own runtime: another limit of CPU, then of memory, in turn."""

UNTOLD = """
mkdir -p /run/systemd/system/numapin.service.d
printf '%s\\n' '[Service]' 'InaccessiblePaths=/run/dbus/system_bus_socket' \\
    >/run/systemd/system/numapin.service.d/untold.conf
systemctl daemon-reload
systemctl restart numapin
"""
"""The service cannot reach systemd any more, so what the units say stays as somebody else wants it."""


@dataclass(slots=True)
class Pair:
    """A pinned Docker and a pinned Podman container, and the log of what was written to their cgroups."""

    guest: Guest
    numapin: Numapin
    workloads: Workloads
    pins: dict[str, str]
    log: MemsLog

    @property
    def other(self) -> str:
        """A node that neither is pinned to."""
        return next(str(node) for node in range(4) if str(node) not in self.pins.values())

    def each(self, script: str, *, times: int = 1, timeout_s: float = 300) -> None:
        """
        Run *script* with $cgroup, $scope, $nodes, $other and the round $n set, for both; after each run the pins must
        come right.
        """
        lines = [RIGHT, "set -e", f"for n in $(seq {times}); do"]
        for cgroup, own in self.pins.items():
            lines += [f"cgroup={cgroup} scope={cgroup.rpartition('/')[2]} nodes={own} other={self.other}", script]
            lines += [f"right {one} {nodes}" for one, nodes in self.pins.items()]
        self.guest.run("\n".join([*lines, "done"]), timeout_s=timeout_s)

    def once(self, script: str, *, timeout_s: float = 300) -> None:
        """Run *script*, and then the pins must come right."""
        lines = [RIGHT, "set -e", script, *(f"right {one} {nodes}" for one, nodes in self.pins.items())]
        self.guest.run("\n".join(lines), timeout_s=timeout_s)

    def properties(self) -> list[str]:
        """What systemd has been told for the two, in order."""
        names = " ".join(cgroup.rpartition("/")[2] for cgroup in self.pins)
        return self.guest.run(f"systemctl show --property AllowedMemoryNodes --value {names} | grep .").stdout.split()

    def rows(self) -> list[dict[str, Any]]:
        """numapin's rows of the two, in order."""
        found = {row["cgroup"]: row for row in self.numapin.status()["containers"]}
        return [found[cgroup] for cgroup in self.pins]

    def strays(self) -> list[Seen]:
        """
        Those of the two with more than a MiB on other nodes.

        Raises:
            AssertionError: The kernel does not grant the nodes that one is pinned to.
        """
        found = []
        for seen in self.workloads.look().values():
            (nodes,) = [nodes for cgroup, nodes in self.pins.items() if seen.cgroup.startswith(cgroup)]
            assert (nodes, nodes) == (seen.effective, seen.allowed)
            found += [seen] if seen.stray(int(nodes)) > MIB else []
        return found

    def repairs(self) -> int:
        """numapin's count of repairs, of both."""
        return sum(row["repairs"] for row in self.rows())

    def causes(self) -> dict[str, int]:
        """numapin's count of repairs by cause, those that happened."""
        return {cause: n for cause, n in self.numapin.status()["counters"]["repair_causes"].items() if n}


@pytest.fixture(scope="module")
def paired(machine: Guest, installed: Installation) -> Pair:
    """Both run, hold their memory and are pinned; systemd has been told; kept as a snapshot."""
    machine.load("installed")
    numapin, workloads = Numapin(machine), Workloads(machine)
    workloads.start(
        (DOCKER, Box("indocker", guaranteed(200), HELD_MIB)), (PODMAN, Box("inpodman", guaranteed(200), HELD_MIB))
    )
    cgroups = {name: seen.cgroup for name, seen in workloads.look().items()}
    numapin.wait_for(cgroups)
    workloads.holding()
    told = "says the same"
    numapin.wait("systemd to be told", lambda status: all(told in (r["unit"] or "") for r in status["containers"]))
    rows = numapin.wait_for(cgroups)
    pins = {rows[name]["cgroup"]: ",".join(map(str, rows[name]["nodes"])) for name in ("indocker", "inpodman")}
    pair = Pair(machine, numapin, workloads, pins, MemsLog.start(machine, pins))
    machine.save(SNAPSHOT)
    return pair


@pytest.fixture
def snapshot(paired: Pair) -> str:
    """Tests start with both pinned."""
    return SNAPSHOT


@pytest.fixture
def pair(guest: Guest, paired: Pair) -> Pair:
    """The two, as they were in the snapshot."""
    return paired


def hold(pair: Pair, *, told: bool = True) -> list[Wrong]:
    """Nodes, pages and, with *told*, systemd's property are as pinned; gives the times that the nodes were not."""
    deadline = time.monotonic() + 2 * SOON_S
    while strays := pair.strays():  # the nodes are right before the last page has moved
        assert time.monotonic() < deadline, strays
    assert not told or list(pair.pins.values()) == pair.properties()
    assert ["pinned", "pinned"] == [row["state"] for row in pair.rows()]
    wrong = pair.log.wrong(pair.pins)
    assert all(one.seconds < SOON_S for one in wrong), wrong
    return wrong


def test_reloads(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """Twenty times ``daemon-reload``, and after each the pins are right."""
    pair.each("systemctl daemon-reload", times=10)
    wrong = hold(pair)
    record_property("figure", in_words("20 x daemon-reload", wrong))

    assert len(wrong) == pair.repairs()


def test_unit_properties(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """
    Twenty times another property changes nothing; twenty times other nodes are put right in cgroup and unit, and
    systemd is the cause.
    """
    pair.each("systemctl set-property --runtime $scope CPUWeight=$((50 + n))", times=10)
    before, quiet = pair.causes(), hold(pair)
    record_property("figure", in_words("20 x set-property CPUWeight", quiet))
    pair.each('systemctl set-property --runtime "$scope" AllowedMemoryNodes=$other; told "$scope" $nodes', times=10)
    pair.numapin.wait("the causes", lambda s: s["counters"]["repair_causes"].get(BY_SYSTEMD) == 20, timeout_s=20)
    pair.each("systemctl daemon-reload")
    wrong = hold(pair)[len(quiet) :]
    record_property("figure", in_words("20 x set-property AllowedMemoryNodes", wrong))

    assert {} == before
    assert [] == quiet
    assert [pair.other] * len(wrong) == [one.mems for one in wrong]
    assert 0 < len(wrong) <= 20
    assert {BY_SYSTEMD: 20} == pair.causes()
    assert [BY_SYSTEMD] * 2 == [row["repair_cause"] for row in pair.rows()]


def test_units_that_were_not_told(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """
    Where systemd holds other nodes for the units and cannot be told ours, it writes them again: when another unit
    starts after reloads, and with each change of the unit. Each time that is put right and counted.
    """
    pair.guest.run(f"set -e\n{UNTOLD}", timeout_s=120)
    pair.numapin.wait("an answer", lambda s: {"pinned"} == {row["state"] for row in s["containers"]})
    pair.each('systemctl set-property --runtime "$scope" AllowedMemoryNodes=$other')
    said = pair.properties()
    steps = {
        "3 x daemon-reload": ["systemctl daemon-reload"] * 3,
        "another unit's start": ["systemd-run --wait --quiet true"],
        "6 x set-property CPUWeight": [
            f"systemctl set-property --runtime $scope CPUWeight={n}" for n in (50, 60, 70)
        ],
    }
    seen, repairs = [hold(pair, told=False)], [pair.repairs()]
    for what, scripts in steps.items():
        for script in scripts:
            pair.each(script) if "$scope" in script else pair.once(script)
        seen.append(hold(pair, told=False))
        repairs.append(pair.repairs())
        record_property("figure", in_words(f"{what}, other nodes in the units", seen[-1][len(seen[-2]) :]))
    at_first, reloaded, started, changed = repairs

    assert 2 == at_first
    assert [pair.other] * 2 == said == pair.properties()
    assert reloaded < started or at_first < reloaded
    assert 6 == changed - started
    assert [pair.other] * len(seen[-1]) == [one.mems for one in seen[-1]]
    assert 0 < len(seen[-1]) <= changed


def test_package_upgrades(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """
    Installing numapin's package again, which reloads systemd and restarts the service, and another one, whose script
    reloads, restarts and re-executes systemd, leave the pins as they are.
    """
    before = pair.numapin.unit("MainPID")
    pair.guest.run(f"set -e\n{NEIGHBOUR}")
    pair.once("dpkg --install /root/numapin.deb")
    upgraded = pair.numapin.unit("MainPID", "ActiveState")
    pair.once("dpkg --install /tmp/neighbour.deb")
    wrong = hold(pair)
    record_property("figure", in_words("2 x a package's maintainer script, with 2 reloads and a re-execution", wrong))

    assert before["MainPID"] != upgraded["MainPID"]
    assert "active" == upgraded["ActiveState"]
    assert upgraded["MainPID"] == pair.numapin.unit("MainPID")["MainPID"]
    assert 2 * 200 * MIB == sum(reserved(pair.numapin.status()).values())


def test_runtime_updates(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """
    Twenty times ``docker update`` and ``podman update``, of CPU and of memory, leave the nodes, and the new size is
    reserved.
    """
    (node,) = {int(nodes) for nodes in pair.pins.values()}
    before = reserved(pair.numapin.status())[node]
    pair.each(UPDATE, times=20, timeout_s=600)
    after = pair.numapin.wait("the new sizes", lambda status: reserved(status)[node] == 2 * 180 * MIB)
    wrong = hold(pair)
    for cgroup, runtime in zip(pair.pins, ("docker", "podman"), strict=True):
        of_it = [one for one in wrong if one.cgroup == cgroup]
        record_property("figure", in_words(f"20 x {runtime} update", of_it))

    assert 2 * 200 * MIB == before
    assert [180 * MIB] * 2 == [row["request"]["memory"] for row in after["containers"]]
    assert len(wrong) == pair.repairs()


def test_runtime_update_of_nodes(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """Nodes that ``docker update`` names are its owner's choice: they are taken over, and no repair stays."""
    cgroup = next(iter(pair.pins))
    pair.guest.run(f"docker update --cpuset-mems {pair.other} indocker", timeout_s=120)
    status = pair.numapin.wait(
        "the choice",
        lambda s: any(r["cgroup"] == cgroup and r["state"] == "pinned-by-others" for r in s["containers"]),
        timeout_s=20,
    )
    seen = pair.workloads.look()["indocker"]
    _, *wrong = pair.log.wrong({**pair.pins, cgroup: pair.other})  # before the update it had ours
    record_property("figure", in_words("docker update --cpuset-mems, until its nodes stay", wrong))

    assert pair.other == seen.effective
    assert 200 * MIB == reserved(status)[int(pair.other)]
    assert all(one.seconds < SOON_S for one in wrong)


def test_by_hand(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    """Five writes by hand to each are put right, pages too, and counted without naming anybody."""
    pair.each("echo $other >/sys/fs/cgroup$cgroup/cpuset.mems", times=5)
    wrong = hold(pair)
    record_property("figure", in_words("10 x written by hand", wrong))

    assert {BY_HAND: 10} == pair.causes()
    assert [5, 5] == [row["repairs"] for row in pair.rows()]
    assert [pair.other] * len(wrong) == [one.mems for one in wrong]
    assert 0 < len(wrong) <= 10

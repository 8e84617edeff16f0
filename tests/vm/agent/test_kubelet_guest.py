"""A kubelet's memory manager beside the service: its state file comes and goes."""

from __future__ import annotations

from typing import Final

from support.guest.machine import Guest
from support.installed import Numapin, Status, reserved
from support.kubelet import STATE, document, text
from support.workloads import CRUN, MIB, Box, Workloads, guaranteed

UID: Final = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
POD: Final = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
SCOPE: Final = f"{POD}/cri-containerd-{'7' * 64}.scope"
LIMIT_MIB: Final = 200
POD_CONTAINER: Final = f"""
set -e
for cgroup in '' /kubepods.slice {POD}; do
    mkdir -p /sys/fs/cgroup$cgroup
    echo '+cpuset +cpu +memory' >/sys/fs/cgroup$cgroup/cgroup.subtree_control
done
mkdir /sys/fs/cgroup{SCOPE}
cd /sys/fs/cgroup{SCOPE}
echo {LIMIT_MIB * MIB} >memory.max
echo '50000 100000' >cpu.max
(echo $BASHPID >cgroup.procs; exec sleep infinity >/dev/null 2>&1) &
"""
"""The cgroups of a Guaranteed pod as a kubelet with the systemd driver makes them, and a process."""


def mems(guest: Guest) -> str:
    """The nodes that the kernel grants the pod's container."""
    return guest.read(f"/sys/fs/cgroup{SCOPE}/cpuset.mems.effective").decode().strip()


def state_of(status: Status) -> str:
    """numapin's word about the pod's container."""
    return next((str(row["state"]) for row in status["containers"] if row["cgroup"] == SCOPE), "")


def test_handed_over_and_back(guest: Guest, numapin: Numapin, workloads: Workloads) -> None:
    """
    Without a kubelet's file the pod's container is ours; with one it is handed over untouched and the kubelet's
    bytes are in the books on its nodes; without it again the container is ours again.
    """
    guest.run(POD_CONTAINER)
    numapin.wait("the pod's container", lambda status: state_of(status) == "pinned")
    ours, books = mems(guest), reserved(numapin.status())

    file = text(document({UID: {"main": ((1,), 300 / 1024)}, "another": {"db": ((2,), 0.5)}}))
    guest.write("/var/lib/kubelet/.new", file.encode())
    guest.run(f"mv /var/lib/kubelet/.new /{STATE}")
    handed = numapin.wait("the handover", lambda status: state_of(status) == "pinned-by-others", timeout_s=20)
    untouched = mems(guest)
    workloads.start((CRUN, Box("large", guaranteed(600))))
    large = numapin.wait_for({"large": workloads.look()["large"].cgroup})["large"]
    beside = reserved(numapin.status())

    guest.run(f"rm /{STATE}")
    back = numapin.wait("the return", lambda status: state_of(status) == "pinned", timeout_s=20)

    assert ("0", {0: LIMIT_MIB * MIB, 1: 0, 2: 0, 3: 0}) == (ours, books)
    assert {0: 0, 1: 300 * MIB, 2: 512 * MIB, 3: 0} == reserved(handed)
    assert "0" == untouched
    assert (["pinned", [0]], "0") == ([large["state"], large["nodes"]], workloads.look()["large"].effective)
    assert {0: 600 * MIB, 1: 300 * MIB, 2: 512 * MIB, 3: 0} == beside
    assert {0: 800 * MIB, 1: 0, 2: 0, 3: 0} == reserved(back)
    assert "0" == mems(guest)


def test_a_damaged_file(guest: Guest, numapin: Numapin) -> None:
    """A file that was never readable leaves the pod's container alone and is named; with policy None it is ours."""
    guest.write(f"/{STATE}", b'{"policyName": "Static", "machineSt')
    numapin.wait("a finding", lambda status: "kubelet" in str(status["findings"]), timeout_s=20)
    guest.run(POD_CONTAINER)
    guest.run("sleep 3")
    alone, left = mems(guest), state_of(numapin.status())

    guest.write("/var/lib/kubelet/.new", text(document(policy="None")).encode())
    guest.run(f"mv /var/lib/kubelet/.new /{STATE}")
    numapin.wait("the pod's container", lambda status: state_of(status) == "pinned", timeout_s=20)

    assert "0-3" == alone
    assert "pinned" != left
    assert "0" == mems(guest)

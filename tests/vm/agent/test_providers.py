"""CPUs and devices that a container was given have a say in where its memory is."""

from __future__ import annotations

from support.guest.machine import Guest
from support.installed import Numapin, reserved
from support.workloads import MIB

RUN = "docker run --detach --network host --memory 100m"
SLEEP = "numapin-test sleep 1000000"
DISK_NODE = 1
DISK = f"""
function=$(realpath /sys/block/vda/device)
until test -e $function/numa_node; do function=${{function%/*}}; done
echo {DISK_NODE} >$function/numa_node
grep -qx {DISK_NODE} $function/numa_node
"""


def start(guest: Guest, name: str, options: str) -> tuple[int, str]:
    """Start a Docker container of 100 MiB with these options; its process and its cgroup."""
    guest.run(f"{RUN} --name {name} {options} {SLEEP}", timeout_s=120)
    pid = guest.run(f"docker inspect --format '{{{{.State.Pid}}}}' {name}").stdout.strip()
    return int(pid), guest.read(f"/proc/{pid}/cgroup").decode().strip().removeprefix("0::")


def allowed(guest: Guest, pid: int) -> str:
    """The nodes that the process may use, as the kernel says."""
    status = guest.read(f"/proc/{pid}/status").decode()
    return status.partition("Mems_allowed_list:")[2].partition("\n")[0].strip()


def test_cpus_and_devices(guest: Guest, numapin: Numapin) -> None:
    """
    Memory goes to the node of the CPUs and to the node of the disk that a container was given; one without either
    goes to the lowest node.
    """
    guest.run(DISK)
    started = {
        "plain": start(guest, "plain", "--cpus 0.5"),
        "oncpu": start(guest, "oncpu", "--cpuset-cpus 2"),
        "ondisk": start(guest, "ondisk", "--cpus 0.5 --device /dev/vda"),
    }
    rows = numapin.wait_for({name: cgroup for name, (_, cgroup) in started.items()})
    nodes = {name: allowed(guest, pid) for name, (pid, _) in started.items()}

    assert {"plain": "0", "oncpu": "2", "ondisk": str(DISK_NODE)} == nodes
    assert ["pinned"] * 3 == [row["state"] for row in rows.values()]
    assert {0: 100 * MIB, DISK_NODE: 100 * MIB, 2: 100 * MIB, 3: 0} == reserved(numapin.status())


def test_switched_off(guest: Guest, numapin: Numapin) -> None:
    """With both providers switched off such containers are placed like all others."""
    guest.run(DISK)
    numapin.configure("[providers]\ncpus = false\ndevices = false\n")
    numapin.guest.run("systemctl reload numapin; sleep 1")
    started = {
        "oncpu": start(guest, "oncpu", "--cpuset-cpus 2"),
        "ondisk": start(guest, "ondisk", "--cpus 0.5 --device /dev/vda"),
    }
    numapin.wait_for({name: cgroup for name, (_, cgroup) in started.items()})

    assert ["0", "0"] == [allowed(guest, pid) for pid, _ in started.values()]

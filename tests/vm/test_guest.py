"""The guest itself: what later tests take for granted about it."""

from __future__ import annotations

import json
import time

import pytest

from support.guest.errors import AgentFailed, CommandFailed, GuestDied, GuestTimeout
from support.guest.machine import Guest

NODES = range(4)
MIB = 1024 * 1024
PRINT_MEMS = "grep Mems_allowed_list /proc/self/status"
CTR_IMAGE = "docker.io/library/numapin-test:latest"
TOKEN = 123
RUNTIMES = {
    "docker": f"docker run --rm --network none numapin-test sh -c '{PRINT_MEMS}; exit {TOKEN}'",
    "podman": f"podman run --rm --network none numapin-test sh -c '{PRINT_MEMS}; exit {TOKEN}'",
    "containerd": f"ctr run --rm {CTR_IMAGE} by-ctr sh -c '{PRINT_MEMS}; exit {TOKEN}'",
    "runc": "cd /tmp/bundle && runc run by-runc",
    "crun": "cd /tmp/bundle && crun run by-crun",
}


def write_bundle(guest: Guest) -> None:
    """An OCI bundle in /tmp/bundle whose process prints its nodes and ends with the token."""
    spec = json.loads(guest.read("/srv/bundle/config.json"))
    spec["process"]["args"] = ["sh", "-c", f"{PRINT_MEMS}; exit {TOKEN}"]
    spec["linux"]["cgroupsPath"] = "/by-hand"
    guest.write("/tmp/bundle/config.json", json.dumps(spec).encode())


def test_nodes(guest: Guest) -> None:
    """Four nodes are online, each with memory and one CPU of its own."""
    shown = {
        name: guest.read(f"/sys/devices/system/node/{name}").decode().strip()
        for name in ("online", "has_memory", "has_normal_memory", "has_cpu")
    }
    cpus = [guest.read(f"/sys/devices/system/node/node{node}/cpulist").decode().strip() for node in NODES]

    assert shown == {"online": "0-3", "has_memory": "0-3", "has_normal_memory": "0-3", "has_cpu": "0-3"}
    assert cpus == ["0", "1", "2", "3"]


def test_distances(guest: Guest) -> None:
    """Nodes 0 and 1 are neighbours, 2 and 3 too, and across is further."""
    rows = [guest.read(f"/sys/devices/system/node/node{node}/distance").decode().split() for node in NODES]

    assert rows == [
        ["10", "20", "30", "30"],
        ["20", "10", "30", "30"],
        ["30", "30", "10", "20"],
        ["30", "30", "20", "10"],
    ]


def test_hugepages(guest: Guest) -> None:
    """Each node has a pool of 32 free hugepages of 2 MiB."""
    pools = [
        tuple(
            int(guest.read(f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/{name}"))
            for name in ("nr_hugepages", "free_hugepages")
        )
        for node in NODES
    ]

    assert pools == [(32, 32)] * 4


def test_cgroup_v2(guest: Guest) -> None:
    """The only hierarchy is cgroup v2, with the controllers that numapin reads and writes."""
    kind = guest.run("stat -f -c %T /sys/fs/cgroup").stdout.strip()
    controllers = guest.read("/sys/fs/cgroup/cgroup.controllers").decode().split()

    assert kind == "cgroup2fs"
    assert {"cpuset", "memory", "hugetlb"} <= set(controllers)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtime(guest: Guest, runtime: str) -> None:
    """The runtime runs the test image, whose first process sees all nodes."""
    write_bundle(guest)

    completed = guest.run(RUNTIMES[runtime], check=False)

    assert completed.status == TOKEN, completed.stderr
    assert completed.stdout.strip() == "Mems_allowed_list:\t0-3"


def test_hold_memory(guest: Guest) -> None:
    """A container asked to hold 100 MiB holds that much anonymous memory, no more than a few MiB off."""
    guest.run("docker run --detach --name holder --network none numapin-test hold-memory 100")
    guest.run("until docker logs holder | grep -qx 'holding 100 MiB'; do sleep 0.2; done")
    identity = guest.run("docker inspect --format '{{.Id}}' holder").stdout.strip()

    text = guest.read(f"/sys/fs/cgroup/system.slice/docker-{identity}.scope/memory.numa_stat").decode()
    anonymous = next(line for line in text.splitlines() if line.startswith("anon "))
    total = sum(int(field.partition("=")[2]) for field in anonymous.split()[1:])

    assert 100 * MIB <= total < 104 * MIB


def test_run(guest: Guest) -> None:
    """A command gets its input and gives back its status and both outputs."""
    completed = guest.run("cat; echo problem >&2; exit 3", check=False, stdin=b"input")

    assert (completed.status, completed.stdout, completed.stderr) == (3, "input", "problem\n")
    with pytest.raises(CommandFailed) as failure:
        guest.run("exit 4")
    assert failure.value.completed.status == 4


def test_run_does_not_wait_for_children(guest: Guest) -> None:
    """A background child that keeps the output open does not hold up the answer."""
    started = time.monotonic()

    guest.run("sleep 1000 & echo started")

    assert time.monotonic() - started < 10


def test_timeout(guest: Guest) -> None:
    """A command that takes too long is killed, and the guest answers on."""
    with pytest.raises(GuestTimeout, match="so far"):
        guest.run("echo so far; exec -a endless sleep 1000", timeout_s=1)

    assert guest.run("pgrep -f endless", check=False).status == 1


def test_files(guest: Guest) -> None:
    """A file of several messages comes back as it was sent; one that is not there is an error."""
    data = bytes(range(256)) * 5000

    guest.write("/tmp/some/where/file", data, mode=0o750)

    assert data == guest.read("/tmp/some/where/file")
    assert guest.run("stat -c %a /tmp/some/where/file").stdout.strip() == "750"
    with pytest.raises(AgentFailed, match="FileNotFoundError"):
        guest.read("/nowhere")


def test_snapshot(guest: Guest) -> None:
    """Loading a snapshot takes back files and processes, and the clock is still the host's."""
    guest.run("echo before >/root/state")
    guest.save("here")
    # a name of its own: the system's own jobs sleep too
    guest.run("echo after >/root/state; cp /bin/sleep /root/sleeper; /root/sleeper 1000 &")
    assert guest.run("pgrep -x sleeper", check=False).status == 0

    guest.load("here")

    assert guest.read("/root/state") == b"before\n"
    assert guest.run("pgrep -x sleeper", check=False).status == 1
    asked, clock, answered = time.time(), float(guest.run("date +%s.%N").stdout), time.time()
    assert asked - 2 < clock < answered + 2


def test_snapshot_in_the_middle_of_a_command(guest: Guest) -> None:
    """A late answer and half a request in the snapshot do not disturb what comes after its loading."""
    late = {"id": "late", "op": "run", "script": "sleep 1; echo late", "stdin": None, "timeout_s": 9}
    guest.send_raw(json.dumps(late).encode() + b'\n{"id": "half", "op": "ru')
    guest.save("busy")

    guest.load("busy")

    assert guest.run("echo now").stdout == "now\n"


def test_panic(guest: Guest) -> None:
    """A panic in the guest is told as such at once, and the next snapshot brings the guest back."""
    with pytest.raises(GuestDied, match="sysrq"):
        guest.run("echo c >/proc/sysrq-trigger; sleep 1000", timeout_s=60)

    guest.load()

    assert guest.run("echo alive").stdout == "alive\n"


def test_memory_hotplug(guest: Guest) -> None:
    """Memory plugged into node 2 shows there, and is gone after the next load."""
    total = "awk '/MemTotal/ {print $4}' /sys/devices/system/node/node2/meminfo"
    before = int(guest.run(total).stdout)

    guest.monitor("object-add", {"qom-type": "memory-backend-ram", "id": "more", "size": 256 * MIB})
    guest.monitor("device_add", {"driver": "pc-dimm", "id": "dimm", "memdev": "more", "node": 2})
    guest.run(f"""
        for try in $(seq 50); do
            for block in /sys/devices/system/memory/memory*/state; do
                grep -q offline "$block" && echo online >"$block"
            done
            test "$({total})" -gt {before} && exit 0
            sleep 0.2
        done
        exit 1""")
    plugged = int(guest.run(total).stdout)
    guest.load()

    assert plugged - before == 256 * 1024
    assert before == int(guest.run(total).stdout)

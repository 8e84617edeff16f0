"""
Containers of every runtime and driver in the test guest, and what the guest's kernel says about them.

A `Driver` turns a `Box` into shell; `Workloads` runs it. Pids come from the runtimes, everything else from ``/proc``
and ``/sys/fs/cgroup``: nothing here asks numapin.
"""

from __future__ import annotations

import copy
import json
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from support.guest.machine import Guest

MIB: Final = 1 << 20
IMAGE: Final = "numapin-test"
CTR_IMAGE: Final = "docker.io/library/numapin-test:latest"
SHARED: Final = "/run/shared"
"""A folder of the guest that every container has as /tmp."""

FIRST_PAGES_BYTES: Final = 256 << 10
CPU_PERIOD_US: Final = 100_000

ACT: Final = (
    'while read -r key value; do [ "$key" = Mems_allowed_list: ] && echo "$value"; done '
    '</proc/self/status >"/tmp/$0.first"; '
)
"""The first act of each container: its own allowed nodes, into a file named after it (``$0``)."""

WAIT: Final = 'read -r word <"/tmp/$0.go"; '
"""Until somebody writes into the pipe; a loop with sleeps in many containers would keep the guest busy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container is limited to; ``None``: not at all. *hugepages_mib* are of 2 MiB pages."""

    memory_mib: int | None = None
    cpus: float | None = None
    hugepages_mib: int | None = None
    mems: str = ""


def guaranteed(memory_mib: int, *, hugepages_mib: int | None = None, mems: str = "") -> Limits:
    """Limits that make a container Guaranteed: memory and CPU."""
    return Limits(memory_mib, 0.5, hugepages_mib, mems)


def burstable(memory_mib: int) -> Limits:
    """Memory is limited, CPU is not."""
    return Limits(memory_mib)


BEST_EFFORT: Final = Limits()


@dataclass(frozen=True, slots=True)
class Box:
    """
    A container to start. It writes down the nodes it is allowed, waits until it is told (`Workloads.holding`), and
    then holds *hold_mib* of anonymous memory for ever.

    *parent* is the cgroup it is put below, for cgroupfs drivers.
    """

    name: str
    limits: Limits
    hold_mib: int = 0
    parent: str = ""

    @property
    def command(self) -> list[str]:
        """Arguments of the container's process."""
        then = f"{WAIT}exec hold-memory {self.hold_mib}" if self.hold_mib else "exec sleep 1000000"
        return ["sh", "-c", f"{ACT}{then}", self.name]


@dataclass(frozen=True, slots=True)
class Driver:
    """
    One runtime with one way to make cgroups. *runtime* is numapin's word for it.

    *start* gives shell that starts a box and returns, *pids* shell that prints a line "name pid" for each of several
    names, *remove* shell that ends and removes several.
    """

    name: str
    runtime: str
    start: Callable[[Box, dict[str, Any]], str]
    pids: Callable[[str], str]
    remove: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What the kernel says of a container: allowed nodes of its process, granted nodes of the process's cgroup,
    anonymous bytes per node. *first* is what the container itself saw before anything else, empty until then.
    """

    name: str
    pid: int
    cgroup: str
    allowed: str
    effective: str
    anonymous: Mapping[int, int]
    first: str

    @property
    def held_bytes(self) -> int:
        """Anonymous memory on all nodes."""
        return sum(self.anonymous.values())

    @property
    def early(self) -> bool:
        """Whether its nodes were its own before its first instruction: then it was empty when it was pinned."""
        return self.first == self.effective

    def stray(self, *nodes: int) -> int:
        """
        Anonymous bytes on other nodes than these.

        Of a container that was not empty when it was pinned, only what is more than a shell's first pages: the
        kernel moves those as far as it can.
        """
        elsewhere = sum(size for node, size in self.anonymous.items() if node not in nodes)
        return elsewhere if self.early or elsewhere > FIRST_PAGES_BYTES else 0


def _docker_like(command: str, box: Box) -> str:
    words = [*command.split(), "run", "--detach", "--name", box.name, "--network", "host", "-v", f"{SHARED}:/tmp"]
    if box.limits.memory_mib is not None:
        words += ["--memory", f"{box.limits.memory_mib}m"]
    if box.limits.cpus is not None:
        words += ["--cpus", str(box.limits.cpus)]
    if box.limits.mems:
        words += ["--cpuset-mems", box.limits.mems]
    return shlex.join([*words, IMAGE, *box.command])


def _docker() -> Driver:
    return Driver(
        name="docker",
        runtime="docker",
        start=lambda box, spec: _docker_like("docker", box),
        pids=lambda names: f"docker inspect --format '{{{{.Name}}}} {{{{.State.Pid}}}}' {names} | tr -d /",
        remove=lambda names: f"docker rm --force {names}",
    )


def _podman(runtime: str, manager: str) -> Driver:
    command = f"podman --runtime {runtime} --cgroup-manager {manager}"
    return Driver(
        name=f"podman-{runtime}-{manager}",
        runtime="podman",
        start=lambda box, spec: _docker_like(command, box),
        pids=lambda names: f"podman inspect --format '{{{{.Name}}}} {{{{.State.Pid}}}}' {names}",
        remove=lambda names: f"{command} rm --force --time 0 {names}",
    )


def _containerd(binary: str, manager: str) -> Driver:
    def start(box: Box, spec: dict[str, Any]) -> str:
        words = ["ctr", "run", "--detach", "--runc-binary", binary]
        words += ["--mount", f"type=bind,src={SHARED},dst=/tmp,options=rbind:rw"]
        if manager == "systemd":
            words += ["--runc-systemd-cgroup", "--cgroup", f"system.slice:ctr:{box.name}"]
        if box.limits.memory_mib is not None:
            words += ["--memory-limit", str(box.limits.memory_mib * MIB)]
        if box.limits.cpus is not None:
            words += ["--cpus", str(box.limits.cpus)]
        return shlex.join([*words, CTR_IMAGE, box.name, *box.command])

    return Driver(
        name=f"containerd-{binary}-{manager}",
        runtime="containerd",
        start=start,
        pids=lambda names: f"ctr task ls | grep -wE '{names.replace(' ', '|')}'",
        remove=lambda names: f"ctr task rm --force {names}; ctr container rm {names}",
    )


def _by_hand(runtime: str, manager: str) -> Driver:
    def start(box: Box, spec: dict[str, Any]) -> str:
        path = f"{box.parent}/{box.name}" if box.parent else f"/{box.name}"
        spec["linux"]["cgroupsPath"] = f"system.slice:{runtime}:{box.name}" if manager == "systemd" else path
        option = "--systemd-cgroup " if manager == "systemd" else ""
        bundle = f"/run/bundles/{box.name}"
        return (
            f"mkdir -p {bundle}\ncat >{bundle}/config.json <<'END'\n{json.dumps(spec)}\nEND\n"
            f"{runtime} {option}run --detach --bundle {bundle} {box.name} </dev/null >/dev/null 2>{bundle}/stderr"
            f" || {{ cat {bundle}/stderr >&2; false; }}"
        )

    return Driver(
        name=f"{runtime}-{manager}",
        runtime=runtime,
        start=start,
        pids=lambda names: f"for n in {names}; do {runtime} state $n | jq -r '\"\\(.id) \\(.pid)\"'; done",
        remove=lambda names: f"for n in {names}; do {runtime} delete --force $n || exit 1; done",
    )


def oci_spec(base: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """The OCI document of *box*, made from one without limits."""
    spec: dict[str, Any] = copy.deepcopy(dict(base))
    spec["process"]["args"] = box.command
    spec["mounts"].append({"type": "bind", "source": SHARED, "destination": "/tmp", "options": ["rbind", "rw"]})
    resources = spec["linux"].setdefault("resources", {})
    if box.limits.memory_mib is not None:
        resources["memory"] = {"limit": box.limits.memory_mib * MIB}
    cpu: dict[str, object] = {}
    if box.limits.cpus is not None:
        cpu |= {"quota": int(box.limits.cpus * CPU_PERIOD_US), "period": CPU_PERIOD_US}
    if box.limits.mems:
        cpu["mems"] = box.limits.mems
    if cpu:
        resources["cpu"] = cpu
    if box.limits.hugepages_mib is not None:
        resources["hugepageLimits"] = [{"pageSize": "2MB", "limit": box.limits.hugepages_mib * MIB}]
    return spec


DOCKER: Final = _docker()
RUNC: Final = _by_hand("runc", "cgroupfs")
CRUN: Final = _by_hand("crun", "cgroupfs")
RUNC_SYSTEMD: Final = _by_hand("runc", "systemd")
CRUN_SYSTEMD: Final = _by_hand("crun", "systemd")
PODMAN: Final = _podman("crun", "systemd")
CONTAINERD: Final = _containerd("runc", "cgroupfs")
DRIVERS: Final = (
    DOCKER,
    PODMAN,
    _podman("crun", "cgroupfs"),
    _podman("runc", "systemd"),
    _podman("runc", "cgroupfs"),
    CONTAINERD,
    _containerd("runc", "systemd"),
    _containerd("crun", "cgroupfs"),
    RUNC,
    RUNC_SYSTEMD,
    CRUN,
    CRUN_SYSTEMD,
)

LOOK: Final = """
look() {  # NAME PID: one line of what the kernel says
    cgroup= allowed= effective= anonymous= first=
    read -r cgroup </proc/$2/cgroup || return 0
    cgroup=${cgroup#0::}
    while read -r key value; do [ "$key" = Mems_allowed_list: ] && allowed=$value; done </proc/$2/status
    read -r effective </sys/fs/cgroup$cgroup/cpuset.mems.effective
    statistics=/sys/fs/cgroup$cgroup/memory.numa_stat
    test -e $statistics || statistics=/sys/fs/cgroup${cgroup%/*}/memory.numa_stat
    while read -r key value; do [ "$key" = anon ] && anonymous=$value; done <$statistics
    test -e /run/shared/$1.first && read -r first </run/shared/$1.first
    echo "$1|$2|$cgroup|$allowed|$effective|$anonymous|$first"
}
"""


@dataclass(slots=True)
class Workloads:
    """The containers a test started in *guest*."""

    guest: Guest
    _drivers: dict[str, Driver] = field(default_factory=dict)
    _boxes: dict[str, Box] = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _base: dict[str, Any] = field(default_factory=dict)

    def start(self, *wanted: tuple[Driver, Box], at_once: int = 3, streams: int = 1, timeout_s: float = 900) -> None:
        """
        Start all, *at_once* streams at the same time; the boxes of one driver are dealt to so many streams.

        Raises:
            CommandFailed: One did not start; its error is in the output.
        """
        if not self._base:
            self._base = json.loads(self.guest.read("/srv/bundle/config.json"))
        scripts: dict[str, list[str]] = {}
        for k, (driver, box) in enumerate(wanted):
            scripts.setdefault(f"{driver.name}-{k % streams}", []).append(
                driver.start(box, oci_spec(self._base, box))
            )
            self._drivers[box.name], self._boxes[box.name] = driver, box
        lines = [f"mkdir -p {SHARED} /tmp/starts; rm -f /tmp/starts/*"]
        lines += [f"mkfifo {SHARED}/{box.name}.go" for _, box in wanted if box.hold_mib]
        for name, parts in scripts.items():
            lines += [f"cat >/tmp/starts/{name} <<'SCRIPT'", "set -e", *parts, "SCRIPT"]
        lines.append(f"ls /tmp/starts | xargs -P {at_once} -I @ sh -c 'sh /tmp/starts/@ >/dev/null'")
        self.guest.run("\n".join(lines), timeout_s=timeout_s)
        asked = [driver.pids(names) for driver, names in self._by_driver(box.name for _, box in wanted)]
        for line in self.guest.run("\n".join(asked), timeout_s=180).stdout.splitlines():
            name, pid = line.split()[:2]
            self._pids[name] = int(pid)

    def _by_driver(self, names: Iterable[str]) -> list[tuple[Driver, str]]:
        """Each driver with the names of its containers among these."""
        found: dict[str, tuple[Driver, str]] = {}
        for name in names:
            driver = self._drivers[name]
            _, before = found.get(driver.name, (driver, ""))
            found[driver.name] = driver, f"{before} {name}".strip()
        return list(found.values())

    def pid(self, name: str) -> int:
        """The first process of a container, as its runtime says."""
        return self._pids[name]

    def look(self, names: Iterable[str] | None = None) -> dict[str, Seen]:
        """What the kernel says now of all containers, or of these; one that ended is missing."""
        chosen = self._pids if names is None else names
        calls = "\n".join(f"look {name} {self._pids[name]}" for name in chosen)
        found = {}
        for line in self.guest.run(LOOK + calls).stdout.splitlines():
            name, pid, cgroup, allowed, effective, anonymous, first = line.split("|")
            per_node = {int(k.removeprefix("N")): int(v) for k, v in (f.split("=") for f in anonymous.split())}
            found[name] = Seen(name, int(pid), cgroup, allowed, effective, per_node, first)
        return found

    def holding(self, *, timeout_s: float = 180) -> dict[str, Seen]:
        """
        Let every container take its memory; what the kernel says once they have and have written down their nodes.

        Raises:
            AssertionError: Not in time.
        """
        told = [name for name, box in self._boxes.items() if box.hold_mib and name not in self._told]
        self.guest.run("set -e\n" + "\n".join(f"timeout 60 sh -c 'echo go >{SHARED}/{name}.go'" for name in told))
        self._told.update(told)
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.look()
            late = [
                name
                for name, box in self._boxes.items()
                if name not in seen or seen[name].held_bytes < box.hold_mib * MIB or not seen[name].first
            ]
            if not late:
                return seen
            assert time.monotonic() < deadline, f"not holding their memory after {timeout_s:g} s: {late}"
            time.sleep(0.5)

    def remove(self, *names: str, timeout_s: float = 300) -> None:
        """End and remove these containers, or all."""
        gone = names or tuple(self._boxes)
        lines = [f"{{ {driver.remove(those)}; }} >/dev/null || exit 1" for driver, those in self._by_driver(gone)]
        self.guest.run("\n".join(lines), timeout_s=timeout_s)
        for name in gone:
            del self._boxes[name], self._pids[name], self._drivers[name]

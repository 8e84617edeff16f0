"""
numapin as an administrator has it in the test guest: package, service, configuration, status.

What it says of itself is read here; what is true is read from the kernel, in `workloads`.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.guest.machine import Guest

REPOSITORY: Final = Path(__file__).parents[2]
DROP_IN: Final = "/etc/numapin/conf.d/50-test.toml"
UNSETTLED: Final = frozenset({"pinning", "not-decided"})

Status = dict[str, Any]
"""The document of ``numapin status -o json``."""


def build_package(directory: Path) -> Path:
    """
    The Debian package of this checkout, built into *directory* as ``make deb`` does.

    Raises:
        CalledProcessError: The build failed; its words went to the terminal.
    """
    subprocess.run([REPOSITORY / "packaging/build-deb", directory], check=True, stdout=subprocess.DEVNULL)
    (package,) = directory.glob("numapin_*_all.deb")
    return package


@dataclass(frozen=True, slots=True)
class Unit:
    """Properties of ``numapin.service`` as ``systemctl show`` gives them."""

    properties: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.properties[name]


@dataclass(frozen=True, slots=True)
class Installation:
    """What was seen while installing: the unit before the administrator enabled it, and after."""

    before: Unit
    after: Unit


@dataclass(frozen=True, slots=True)
class Numapin:
    """The installed service in *guest*."""

    guest: Guest

    def install(self, package: Path) -> None:
        """Install the package as one does without a network: all it depends on is there."""
        self.guest.push(package, "/root/numapin.deb")
        self.guest.run(
            "DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes /root/numapin.deb",
            timeout_s=300,
        )

    def unit(self, *names: str) -> Unit:
        """Properties of the unit."""
        text = self.guest.run(f"systemctl show --property {','.join(names)} numapin.service").stdout
        return Unit(dict(line.split("=", 1) for line in text.splitlines()))

    def status(self) -> Status:
        """What ``numapin status -o json`` says."""
        status: Status = json.loads(self.guest.run("numapin status -o json").stdout)
        return status

    def containers(self) -> list[dict[str, Any]]:
        """The rows of ``numapin containers -o json``."""
        rows: list[dict[str, Any]] = json.loads(self.guest.run("numapin containers -o json").stdout)["containers"]
        return rows

    def wait(self, what: str, condition: Callable[[Status], bool], *, timeout_s: float = 120) -> Status:
        """
        The first status that meets *condition*.

        Raises:
            AssertionError: None did in time; carries the last one.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            completed = self.guest.run("numapin status -o json", check=False)
            status: Status = json.loads(completed.stdout or "{}")
            if completed.status == 0 and condition(status):
                return status
            if time.monotonic() > deadline:
                told = json.dumps(status.get("containers"), indent=1)
                raise AssertionError(f"not after {timeout_s:g} s: {what}; {completed.stderr}{told}")
            time.sleep(0.3)

    def wait_for(self, cgroups: Mapping[str, str], *, timeout_s: float = 120) -> dict[str, dict[str, Any]]:
        """
        The rows of these containers (their name → a cgroup at or below theirs), each decided and done.

        Raises:
            AssertionError: One was not in time.
        """
        found: dict[str, dict[str, Any]] = {}

        def decided(status: Status) -> bool:
            found.update(rows_by_name(status["containers"], cgroups))
            return found.keys() == cgroups.keys() and all(r["state"] not in UNSETTLED for r in found.values())

        self.wait(f"a decision about {', '.join(cgroups)}", decided, timeout_s=timeout_s)
        return found

    def configure(self, text: str) -> None:
        """The drop-in file of the tests holds *text*; nothing is told to the service."""
        self.guest.write(DROP_IN, text.encode())

    def reload(self, condition: Callable[[Status], bool]) -> Status:
        """``systemctl reload``, and the first status that meets *condition*."""
        self.guest.run("systemctl reload numapin")
        return self.wait("the reloaded configuration", condition)

    def journal(self) -> list[dict[str, Any]]:
        """The service's own log lines, oldest first."""
        text = self.guest.run("journalctl --unit numapin --output cat --no-pager").stdout
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def rows_by_name(rows: list[dict[str, Any]], cgroups: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """numapin's rows for containers known by a cgroup at or below theirs."""
    found = {}
    for name, cgroup in cgroups.items():
        for row in rows:
            if cgroup == row["cgroup"] or cgroup.startswith(row["cgroup"] + "/"):
                found[name] = row
    return found


def reserved(status: Status, kind: str = "memory") -> dict[int, int]:
    """Bytes reserved per node in the NodeMap."""
    return {node["id"]: node["memory_map"][kind]["reserved"] for node in status["nodes"]}


def node_map(status: Status) -> list[dict[str, Any]]:
    """The whole NodeMap, to be compared: without what the kernel could give at the moment."""
    return [{key: value for key, value in node.items() if key != "available_bytes"} for node in status["nodes"]]


def reserve_all_but(status: Status, allocatable: Mapping[int, int]) -> str:
    """
    Configuration that leaves each node exactly so many bytes to give away (nodes not named: none).
    """
    tables = []
    for node in status["nodes"]:
        table = node["memory_map"]["memory"]
        kept = table["allocatable"] + table["system_reserved"] - allocatable.get(node["id"], 0)
        tables.append(f"[reserved.node.{node['id']}]\nmemory = {kept}\n")
    return "\n".join(tables)

"""
``make demo``: numapin at work on an embedded four-node machine, for those whose own has one node.

Builds the guest image on first use and the Debian package every time, installs the package as an administrator
would, starts Docker containers of each class and shows what numapin did. With a terminal it ends in a shell there.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from support.guest import console
from support.guest.errors import GuestError
from support.guest.image import ensure_image
from support.guest.machine import Guest
from support.installed import Numapin, build_package

CONTAINERS: Final = (
    ("orders-db", "--memory 400m --cpus 0.5", "Guaranteed: memory and CPU are limited"),
    ("sessions", "--memory 300m --cpus 0.5", "Guaranteed: fits beside orders-db"),
    ("search-index", "--memory 1300m --cpus 1", "Guaranteed, larger than any node: gets a group of two"),
    ("reports", "--memory 900m --cpus 0.5", "Guaranteed, larger than any node, and no two nodes are free: refused"),
    ("web", "--memory 200m", "Burstable: no CPU limit, so it is never restricted"),
    ("batch", "", "BestEffort: no limits at all"),
)
"""Name, what ``docker run`` is given, and what is to be expected."""

SHOWN: Final = (
    "numapin topology",
    "numapin containers",
    "numapin status",
    "grep Mems_allowed_list /proc/$(docker inspect -f '{{.State.Pid}}' search-index)/status",
)

LAST: Final = f"""
This is the guest's shell. Things to try:
  numapin status                         the books and every Guaranteed container
  docker rm -f search-index              its two nodes are free again, and reports gets them by itself
  numapin status -o json | jq .nodes     for programs
  journalctl -u numapin -o cat           one line per handled container
{console.LEAVE_KEY_NAME} ends the guest; nothing of it stays.
"""


def _step(text: str) -> None:
    print(f"\n\033[1m# {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def _show(guest: Guest, command: str, columns: int) -> None:
    print(f"$ {command}")
    print(guest.run(f"COLUMNS={columns} {command}", timeout_s=120).stdout, end="", flush=True)
    print()


def demonstrate(guest: Guest, package: Path) -> None:
    """Install, start the containers, show."""
    numapin = Numapin(guest)
    _step("Installing the package and starting the service, as an administrator would")
    numapin.install(package)
    guest.run("systemctl enable --now numapin", timeout_s=120)
    numapin.wait("the service answers", lambda status: bool(status["running"]))
    _step("Starting containers")
    for name, options, why in CONTAINERS:
        print(f"  docker run -d --name {name:<13} {options:<26} # {why}", flush=True)
        guest.run(
            f"docker run -d --network none --name {shlex.quote(name)} {options} numapin-test sleep 100000",
            timeout_s=180,
        )
    time.sleep(2)  # the last one's limits reach its cgroup a moment after its start
    _step("What numapin made of it")
    for command in SHOWN:
        _show(guest, command, 120)


def main() -> int:
    """Run the demonstration; 1 when the guest cannot be had."""
    try:
        image = ensure_image()
        with tempfile.TemporaryDirectory() as folder:
            _step("Building the package")
            package = build_package(Path(folder))
            _step("Starting the guest: four NUMA nodes of 1 GiB, Debian 13, Docker")
            with image.start() as guest:
                demonstrate(guest, package)
                if sys.stdin.isatty():
                    guest.run(console.size_command(), check=False)
                    print(LAST)
                    console.attach(guest.console_socket)
                    print("\nthe guest is gone")
    except KeyboardInterrupt:
        print("\ninterrupted; the guest is gone", file=sys.stderr)
        return 130
    except GuestError as exc:
        print(f"the demonstration cannot run: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""
A container that comes while another one's pages are being moved; runs in the guest, as one program.

Arguments: the cgroup whose pages will move, its node. Starts the service, waits until the kernel has the big
container's nodes, makes a small one and prints what the kernel says as one JSON document: ``small_s`` from the small
one's limits until its own node was granted, ``join_s`` how long its process then waited to get in (the kernel lets
nobody into any cgroup while it moves pages), ``first`` whether the process then had that node, ``big_s`` from the
big one's nodes until its pages were there, ``still_elsewhere`` the big one's bytes elsewhere when the small one had
its node.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
SMALL = CGROUPS / "docker" / ("5" * 64)
MIB = 1 << 20
PATIENCE_S = 120.0


def elsewhere(cgroup: Path, node: int) -> int:
    """Anonymous bytes on other nodes."""
    for line in (cgroup / "memory.numa_stat").read_text().splitlines():
        word, *fields = line.split()
        if word == "anon":
            return sum(int(f.partition("=")[2]) for f in fields if not f.startswith(f"N{node}="))
    raise AssertionError(f"no anon in {cgroup}/memory.numa_stat")


def until(what: str, condition: Callable[[], bool]) -> float:
    """When *condition* was first met."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE_S:g} s: {what}"
        time.sleep(0.005)
    return time.monotonic()


def main(big: str, node: str) -> None:
    """Run the race once."""
    cgroup = CGROUPS / big.strip("/")
    SMALL.parent.mkdir(exist_ok=True)
    for where in (CGROUPS, SMALL.parent):
        (where / "cgroup.subtree_control").write_text("+cpuset +cpu +memory")
    subprocess.run(["systemctl", "start", "--no-block", "numapin"], check=True)
    asked = until("the big one's nodes", lambda: (cgroup / "cpuset.mems").read_text().strip() == node)
    SMALL.mkdir()
    (SMALL / "memory.max").write_text(str(50 * MIB))
    (SMALL / "cpu.max").write_text("50000 100000")
    there = time.monotonic()
    granted = until("the small one's node", lambda: (SMALL / "cpuset.mems.effective").read_text().strip() == node)
    still = elsewhere(cgroup, int(node))
    process = subprocess.Popen(["sleep", "infinity"])
    joining = time.monotonic()
    (SMALL / "cgroup.procs").write_text(str(process.pid))
    joined = time.monotonic()
    first = f"Mems_allowed_list:\t{node}\n" in Path(f"/proc/{process.pid}/status").read_text()
    moved = until("the big one's pages", lambda: elsewhere(cgroup, int(node)) <= MIB)
    times = {"small_s": granted - there, "join_s": joined - joining, "big_s": moved - asked}
    print(json.dumps({**times, "still_elsewhere": still, "first": first}))


if __name__ == "__main__":
    main(*sys.argv[1:3])

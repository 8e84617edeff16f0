"""
Random arrivals and removals in the guest, each asked of ``numapin plan`` first; runs there, as one program.

The containers are cgroups as Docker's with a sleeping process in each, made by hand so that hundreds cost seconds.
The plan is the command's own, called in this process; some are processes of their own. What was granted is read
from the kernel. Prints one JSON document: ``steps``, ``refusals``, ``groups`` seen, and ``differences`` as sentences.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.append("/usr/lib/numapin/python")

from numapin.cli.client import request
from numapin.cli.main import main as numapin

CGROUPS: Final = Path("/sys/fs/cgroup")
PARENT: Final = "/docker"
"""Where Docker has its containers under the cgroupfs driver; systemd has no units here that would be asked for."""

BY_COMMAND: Final = 40
"""One in so many plans is a process of its own: it costs seconds where all is emulated."""

SOCKET: Final = "/run/numapin/api.sock"
MIB: Final = 1 << 20
PATIENCE_S: Final = 20.0
WORKING: Final = frozenset({"pinning", "not-decided", "unpinned", "not-managed"})
"""States that a Guaranteed container passes through while its limits are being written."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a container is limited to, bytes; *cpus* is a list or empty."""

    memory: int
    hugepages: int
    cpus: str

    @property
    def options(self) -> list[str]:
        """The same as options of ``numapin plan``."""
        words = ["--memory", str(self.memory)]
        if self.hugepages:
            words += ["--hugepages-2Mi", str(self.hugepages)]
        if self.cpus:
            words += ["--cpus", self.cpus]
        return words


@dataclass(slots=True)
class Box:
    """A cgroup with its process."""

    path: str
    wish: Wish
    process: subprocess.Popen[bytes]


@dataclass(slots=True)
class Seen:
    """What all sequences came to."""

    steps: int = 0
    refusals: int = 0
    groups: int = 0
    by_command: int = 0
    differences: list[str] = field(default_factory=list)


def nodes_of(text: str) -> list[int]:
    """The nodes of a kernel's list."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def random_wish(rng: random.Random) -> Wish:
    """Mostly what fits a node, sometimes two or more; now and then hugepages or CPUs."""
    memory = rng.choice([rng.randint(20, 300), rng.randint(200, 800), rng.randint(800, 1700)]) * MIB
    pages = 2 * rng.randint(1, 50) * MIB if rng.random() < 0.25 else 0
    cpus = rng.choice(["0", "1", "2", "3", "0-1", "2-3", "1,3"]) if rng.random() < 0.25 else ""
    return Wish(memory, pages, cpus)


def start(identity: str, wish: Wish) -> Box:
    """Make the cgroup, limit it as Docker does, and put a process inside."""
    path = f"{PARENT}/{identity}"
    directory = CGROUPS / path[1:]
    process = subprocess.Popen(["sleep", "infinity"])
    directory.mkdir()
    # the last limit makes it Guaranteed, so that it is not decided before it is complete
    if wish.hugepages:
        (directory / "hugetlb.2MB.max").write_text(str(wish.hugepages))
    if wish.cpus:
        (directory / "cpuset.cpus").write_text(wish.cpus)
    (directory / "cpu.max").write_text("50000 100000")
    (directory / "memory.max").write_text(str(wish.memory))
    (directory / "cgroup.procs").write_text(str(process.pid))
    return Box(path, wish, process)


def end(box: Box) -> None:
    """Kill the process and remove the cgroup."""
    box.process.kill()
    box.process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            (CGROUPS / box.path[1:]).rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def granted(box: Box) -> list[int]:
    """The nodes that the kernel grants its process; both of its files must say so."""
    effective = nodes_of((CGROUPS / box.path[1:] / "cpuset.mems.effective").read_text())
    status = Path(f"/proc/{box.process.pid}/status").read_text()
    allowed = nodes_of(status.partition("Mems_allowed_list:")[2].partition("\n")[0])
    assert effective == allowed, f"{box.path}: effective {effective}, allowed {allowed}"
    return effective


def settle(alive: Sequence[Box], gone: Iterable[Box] = ()) -> dict[str, dict[str, Any]]:
    """numapin's rows once it knows exactly these containers and is done with each."""
    deadline = time.monotonic() + PATIENCE_S
    wanted = {box.path for box in alive}
    unwanted = {box.path for box in gone}
    while True:
        rows: Any = request(SOCKET, "containers")["containers"]
        found = {row["cgroup"]: row for row in rows}
        done = wanted <= found.keys() and not unwanted & found.keys()
        if done and all(found[path]["state"] not in WORKING for path in wanted):
            return found
        assert time.monotonic() < deadline, f"not settled: {[found.get(path) for path in wanted]}"
        time.sleep(0.01)


def ask(wish: Wish, *, as_command: bool) -> list[int] | None:
    """The nodes that ``numapin plan`` names for it, ``None`` when it would be refused."""
    words = ["plan", "-o", "json", *wish.options]
    if as_command:
        done = subprocess.run(["numapin", *words], stdout=subprocess.PIPE, text=True, check=False)
        status, text = done.returncode, done.stdout
    else:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = numapin(words)
        text = out.getvalue()
    answer = json.loads(text)
    assert (status, answer["admitted"]) in ((0, True), (5, False)), (status, answer)
    return answer["placements"][0]["nodes"] if answer["admitted"] else None


def compare(seen: Seen, told: list[int] | None, box: Box, row: dict[str, Any], everything: list[int]) -> None:
    """Note where the plan and the kernel do not say the same about a new container."""
    found = granted(box)
    if told is None:
        seen.refusals += 1
        if (row["state"], found) != ("refused", everything):
            seen.differences.append(f"{box.wish}: plan refuses, real: {row['state']} on {found}")
    else:
        seen.groups += len(told) > 1
        if (row["state"], found, row["nodes"]) != ("pinned", told, told):
            seen.differences.append(f"{box.wish}: plan {told}, real: {row['state']} {row['nodes']}, kernel {found}")


def hold(seen: Seen, alive: Sequence[Box], rows: dict[str, dict[str, Any]], everything: list[int]) -> None:
    """Every living container has from the kernel what numapin says of it."""
    for box in alive:
        row = rows[box.path]
        expected = row["nodes"] if row["state"] == "pinned" else everything
        if granted(box) != expected or row["state"] not in ("pinned", "refused"):
            seen.differences.append(f"{box.wish}: {row['state']} {row['nodes']}, kernel {granted(box)}")


def run_sequence(seed: int, length: int, seen: Seen) -> None:
    """Arrivals and removals from one seed, until *length* containers came; all are removed at the end."""
    rng = random.Random(seed)
    everything = nodes_of((CGROUPS / "cpuset.mems.effective").read_text())
    alive: list[Box] = []
    for k in range(length):
        if alive and rng.random() < 0.35:
            leaving = alive.pop(rng.randrange(len(alive)))
            end(leaving)
            hold(seen, alive, settle(alive, [leaving]), everything)
        wish = random_wish(rng)
        by_command = seen.steps % BY_COMMAND == 0
        told = ask(wish, as_command=by_command)
        box = start(f"{rng.getrandbits(256):064x}", wish)
        alive.append(box)
        rows = settle(alive)
        compare(seen, told, box, rows[box.path], everything)
        if k == length - 1:
            hold(seen, alive, rows, everything)
        seen.steps += 1
        seen.by_command += by_command
    for box in alive:
        end(box)
    settle([], alive)


def main(first: int, count: int, length: int) -> None:
    """Run sequences of seeds *first* to *first* + *count*, and print what was seen."""
    directory = CGROUPS / PARENT[1:]
    directory.mkdir(exist_ok=True)
    for where in (CGROUPS, directory):
        (where / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +hugetlb")
    # With the first quota of a machine its kernel patches itself and with the last one again; an emulator does not
    # survive hundreds of that. This one is never used up and stays.
    (directory / "cpu.max").write_text("400000 100000")
    seen = Seen()
    started = time.monotonic()
    for seed in range(first, first + count):
        run_sequence(seed, length, seen)
    print(
        json.dumps(
            {
                "steps": seen.steps,
                "refusals": seen.refusals,
                "groups": seen.groups,
                "by_command": seen.by_command,
                "differences": seen.differences,
                "seconds": round(time.monotonic() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))

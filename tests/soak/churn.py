"""
Containers that come, run, change, are meddled with and end on this machine's real cgroups, under a daemon that is
killed.

After each round everything stands still for a moment and is looked at with the test's own eyes: the kernel's files,
the checkpoint on disk, the status. ``python tests/soak/churn.py --minutes 10`` prints the figures; needs root and
cgroup v1 with cpuset, memory and cpu.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy, find_hierarchy
from numapin.model.checkpoint import Checkpoint, record_problems
from numapin.model.errors import KernelError, NumapinError
from numapin.planner.accounting import check
from numapin.state.codec import decode
from soak.workload import Living, Program, Runtime, adopt_orphans
from support.running import MIB, Containers, Numapin, wait_for

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
SHORT_QUEUE = "16"
SETTLE_S = 60.0
FD_SLACK = 4
"""A client's connection, a directory that is just being read."""
RSS_SLACK = 6 * MIB
"""What an allocator keeps; a leak of one record per container would pass it within a minute."""


@dataclass
class Figures:
    """What a run did and saw."""

    rounds: int = 0
    checks: int = 0
    started: int = 0
    removed: int = 0
    processes: int = 0
    ended_by_themselves: int = 0
    nested: int = 0
    resized: int = 0
    reclassed: int = 0
    meddled: int = 0
    busy: int = 0
    kills: int = 0
    stops: int = 0
    overflows: int = 0
    repairs: int = 0
    longest_settle_s: float = 0.0
    longest_life_rounds: int = 0
    most_descriptors: int = 0
    descriptor_growth: int = 0
    rss_mib: float = 0.0
    rss_growth_mib: float = 0.0

    def text(self) -> str:
        """A few lines for a person."""
        return (
            f"churn: {self.checks} of {self.rounds} rounds checked, all sound; slowest to settle "
            f"{self.longest_settle_s:.1f} s\n"
            f"churn: {self.started} containers started, {self.removed} removed; {self.processes} ran processes, "
            f"{self.ended_by_themselves} of which ended by themselves; {self.nested} child cpusets; "
            f"EBUSY met {self.busy} times\n"
            f"churn: {self.resized} changes of size, {self.reclassed} of class, {self.meddled} foreign writes, "
            f"{self.repairs} repairs\n"
            f"churn: daemon killed {self.kills} times, stopped {self.stops} times, {self.overflows} event overflows\n"
            f"churn: longest life {self.longest_life_rounds} rounds; at most {self.most_descriptors} descriptors "
            f"({self.descriptor_growth:+d} beyond the containers') and {self.rss_mib:.1f} MiB "
            f"({self.rss_growth_mib:+.1f} MiB)"
        )


@dataclass
class Life:
    """One process of the daemon, as it was when it first stood still."""

    rounds: int
    descriptors: int
    resident: int


@contextmanager
def short_queue() -> Iterator[None]:
    """Inotify instances made meanwhile hold only a few events; the limit is put back whatever happens."""
    before = QUEUE.read_text()
    QUEUE.write_text(SHORT_QUEUE)
    try:
        yield
    finally:
        QUEUE.write_text(before)


class Churn:
    """A daemon, *size* containers and a seed; `round` is one round with its checks."""

    def __init__(self, hierarchy: Hierarchy, home: Path, *, size: int, seed: int) -> None:
        self.figures = Figures()
        self._random = random.Random(seed)
        self._size = size
        self._hierarchy = hierarchy
        self._containers = Containers(hierarchy)
        self._runtime = Runtime(self._containers)
        self._daemon = Numapin(home)
        self._alive: dict[str, Living] = {}
        self._number = 0
        self._life: Life | None = None
        self._counted: Counter[str] = Counter()

    def open(self) -> None:
        """Make the private parent, the first containers and the daemon."""
        adopt_orphans(True)
        self._containers.close()
        self._containers.open()
        for _ in range(self._size):
            self._start()
        self._start_daemon(short=False)

    def close(self) -> None:
        """End the daemon and remove every cgroup."""
        self._daemon.kill()
        for path in list(self._alive):
            self._runtime.remove(self._alive.pop(path))
        self._containers.close()
        adopt_orphans(False)

    # ---- one round ---------------------------------------------------------------------------------------------

    def round(self, *, disturb: bool = True) -> None:
        """
        Churn about half of the containers, with a kill or a stop in between when *disturb*, then check everything.

        Raises:
            AssertionError: Something does not hold; it says what.
        """
        self.figures.rounds += 1
        blow = self._random.choice(("none", "kill", "kill", "restart", "burst")) if disturb else "none"
        steps = self._random.randint(self._size // 4, self._size)
        when = self._random.randrange(steps)
        if blow == "burst":
            self._daemon.signal(signal.SIGSTOP)
        for step in range(steps):
            self._step()
            if step == when and blow in ("kill", "restart"):
                self._end_daemon(blow)
                if self._random.random() < 0.5:
                    self._start_daemon(short=self._random.random() < 0.5)
        self._level_out()
        if blow == "burst":
            self._daemon.signal(signal.SIGCONT)
        if self._daemon.process is None:
            self._start_daemon(short=self._random.random() < 0.5)
        self._settle()
        self._check()

    def _step(self) -> None:
        draw = self._random.random()
        if draw < 0.36 or not self._alive:
            self._start()
        elif draw < 0.72:
            self._remove(self._random.choice(list(self._alive.values())))
        else:
            self._change(self._random.choice(list(self._alive.values())), self._random.random())
        if self._random.random() < 0.1:
            self._collect()

    def _change(self, living: Living, draw: float) -> None:
        """Something happens to a container that stays."""
        if draw < 0.25:
            self._runtime.update(living, mib=self._random.randint(4, 12), guaranteed=living.guaranteed)
            self.figures.resized += 1
        elif draw < 0.45:
            self._runtime.update(living, mib=living.mib, guaranteed=not living.guaranteed)
            self.figures.reclassed += 1
        elif draw < 0.65:
            self._run(living)
        elif draw < 0.85:
            self._nest(living)
        elif living.guaranteed and living.group is None and not living.inner:
            (self._containers.cpuset / living.path[1:] / "cpuset.mems").write_text("\n")
            self.figures.meddled += 1

    def _run(self, living: Living) -> None:
        if living.group is None:
            self._runtime.run(living, self._random.choice(list(Program)))
            self.figures.processes += 1

    def _nest(self, living: Living) -> None:
        if self._random.random() < 0.2:
            self._runtime.nest_raw(living)
        elif len(living.inner) < 3:
            self._runtime.nest(living)
            if self._random.random() < 0.5:
                self._runtime.move_inside(living)
        self.figures.nested += 1

    def _collect(self) -> None:
        """Containers whose process ended are removed, as their runtimes would."""
        for living in [c for c in self._alive.values() if self._runtime.has_ended(c)]:
            self.figures.ended_by_themselves += 1
            self._remove(living)

    def _level_out(self) -> None:
        while len(self._alive) < self._size:
            self._start()
        while len(self._alive) > self._size:
            self._remove(self._random.choice(list(self._alive.values())))

    def _start(self) -> None:
        self._number += 1
        living = self._runtime.create(
            self._number,
            mib=self._random.randint(4, 12),
            guaranteed=self._random.random() < 0.9,
            late_limits=self._random.random() < 0.3,
        )
        self._alive[living.path] = living
        self.figures.started += 1
        if self._random.random() < 0.5:
            self._run(living)  # before the daemon can have pinned it

    def _remove(self, living: Living) -> None:
        del self._alive[living.path]
        self._runtime.remove(living)
        self.figures.removed += 1
        self.figures.busy = self._runtime.busy

    # ---- the daemon --------------------------------------------------------------------------------------------

    def _start_daemon(self, *, short: bool) -> None:
        self._life = None
        self._counted.clear()
        if short:
            with short_queue():
                self._daemon.start()
        else:
            self._daemon.start()

    def _end_daemon(self, how: str) -> None:
        self._count()
        if how == "kill":
            self._daemon.kill()
            self.figures.kills += 1
        else:
            status, seconds = self._daemon.stop()
            assert (status, seconds < 5) == (0, True), f"SIGTERM: status {status} after {seconds:.1f} s"
            self.figures.stops += 1

    def _count(self) -> None:
        """Add what the daemon counted since the last look."""
        with suppress(NumapinError):
            counters = self._daemon.status()["counters"]
            for name in ("overflows", "repairs"):
                new = counters[name] - self._counted[name]
                setattr(self.figures, name, getattr(self.figures, name) + new)
                self._counted[name] = counters[name]

    def _settle(self) -> None:
        """Have everything looked at once (sizes are followed by the pass), until what is shown is what there is."""
        began = time.monotonic()
        self._daemon.signal(signal.SIGHUP)
        try:
            wait_for(lambda: not self._differences(), limit_s=SETTLE_S)
        except AssertionError:
            raise AssertionError(f"after {SETTLE_S:.0f} s: {self._differences()[:5]}") from None
        self.figures.longest_settle_s = max(self.figures.longest_settle_s, time.monotonic() - began)

    # ---- what must hold ----------------------------------------------------------------------------------------

    def _differences(self) -> list[str]:
        """What the status says otherwise than the kernel's tree."""
        rows = self._daemon.rows(self._containers.parent)
        wanted = {path: c.mib * MIB for path, c in self._alive.items() if c.guaranteed}
        found = [f"{path}: gone, still shown" for path in rows.keys() - wanted.keys()]
        for path, size in wanted.items():
            row = rows.get(path)
            if row is None or row["state"] != "pinned" or row["request"] != {"memory": size}:
                found.append(f"{path}: {size} bytes asked, shown as {row and (row['state'], row['request'])}")
            elif self._containers.mems(path) != str(row["nodes"][0]):
                found.append(f"{path}: cpuset.mems is {self._containers.mems(path)!r}")
        return found

    def _check(self) -> None:
        self._count()
        problems = [
            f"{path}: never Guaranteed, but cpuset.mems was written"
            for path, c in self._alive.items()
            if not c.touched and self._containers.mems(path)
        ]
        with suppress(AssertionError):  # the result of a write has its own save, a fifth of a second later
            wait_for(lambda: self._saved_problems() == [], limit_s=10)
        problems += self._saved_problems()
        problems += self._shown_problems()
        problems += self._growth()
        for event in ("step_failed", "invariant_broken"):
            if found := self._daemon.lines(event):
                problems.append(f"the log says {event}, {len(found)} times, the last with {found[-1]}")
        assert problems == [], problems[:10]
        self.figures.checks += 1

    def _saved_problems(self) -> list[str]:
        """Of the checkpoint on disk: its books against a fresh sum, and who has something in it."""
        saved = decode(self._daemon.state.read_bytes(), self._daemon.state)
        problems = [*check(saved.books), *record_problems(saved), *recomputed(saved)]
        wanted = {path: c.mib * MIB for path, c in self._alive.items() if c.guaranteed}
        ours = {p: r for p, r in saved.containers.items() if p.startswith(self._containers.parent + "/")}
        problems += [f"{path}: gone, and still in the checkpoint" for path in ours.keys() - wanted.keys()]
        problems += [f"{path}: not in the checkpoint" for path in wanted.keys() - ours.keys()]
        for path in ours.keys() & wanted.keys():
            held = sum(b.size_bytes for b in saved.books.assignments.get(ours[path].owner, ()))
            if held != wanted[path]:
                problems.append(f"{path}: {held} bytes reserved, {wanted[path]} asked")
        return problems

    def _shown_problems(self) -> list[str]:
        """Of the status: no reservation without a container."""
        document = self._daemon.status()
        reserved = sum(n["memory_map"]["memory"]["reserved"] for n in document["nodes"] if n["memory_map"])
        asked = sum(c["request"]["memory"] for c in document["containers"] if c["nodes"])
        problems = [f"{h['id']}: ended, and its memory is held" for h in document["held"]]
        if reserved != asked:
            problems.append(f"{reserved} bytes reserved for containers that ask {asked}")
        return problems

    def _growth(self) -> list[str]:
        """Descriptors beyond one per managed container, and resident memory, since this process first stood still."""
        assert self._daemon.process is not None
        process = Path(f"/proc/{self._daemon.process.pid}")
        managed = sum(1 for c in self._daemon.status()["containers"] if c["nodes"])
        descriptors = len(os.listdir(process / "fd"))
        lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        resident = int(lines["VmRSS"].split()[0]) * 1024
        self.figures.most_descriptors = max(self.figures.most_descriptors, descriptors)
        self.figures.rss_mib = max(self.figures.rss_mib, round(resident / MIB, 1))
        beyond = descriptors - managed
        if self._life is None:
            self._life = Life(0, beyond, resident)
        self._life.rounds += 1
        more, grown = beyond - self._life.descriptors, resident - self._life.resident
        self.figures.longest_life_rounds = max(self.figures.longest_life_rounds, self._life.rounds)
        self.figures.descriptor_growth = max(self.figures.descriptor_growth, more)
        self.figures.rss_growth_mib = max(self.figures.rss_growth_mib, round(grown / MIB, 1))
        problems = [f"{more} descriptors more than at the start"] if more > FD_SLACK else []
        if grown > RSS_SLACK:
            problems.append(f"{grown} bytes of memory more than {self._life.rounds} rounds ago")
        return problems


def recomputed(saved: Checkpoint) -> Iterator[str]:
    """Sentences where the NodeMap is not the plain sum of the assignments, computed here and from nothing else."""
    blocks = [block for held in saved.books.assignments.values() for block in held]
    nodes = saved.books.node_map.nodes
    for node, state in nodes.items():
        here = sum(1 for block in blocks if node in block.affinity)
        if state.number_of_assignments != here:
            yield f"node {node}: {state.number_of_assignments} assignments counted, {here} there"
        cells = [nodes[n] for n in state.cells]
        for kind in state.memory_map:
            tables = [c.memory_map[kind] for c in cells if kind in c.memory_map]
            reserved, free = sum(t.reserved for t in tables), sum(t.free for t in tables)
            promised = sum(b.size_bytes for b in blocks if b.type == kind and b.affinity.issubset(state.cells))
            if (reserved, free + promised) != (promised, sum(t.allocatable for t in tables)):
                yield f"node {node}, {kind}: {reserved} reserved and {free} free, {promised} promised"


def suitable() -> Hierarchy:
    """This machine's hierarchy. Raises: SystemExit where containers cannot be made on it."""
    try:
        hierarchy = find_hierarchy(Path("/"))
    except KernelError as exc:
        raise SystemExit(f"nothing to churn: {exc}") from exc
    if os.geteuid() != 0 or not is_v1(hierarchy):
        raise SystemExit("churning needs root and cpuset, memory and cpu on cgroup v1; v2 is tried in the guest")
    return hierarchy


def is_v1(hierarchy: Hierarchy) -> bool:
    """True where the containers of `support.running` can be made."""
    return hierarchy.version is CgroupVersion.V1 and {"memory", "cpu"} <= hierarchy.controllers.keys()


def churn(hierarchy: Hierarchy, home: Path, *, size: int, seconds: float, seed: int, quiet: int = 0) -> Figures:
    """
    Rounds for *seconds*, and until the daemon was killed and has lost events; then without disturbance for *quiet*
    more, so that one process lives long.
    """
    run = Churn(hierarchy, home, size=size, seed=seed)
    calm = time.monotonic() + seconds - quiet
    try:
        run.open()
        while time.monotonic() < calm or not (run.figures.kills and run.figures.overflows):
            run.round()
        end = time.monotonic() + quiet
        while time.monotonic() < end:
            run.round(disturb=False)
    finally:
        run.close()
    return run.figures


def main() -> int:
    """Churn for the minutes asked for and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--containers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="of the order of things; printed when drawn")
    parser.add_argument("--json", action="store_true", help="the figures as one object")
    args = parser.parse_args()
    hierarchy = suitable()
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    print(f"churn: {args.containers} containers for {args.minutes:g} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="numapin-soak-") as folder:
        try:
            figures = churn(
                hierarchy,
                Path(folder),
                size=args.containers,
                seconds=args.minutes * 60,
                seed=seed,
                quiet=int(args.minutes * 20),
            )
        except (AssertionError, NumapinError, OSError) as exc:
            print(f"churn: FAILED with seed {seed}: {type(exc).__name__} {exc}", file=sys.stderr)
            return 1
    print(json.dumps(asdict(figures), sort_keys=True) if args.json else figures.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

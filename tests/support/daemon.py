"""An agent on a machine of plain files: nodes, a cgroup tree, a clock to set, the log as a list."""

from __future__ import annotations

import contextlib
import selectors
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numapin.daemon.agent import Agent
from numapin.daemon.config import Config, Reserved
from numapin.daemon.enabling import Enabler
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.leftovers import LOOK_NS
from numapin.daemon.logs import Log
from numapin.daemon.machine import Machine
from numapin.daemon.out_of_reach import OutOfReach
from numapin.daemon.pinning import Writer
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import Tracked
from numapin.daemon.units import Units
from numapin.kernel.cgroup_controllers import enable_cpuset
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Checkpoint, explained_owners
from numapin.model.errors import CheckpointUnreadable
from numapin.model.memory import MEMORY, Books, MemoryType, of_pod
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import check
from numapin.state.checkpoint import CheckpointFile
from support.cgroup_trees import GIB, CgroupTree, write_files
from support.fakes import FakeClock
from support.machines import Node, even, write_machine

BARE = Config(reserved=Reserved(fraction_ppm=0, minimum_bytes=0))
"""Nothing is kept for the system, so a node's allocatable memory is its total."""

BOOT = "0a0a0a0a-0000-4000-8000-000000000001"
POD = "11111111-2222-3333-4444-555555555555"
POD_SLICE = "/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice"


def cid(number: int) -> str:
    """A container id of 64 hexadecimal digits."""
    return f"{number:064x}"


def docker(number: int) -> str:
    """Cgroup of a Docker container under systemd."""
    return f"/system.slice/docker-{cid(number)}.scope"


def cri(number: int) -> str:
    """Cgroup of a containerd container in the one Guaranteed pod of these tests."""
    return f"{POD_SLICE}/cri-containerd-{cid(number)}.scope"


@dataclass
class MemoryLog:
    """A `numapin.daemon.logs.Log` that keeps ``(level, event, facts)``."""

    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    bound: dict[str, Any] = field(default_factory=dict)

    def bind(self, **facts: object) -> Log:
        """A log of the same lines with more facts."""
        return MemoryLog(self.lines, {**self.bound, **facts})

    def debug(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("debug", event, facts)

    def info(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("error", event, facts)

    def critical(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("critical", event, facts)

    def exception(self, event: str, **facts: object) -> None:
        """Keep the line."""
        self._keep("exception", event, facts)

    def _keep(self, level: str, event: str, facts: dict[str, object]) -> None:
        self.lines.append((level, event, {**self.bound, **facts}))

    def events(self) -> list[str]:
        """Names of all events, in order."""
        return [event for _, event, _ in self.lines]

    def facts(self, event: str) -> dict[str, Any]:
        """Facts of the newest line of this event."""
        return next(facts for _, name, facts in reversed(self.lines) if name == event)


@dataclass
class Watched:
    """The drift watcher's side: which ``cpuset.mems`` are watched, which directories were pruned."""

    mems: set[str] = field(default_factory=set)
    pruned: list[str] = field(default_factory=list)

    def watch_mems(self, path: str) -> None:
        """Remember."""
        self.mems.add(path)

    def unwatch_mems(self, path: str) -> None:
        """Forget."""
        self.mems.discard(path)

    def prune(self, path: str) -> None:
        """Remember."""
        self.pruned.append(path)


class Host:
    """
    A machine below *root* with one agent at a time; `start` is a start of the daemon, `stop` its orderly end.

    Files are plain: nothing follows a write, so a test says beforehand which nodes the kernel would grant
    (``effective=`` of `guaranteed`).
    """

    def __init__(
        self,
        root: Path,
        *,
        nodes: list[Node] | None = None,
        version: CgroupVersion = CgroupVersion.V2,
        config: Config = BARE,
        dry_run: bool = False,
        boot: str = BOOT,
    ) -> None:
        self.root = root
        self.nodes = even(4, memory=10 * GIB) if nodes is None else nodes
        write_machine(root, self.nodes)
        granted = ",".join(str(n.id) for n in self.nodes if n.memory)
        self.tree = CgroupTree(root, version, nodes=granted)
        self.config = config
        self.dry_run = dry_run
        self.boot = boot
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.watched = Watched()
        self.units: Units | None = None
        self.enable: Enabler = enable_cpuset
        self.file = CheckpointFile(root / "var/lib/numapin/state.json")
        self.agent: Agent
        self.writer: Writer
        self._pid = 1000
        self._gone: set[int] = set()

    # ---- the daemon ------------------------------------------------------------------------------------------

    def start(self) -> Agent:
        """A daemon starts: adopt the checkpoint, look at everything."""
        agent = self.prepare()
        agent.full_pass()
        return agent

    def prepare(self) -> Agent:
        """A daemon starts, up to its first look."""
        machine = Machine.read(self.root, self.config, self._nodes_of_before())
        self.writer = Writer(self.clock)
        ledger = Ledger(
            None if self.dry_run else self.file,
            policy=self.config.policy.value,
            boot_id=self.boot,
            clock=self.clock,
            books=Books(machine.node_map),
        )
        finder = self.tree.discovery(self.config.cgroup_root)
        out_of_reach = OutOfReach(self.root, finder.reaches, self.boot, self.clock, self.log)
        self.agent = Agent(
            machine=machine,
            finder=finder,
            drift=self.watched,
            ledger=ledger,
            writer=self.writer,
            clock=self.clock,
            reporter=Reporter(self.log),
            migrate_v1=self.config.v1_memory_migrate and self.tree.version is CgroupVersion.V1,
            dry_run=self.dry_run,
            kubelet=Beside(self.root, self.config, self.log),
            units=self.units,
            enable=self.enable,
            out_of_reach=out_of_reach,
        )
        try:
            found = self.file.peek().checkpoint
        except CheckpointUnreadable as exc:
            self.agent.hold(exc, lambda: self.file.peek().checkpoint)
        else:
            if found is not None:
                self.agent.adopt(found if self.dry_run else out_of_reach.release(found))
        return self.agent

    def _nodes_of_before(self) -> NodeSet:
        with contextlib.suppress(CheckpointUnreadable):
            before = self.file.peek().checkpoint
            return NodeSet() if before is None else NodeSet.from_ids(before.books.node_map.nodes)
        return NodeSet()

    def stop(self) -> None:
        """SIGTERM."""
        self.agent.close()

    def restart(self) -> Agent:
        """Stop and start."""
        self.stop()
        return self.start()

    def look_for_leftovers(self) -> None:
        """Two seconds pass: what was pinned meanwhile is looked at once more."""
        self.clock.advance(ns=LOOK_NS)
        self.agent.due(self.clock.monotonic_ns())

    def wait_for_writes(self) -> None:
        """Take what the writer's threads did, as the loop would; a minute at most."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.writer, selectors.EVENT_READ)
            while self.writer.busy:
                assert selector.select(60), "no thread of the writer came back"
                self.agent.on_outcomes(self.writer.collect())

    def wait_for_units(self) -> None:
        """Take what the thread that talks to systemd did, as the loop would; a minute at most."""
        assert self.units is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.units, selectors.EVENT_READ)
            while self.units.busy:
                assert selector.select(60), "systemd's thread did not come back"
                self.agent.on_units(self.units.collect())

    # ---- containers ------------------------------------------------------------------------------------------

    def guaranteed(self, path: str, gib: float = 1, *, effective: str = "0", **options: Any) -> str:
        """A running container with memory and CPU limits; *effective* is what the kernel will grant."""
        return self.container(path, memory=int(gib * GIB), quota=50_000, effective=effective, **options)

    def container(self, path: str, **options: Any) -> str:
        """A running container; *options* are those of `CgroupTree.add`."""
        self._pid += 1
        self.tree.process(self._pid)
        while self.tree.add(path, pids=(self._pid,), **options).stat().st_ino in self._gone:
            # a kernel never gives a cgroup's number again, and the file system did: keep it busy, and once more
            busy = self.root / f"busy-inode-numbers/{self._pid}-{len(self._gone)}"
            busy.parent.mkdir(exist_ok=True)
            (self.tree.cpuset / path.lstrip("/")).rename(busy)
            self._gone.discard(busy.stat().st_ino)
        return path

    def remove(self, path: str) -> str:
        """The kernel removes a cgroup and what is in it."""
        directories = [self.tree.cpuset / path.lstrip("/")]
        if self.tree.version is CgroupVersion.V1:
            base = self.root / "sys/fs/cgroup"
            directories += [base / c / path.lstrip("/") for c in ("memory", "cpu,cpuacct", "hugetlb")]
        inode = directories[0].stat().st_ino
        for directory in directories:
            for below in sorted(directory.rglob("*"), reverse=True):
                below.rmdir() if below.is_dir() else below.unlink()
            directory.rmdir()
        self._gone.add(inode)
        return path

    def grant(self, path: str, nodes: str) -> None:
        """What the kernel would grant from now on."""
        self.put(path, {self._granted: f"{nodes}\n"})

    @property
    def _granted(self) -> str:
        return "cpuset.mems.effective" if self.tree.version is CgroupVersion.V2 else "cpuset.effective_mems"

    def obedient(self, path: str) -> str:
        """From now on the kernel grants this cgroup whatever is asked: both files are one."""
        directory = self.tree.cpuset / path.lstrip("/")
        granted = directory / self._granted
        granted.unlink()
        granted.hardlink_to(directory / "cpuset.mems")
        return path

    def put(self, path: str, files: dict[str, str]) -> None:
        """Files in a cgroup of the cpuset hierarchy."""
        write_files(self.tree.cpuset / path.lstrip("/"), files)

    def holds(self, path: str, sizes: dict[int, int]) -> None:
        """The container has these bytes of anonymous memory per node (v2)."""
        stat = " ".join(f"N{n}={size}" for n, size in sizes.items())
        self.put(path, {"memory.current": f"{sum(sizes.values())}\n", "memory.numa_stat": f"anon {stat}\n"})

    # ---- what came of it -------------------------------------------------------------------------------------

    def mems(self, path: str) -> str:
        """The cgroup's ``cpuset.mems`` now."""
        return (self.tree.cpuset / path.lstrip("/") / "cpuset.mems").read_text().strip()

    def view(self, path: str) -> Tracked:
        """The agent's view of a container."""
        return self.agent.views[path]

    def states(self) -> dict[str, str]:
        """State of each container by its path."""
        return {path: view.state.value for path, view in self.agent.views.items()}

    def reserved(self, kind: MemoryType = MEMORY) -> dict[int, int]:
        """GiB reserved on each node; only nodes with any."""
        nodes = self.agent.ledger.books.node_map.nodes
        found = {n: s.memory_map[kind].reserved for n, s in nodes.items() if kind in s.memory_map}
        return {int(n): size // GIB for n, size in found.items() if size}

    def saved(self) -> Checkpoint:
        """The checkpoint on disk."""
        found = self.file.peek().checkpoint
        assert found is not None
        return found

    def sound(self) -> None:
        """The books add up and each assignment has its record; nothing is promised to nobody."""
        ledger = self.agent.ledger
        assert check(ledger.books) == ()
        ours = {p.owner for p in ledger.pins.values() if p.phase.value != "foreign"}
        held = set(ledger.books.assignments)
        pods = {o.pod for o in held}
        assert {o for o in ours - held if not (o in of_pod(o.pod) and o.pod in pods)} == set()
        assert set(ledger.snapshot().books.assignments) <= explained_owners(ledger.pins.values())

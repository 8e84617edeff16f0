"""A thousand random reboots: every start succeeds, nothing is lost or doubled, what no longer fits is named."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pytest

from numapin.cli.checkpoint import inconsistencies
from numapin.daemon.config import Reserved
from numapin.model.memory import MEMORY, Block, Books, MemoryTable, Owner, hugepages
from numapin.model.nodeset import NodeSet
from numapin.model.plan import TopologyPolicy
from numapin.planner.accounting import misfits, rebase, reserve
from support.daemon import BARE, BOOT, Host, docker
from support.machines import GIB, MIB, PAGE_2M, Node, write_machine

WORLDS, REBOOTS = 50, 20
HUGE = hugepages(PAGE_2M)


@dataclass(frozen=True)
class Living:
    """A container: its cgroup, what it asks for, and whether it is the one of before under this id."""

    path: str
    gib: int
    pages: int = 0
    same: bool = False


@pytest.fixture
def root() -> Iterator[Path]:
    """Files in memory where there is such a place: a thousand starts are some thousand fsyncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="numapin-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


class World:
    """One machine's life; every choice comes from *seed*."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        ids = sorted(self.chance.sample(range(12), self.chance.randint(1, 4)))
        self.nodes = [self.node(i) for i in ids]
        self.host = Host(root, nodes=self.nodes)
        self.living: dict[str, Living] = {}
        self.number = 0
        self.boots = 0
        self.promised: dict[Owner, tuple[Block, ...]] = {}
        self.seen: Counter[str] = Counter()
        """States of containers, and starts with a promise that does not fit."""

    def node(self, number: int) -> Node:
        """A node of any size, with 2 MiB pages or without."""
        pages = self.chance.choice([0, 0, 512, 1024])
        return Node(
            number, f"{2 * number}-{2 * number + 1}", self.chance.randint(8, 24) * GIB, pools={PAGE_2M: pages}
        )

    # ---- what happens between two runs of the daemon --------------------------------------------------------------

    def pass_time(self) -> None:
        """Whatever a reboot, or a mere restart of the daemon, may bring."""
        is_reboot = self.chance.random() < 0.8
        if self.chance.random() < 0.3:  # nobody said goodbye to the daemon
            leave(self.host)
        else:
            self.host.stop()
            os.close(self.host.writer.fileno())
        if is_reboot:
            self.boots += 1
            self.host.boot = f"{BOOT[:-4]}{self.boots:04x}"
        self.change_machine()
        self.change_configuration()
        for path in sorted(self.living):
            fate = self.chance.random()
            if fate < 0.25:
                self.remove(path)
            elif fate < 0.32:  # the id is used again, for something else
                self.remove(path)
                self.add(path)
            elif is_reboot and fate < 0.6:  # made anew, perhaps with an inode that another one had
                again = self.living[path]
                self.remove(path)
                self.create(replace(again, same=True))
            elif is_reboot:  # made anew with the very inode of before
                self.host.put(path, {"cpuset.mems": "\n"})
                self.living[path] = replace(self.living[path], same=True)
            else:
                self.living[path] = replace(self.living[path], same=True)
        for _ in range(self.chance.randint(0, 3)):
            self.number += 1
            self.add(docker(self.number))

    def change_machine(self) -> None:
        """Totals move, pools change, now and then a node shrinks, goes or comes."""
        self.nodes = [
            replace(n, memory=n.memory + self.chance.randint(-60, 60) * MIB, pools=self.pools(n)) for n in self.nodes
        ]
        fate = self.chance.random()
        if fate < 0.1:
            k = self.chance.randrange(len(self.nodes))
            self.nodes[k] = replace(self.nodes[k], memory=max(4 * GIB, self.nodes[k].memory // 2))
        elif fate < 0.2 and len(self.nodes) > 1:
            self.nodes.pop(self.chance.randrange(len(self.nodes)))
        elif fate < 0.35 and len(self.nodes) < 5:
            free = sorted(set(range(12)) - {n.id for n in self.nodes})
            self.nodes.append(self.node(self.chance.choice(free)))
        write_machine(self.host.root, self.nodes)
        granted = str(NodeSet.from_ids(n.id for n in self.nodes))
        self.host.tree.nodes = granted
        for above in ("/", "/system.slice"):
            if (self.host.tree.cpuset / above[1:]).exists():
                self.host.put(above, {"cpuset.mems.effective": f"{granted}\n"})

    def pools(self, node: Node) -> dict[int, int]:
        """The node's pool as it was, mostly."""
        before = node.pools.get(PAGE_2M, 0)
        assert isinstance(before, int)
        return {PAGE_2M: before if self.chance.random() < 0.8 else self.chance.choice([0, 256, 512, 1024])}

    def change_configuration(self) -> None:
        """Another policy, another reservation; one on a node that went stays in the file."""
        policy = self.host.config.policy
        if self.chance.random() < 0.2:
            policy = self.chance.choice(list(TopologyPolicy))
        reserved = self.host.config.reserved
        if self.chance.random() < 0.3:
            named = {}
            if self.chance.random() < 0.5:
                one = self.chance.choice(self.nodes)
                named = {one.id: {MEMORY: self.chance.randint(0, 2) * GIB}}
            reserved = Reserved(self.chance.choice([0, 50_000, 200_000]), self.chance.choice([0, 64 * MIB]), named)  # type: ignore[arg-type]
        self.host.config = replace(BARE, policy=policy, reserved=reserved)

    def remove(self, path: str) -> None:
        """A container's end."""
        self.host.remove(path)
        del self.living[path]

    def add(self, path: str) -> None:
        """A container that was not there before."""
        pages = self.chance.choice([0, 0, 0, 128])
        self.create(Living(path, self.chance.choice([1, 2, 3, 5, 9, 15]), pages))

    def create(self, living: Living) -> None:
        """Its cgroup, as a runtime makes it."""
        huge = {"2MB": living.pages * PAGE_2M} if living.pages else {}
        self.host.guaranteed(living.path, living.gib, hugetlb=huge)
        self.host.obedient(living.path)
        self.living[living.path] = living

    # ---- what must hold ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A daemon starts on whatever it finds; then everything is checked."""
        before = {p: self.host.mems(p) for p in self.living}
        told = len(self.host.log.lines)
        agent = self.host.start()
        agent.flush()
        books = agent.ledger.books
        owners = {p: self.owner(p) for p in self.living}
        for path, living in self.living.items():
            if living.same and owners[path] in self.promised:
                was, now = self.promised[owners[path]], books.assignments.get(owners[path], ())
                if any(block.affinity - agent.machine.topology.with_memory for block in was):
                    assert amounts(was) == amounts(now), "a reservation was lost with its node"
                else:
                    assert was == now, "a reservation was lost"
        self.nothing_doubled(books, set(owners.values()))
        named = {
            facts["container_id"] for _, event, facts in self.host.log.lines[told:] if event == "promise_does_not_fit"
        }
        short = {o.container for o in misfits(books)}
        assert short == named
        saved = self.host.file.peek().checkpoint or agent.ledger.snapshot()
        assert saved.books == books
        assert bool(short) == bool(inconsistencies(saved))
        self.seen["short"] += bool(short)
        for path in self.living:
            view = self.host.view(path)
            self.seen[view.state.value] += 1
            assert view.state.value in ("pinned", "refused", "pin-lost"), view
            if view.state.value == "pinned":
                assert self.host.mems(path) == str(view.nodes)
        assert agent.counters.writes == sum(before[p] != self.host.mems(p) for p in self.living)
        self.promised = dict(books.assignments)

    def owner(self, path: str) -> Owner:
        """Who holds the memory of a cgroup."""
        return self.host.view(path).record.owner

    def nothing_doubled(self, books: Books, owners: set[Owner]) -> None:
        """Only the living have memory, each once; their assignments on an empty machine make the same NodeMap."""
        node_map = self.host.agent.machine.node_map
        assert set(books.assignments) <= owners
        for kind in (MEMORY, HUGE):
            promised = sum(b.size_bytes for blocks in books.assignments.values() for b in blocks if b.type == kind)
            tables = [s.memory_map[kind] for s in books.node_map.nodes.values() if kind in s.memory_map]
            assert promised == sum(t.reserved for t in tables)
        for path, living in self.living.items():
            blocks = books.assignments.get(self.owner(path), ())
            assert sum(b.size_bytes for b in blocks if b.type == MEMORY) in (0, living.gib * GIB)
        again = reduce(lambda b, o: reserve(b, o, books.assignments[o]), books.assignments, Books(node_map))
        assert numbers(books) == numbers(again) == numbers(rebase(books, node_map))
        self.host.sound()


def numbers(books: Books) -> dict[int, object]:
    """What each node says, without the zeros that stay of a type that went and has no promise on it any more."""
    found: dict[int, object] = {}
    for node, state in books.node_map.nodes.items():
        tables = {k: t for k, t in state.memory_map.items() if t != MemoryTable(0, 0, 0, 0, 0)}
        if tables:
            found[node] = (tables, state.number_of_assignments, state.cells)
    return found


def amounts(blocks: tuple[Block, ...]) -> Counter[str]:
    """Bytes per type, wherever they are."""
    found = Counter[str]()
    for block in blocks:
        found[block.type] += block.size_bytes
    return found


def leave(host: Host) -> None:
    """Let go of the descriptors of an agent that was killed."""
    for view in host.agent.views.values():
        view.close()
    os.close(host.writer.fileno())


@pytest.mark.parametrize("part", range(5))
def test_random_reboots(root: Path, part: int) -> None:
    """0 refused starts, 0 lost and 0 doubled reservations, over 200 reboots in each of five parts."""
    reboots, seen = 0, Counter[str]()
    for seed in range(part * WORLDS // 5, (part + 1) * WORLDS // 5):
        world = World(root / str(seed), seed)
        world.start()
        for _ in range(REBOOTS):
            world.pass_time()
            world.start()
            reboots += 1
        leave(world.host)
        seen += world.seen

    assert reboots == WORLDS * REBOOTS // 5
    assert min(seen[s] for s in ("pinned", "refused", "pin-lost", "short")) > 0

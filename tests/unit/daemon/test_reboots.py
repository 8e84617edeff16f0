"""A thousand random reboots: every start succeeds, nothing is lost or doubled, what no longer fits is named."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from numapin.cli.main import main
from numapin.model.errors import ExitStatus
from numapin.model.memory import MEMORY, Block, Books, MemoryTable, Owner, hugepages
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import misfits, rebase, reserve
from support.machines import GIB, PAGE_2M
from support.mems_writes import MemsWrites
from support.worlds import Kind, Living, World, leave

PARTS, WORLDS, REBOOTS = 5, 10, 20
GRACE_S = 31
"""A little longer than an ended container's memory stays with its pod."""
HUGE = hugepages(PAGE_2M)


@pytest.fixture
def root() -> Iterator[Path]:
    """Files in memory where there is such a place: a thousand starts are some thousand fsyncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="numapin-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


class Watched(World):
    """A machine's life with what must hold after each start."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed)
        self.promised: dict[Owner, tuple[Block, ...]] = {}
        self.seen: Counter[str] = Counter()
        """Containers by kind and state, by state, starts with a promise that does not fit."""

    def start(self) -> None:
        """A daemon starts on whatever it finds, what waited for pods is given back; then all is checked."""
        host = self.host
        before = {p: host.mems(p) for p in self.living}
        told = len(host.log.lines)
        with MemsWrites(host, self.living) as writes:
            agent = host.start()
            short = {o.container for o in misfits(agent.ledger.books)}
            host.clock.advance(seconds=GRACE_S)
            agent.due(host.clock.monotonic_ns())
            agent.flush()
            written = sorted(writes.taken())
        books = agent.ledger.books
        owners = {p: self.owner(p) for p in self.living}
        self.nothing_lost(books, owners)
        self.nothing_doubled(books, set(owners.values()))
        named = {
            facts["container_id"] for _, event, facts in host.log.lines[told:] if event == "promise_does_not_fit"
        }
        assert short == named
        self.seen["short"] += bool(short)
        self.saved_as(books)
        for path, living in self.living.items():
            self.stands(path, living, before[path])
        assert written == sorted(p for p in self.living if before[p] != host.mems(p))
        assert agent.counters.writes == len(written)
        self.promised = dict(books.assignments)

    def owner(self, path: str) -> Owner:
        """Who holds the memory of a cgroup."""
        return self.host.view(path).record.owner

    def stands(self, path: str, living: Living, before: str) -> None:
        """A container's state is one that its kind may have, and its cgroup says the same."""
        view = self.host.view(path)
        state, mems = view.state.value, self.host.mems(path)
        self.seen[state] += 1
        self.seen[f"{living.kind} {state}"] += 1
        if living.kind is Kind.FOREIGN:
            assert (state, mems) == ("pinned-by-others", before), view
        else:
            assert state in ("pinned", "refused", "pin-lost"), view
        if state == "pinned":
            assert mems == str(view.nodes)

    def saved_as(self, books: Books) -> None:
        """The file has these books, and ``checkpoint verify`` finds fault with it only for a promise too large."""
        file = self.host.file
        if file.peek().checkpoint is None:
            assert not self.living
            return
        assert self.host.saved().books == books
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = main(["checkpoint", "verify", str(file.path)])
        assert status == (ExitStatus.FAILURE if misfits(books) else ExitStatus.OK), said.getvalue()

    def nothing_lost(self, books: Books, owners: dict[str, Owner]) -> None:
        """Who had memory before has it now, on the same nodes unless one of them went."""
        with_memory = self.host.agent.machine.topology.with_memory
        for path, living in self.living.items():
            if living.kind is Kind.FOREIGN or not living.same or owners[path] not in self.promised:
                continue
            was, now = self.promised[owners[path]], books.assignments.get(owners[path], ())
            if any(block.affinity - with_memory for block in was):
                assert amounts(was) == amounts(now), "a reservation was lost with its node"
            else:
                assert was == now, "a reservation was lost"

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
            has = sum(b.size_bytes for b in blocks if b.type == MEMORY)
            if living.kind is Kind.FOREIGN:  # what is left on the nodes that somebody chose
                assert has <= living.gib * GIB
                assert reduce(NodeSet.__or__, (b.affinity for b in blocks), NodeSet()).issubset(living.mems)
            else:
                assert has in (0, living.gib * GIB)
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


@pytest.mark.parametrize("part", range(PARTS))
def test_random_reboots(root: Path, part: int) -> None:
    """
    0 refused starts, 0 lost and 0 doubled reservations, no needless write, over 200 reboots in each of five parts,
    and the restarts between them; on both cgroup versions, with pods and with pins of others.
    """
    reboots, seen = 0, Counter[str]()
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        world = Watched(root / str(seed), seed)
        world.start()
        while world.boots < REBOOTS:
            world.pass_time()
            world.start()
        leave(world.host)
        reboots += world.boots
        seen += world.seen
        seen[f"v1 is {world.is_v1}"] += 1

    assert reboots == 1000 // PARTS
    expected = {"pinned", "refused", "pin-lost", "short", "v1 is True", "v1 is False"}
    expected |= {"docker pinned", "pod pinned", "pod refused", "foreign pinned-by-others"}
    assert expected <= {what for what, times in seen.items() if times}

"""A daemon killed at any point: the next one finds the old state or the new one, and finishes what was promised."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from numapin.daemon.release import release_document
from numapin.daemon.status import summary
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import RequestFailed
from numapin.model.memory import Books
from numapin.planner.accounting import reserve
from numapin.state.checkpoint import CheckpointFile, Generation, SaveStep
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.durability import order_of
from support.killing import changes_of, run_and_kill
from support.machines import even, write_machine

STAYS, ENDS, COMES, GROUP = docker(1), docker(2), docker(3), docker(4)

State = tuple[dict[str, tuple[str, str]], dict[str, int]]


def state_of(checkpoint: Checkpoint | None) -> State:
    """Phase and nodes of each container, bytes of each owner: what must be old or new, and nothing between."""
    if checkpoint is None:
        return {}, {}
    pins = {path: (pin.phase.value, str(pin.nodes)) for path, pin in checkpoint.containers.items()}
    sizes = {o.container: sum(b.size_bytes for b in blocks) for o, blocks in checkpoint.books.assignments.items()}
    return pins, sizes


def recomputed(host: Host) -> Books:
    """The books made anew: an empty machine, then each assignment in turn."""
    ledger = host.agent.ledger
    return reduce(lambda b, o: reserve(b, o, ledger.books.assignments[o]), ledger.books.assignments, _empty(host))


def _empty(host: Host) -> Books:
    return Books(host.agent.machine.node_map)


def leave(host: Host) -> None:
    """Let go of the present agent's descriptors without anything that an orderly stop does."""
    for view in host.agent.views.values():
        view.close()
    os.close(host.writer.fileno())


class Story:
    """
    A machine with two pinned containers, and one decision: one of them ends, two come.

    The one that ends has the node that the next one needs.
    """

    def __init__(self, root: Path, version: CgroupVersion) -> None:
        self.host = host = Host(root, version=version)
        self.create(STAYS, 9, "0")
        self.create(ENDS, 9, "1")
        host.start()
        host.stop()
        leave(host)

    def create(self, path: str, gib: int, effective: str) -> None:
        """A container whose cgroup has no nodes of its own yet."""
        self.host.guaranteed(path, gib, effective=effective)
        self.host.put(path, {"cpuset.mems": "\n"})

    def decide(self) -> None:
        """A daemon starts, sees the end and the two that come, and saves what became of them."""
        host = self.host
        host.start()
        self.create(COMES, 9, "1")
        self.create(GROUP, 15, "2-3")
        host.agent.on_removed([host.remove(ENDS)])
        host.agent.on_created([COMES, GROUP])
        host.agent.flush()

    def written(self) -> dict[str, str]:
        """``cpuset.mems`` of each cgroup that has a value of its own now."""
        host = self.host
        found = {p: host.mems(p) for p in (STAYS, ENDS, COMES, GROUP) if (host.tree.cpuset / p[1:]).exists()}
        return {p: mems for p, mems in found.items() if mems}

    def finish(self) -> None:
        """The next daemon, with whatever of the containers had not come yet."""
        host = self.host
        if (host.tree.cpuset / ENDS[1:]).exists():
            host.remove(ENDS)
        for path, gib, effective in ((COMES, 9, "1"), (GROUP, 15, "2-3")):
            if not (host.tree.cpuset / path[1:]).exists():
                self.create(path, gib, effective)
        host.start()
        host.agent.flush()


class Recorder(CheckpointFile):
    """Remembers the state of every save."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.states: list[State] = []

    def save(self, checkpoint: Checkpoint, step: object = None) -> None:
        """Save and remember."""
        del step
        super().save(checkpoint)
        self.states.append(state_of(checkpoint))


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_killed_after_every_system_call(tmp_path: Path, version: CgroupVersion) -> None:
    """
    Whatever the call, the file holds a generation that an unhurt run has too, and never an older one than after an
    earlier call; no cgroup has nodes that the file does not promise; the next daemon ends where an unhurt one does.
    """
    unhurt = Story(tmp_path / "unhurt", version)
    generations = [state_of(unhurt.host.saved())]
    unhurt.host.file = recorder = Recorder(unhurt.host.file.path)
    calls = changes_of(unhurt.decide)
    generations += recorder.states
    assert len(generations) > 2
    assert calls > 20
    newest = 0
    for at in range(calls):
        story = Story(tmp_path / str(at), version)
        host = story.host

        assert run_and_kill(story.decide, at=at)

        loaded = host.file.peek()
        assert loaded.damaged == ()
        assert loaded.generation is Generation.CURRENT
        found = state_of(loaded.checkpoint)
        assert found in generations[newest:], f"after call {at}"
        newest = generations.index(found, newest)
        assert story.written().items() <= {p: nodes for p, (_, nodes) in found[0].items()}.items()
        story.finish()
        assert host.states() == {STAYS: "pinned", COMES: "pinned", GROUP: "pinned"}
        assert {p: host.mems(p) for p in host.states()} == {STAYS: "0", COMES: "1", GROUP: "2-3"}
        assert state_of(host.saved()) == generations[-1]
        assert host.agent.ledger.books == recomputed(host)
        host.sound()
        leave(host)
    assert newest == len(generations) - 1


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_promise_is_on_the_disk_before_its_cgroup_is_written(tmp_path: Path, version: CgroupVersion) -> None:
    """File and name are synced before the first write to a cgroup, and again after the last one."""
    story = Story(tmp_path, version)

    order = order_of(story.decide)

    save = ["write", "sync file", "link", "rename", "sync directory"]
    assert ("cgroup" in order, order[-1]) == (True, "sync directory")
    while order:
        saved, order = order[: len(save)], order[len(save) :]
        assert saved == save
        order = order[1:] if order[:1] == ["cgroup"] else order
    assert state_of(story.host.saved())[0][COMES] == ("verified", "1")
    leave(story.host)


@pytest.mark.parametrize("step", list(SaveStep))
@pytest.mark.parametrize("save", [0, 1])
def test_stopped_at_each_step_of_each_save(tmp_path: Path, step: SaveStep, save: int) -> None:
    """An error of the program at any step of the first or the second save leaves old or new, and heals at a start."""

    class Stopped(Exception):
        pass

    class Stopping(CheckpointFile):
        saves = 0

        def save(self, checkpoint: Checkpoint, step: object = None) -> None:
            super().save(checkpoint, self.stop)
            self.saves += 1

        def stop(self, at: SaveStep) -> None:
            if self.saves == save and at is step:
                raise Stopped

    host = Host(tmp_path)
    old = host.guaranteed(STAYS, 9)
    host.start()
    host.stop()
    before = state_of(host.saved())
    whole, host.file = host.file, Stopping(host.file.path)
    new = host.guaranteed(COMES, 9, effective="1")

    with pytest.raises(Stopped):
        host.start().flush()

    host.file = whole
    after_stop = state_of(host.saved())
    planned = ({**before[0], new: ("planned", "1")}, {**before[1], COMES[-70:-6]: 9 * GIB})
    verified = ({**before[0], new: ("verified", "1")}, planned[1])
    assert after_stop in ([before, planned] if save == 0 else [planned, verified])
    assert host.mems(new) == ("" if save == 0 else "1")
    host.start().flush()
    assert host.states() == {old: "pinned", new: "pinned"}
    assert state_of(host.saved()) == verified
    assert host.agent.ledger.books == recomputed(host)
    host.sound()


def torn(data: bytes) -> Iterator[bytes]:
    """What a disk may have of a file whose blocks were not all written: shorter, or zeros from some byte on."""
    lengths = sorted({0, 1, 2, *range(3, len(data), max(1, len(data) // 12)), len(data) - 2, len(data) - 1})
    for length in lengths:
        yield data[:length]
        if length < len(data) - 1:
            yield data[:length] + bytes(len(data) - length)


@pytest.mark.parametrize("previous", [True, False])
def test_a_torn_file(tmp_path: Path, previous: bool) -> None:
    """
    With the generation before beside it, that one counts; without, the cgroups tell. Either way the pins are as they
    were, nothing is written, nobody's memory is promised twice, and the torn file is kept for a look.
    """
    host = Host(tmp_path)
    paths = [host.guaranteed(STAYS, 9), host.guaranteed(ENDS, 9, effective="1")]
    paths.append(host.guaranteed(GROUP, 15, effective="2-3"))
    host.start()
    host.stop()
    leave(host)
    data, older = host.file.path.read_bytes(), host.file.previous_path.read_bytes()
    state = host.file.path.parent
    for text in torn(data):
        for name in state.iterdir():
            name.unlink()
        host.file.path.write_bytes(text)
        if previous:
            host.file.previous_path.write_bytes(older)

        loaded = host.file.load(wall_ns=host.clock.wall_ns())
        host.start()

        assert [d.kept_as.read_bytes() for d in loaded.damaged] == [text]
        assert loaded.generation is (Generation.PREVIOUS if previous else Generation.NONE)
        assert host.states() == dict.fromkeys(paths, "pinned" if previous else "pinned-by-others")
        assert {p: host.mems(p) for p in paths} == {STAYS: "0", ENDS: "1", GROUP: "2-3"}
        assert host.agent.counters.writes == 0
        assert sum(host.reserved().values()) == 33
        assert host.agent.ledger.books == recomputed(host)
        host.sound()
        leave(host)


def test_both_generations_torn(tmp_path: Path) -> None:
    """Both are kept aside, and the start is one without a checkpoint."""
    host = Host(tmp_path)
    path = host.guaranteed(STAYS, 9)
    host.start()
    host.stop()
    for file in (host.file.path, host.file.previous_path):
        os.truncate(file, 100)

    loaded = host.file.load(wall_ns=host.clock.wall_ns())
    host.start()

    assert len(loaded.damaged) == 2
    assert host.states() == {path: "pinned-by-others"}
    assert host.reserved() == {0: 9}
    host.sound()


@pytest.mark.parametrize("seed", range(12))
def test_a_life_of_kills(tmp_path: Path, seed: int) -> None:
    """Containers come and go, nodes grow and shrink, every daemon is killed somewhere: the books always follow."""
    chance = random.Random(seed)
    host = Host(tmp_path, nodes=even(2, memory=40 * GIB))
    alive: list[str] = []
    for round_ in range(6):
        new = [host.guaranteed(docker(10 * round_ + n), chance.randint(1, 4)) for n in range(2)]
        for path in new:
            host.obedient(path)
        gone = [p for p in alive if chance.random() < 0.5]
        alive = [p for p in alive if p not in gone] + new

        def step(new: list[str] = new, gone: list[str] = gone) -> None:
            host.start()
            host.agent.on_removed([host.remove(p) for p in gone])
            host.agent.on_created(new)
            host.agent.flush()

        run_and_kill(step, at=chance.randint(0, 40))
        for path in gone:
            if (host.tree.cpuset / path[1:]).exists():
                host.remove(path)
        write_machine(tmp_path, even(2, memory=40 * GIB + chance.randint(-64, 64) * 1024**2))
        host.start()
        host.agent.flush()

        ledger = host.agent.ledger
        assert set(alive) == set(ledger.pins)
        assert set(host.states().values()) <= {"pinned"}
        assert {p: host.mems(p) for p in alive} == {p: str(pin.nodes) for p, pin in host.saved().containers.items()}
        assert ledger.books == recomputed(host)
        assert ledger.books == host.saved().books
        host.sound()
        leave(host)


# ---- a checkpoint that cannot be written ----------------------------------------------------------------------


def pinned_pair(root: Path) -> Host:
    """Two pinned containers, of whose file the daemon that wrote it is gone."""
    host = Host(root)
    host.guaranteed(STAYS, 9)
    host.guaranteed(ENDS, 9, effective="1")
    host.start()
    host.stop()
    return host


def no_room(host: Host) -> Path:
    """Something that cannot be replaced has the name of the file that a save writes first."""
    blocker = host.file.path.with_name("state.json.new")
    blocker.mkdir()
    return blocker


def test_a_save_that_works_again_brings_what_waited(tmp_path: Path) -> None:
    """The retry of the save finds out, and the containers decided meanwhile are pinned, without any event."""
    host = pinned_pair(tmp_path)
    host.start()
    host.agent.flush()
    blocker = no_room(host)
    new = host.guaranteed(COMES, 1)
    host.agent.on_created([new])
    host.agent.flush()
    assert host.states()[new] == "failed"
    assert (host.mems(STAYS), host.mems(new)) == ("0", "")
    assert host.agent.ledger.dirty  # so the loop tries again
    blocker.rmdir()

    host.agent.flush()

    assert host.states() == {STAYS: "pinned", ENDS: "pinned", new: "pinned"}
    assert host.log.events().count("checkpoint_unwritable") == 1
    assert host.agent.ledger.save_error is None
    host.sound()


def test_a_container_that_was_seen_before_its_limits(tmp_path: Path) -> None:
    """Known without limits, then with them while nothing can be saved: it says why it has no nodes."""
    host = pinned_pair(tmp_path)
    new = host.container(COMES)
    host.start()
    host.agent.flush()
    no_room(host)
    host.put(new, {"memory.max": f"{GIB}\n", "cpu.max": "50000 100000\n"})

    host.agent.on_created([new])

    assert host.states()[new] == "failed"
    assert "cannot be saved" in host.view(new).message
    assert host.mems(new) == ""
    host.sound()


# ---- a checkpoint that cannot be read -------------------------------------------------------------------------


def hide(host: Host) -> Path:
    """The checkpoint moves away and leaves a link, which is not followed."""
    away = host.file.path.rename(host.root / "elsewhere.json")
    host.file.path.symlink_to(away)
    return away


def bring_back(host: Host, away: Path) -> None:
    """An administrator puts the file in its place again."""
    host.file.path.unlink()
    away.rename(host.file.path)


def test_an_unreadable_checkpoint_holds_everything(tmp_path: Path) -> None:
    """No cgroup is written and no file replaced, the pins stay, and log, status and container say why."""
    host = pinned_pair(tmp_path)
    new = host.guaranteed(COMES, 1)
    hide(host)

    host.start()
    host.agent.full_pass()
    host.agent.flush()
    host.agent.flush()

    assert host.states() == dict.fromkeys((STAYS, ENDS, new), "failed")
    assert {p: host.mems(p) for p in host.states()} == {STAYS: "0", ENDS: "1", new: ""}
    assert host.agent.counters.writes == 0
    assert host.file.path.is_symlink()
    assert host.log.events().count("checkpoint_unreadable") == 1
    assert "state.json is a symbolic link" in host.log.facts("checkpoint_unreadable")["reason"]
    assert "state.json is a symbolic link" in host.view(new).message
    assert summary(host.agent).endswith("CHECKPOINT CANNOT BE READ")
    host.agent.close()
    assert host.file.path.is_symlink()


def test_an_unreadable_checkpoint_heals_by_itself(tmp_path: Path) -> None:
    """Once it can be read, what it promises stands as after a start; nothing that is right is written."""
    host = pinned_pair(tmp_path)
    new = host.guaranteed(COMES, 1)
    away = hide(host)
    host.start()
    bring_back(host, away)

    host.agent.flush()

    assert host.states() == {STAYS: "pinned", ENDS: "pinned", new: "pinned"}
    assert host.reserved() == {0: 10, 1: 9}
    assert host.agent.counters.writes == 1
    assert host.agent.ledger.save_error is None
    assert "checkpoint_readable_again" in host.log.events()
    host.agent.flush()
    assert set(host.saved().containers) == {STAYS, ENDS, new}
    host.sound()


def test_what_changes_while_the_checkpoint_is_unreadable(tmp_path: Path) -> None:
    """An end, a start under the old path and another size meanwhile: the books are those of the living at the end."""
    host = pinned_pair(tmp_path)
    away = hide(host)
    host.start()
    host.agent.on_removed([host.remove(ENDS)])
    new = host.guaranteed(COMES, 8, effective="1")
    host.agent.on_created([new])
    assert host.mems(new) == ""
    bring_back(host, away)

    host.agent.flush()

    assert host.states() == {STAYS: "pinned", new: "pinned"}
    assert host.reserved() == {0: 9, 1: 8}
    host.sound()


def test_nothing_is_released_while_the_checkpoint_is_unreadable(tmp_path: Path) -> None:
    """What stood in a cgroup before the first write is in the file: ``release`` says so and does nothing."""
    host = pinned_pair(tmp_path)
    hide(host)
    host.start()

    with pytest.raises(RequestFailed, match="symbolic link"):
        release_document(host.agent, {"all": True})

    assert (host.mems(STAYS), host.mems(ENDS)) == ("0", "1")


def test_the_reason_changes(tmp_path: Path) -> None:
    """Another reason why it cannot be read is told as well."""
    host = pinned_pair(tmp_path)
    hide(host)
    host.start()
    host.file.path.unlink()
    host.file.path.mkdir()

    host.agent.flush()

    assert host.log.events().count("checkpoint_unreadable") == 2
    assert "no regular file" in str(host.agent.ledger.save_error)

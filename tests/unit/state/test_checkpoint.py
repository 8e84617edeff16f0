"""The checkpoint file: what a save leaves behind at every step, and what a start finds."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.model.checkpoint import CHECKPOINT_VERSION, Checkpoint
from numapin.model.errors import (
    CheckpointCorrupt,
    CheckpointUnreadable,
    CheckpointUnwritable,
    CheckpointWrongVersion,
)
from numapin.state.checkpoint import CheckpointFile, Generation, Loaded, SaveStep
from numapin.state.codec import encode
from support.checkpoints import WALL_NS, reseal, sample
from support.durability import order_of
from support.privilege import public_directory, unprivileged

FIRST, SECOND, THIRD = (sample(containers=n, saved_ns=WALL_NS + n) for n in (1, 2, 3))
FIRST_SAVE = [s for s in SaveStep if s not in (SaveStep.LINKED, SaveStep.KEPT_PREVIOUS)]


class Stopped(Exception):
    """A save was interrupted by its test."""


def stop_at(wanted: SaveStep) -> Callable[[SaveStep], None]:
    """A hook that ends the save after *wanted*."""

    def hook(step: SaveStep) -> None:
        if step is wanted:
            raise Stopped

    return hook


def kill_at(wanted: SaveStep) -> Callable[[SaveStep], None]:
    """A hook that kills its process after *wanted*."""

    def hook(step: SaveStep) -> None:
        if step is wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def killed_save(path: Path, checkpoint: Checkpoint, step: SaveStep) -> None:
    """Save in a child process that SIGKILL ends after *step*."""
    child = os.fork()
    if child == 0:
        try:
            CheckpointFile(path).save(checkpoint, kill_at(step))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Run the block under *mask*."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the state is kept; its directory does not exist yet."""
    return tmp_path / "lib" / "numapin" / "state.json"


def saved(path: Path, *checkpoints: Checkpoint) -> CheckpointFile:
    """A file after these saves."""
    file = CheckpointFile(path)
    for checkpoint in checkpoints:
        file.save(checkpoint)
    return file


# ---- saving and loading ------------------------------------------------------------------------------------------


def test_first_start(path: Path) -> None:
    """Without a directory or a file there is nothing to load, and nothing is made."""
    assert CheckpointFile(path).load(wall_ns=WALL_NS) == Loaded(None, Generation.NONE)
    assert not path.parent.exists()


def test_save_and_load(path: Path) -> None:
    """What was saved last is loaded, by another object as well, and the one before is kept beside it."""
    saved(path, FIRST, SECOND)

    assert CheckpointFile(path).load(wall_ns=WALL_NS) == Loaded(SECOND, Generation.CURRENT)
    assert encode(FIRST) == path.with_name("state.json.1").read_bytes()
    assert sorted(os.listdir(path.parent)) == ["state.json", "state.json.1"]


def test_steps_in_order(path: Path) -> None:
    """Each save reports its steps in order; the first has no generation to keep."""
    steps: list[SaveStep] = []
    file = CheckpointFile(path)
    file.save(FIRST, steps.append)
    file.save(SECOND, steps.append)

    assert [*FIRST_SAVE, *SaveStep] == steps


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_modes(path: Path, mask: int) -> None:
    """The file is for its owner and readable for the group, nobody else gets anything, whatever the umask is."""
    path.parent.parent.mkdir()
    with umask(mask):
        if mask == 0o777:  # not even the owner could enter a directory made under it, unless root
            path.parent.mkdir()
            path.parent.chmod(0o750)
        saved(path, FIRST, SECOND)

    assert path.stat().st_mode & 0o777 == 0o640
    assert path.with_name("state.json.1").stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o027 == 0 if mask == 0o077 else path.parent.stat().st_mode & 0o007 == 0


def test_what_lasts_before_what_names_it(path: Path) -> None:
    """
    The new file is on the disk before it gets the name, and the names before the save is over: after a loss of power
    a name may stand for a file whose blocks were never written.
    """
    file = CheckpointFile(path)

    first = order_of(lambda: file.save(FIRST))
    second = order_of(lambda: file.save(SECOND))

    assert first == ["write", "sync file", "rename", "sync directory"]
    assert second == ["write", "sync file", "link", "rename", "sync directory"]


# ---- crashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", FIRST_SAVE)
def test_first_save_stopped(path: Path, step: SaveStep) -> None:
    """A first save that ends after any step leaves nothing or the new state, and the next save works."""
    with pytest.raises(Stopped):
        CheckpointFile(path).save(FIRST, stop_at(step))
    found = CheckpointFile(path).load(wall_ns=WALL_NS)

    renamed = step in (SaveStep.RENAMED, SaveStep.DIRECTORY_SYNCED)
    assert (FIRST if renamed else None) == found.checkpoint
    assert found.damaged == ()
    assert saved(path, SECOND).load(wall_ns=WALL_NS).checkpoint == SECOND


@pytest.mark.parametrize("step", SaveStep)
def test_later_save_stopped(path: Path, step: SaveStep) -> None:
    """A later save that ends after any step leaves the old state or the new one, and the next save works."""
    saved(path, FIRST, SECOND)
    with pytest.raises(Stopped):
        CheckpointFile(path).save(THIRD, stop_at(step))
    found = CheckpointFile(path).load(wall_ns=WALL_NS)

    renamed = step in (SaveStep.RENAMED, SaveStep.DIRECTORY_SYNCED)
    assert Loaded(THIRD if renamed else SECOND, Generation.CURRENT) == found
    saved(path, FIRST)
    assert CheckpointFile(path).load(wall_ns=WALL_NS).checkpoint == FIRST
    assert encode(THIRD if renamed else SECOND) == path.with_name("state.json.1").read_bytes()
    assert sorted(os.listdir(path.parent)) == ["state.json", "state.json.1"]


@pytest.mark.parametrize("step", SaveStep)
def test_save_killed(path: Path, step: SaveStep) -> None:
    """SIGKILL after any step of a save leaves the old state or the new one."""
    saved(path, FIRST, SECOND)
    killed_save(path, THIRD, step)
    found = CheckpointFile(path).load(wall_ns=WALL_NS)

    renamed = step in (SaveStep.RENAMED, SaveStep.DIRECTORY_SYNCED)
    assert Loaded(THIRD if renamed else SECOND, Generation.CURRENT) == found


def test_every_instant_has_a_good_generation(path: Path) -> None:
    """At each step of a save the file can be loaded, and so can the generation before, once there is one."""
    saved(path, FIRST, SECOND)
    seen: list[SaveStep] = []

    def look(step: SaveStep) -> None:
        seen.append(step)
        assert CheckpointFile(path).peek().checkpoint in (SECOND, THIRD)
        assert path.with_name("state.json.1").read_bytes() in (encode(FIRST), encode(SECOND))

    CheckpointFile(path).save(THIRD, look)

    assert list(SaveStep) == seen


def test_killed_twice_between_the_links(path: Path) -> None:
    """A save killed while both names are one file does not keep later saves from their previous generation."""
    saved(path, FIRST)
    killed_save(path, SECOND, SaveStep.KEPT_PREVIOUS)
    killed_save(path, SECOND, SaveStep.LINKED)
    saved(path, THIRD)

    assert CheckpointFile(path).load(wall_ns=WALL_NS) == Loaded(THIRD, Generation.CURRENT)
    assert encode(FIRST) == path.with_name("state.json.1").read_bytes()
    assert sorted(os.listdir(path.parent)) == ["state.json", "state.json.1"]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.999])
def test_torn_write(path: Path, kept: float) -> None:
    """A file of which only a part reached the disk is set aside, and the generation before is taken."""
    saved(path, FIRST, SECOND)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    found = CheckpointFile(path).load(wall_ns=WALL_NS)

    assert (found.checkpoint, found.generation) == (FIRST, Generation.PREVIOUS)
    assert isinstance(found.damaged[0].error, CheckpointCorrupt)


# ---- damaged files -----------------------------------------------------------------------------------------------


def test_damaged_file_is_kept_aside(path: Path) -> None:
    """A damaged file keeps its bytes under a name with the time; the next save does not lose the good generation."""
    file = saved(path, FIRST, SECOND)
    path.write_bytes(b"rubbish")
    found = file.load(wall_ns=WALL_NS)
    aside = path.with_name("state.json.damaged-20260101T000000Z")

    assert (aside, path) == (found.damaged[0].kept_as, found.damaged[0].path)
    assert str(path) in found.damaged[0].reason
    assert aside.read_bytes() == b"rubbish"
    file.save(THIRD)
    assert encode(FIRST) == path.with_name("state.json.1").read_bytes()
    assert Loaded(THIRD, Generation.CURRENT) == file.load(wall_ns=WALL_NS)


def test_both_damaged(path: Path) -> None:
    """With both generations damaged there is nothing to load, and both are kept aside."""
    file = saved(path, FIRST, SECOND)
    path.write_bytes(b"a")
    file.previous_path.write_bytes(b"b")
    found = file.load(wall_ns=WALL_NS)

    assert (found.checkpoint, found.generation) == (None, Generation.NONE)
    assert [d.kept_as.read_bytes() for d in found.damaged] == [b"a", b"b"]
    assert {d.kept_as.name for d in found.damaged} == set(os.listdir(path.parent))


def test_two_damaged_in_one_second(path: Path) -> None:
    """A second damaged file does not replace one that was kept aside in the same second."""
    file = saved(path, FIRST)
    for content in (b"a", b"b"):
        path.write_bytes(content)
        file.load(wall_ns=WALL_NS)

    stamp = "state.json.damaged-20260101T000000Z"
    assert [stamp, stamp + "-2"] == sorted(os.listdir(path.parent))
    assert path.with_name(stamp + "-2").read_bytes() == b"b"


def test_other_version_is_kept_aside(path: Path) -> None:
    """A file of another schema version, as after a downgrade, is kept aside and not overwritten."""
    file = saved(path, FIRST)
    newer = encode(replace(SECOND, version=CHECKPOINT_VERSION + 1))
    path.write_bytes(newer)
    found = file.load(wall_ns=WALL_NS)

    assert found.checkpoint is None
    assert isinstance(found.damaged[0].error, CheckpointWrongVersion)
    assert found.damaged[0].kept_as == path.with_name("state.json.other-version-20260101T000000Z")
    file.save(THIRD)
    assert newer == found.damaged[0].kept_as.read_bytes()


def test_previous_is_taken_when_the_file_is_missing(path: Path) -> None:
    """Without the file itself the generation before counts."""
    file = saved(path, FIRST, SECOND)
    path.unlink()

    assert file.load(wall_ns=WALL_NS) == Loaded(FIRST, Generation.PREVIOUS)


def test_peek_changes_nothing(path: Path) -> None:
    """Looking at a damaged file leaves it where it is."""
    file = saved(path, FIRST, SECOND)
    path.write_bytes(reseal(b'{\n"kind":"Checkpoint"\n,\n"checksum":'))
    found = file.peek()

    assert (FIRST, path) == (found.checkpoint, found.damaged[0].kept_as)
    assert sorted(os.listdir(path.parent)) == ["state.json", "state.json.1"]


# ---- what is in the way ------------------------------------------------------------------------------------------


def test_symbolic_link_instead_of_the_file(path: Path, tmp_path: Path) -> None:
    """A symbolic link in place of the file is neither read nor replaced, and its target stays as it was."""
    path.parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_bytes(encode(FIRST))
    path.symlink_to(target)

    with pytest.raises(CheckpointUnreadable, match="symbolic link"):
        CheckpointFile(path).load(wall_ns=WALL_NS)
    with pytest.raises(CheckpointUnwritable, match="symbolic link"):
        CheckpointFile(path).save(SECOND)
    assert path.is_symlink()
    assert encode(FIRST) == target.read_bytes()


def test_symbolic_link_instead_of_the_directory(path: Path, tmp_path: Path) -> None:
    """A state directory that is a symbolic link is not followed, for reading or writing."""
    elsewhere = tmp_path / "elsewhere"
    saved(elsewhere / "state.json", FIRST)
    path.parent.parent.mkdir()
    path.parent.symlink_to(elsewhere)

    with pytest.raises(CheckpointUnreadable, match="make it a directory"):
        CheckpointFile(path).load(wall_ns=WALL_NS)
    with pytest.raises(CheckpointUnwritable, match="make it a directory"):
        CheckpointFile(path).save(SECOND)
    assert encode(FIRST) == (elsewhere / "state.json").read_bytes()


@pytest.mark.parametrize("name", ["state.json.new", "state.json.1.new", "state.json.1"])
def test_symbolic_links_under_the_other_names(path: Path, tmp_path: Path, name: str) -> None:
    """A symbolic link laid under a name that a save uses is replaced, never written through."""
    saved(path, FIRST)
    target = tmp_path / "target"
    target.write_text("precious")
    path.with_name(name).symlink_to(target)
    saved(path, SECOND)

    assert target.read_text() == "precious"
    assert CheckpointFile(path).load(wall_ns=WALL_NS) == Loaded(SECOND, Generation.CURRENT)
    assert not path.with_name("state.json.1").is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_no_regular_file(path: Path, make: Callable[[Path], None]) -> None:
    """A pipe or directory in the file's place is unreadable at once; nothing waits for it, and nothing removes it."""
    path.parent.mkdir(parents=True)
    make(path)

    with pytest.raises(CheckpointUnreadable):
        CheckpointFile(path).load(wall_ns=WALL_NS)
    with pytest.raises(CheckpointUnwritable):
        CheckpointFile(path).save(SECOND)
    assert os.listdir(path.parent) == ["state.json"]


def test_no_regular_file_costs_no_descriptor(path: Path) -> None:
    """Asking again and again whether the file can be read by now leaves no descriptor behind."""
    path.mkdir(parents=True)
    before = os.open(path, os.O_RDONLY)
    os.close(before)
    for _ in range(3):
        with pytest.raises(CheckpointUnreadable):
            CheckpointFile(path).load(wall_ns=WALL_NS)
    after = os.open(path, os.O_RDONLY)
    os.close(after)

    assert before == after


def test_not_permitted() -> None:
    """A user without rights is told the path and the reason, and a file that cannot be read is not set aside."""
    with public_directory() as directory:
        path = directory / "state.json"
        saved(path, FIRST)
        path.chmod(0)
        with unprivileged():
            with pytest.raises(CheckpointUnreadable) as unreadable:
                CheckpointFile(path).load(wall_ns=WALL_NS)
            directory_is_closed = os.geteuid() != directory.stat().st_uid
            if directory_is_closed:
                with pytest.raises(CheckpointUnwritable, match="EACCES"):
                    CheckpointFile(path).save(SECOND)
        path.chmod(0o600)

        assert str(path) == unreadable.value.path
        assert "EACCES" in str(unreadable.value)
        assert Loaded(FIRST, Generation.CURRENT) == CheckpointFile(path).load(wall_ns=WALL_NS)


def test_parent_is_a_file(path: Path) -> None:
    """A file where the state directory should be is a typed error both ways."""
    path.parent.parent.mkdir()
    path.parent.write_text("")

    with pytest.raises(CheckpointUnreadable, match="ENOTDIR"):
        CheckpointFile(path).load(wall_ns=WALL_NS)
    with pytest.raises(CheckpointUnwritable):
        CheckpointFile(path).save(FIRST)

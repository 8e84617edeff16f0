"""Events of the kubelet's state file: `numapin.kernel.kubelet_watch`."""

from __future__ import annotations

import selectors
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.kernel.kubelet_watch import KubeletStateWatcher
from support.kubelet import STATE, put

PATH = Path("/", STATE)


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[KubeletStateWatcher]:
    """Following the file on a machine that has nothing yet."""
    with KubeletStateWatcher(tmp_path, PATH) as found:
        yield found


def ready(watcher: KubeletStateWatcher) -> bool:
    """True when a selector would wake up."""
    with selectors.DefaultSelector() as selector:
        selector.register(watcher, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_file_appears_with_its_directories(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """Directories made later, one by one or at once, lead to the file."""
    quiet = watcher.drain()
    (tmp_path / "var").mkdir()
    first = watcher.drain()
    put(tmp_path, "x")

    assert not quiet
    assert first
    assert ready(watcher)
    assert watcher.drain()
    assert not watcher.drain()
    assert not ready(watcher)


def test_every_replacement(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """Each rename over the file is told, and so is an edit in place; files beside it are not."""
    put(tmp_path, "x")
    watcher.drain()
    told = []
    for step in (
        lambda: put(tmp_path, "y"),
        lambda: (tmp_path / STATE).write_text("z"),
        lambda: (tmp_path / STATE).with_name("cpu_manager_state").write_text("z"),
    ):
        step()
        told.append(watcher.drain())

    assert told == [True, True, False]


def test_file_goes(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """Unlinking the file, moving it away and removing the kubelet's whole directory are all told."""
    path = put(tmp_path, "x")
    watcher.drain()
    told = []
    path.unlink()
    told.append(watcher.drain())
    put(tmp_path, "x")
    watcher.drain()
    path.rename(tmp_path / "kept")
    told.append(watcher.drain())
    put(tmp_path, "x")
    watcher.drain()
    shutil.rmtree(path.parent)
    told.append(watcher.drain())
    put(tmp_path, "x")
    told.append(watcher.drain())

    assert told == [True] * 4


def test_directory_moved_away_and_made_anew(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """After ``mv kubelet kubelet.old`` the new directory counts, not the old one."""
    path = put(tmp_path, "x")
    watcher.drain()
    path.parent.rename(tmp_path / "var/lib/kubelet.old")
    put(tmp_path, "y")
    moved = watcher.drain()
    (tmp_path / "var/lib/kubelet.old/memory_manager_state").write_text("z")
    old = watcher.drain()
    put(tmp_path, "w")

    assert moved
    assert not old
    assert watcher.drain()


def test_begun_file_is_not_told(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """A file that somebody only begins to write is told when it is closed."""
    put(tmp_path, "x").unlink()
    watcher.drain()
    with (tmp_path / STATE).open("w") as stream:
        stream.write("half")
        stream.flush()
        begun = watcher.drain()

    assert not begun
    assert watcher.drain()


def test_follow_another_file(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """A new configuration names another file, or none; then nothing is watched."""
    put(tmp_path, "x")
    watcher.drain()
    watcher.follow(Path("/srv/state"))
    put(tmp_path, "y")
    old = watcher.drain()
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/state").write_text("x")
    new = watcher.drain()
    watcher.follow(None)
    (tmp_path / "srv/state").write_text("y")

    assert not old
    assert new
    assert not watcher.drain()


def test_no_watch_leaks(tmp_path: Path, watcher: KubeletStateWatcher) -> None:
    """A directory that comes and goes a hundred times leaves as many watches as there are directories."""
    for _ in range(100):
        shutil.rmtree(put(tmp_path, "x").parent)
        watcher.drain()
    put(tmp_path, "x")
    watcher.drain()

    directories = ["", "/var", "/var/lib", "/var/lib/kubelet"]

    assert {f"{tmp_path}{d}" for d in directories} == set(watcher.watched)
    assert len(directories) == len(watcher.watched)
    assert watcher.findings == ()

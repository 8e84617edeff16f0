"""Saving on a disk that is full or read-only: a small tmpfs of its own, mounted by the test (root)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.model.errors import CheckpointUnwritable
from numapin.state.checkpoint import CheckpointFile, Generation, Loaded
from support.checkpoints import WALL_NS, sample

pytestmark = pytest.mark.host

SMALL, LARGE = sample(containers=1), sample(containers=200)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "numapin-test", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_disk_full(disk: Path) -> None:
    """A save that does not fit keeps both generations, leaves no half file, and succeeds when there is room."""
    file = CheckpointFile(disk / "state.json")
    file.save(SMALL)
    with pytest.raises(CheckpointUnwritable, match="ENOSPC") as caught:
        file.save(LARGE)

    assert "free some space" in str(caught.value)
    assert os.listdir(disk) == ["state.json"]
    assert Loaded(SMALL, Generation.CURRENT) == file.load(wall_ns=WALL_NS)
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    file.save(LARGE)
    assert Loaded(LARGE, Generation.CURRENT) == file.load(wall_ns=WALL_NS)


def test_read_only(disk: Path) -> None:
    """On a read-only disk the state is still loaded, a save says what to do, and both work again afterwards."""
    file = CheckpointFile(disk / "state.json")
    file.save(SMALL)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(CheckpointUnwritable, match="EROFS") as caught:
        file.save(SMALL)

    assert "mount it read-write" in str(caught.value)
    assert Loaded(SMALL, Generation.CURRENT) == file.load(wall_ns=WALL_NS)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    file.save(SMALL)


def test_damaged_on_a_read_only_disk(disk: Path) -> None:
    """A damaged file that cannot be renamed yet is set aside by the next save, before anything is replaced."""
    file = CheckpointFile(disk / "state.json")
    file.save(SMALL)
    file.save(SMALL)
    file.path.write_bytes(b"rubbish")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    found = file.load(wall_ns=WALL_NS)

    assert (found.checkpoint, found.generation) == (SMALL, Generation.PREVIOUS)
    assert file.path == found.damaged[0].kept_as
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    file.save(SMALL)
    assert sorted(os.listdir(disk)) == ["state.json", "state.json.1", "state.json.damaged-20260101T000000Z"]
    assert (disk / "state.json.damaged-20260101T000000Z").read_bytes() == b"rubbish"
    assert Loaded(SMALL, Generation.CURRENT) == file.load(wall_ns=WALL_NS)

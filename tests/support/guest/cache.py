"""
The cache of finished images: where it is, who uses what, what may go.

::

    <cache>/images/<key>-qemu<version>/   one finished image
    <cache>/images/<…>.new/               one being built
    <cache>/runs/<…>/                     the private files of one running guest
    <cache>/build.lock

A folder in use is known by a lock on the file ``lock`` in it, so what a killed process left can
be told and removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from support.guest.errors import GuestError
from support.guest.progress import Progress


def cache_root() -> Path:
    """``$NUMAPIN_CACHE``, else ``numapin`` in the user's cache folder; need not exist."""
    given = os.environ.get("NUMAPIN_CACHE")
    if given:
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "numapin"


@contextmanager
def build_lock(root: Path, progress: Progress) -> Iterator[None]:
    """Only one process builds, or installs what building takes, at a time; the others wait and say so."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "build.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process builds an image; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def share(directory: Path) -> IO[str]:
    """
    Mark a finished image as used until the returned file is closed.

    Raises:
        GuestError: It was removed meanwhile.
    """
    try:
        file = (directory / "lock").open("r")
    except FileNotFoundError:
        raise GuestError(f"the image {directory} is gone; build it again") from None
    fcntl.flock(file, fcntl.LOCK_SH)
    if not directory.exists():
        file.close()
        raise GuestError(f"the image {directory} was removed meanwhile; build it again")
    return file


def private_directory(root: Path) -> tuple[Path, IO[str]]:
    """A new folder for one running guest, ours until the returned file is closed."""
    runs = root / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=runs, prefix=f"{os.getpid()}-"))
    new = directory / "lock.new"
    file = new.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    new.rename(directory / "lock")  # never there without being locked: another start may look for unused folders now
    return directory, file


def remove_unused(parent: Path, *, keep: Path | None = None) -> None:
    """Remove every folder in *parent* that nobody has locked, except *keep*."""
    if not parent.is_dir():
        return
    for directory in parent.iterdir():
        if directory != keep and directory.is_dir() and _is_unused(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _is_unused(directory: Path) -> bool:
    """Whether nobody holds the folder's lock; a folder so new that it has none is in use."""
    try:
        with (directory / "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return False

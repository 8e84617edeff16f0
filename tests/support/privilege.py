"""Doing without root for a moment, so that file permissions count."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run the block as nobody where the process is root (which no permission stops), else as it is."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def public_directory() -> Iterator[Path]:
    """A temporary directory that `unprivileged` code can enter (pytest's own is for its user alone)."""
    with tempfile.TemporaryDirectory(prefix="numapin-test-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path

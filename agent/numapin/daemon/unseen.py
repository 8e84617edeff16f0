"""
What this process may not look at below a root: without root most runtimes' directories are closed.

Owns: which directories are closed, and the sentence. Must never: open a file in them.
"""

from __future__ import annotations

import errno
from pathlib import Path

from numapin.daemon.suitability import places
from numapin.kernel.files import list_subdirectories
from numapin.kernel.runtime_paths import read_runtime_paths
from numapin.model.errors import KernelReadError

_CLOSED = (errno.EACCES, errno.EPERM)


def closed_places(root: Path) -> tuple[str, ...]:
    """The runtimes' directories below *root* that this process may not list, as the machine names them."""
    paths, _ = read_runtime_paths(root)
    return tuple(p for p in places(paths) if _is_closed(root, p))


def closed_sentence(closed: tuple[str, ...]) -> str:
    """What it means that the *closed* ones are, and what to do; empty without any."""
    if not closed:
        return ""
    return (
        f"without root this cannot look into {', '.join(closed)}: names, annotations and node lists of containers "
        "are not known, and a class may be wrong or a container missing; run it with sudo"
    )


def _is_closed(root: Path, place: str) -> bool:
    try:
        list_subdirectories(root / place.lstrip("/"), most=0)
    except KernelReadError as exc:
        return exc.errno in _CLOSED
    return False

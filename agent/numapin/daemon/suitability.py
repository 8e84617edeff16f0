"""
What numapin can and cannot do on this host, as sentences for whoever starts it by hand.

Owns: when that is worth a sentence, and what to do instead. Must never: keep the daemon from starting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from numapin.daemon.config import under
from numapin.daemon.machine import Machine
from numapin.kernel.discovery import Discovery
from numapin.kernel.files import is_directory
from numapin.kernel.runtime_paths import RuntimePaths
from numapin.model.errors import KernelError

DEMO = "see a four-node machine with: make demo (in a clone)"
LOOKING = (
    "numapin topology, numapin doctor, numapin plan --root / --memory 4Gi, numapin check-config, "
    "numapin checkpoint verify FILE"
)
"""What needs no daemon, no container and no cpuset controller."""
WITHOUT_ROOT = (
    f"Without root these work: {LOOKING} (a FILE that you may read), numapin status (group numapin)\nOr {DEMO}"
)
WITHOUT_CPUSET = f"Nothing can be pinned on this host; these work all the same: {LOOKING}\nOr {DEMO}"


def places(paths: RuntimePaths) -> tuple[str, ...]:
    """Directories in which a runtime that was used once has left something."""
    return (*paths.tasks, *paths.states, *paths.storage, paths.docker, paths.nerdctl)


def used_runtimes(root: Path, paths: RuntimePaths) -> list[str]:
    """Which of `places` are there, below *root*."""
    return [place for place in places(paths) if is_directory(under(root, Path(place)))]


def notes(root: Path, machine: Machine, discovery: Discovery, paths: RuntimePaths) -> Iterator[str]:
    """Sentences about the host, each with where to see more; none on one with several nodes and a container."""
    if not machine.usable:
        yield f"this host has no NUMA node with memory to promise: nothing can be placed; {DEMO}"
    elif len(machine.usable) < 2:
        yield (
            f"this host has one NUMA node with memory (node {machine.usable}): every container fits on it or "
            f"nowhere, so reservations are kept and refusals explained, but no choice is made; {DEMO}"
        )
    if _has_container(discovery):
        return
    if used_runtimes(root, paths):
        yield f"no container runs now; the ones you start are picked up as they appear (Ctrl-C stops); {DEMO}"
    else:
        yield (
            "no container runtime was used on this host yet (Docker, containerd, Podman, CRI-O, runc, crun), so "
            "there is nothing to place; the first container is picked up as it appears (Ctrl-C stops), and numapin "
            f"plan answers already; {DEMO}"
        )


def _has_container(discovery: Discovery) -> bool:
    """Also true where that cannot be told: what keeps the daemon from its containers it says itself."""
    try:
        return discovery.finds_any()
    except KernelError:
        return True

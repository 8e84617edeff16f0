"""Events of the runtimes' state files: a container was set up, or changed.

Owns: which of the runtimes' directories are watched. A directory is listed after its watch was set, for what was made
meanwhile raises no event. Must never: believe more of a state file than the cgroup that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from numapin.kernel.cgroup_mounts import Hierarchy
from numapin.kernel.files import list_subdirectories
from numapin.kernel.inotify import CLOSE_WRITE, CREATE, MOVED_TO, InotifyWatcher
from numapin.kernel.runtime_paths import RuntimePaths
from numapin.kernel.runtimes import RuntimeFiles
from numapin.kernel.watch import CgroupEvent, EventKind
from numapin.model.errors import KernelReadError


class RuntimeStateWatcher(InotifyWatcher):
    """
    Watches where runc and crun keep state, also under containerd, Docker, CRI-O and Podman.

    STATE_APPEARED tells that a runtime has set a container up (every limit is written by then) or changed it
    (``docker update``), and for runc or crun by hand it is the first sign that the cgroup is a container.
    Directories that do not exist yet are waited for.

    Raises:
        KernelReadError: No inotify instance is left.
    """

    def __init__(self, hierarchy: Hierarchy, root: Path, paths: RuntimePaths | None = None) -> None:
        super().__init__()
        self._root = "" if str(root) == "/" else str(root)
        self._files = RuntimeFiles(root, hierarchy.mount_point, paths)
        paths = paths or RuntimePaths()
        self._depths = {**dict.fromkeys(paths.states, 1), **dict.fromkeys(paths.task_states, 2)}
        self._above = {a for base in self._depths for a in _ancestors(base)}
        for base in sorted(self._above | set(self._depths), key=len):
            for _ in self._enter(base):
                pass

    def read(self) -> list[CgroupEvent]:
        """What happened since the last call, in order and each path once; never blocks."""
        events: dict[CgroupEvent, None] = {}
        for notice in self._watches.read():
            if notice is None:
                events[CgroupEvent(EventKind.OVERFLOW, "")] = None
                self._reenter()
                continue
            directory = notice.directory.removeprefix(self._root)
            if notice.is_directory:
                found = self._enter(f"{directory}/{notice.name}") if notice.mask & CREATE else iter(())
            elif notice.name in ("state.json", "status"):
                found = iter((directory,))
            else:
                continue
            for path in self._cgroups(found):
                events[CgroupEvent(EventKind.STATE_APPEARED, path)] = None
        return list(events)

    def _reenter(self) -> None:
        for base in (*self._above, *self._depths):
            for _ in self._enter(base):
                pass

    def _enter(self, directory: str) -> Iterator[str]:
        """Watch *directory* if it is of interest, and what is in it; yields containers' state directories."""
        pending = [directory]
        while pending:
            here = pending.pop()
            depth = self._depth(here)
            if depth is None:
                continue
            is_state = depth == 0
            mask = CLOSE_WRITE | MOVED_TO if is_state else CREATE
            if not self._watches.add(self._root + here, mask):
                continue
            if is_state:
                yield here
                continue
            try:
                names = list_subdirectories(self._root + here)
            except KernelReadError:
                continue
            pending += [f"{here}/{name}" for name in names]

    def _depth(self, directory: str) -> int | None:
        """Levels from *directory* down to state directories; ``None`` when it is of no interest."""
        for base, depth in self._depths.items():
            if directory == base:
                return depth
            if directory.startswith(f"{base}/"):
                left = depth - directory.removeprefix(base).count("/")
                return left if left >= 0 else None
        return 3 if directory in self._above else None

    def _cgroups(self, directories: Iterator[str]) -> Iterator[str]:
        for directory in directories:
            base = next(b for b in self._depths if directory.startswith(f"{b}/"))
            path = self._files.cgroup_of(base, *directory.removeprefix(f"{base}/").split("/"))
            if path is not None:
                yield path


def _ancestors(path: str) -> Iterator[str]:
    parts = path.strip("/").split("/")
    return ("/" + "/".join(parts[:k]) for k in range(1, len(parts)))

"""Events of the kubelet's state file, which is replaced by renaming and may not exist, nor the directories above it.

Owns: which directories are watched for it. Must never: read it.
"""

from __future__ import annotations

from pathlib import Path

from numapin.kernel.inotify import CLOSE_WRITE, CREATE, DELETE, MOVED_FROM, MOVED_TO, InotifyWatcher

_DIRECTORY = CREATE | DELETE | MOVED_FROM | MOVED_TO
_FILE = DELETE | MOVED_FROM | MOVED_TO | CLOSE_WRITE
"""Without CREATE: a file that is only begun is told when it is closed."""


class KubeletStateWatcher(InotifyWatcher):
    """
    Follows the file *path*, absolute on the machine below *root*; ``None`` follows nothing.

    Every existing directory above the file is watched for the next one on the way, so that one that appears, goes
    or is replaced is noticed. Symbolic links are not followed.

    Raises:
        KernelReadError: No inotify instance is left.
    """

    def __init__(self, root: Path, path: Path | None) -> None:
        self._root = root
        super().__init__()
        self._parts: tuple[str, ...] = ()
        self._awaited: dict[str, str] = {}  # watched directory -> the name in it that matters
        self.follow(path)

    @property
    def watched(self) -> tuple[str, ...]:
        """Directories that are watched now, from the root down."""
        return self._watches.paths()

    def follow(self, path: Path | None) -> None:
        """Follow another file from now on."""
        parts = () if path is None else path.parts[1:]
        if parts != self._parts:
            for directory in self._watches.paths():
                self._watches.remove(directory)
            self._awaited = {}
            self._parts = parts
            self._arm()

    def drain(self) -> bool:
        """True when the file may have changed, appeared or gone since the last call; never blocks."""
        changed = False
        for notice in self._watches.read():
            changed |= notice is None or self._awaited.get(notice.directory) == notice.name
        if changed:
            self._arm()
        return changed

    def _arm(self) -> None:
        """Watch every directory there is on the way, from the root down: what is made meanwhile raises an event."""
        here = self._root
        exists = True
        for k, name in enumerate(self._parts):
            directory = str(here)
            mask = _FILE if k == len(self._parts) - 1 else _DIRECTORY
            exists = exists and self._watches.add(directory, mask)
            if exists:
                self._awaited[directory] = name
            else:
                self._watches.remove(directory)
                self._awaited.pop(directory, None)
            here = here / name

"""Events of the cgroup tree: cgroups that come and go, writes to nodes and memory limits.

Owns: which cgroups are watched, and the form of an event, `runtime_watch`'s too. A directory is listed after its
watch was set, for what was made meanwhile raises no event. Must never: read or write a cgroup's files, or watch
inside a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.files import list_subdirectories
from numapin.kernel.inotify import CREATE, DELETE, MODIFY, InotifyWatcher
from numapin.model.errors import KernelReadError


class EventKind(StrEnum):
    """What happened."""

    CREATED = "created"
    REMOVED = "removed"
    MEMS_WRITTEN = "mems-written"
    """Somebody, perhaps we, wrote ``cpuset.mems`` of a watched container."""
    LIMIT_WRITTEN = "limit-written"
    """Somebody wrote the memory limit of a watched container, as ``podman update`` does without another sign."""
    STATE_APPEARED = "state-appeared"
    """A runtime wrote its state: the container at this path is set up, or was changed."""
    OVERFLOW = "overflow"
    """Events were lost: look at everything. The path is empty."""


@dataclass(frozen=True, slots=True)
class CgroupEvent:
    """One event; *path* is the cgroup below the hierarchy's root."""

    kind: EventKind
    path: str


class CgroupWatcher(InotifyWatcher):
    """
    Watches every cgroup of *hierarchy*, but nothing inside those for which *is_container_path* is true.

    The constructor sets the watches and reports nothing: walk once after it. Removed cgroups' watches are given
    back here, since the kernel does not.

    Raises:
        KernelReadError: No inotify instance is left, or the hierarchy's root is unreadable.
    """

    def __init__(self, hierarchy: Hierarchy, is_container_path: Callable[[str], bool]) -> None:
        super().__init__()
        self._mount = str(hierarchy.cpuset_mount)
        self._mems_name = f"{hierarchy.cpuset_prefix}mems"
        self._is_container_path = is_container_path
        self._known: set[str] = set()
        memory = hierarchy.controllers.get("memory")
        self._memory = None if memory is None else str(memory.path)
        is_v2 = memory is not None and memory.version is CgroupVersion.V2
        self._limit_name = "memory.max" if is_v2 else "memory.limit_in_bytes"
        self._pinned: dict[str, tuple[EventKind, str]] = {}
        try:
            self.resync()
        except KernelReadError:
            self.close()
            raise

    def read(self) -> list[CgroupEvent]:
        """
        What happened since the last call, in order; never blocks.

        A cgroup made and removed in between is reported as both. After an OVERFLOW the watches are already
        right again; what was lost is not told.

        Raises:
            KernelReadError: The hierarchy's root is unreadable.
        """
        events: list[CgroupEvent] = []
        for notice in self._watches.read():
            if notice is None:
                self.resync()
                events.append(CgroupEvent(EventKind.OVERFLOW, ""))
            elif not notice.name:
                watched = self._pinned.get(notice.directory)
                if watched is not None and notice.mask & MODIFY:
                    events.append(CgroupEvent(*watched))
            elif notice.is_directory:
                path = f"{notice.directory.removeprefix(self._mount)}/{notice.name}"
                if notice.mask & DELETE:
                    self._known.discard(path)
                    self.unwatch_mems(path)
                    self._watches.remove(self._mount + path)
                    events.append(CgroupEvent(EventKind.REMOVED, path))
                elif notice.mask & CREATE and path not in self._known:
                    events += [CgroupEvent(EventKind.CREATED, p) for p in self._discover(path)]
        return events

    def resync(self) -> None:
        """
        Make the watches those of the tree as it is now, without reporting anything.

        Raises:
            KernelReadError: The hierarchy's root is unreadable.
        """
        list_subdirectories(self._mount)
        self._known = set()
        before = {p for p in self._watches.paths() if p not in self._pinned}
        self._known.update(self._discover(""))
        for gone in before - {self._mount + p for p in self._known} - {self._mount}:
            self._watches.remove(gone)
        for path in {path for _, path in self._pinned.values()} - self._known:
            self.unwatch_mems(path)

    def prune(self, path: str) -> None:
        """Stop looking inside *path*: it turned out to be a container. Its removal is still reported."""
        pinned = any(file in self._pinned for file in self._files(path))
        self._watches.remove_below(self._mount + path)
        self._known = {p for p in self._known if not p.startswith(f"{path}/")}
        if pinned:
            self.watch_mems(path)

    def watch_mems(self, path: str) -> None:
        """
        Report writes to ``cpuset.mems`` (our own ones too) and to the memory limit of the cgroup *path*.

        Harmless when repeated; a missing file is nothing to watch.
        """
        for file, kind in self._files(path).items():
            if self._watches.add(file, MODIFY, directory=False):
                self._pinned[file] = (kind, path)

    def unwatch_mems(self, path: str) -> None:
        """End `watch_mems`; harmless when there was none."""
        for file in self._files(path):
            self._pinned.pop(file, None)
            self._watches.remove(file)

    def _files(self, path: str) -> dict[str, EventKind]:
        files = {f"{self._mount}{path}/{self._mems_name}": EventKind.MEMS_WRITTEN}
        if self._memory is not None:
            files[f"{self._memory}{path}/{self._limit_name}"] = EventKind.LIMIT_WRITTEN
        return files

    def _discover(self, path: str) -> Iterator[str]:
        """Watch the cgroup *path* and what is in it by now; yields each that was not known, *path* first."""
        pending = [path]
        while pending:
            here = pending.pop()
            if here:
                if here in self._known:
                    continue
                self._known.add(here)
                yield here
                if self._is_container_path(here):
                    continue
            # watched first and listed then: what is made in between is found, if twice
            self._watches.add(self._mount + here, CREATE | DELETE)
            try:
                names = list_subdirectories(self._mount + here)
            except KernelReadError:
                continue  # gone again; its removal is on the way
            pending += [f"{here}/{name}" for name in reversed(names)]

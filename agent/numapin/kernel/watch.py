"""Events: cgroups that come and go, writes to nodes and memory limits, runtimes' state files, memory hotplug.

Owns: which directories are watched. A directory is listed after its watch was set, for what was made meanwhile
raises no event. Must never: read or write a cgroup's files, or watch inside a container.
"""

from __future__ import annotations

import errno
import importlib.util
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.files import list_subdirectories
from numapin.kernel.inotify import CLOSE_WRITE, CREATE, DELETE, MODIFY, MOVED_TO, InotifyWatcher
from numapin.kernel.runtimes import RuntimeFiles, RuntimePaths
from numapin.model.errors import KernelReadError

_UEVENT_KERNEL_GROUP = 1
_UEVENT_BYTES = 65_536
_HOTPLUG_SUBSYSTEMS = ("memory", "node")


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


@dataclass(frozen=True, slots=True)
class Uevent:
    """A kernel uevent of memory or a node, with the kernel's words (``online``, ``memory``, ``/devices/…``)."""

    action: str
    subsystem: str
    devpath: str


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


class UeventWatcher:
    """
    Kernel uevents of memory blocks and nodes (not udev's copies), without blocking.

    Raises:
        KernelReadError: The kernel or the service's restrictions do not allow the socket.
    """

    def __init__(self) -> None:
        base, kind = _uevent_sockets()
        try:
            self._socket: Any = kind()
            # the base class's bind: that of UeventSocket takes no group before pyroute2 0.8
            base.bind(self._socket, groups=_UEVENT_KERNEL_GROUP)
        except OSError as exc:
            raise KernelReadError("the kernel's uevent socket", exc.errno or 0) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Descriptor that becomes readable when an uevent of any kind arrives."""
        return int(self._socket.fileno())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def drain(self) -> bool:
        """Take everything off the socket; true when memory or a node changed, or something may have been lost."""
        return bool(self.read())

    def read(self) -> list[Uevent]:
        """
        Uevents of memory and nodes since the last call; never blocks.

        When the kernel dropped some, one with the action ``lost`` is among them.
        """
        events: list[Uevent] = []
        while True:
            try:
                data = self._socket.recv(_UEVENT_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return events
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise KernelReadError("the kernel's uevent socket", exc.errno or 0) from exc
                events.append(Uevent("lost", "memory", ""))
                continue
            for message in self._socket.marshal.parse(data):
                if message.get("SUBSYSTEM") in _HOTPLUG_SUBSYSTEMS:
                    events.append(Uevent(message.get("ACTION"), message.get("SUBSYSTEM"), message.get("DEVPATH")))


def _uevent_sockets() -> tuple[Any, Any]:
    """
    pyroute2's netlink socket and its uevent socket, without the rest of pyroute2.

    Its package imports everything it can do (routing, nftables, a database): 10 MiB for the daemon's whole life and
    half of its start. So the package stands in ``sys.modules`` unexecuted, as a place to import the two from
    (tried with 0.7.7 and 0.9.7); where a version does not bear that, all of it is loaded.
    """
    spec = importlib.util.find_spec("pyroute2")
    if spec is not None and "pyroute2" not in sys.modules:
        sys.modules["pyroute2"] = importlib.util.module_from_spec(spec)
        try:
            return _import_sockets()
        except (ImportError, AttributeError):
            for name in [m for m in sys.modules if m == "pyroute2" or m.startswith("pyroute2.")]:
                del sys.modules[name]
    return _import_sockets()


def _import_sockets() -> tuple[Any, Any]:
    from pyroute2.netlink.nlsocket import NetlinkSocket
    from pyroute2.netlink.uevent import UeventSocket

    return NetlinkSocket, UeventSocket


def _ancestors(path: str) -> Iterator[str]:
    parts = path.strip("/").split("/")
    return ("/" + "/".join(parts[:k]) for k in range(1, len(parts)))

"""Which cgroups are containers: the walk over the tree, and the answer for one path.

Owns: where the walk begins (the configured root) and where it ends (at a container, whose inside is its own affair).
What is recognised inside is only listed, within bounds, by `Recognition.nested`. Must never: read a cgroup's files.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from numapin.kernel.cgroup_directory import path_parts
from numapin.kernel.cgroup_mounts import Hierarchy
from numapin.kernel.files import list_subdirectories
from numapin.kernel.names import ContainerName, PodPath, Role, container_at, pod_at
from numapin.kernel.runtimes import RuntimeFiles
from numapin.model.container import ContainerId, NestedContainer, Runtime
from numapin.model.errors import KernelReadError

MOST_INSIDE = 4_000
"""What one look inside a container may cost, in names; a kind node with 110 pods costs about 3,500."""
_LISTING = 6
"""Cost of a listing in names, one of which takes some 7 µs: its patterns, and the question whether it is a leaf."""
_FOUND = 4
"""Cost of a nested container beside its name: it becomes a row."""
_LOOKUP = 20
"""Cost of looking an id up in the directories of all runtimes, which a name of 64 digits alone brings about."""
_DEEPEST = 32
"""Levels looked at inside a container; with each a path takes longer to follow, and runtimes need half a dozen."""
_PASSED_OVER = (errno.ENOENT, errno.ENODEV, errno.EACCES, errno.ENAMETOOLONG)
"""Removed meanwhile, nobody's to read, or deeper than any runtime's (PATH_MAX)."""
_LEAF_LINKS = 2
"""st_nlink of a directory without directories, on cgroupfs as on most file systems."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What was recognised inside one container; not ``complete`` when a bound ended it. ``cost`` is in names."""

    found: tuple[NestedContainer, ...]
    complete: bool
    cost: int


class Recognition:
    """
    Recognises containers of *hierarchy* below the cgroup *top*, with the runtimes' *files*.

    What is outside *top* is no container. A container that *top* itself is in, or is, counts as passed: what is
    directly below *top* is recognised as if nothing were around it.
    """

    def __init__(self, hierarchy: Hierarchy, files: RuntimeFiles, top: str = "/") -> None:
        self._mount = str(hierarchy.cpuset_mount)
        self._files = files
        self._top = tuple(path_parts(top))
        self._pod_above = _pod_above(self._top)

    def covers(self, path: str) -> bool:
        """True for a cgroup below the top."""
        parts = path_parts(path)
        return len(parts) > len(self._top) and tuple(parts[: len(self._top)]) == self._top

    def top_exists(self) -> bool:
        """False while the top is not there."""
        return os.path.isdir(self._place(self._top))

    def walk(self) -> Iterator[tuple[tuple[str, ...], ContainerName, PodPath | None]]:
        """
        Every container, sandbox and system container with the pod it is in; nothing while the top is missing.

        Raises:
            KernelReadError: The hierarchy's root, or a directory that is there, is unreadable.
        """
        pending: list[tuple[tuple[str, ...], PodPath | None]] = [(self._top, self._pod_above)]
        while pending:
            parts, pod = pending.pop()
            try:
                children = list_subdirectories(self._place(parts))
            except KernelReadError as exc:
                if parts and exc.errno in _PASSED_OVER:
                    continue
                raise
            for child in children:
                path = (*parts, child)
                name, inner = self._step(path, pod)
                if name is None:
                    pending.append((path, inner))
                elif name.role is not Role.MONITOR:
                    yield path, name, inner

    def resolve(self, path: str) -> tuple[ContainerName | None, PodPath | None]:
        """What the cgroup is, and its pod; nothing when it is outside the top or an ancestor is a container."""
        parts = path_parts(path)
        if not self.covers(path):
            return None, None
        name, pod = None, self._pod_above
        for k in range(len(self._top) + 1, len(parts) + 1):
            name, pod = self._step(parts[:k], pod)
            if name is not None and k < len(parts):
                return None, None
        return name, pod

    def is_container_path(self, path: str) -> bool:
        """
        True when nothing below *path* is of interest: a container, a monitor, inside of one, or beside the way to
        the top.
        """
        parts = path_parts(path)
        common = min(len(parts), len(self._top))
        if tuple(parts[:common]) != self._top[:common]:
            return True
        pod = self._pod_above
        for k in range(len(self._top) + 1, len(parts) + 1):
            name, pod = self._step(parts[:k], pod)
            if name is not None:
                return True
        return False

    def nested(self, outer: str, most: int = MOST_INSIDE) -> Inside:
        """
        What is recognised inside the container at *outer*, nearest first; nothing is read but names of directories.

        What is inside a nested one is not looked at. Who owns the container decides how many cgroups there are and
        how they are called, so each name and what it brings about counts, up to *most* in all (and one step more).
        """
        top = tuple(path_parts(outer))
        found: list[NestedContainer] = []
        pending: deque[tuple[tuple[str, ...], PodPath | None]] = deque([(top, None)])
        cost, complete = 0, True

        def looked_up(container_id: str) -> Runtime | None:
            nonlocal cost
            cost += _LOOKUP
            return self._files.runtime_of(container_id)

        while pending:
            parts, pod = pending.popleft()
            place = self._place(parts)
            if _is_leaf(place):
                continue
            if len(parts) - len(top) >= _DEEPEST:
                complete = False
                continue
            if cost >= most:
                return Inside(tuple(found), False, cost)
            cost += _LISTING
            try:
                children = list_subdirectories(place, most=max(most - cost, 0) + 1)
            except KernelReadError:
                continue  # gone, or nobody's to read
            for child in children:
                if cost >= most:
                    return Inside(tuple(found), False, cost)
                cost += 1
                path = (*parts, child)
                name, inner = self._step(path, pod, looked_up)
                if name is None:
                    pending.append((path, inner))
                elif name.role is not Role.MONITOR:
                    cost += _FOUND
                    uid = inner.uid if inner is not None else None
                    cgroup = "/" + "/".join(path)
                    found.append(NestedContainer(ContainerId(name.id), name.runtime, cgroup, outer, uid))
        return Inside(tuple(found), complete, cost)

    # inside

    def _place(self, parts: Sequence[str]) -> str:
        return "/".join((self._mount, *parts))

    def _step(
        self,
        parts: Sequence[str],
        pod: PodPath | None,
        runtime_of: Callable[[str], Runtime | None] | None = None,
    ) -> tuple[ContainerName | None, PodPath | None]:
        """What the cgroup *parts* is, given the pod above it; and the pod for what is below."""
        here = pod_at(parts)
        if here is not None:
            return None, here
        name = container_at(parts, pod)
        if name is None:
            return self._files.by_cgroup("/" + "/".join(parts)), pod
        if name.role is Role.MAYBE:
            runtime = (runtime_of or self._files.runtime_of)(name.id)
            known = self._files.by_cgroup("/" + "/".join(parts))
            if runtime is None:
                return known, pod
            name = ContainerName(name.id, runtime, Role.CONTAINER)
        return name, name.pod or pod


def _pod_above(top: Sequence[str]) -> PodPath | None:
    """The pod that *top* is in, or is; a container between the two ends it: its inside is no part of that pod."""
    pod = None
    for k in range(1, len(top) + 1):
        here = pod_at(top[:k])
        pod = here or (pod if container_at(top[:k], pod) is None else None)
    return pod


def _is_leaf(place: str) -> bool:
    try:
        return os.lstat(place).st_nlink == _LEAF_LINKS
    except OSError:
        return True  # it is going

"""Containers on this host: which cgroups are one, and everything known about each.

Owns: joining a cgroup with the runtimes' files into a `ContainerRecord`. A container is recognised at its outermost
cgroup and never descended into, so what runs inside (Docker in Docker, kind, systemd) is counted once. Must never:
write, or let one unreadable container hide the others.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from numapin.kernel.cgroup_controllers import control_file, missing_cpuset
from numapin.kernel.cgroup_directory import path_parts
from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.cgroupfs import Cgroup, open_cgroup
from numapin.kernel.names import ContainerName, PodPath, Role
from numapin.kernel.processes import is_runtime_init, read_start_ticks
from numapin.kernel.recognition import MOST_INSIDE, Inside, Recognition
from numapin.kernel.record_fields import container_kind, container_runtime, contradictions, display_name, pod_name
from numapin.kernel.runtime_paths import RuntimePaths
from numapin.kernel.runtimes import Metadata, RuntimeFiles
from numapin.model.container import ContainerId, ContainerKind, ContainerRecord, Limits, OciFacts
from numapin.model.errors import CgroupGone, KernelError, KernelReadError
from numapin.model.nodeset import NodeSet

_INIT_LOOKED_AT = 8
"""Processes looked at to tell whether the user's program runs already."""


class Discovery:
    """
    Finds containers in *hierarchy* below the cgroup *top*, with the runtimes' files below *root*.

    `scan` walks everything; `inspect` and `is_container_path` answer for one cgroup. Not for use by several threads.

    A record is ``settled`` once the limits in the cgroup must be complete: runc and crun write their state file after
    the limits and before the user's program, so that file is the proof; without one (another runtime, other
    directories) it is a process in the cgroup that is not the runtime's own. A missing limit in a settled record was
    never set or is lost; in one that is not it may be on its way.
    """

    def __init__(
        self, hierarchy: Hierarchy, root: Path, paths: RuntimePaths | None = None, *, top: str = "/"
    ) -> None:
        self._hierarchy = hierarchy
        self._root = root
        self._top = top
        self._files = RuntimeFiles(root, hierarchy.mount_point, paths)
        self._recognition = Recognition(hierarchy, self._files, top)
        self._problems: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about containers that the last `scan` could not read at all."""
        return self._problems

    @property
    def files(self) -> RuntimeFiles:
        """The reader of the runtimes' files, shared so that nothing is parsed twice."""
        return self._files

    def open(self, path: str) -> Cgroup:
        """
        Open one cgroup.

        Raises:
            CgroupGone: It does not exist.
            KernelReadError: It cannot be opened, or *path* is no plain path.
        """
        return open_cgroup(self._hierarchy, path)

    def scan(self) -> list[ContainerRecord]:
        """
        Every container, sandbox and system container on the host, sorted by cgroup path.

        Raises:
            KernelReadError: The hierarchy's root is unreadable.
        """
        problems: list[str] = []
        records = sorted(self._each(problems), key=lambda r: r.cgroup)
        self._files.forget_unused()
        self._problems = tuple(problems)
        return records

    def finds_any(self) -> bool:
        """
        True when there is anything that `scan` would give; looks no further than that.

        Raises:
            KernelReadError: The hierarchy's root is unreadable.
        """
        return next(self._each([]), None) is not None

    def _each(self, problems: list[str]) -> Iterator[ContainerRecord]:
        """What is found, one after the other, and in *problems* why something could not be read."""
        self._files.refresh()
        for parts, name, pod in self._recognition.walk():
            try:
                record = self._record("/" + "/".join(parts), name, pod)
            except KernelError as exc:
                problems.append(str(exc))
                continue
            if record is not None:
                yield record

    def inspect(self, path: str) -> ContainerRecord | None:
        """
        The container whose outermost cgroup is *path*; ``None`` when it is none, is inside another, or is gone.

        Raises:
            KernelError: The cgroup cannot be opened or read.
        """
        if not self.covers(path):
            return None
        name, pod = self._recognition.resolve(path)
        if name is None and self._unnamed_may_be(path):
            name, pod = self._recognition.resolve(path)
        if name is None or name.role is Role.MONITOR:
            return None
        return self._record(path, name, pod)

    def is_kept(self, container_id: str) -> bool:
        """True while a runtime keeps the container although it may have stopped (`RuntimeFiles.is_kept`)."""
        return self._files.is_kept(container_id)

    def age(self, record: ContainerRecord) -> int:
        """
        A number that is smaller the earlier the container's cgroup was made; 0 where nobody knows.

        A cgroup's inode number is its kernfs id, given out in ascending order (``__kernfs_new_node`` in
        fs/kernfs/dir.c), unlike its times, which begin when the kernel last loaded the inode. Below another root
        there are plain files, whose numbers tell nothing.
        """
        return record.inode if self._root == Path("/") else 0

    def is_container_path(self, path: str) -> bool:
        """True when nothing below *path* is of interest (`Recognition.is_container_path`)."""
        return self._recognition.is_container_path(path)

    def covers(self, path: str) -> bool:
        """True for a cgroup below the top, the only ones that can be containers of ours."""
        return self._recognition.covers(path)

    def reaches(self, path: str) -> bool:
        """True when a container at *path* could be found: it is below the top, and inside no container there."""
        return self.covers(path) and not self.is_container_path(path.rpartition("/")[0] or "/")

    def nested(self, outer: str, most: int = MOST_INSIDE) -> Inside:
        """What is recognised inside the container at *outer* (`Recognition.nested`)."""
        return self._recognition.nested(outer, most)

    def top_problem(self) -> str:
        """A sentence while the top is not there, else empty."""
        if self._recognition.top_exists():
            return ""
        return (
            f"cgroup.root names {self._top}, and {self._hierarchy.mount_point} has no such cgroup now: no container "
            "is looked for until it is there"
        )

    # inside

    def _unnamed_may_be(self, path: str) -> bool:
        """Look at the runtimes' files again; true when one of them names *path* now."""
        if self._files.probe(path):
            return True
        self._files.refresh()
        return self._files.by_cgroup(path) is not None

    def _record(self, path: str, name: ContainerName, pod: PodPath | None) -> ContainerRecord | None:
        try:
            with self.open(path) as cgroup:
                return self._read(cgroup, name, pod)
        except CgroupGone:
            return None

    def _read(self, cgroup: Cgroup, name: ContainerName, pod: PodPath | None) -> ContainerRecord:
        # metadata before the cgroup's files: a state file means that the limits were complete before it
        metadata = Metadata(name.runtime) if name.role is Role.SYSTEM else self._files.read(name)
        facts = self._alive(metadata.facts)
        settled = metadata.state is not None or name.role is Role.SYSTEM or self._runs(cgroup)
        doubts = [*metadata.problems, *contradictions(cgroup.path, metadata)]
        limits = self._limits(cgroup, doubts)
        certain = pod is not None or not doubts  # under kubepods the path tells the class
        missing: list[str] = []
        doubts += self._rootless(cgroup.path)
        mems, effective, parent = self._nodes(cgroup, doubts, missing)
        kind = container_kind(name, facts)
        readable = limits.memory_bytes is not None or cgroup.has_memory_limit_file()
        if pod is not None and facts is None and kind is ContainerKind.CONTAINER and limits.memory_bytes is None:
            doubts.append("neither metadata nor a memory limit: it may be the pod's sandbox")
        findings: list[str] = []
        if facts is None and kind is ContainerKind.CONTAINER and not metadata.problems:
            findings.append(f"no OCI metadata of {name.id} found on disk")
        return ContainerRecord(
            id=ContainerId(name.id),
            name=display_name(name, facts, metadata, findings),
            cgroup=cgroup.path,
            inode=cgroup.inode,
            runtime=container_runtime(metadata, facts),
            kind=kind,
            limits=limits,
            mems=mems,
            effective_mems=effective,
            parent_mems=parent,
            pod_uid=pod.uid if pod else None,
            pod_name=pod_name(facts) if pod else None,
            pod_qos=pod.qos if pod else None,
            pod_limits=self._pod_limits(pod, doubts),
            oci=facts,
            doubts=tuple(doubts),
            class_certain=certain,
            findings=tuple(findings),
            settled=settled,
            sizes_readable=readable,
            pod_cgroup=pod.cgroup if pod else None,
            cgroup_v1=self._hierarchy.version is CgroupVersion.V1,
            cpuset_missing=tuple(missing),
        )

    def _alive(self, facts: OciFacts | None) -> OciFacts | None:
        """*facts* without a first process that ended or whose pid is another process now."""
        if facts is None or facts.init_pid is None:
            return facts
        ticks = read_start_ticks(self._root, facts.init_pid)
        if ticks is not None and facts.init_start_ticks in (None, ticks):
            return facts
        return replace(facts, init_pid=None, init_start_ticks=None)

    def _runs(self, cgroup: Cgroup) -> bool:
        """True when a process other than the runtime's own is in the cgroup: its limits stand by then."""
        if self._hierarchy.version is CgroupVersion.V2 and not cgroup.is_populated():
            return False  # one file tells, where v1 would have to look for processes
        return any(is_runtime_init(self._root, p) is False for p in cgroup.some_pids(_INIT_LOOKED_AT))

    def _nodes(self, cgroup: Cgroup, doubts: list[str], missing: list[str]) -> tuple[NodeSet, NodeSet, NodeSet]:
        """
        The cgroup's own, granted and parent's nodes; what cannot be read is empty and a doubt. Cgroups in which
        cpuset is not enabled go to *missing*.
        """
        parent = self.granted_above(cgroup.path)
        try:
            return cgroup.read_cpuset_mems(), cgroup.read_cpuset_mems_effective(), parent
        except CgroupGone:
            raise
        except KernelReadError as exc:
            if exc.errno == errno.ENOENT:
                missing += missing_cpuset(self._hierarchy, cgroup.path)
                doubts.append(self._no_cpuset(missing))
            else:
                doubts.append(str(exc))
        except KernelError as exc:
            doubts.append(str(exc))
        return NodeSet(), NodeSet(), parent

    def _rootless(self, path: str) -> Iterator[str]:
        """
        A sentence when the directory above belongs to a user: whoever may make cgroups there may give them any name.

        The container's own directory proves nothing, for runtimes give it to the root user of its namespace.
        """
        try:
            with self.open("/") as top, self.open(path.rpartition("/")[0] or "/") as above:
                if above.uid != top.uid:
                    yield f"its cgroup was made by user {above.uid}: rootless containers are not managed"
        except KernelError:
            return  # it is going

    def granted_above(self, path: str) -> NodeSet:
        """Nodes of the nearest ancestor that says which; on v1 a parent may not be initialised yet."""
        parts = path_parts(path)
        for k in range(len(parts) - 1, -1, -1):
            try:
                with self.open("/" + "/".join(parts[:k])) as above:
                    nodes = above.read_cpuset_mems_effective()
            except KernelError:
                continue
            if nodes:
                return nodes
        return NodeSet()

    def _no_cpuset(self, missing: Sequence[str]) -> str:
        files = [control_file(self._hierarchy, above) for above in missing]
        if not files:
            return "its cgroup has no cpuset.mems"
        remedy = " && ".join(f"echo +cpuset > {file}" for file in files)
        return f"cpuset is not enabled for it: {files[0]} lacks cpuset; remedy: {remedy}"

    def _limits(self, cgroup: Cgroup, doubts: list[str]) -> Limits:
        try:
            return cgroup.read_limits()
        except CgroupGone:
            raise
        except KernelError as exc:
            doubts.append(str(exc))
            return Limits()

    def _pod_limits(self, pod: PodPath | None, doubts: list[str]) -> Limits | None:
        if pod is None:
            return None
        try:
            with self.open(pod.cgroup) as cgroup:
                return cgroup.read_limits()
        except CgroupGone:
            return None
        except KernelError as exc:
            doubts.append(str(exc))
            return None

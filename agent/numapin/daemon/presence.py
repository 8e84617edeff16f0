"""
What can be said of a container's cgroup right now: is it there, is it still the same, what does it hold.

Owns: what counts as "gone" and what as "cannot be looked at". Must never: decide or write anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from numapin.daemon.config import Config
from numapin.daemon.holdings import Before, Holdings, read_before, read_holdings
from numapin.daemon.logs import Log
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import PinRecord
from numapin.model.container import ContainerRecord
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.memory import MemoryType, page_size_of
from numapin.model.nodeset import NodeId, NodeSet


class Finder(Protocol):
    """Finds containers (`numapin.kernel.discovery.Discovery`)."""

    def scan(self) -> list[ContainerRecord]: ...

    def inspect(self, path: str) -> ContainerRecord | None: ...

    def age(self, record: ContainerRecord) -> int: ...

    def is_kept(self, container_id: str) -> bool: ...

    def open(self, path: str) -> Cgroup: ...

    def granted_above(self, path: str) -> NodeSet: ...


class Presence:
    """A finder whose troubles are log lines and answers on the safe side."""

    def __init__(self, finder: Finder, log: Log) -> None:
        self._finder = finder
        self._log = log

    def scan(self) -> list[ContainerRecord]:
        """Every container on the host. Raises: KernelReadError, when the hierarchy cannot be read."""
        return self._finder.scan()

    def inspect(self, path: str) -> ContainerRecord | None:
        """The container at *path*; ``None`` when there is none or it cannot be looked at."""
        try:
            return self._finder.inspect(path)
        except KernelError as exc:
            self._say(path, exc)
            return None

    def age(self, record: ContainerRecord) -> int:
        """A number that is smaller the older the container is; 0 where nobody knows."""
        return self._finder.age(record)

    def still_there(self, path: str, inode: int) -> bool:
        """True for a container that is there after all, or cannot be looked at now: nothing says that it ended."""
        try:
            record = self._finder.inspect(path)
        except KernelError as exc:
            self._say(path, exc)
            return True
        return record is not None and record.inode == inode

    def exists(self, path: str) -> bool:
        """False only when the kernel says that there is no such cgroup."""
        try:
            self._finder.open(path).close()
        except CgroupGone:
            return False
        except KernelError:
            return True
        return True

    def lives(self, record: ContainerRecord) -> bool:
        """True when the container's very cgroup is there: the event was about an earlier one of the same path."""
        try:
            with self._finder.open(record.cgroup) as cgroup:
                return cgroup.inode == record.inode
        except KernelError:
            return False

    def holdings(self, record: ContainerRecord) -> Holdings:
        """What a container holds already; nothing when it cannot be looked at or has hardly begun."""
        if not record.settled:
            return Holdings()
        try:
            with self._finder.open(record.cgroup) as cgroup:
                return read_holdings(cgroup, record)
        except KernelError:
            return Holdings()

    def hugepages(self, pin: PinRecord, kind: MemoryType) -> Mapping[NodeId, int] | None:
        """
        Bytes of huge pages of one type that a container uses per node; ``None`` where nobody knows, and nothing when
        its cgroup is gone.
        """
        size = page_size_of(kind)
        if size is None:
            return None
        try:
            with self._finder.open(pin.cgroup) as cgroup:
                return cgroup.read_hugetlb_numa_stat(size) if cgroup.inode == pin.inode else {}
        except CgroupGone:
            return {}
        except KernelError:
            return None

    def before(self, record: ContainerRecord) -> Before:
        """What an undo shall bring back beside the nodes; nothing when it cannot be looked at, and so not written."""
        if not record.cgroup_v1:
            return Before()
        try:
            with self._finder.open(record.cgroup) as cgroup:
                return read_before(cgroup) if cgroup.inode == record.inode else Before()
        except KernelError:
            return Before()

    def _say(self, path: str, exc: KernelError) -> None:
        self._log.warning("container_unreadable", cgroup=path, code=exc.code, reason=str(exc))


def rules_of_class(config: Config) -> tuple[object, ...]:
    """What of the configuration decides about a container's class, and what of its request its pod shares."""
    return config.qos_standalone, config.qos_system_containers, config.enable_cpuset, config.scope


def facts(record: ContainerRecord) -> tuple[object, ...]:
    """What a decision depends on and can change while a container lives."""
    return (
        record.limits,
        record.pod_limits,
        record.parent_mems,
        () if record.cpuset_missing and len(record.doubts) == 1 else record.doubts,  # decided as if it had cpuset
        record.cpuset_missing,
        record.name,
        record.kind,
        record.oci,
        record.settled,
    )

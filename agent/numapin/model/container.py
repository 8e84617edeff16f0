"""A container as the host shows it: cgroup, OCI facts, QoS class, request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from numapin.model.memory import MemoryType, Owner
from numapin.model.nodeset import CpuSet, NodeSet

ContainerId = NewType("ContainerId", str)


class QosClass(StrEnum):
    """Kubernetes' three classes, and what cannot be told."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
    UNKNOWN = "Unknown"


class Runtime(StrEnum):
    """Who made the container, as far as its cgroup and metadata tell."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"
    DOCKER = "docker"
    PODMAN = "podman"
    RUNC = "runc"
    CRUN = "crun"
    LXC = "lxc"
    NSPAWN = "nspawn"
    UNKNOWN = "unknown"


class ContainerKind(StrEnum):
    """What a recognised cgroup holds; only CONTAINER is ever managed."""

    CONTAINER = "container"
    SANDBOX = "sandbox"
    SYSTEM = "system-container"
    """LXC or nspawn."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of one cgroup or one OCI document. ``None`` everywhere means *no limit, or not set*.

    ``hugetlb`` is keyed by page size in bytes and holds only sizes with a number. ``cpu_quota_us`` per
    ``cpu_period_us``; ``cpus`` is a non-empty explicit CPU set.
    """

    memory_bytes: int | None = None
    memory_reservation_bytes: int | None = None
    cpu_quota_us: int | None = None
    cpu_period_us: int | None = None
    cpu_shares: int | None = None
    cpus: CpuSet | None = None
    hugetlb: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """A device node given to a container: its path *there*, and the host's numbers, which are what counts."""

    path: str
    is_block: bool
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class OciFacts:
    """
    What the OCI bundle and the runtime's state say.

    ``source`` is the file read. ``mems`` is a node set that somebody else chose (``linux.resources.cpu.mems``)
    or ``None``. ``cgroups_path`` is the document's own claim. ``net_devices`` are host network interfaces that
    were moved into the container.
    ``init_pid`` with ``init_start_ticks`` is the first process as the runtime recorded it.
    """

    source: str
    limits: Limits
    mems: NodeSet | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroups_path: str = ""
    devices: tuple[Device, ...] = ()
    net_devices: tuple[str, ...] = ()
    init_pid: int | None = None
    init_start_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """
    One container found on the host, before any decision.

    ``cgroup`` is the path of its outermost cgroup below the hierarchy's root (``/system.slice/docker-….scope``)
    and ``inode`` that directory's. ``limits`` are the live cgroup's, ``pod_limits`` the pod cgroup's. ``mems``
    is the cgroup's own value (empty: inherited), ``effective_mems`` what is granted, ``parent_mems`` what the
    parent grants. ``pod_qos`` is what the path says under kubepods. ``findings`` are sentences about
    contradictions; any in ``doubts`` forbids a pin. ``class_certain`` is false where one of them is about what the
    class is told by. ``pod_cgroup`` is the pod's own cgroup.

    ``settled`` is false while the runtime may not have written the limits yet: then ``oci.limits`` fill what the
    cgroup does not say. ``sizes_readable`` is false where no memory controller shows the container's limit.
    ``cgroup_v1``: cpuset is on a v1 hierarchy. ``cpuset_missing`` are the cgroups above it, from the top down, in
    which cpuset would have to be enabled before the container has a ``cpuset.mems``; a doubt says so too.
    """

    id: ContainerId
    name: str
    cgroup: str
    inode: int
    runtime: Runtime
    kind: ContainerKind
    limits: Limits
    mems: NodeSet
    effective_mems: NodeSet
    parent_mems: NodeSet
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_qos: QosClass | None = None
    pod_limits: Limits | None = None
    oci: OciFacts | None = None
    doubts: tuple[str, ...] = ()
    class_certain: bool = True
    findings: tuple[str, ...] = ()
    settled: bool = True
    sizes_readable: bool = True
    pod_cgroup: str | None = None
    cgroup_v1: bool = False
    cpuset_missing: tuple[str, ...] = ()

    @property
    def owner(self) -> Owner:
        """Key of this container's assignment."""
        if self.pod_uid is not None:
            return Owner(self.pod_uid, self.name)
        return Owner(self.id, self.id)


@dataclass(frozen=True, slots=True)
class NestedContainer:
    """
    What was recognised inside a container (kind, Docker in Docker): it is told of and never managed.

    ``cgroup`` and ``outer`` are paths below the hierarchy's root, ``outer`` that of the container around it.
    ``pod_uid`` is the pod's that the path names, a pod of the cluster in there.
    """

    id: ContainerId
    runtime: Runtime
    cgroup: str
    outer: str
    pod_uid: str | None = None


class StandaloneQos(StrEnum):
    """How a container outside Kubernetes becomes Guaranteed (configuration ``qos.standalone``)."""

    LIMITS = "limits"
    ANNOTATION = "annotation"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Classification:
    """
    A container's class, the sentence of the rule that gave it, and its request in bytes per memory type.

    ``request`` is empty unless the class is Guaranteed and the sizes are known. ``rule`` is a stable code,
    ``reason`` the sentence for people. ``findings`` are what an admin should look at. ``borrowed`` are types of the
    request that are the pod's limit, because the container has none of its own: its containers share them.
    """

    qos: QosClass
    rule: str
    reason: str
    request: Mapping[MemoryType, int] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    borrowed: frozenset[MemoryType] = frozenset()

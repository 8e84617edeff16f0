"""What the daemon remembers on disk: the books, and why each container has its nodes.

Owns: the values of one checkpoint and the rules between them. Must never: know how they are written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numapin.model.container import ContainerId, Runtime
from numapin.model.memory import Books, Owner, of_pod
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Explanation, RefusalCode

CHECKPOINT_VERSION = 1
"""Schema of the checkpoint that this program writes and the only one it reads."""


class Phase(StrEnum):
    """How far one container's pin has come."""

    PLANNED = "planned"
    """Decided and reserved; the cgroup may or may not have been written."""
    VERIFIED = "verified"
    """Written, read back, granted by the kernel."""
    FAILED = "failed"
    """The kernel refused the write or grants something else; nothing is reserved."""
    DEFERRED = "deferred"
    """Reserved, but held back until the container's pages fit on the target."""
    FOREIGN = "foreign"
    """Somebody else chose the nodes; accounted where the size is known, never written."""


RESERVING = frozenset({Phase.PLANNED, Phase.VERIFIED, Phase.DEFERRED})
"""Phases whose containers must have an assignment in the books."""


@dataclass(frozen=True, slots=True)
class PinRecord:
    """
    One container with nodes.

    ``cgroup`` and ``inode`` say which directory is meant: a cgroup made anew under the same path has another
    inode. ``nodes`` is what ``cpuset.mems`` shall be; ``original_mems`` what it was before our first write
    (empty: inherited). ``explanation`` is ``None`` where nobody decided, as for a foreign pin. ``ended_ns`` is
    the wall time at which the cgroup went while its pod (or, outside a pod, its metadata) lives on and keeps the
    reservation, else ``None``. ``unit`` is the systemd unit whose property says the same; ``None`` where the direct
    write stands alone. On v1 ``original_below`` are the masks of child cgroups that had fewer nodes than their parent
    before our first write, keyed by the path below, and ``original_migrate`` is whether ``cpuset.memory_migrate`` was
    on then (``None``: not known, or v2).
    """

    container_id: ContainerId
    name: str
    pod_uid: str | None
    runtime: Runtime
    cgroup: str
    inode: int
    owner: Owner
    phase: Phase
    nodes: NodeSet
    original_mems: NodeSet
    explanation: Explanation | None = None
    message: str = ""
    ended_ns: int | None = None
    unit: str | None = None
    original_below: Mapping[str, NodeSet] = field(default_factory=dict)
    original_migrate: bool | None = None


@dataclass(frozen=True, slots=True)
class RefusalRecord:
    """A container whose request was refused and that runs on unrestricted; fields as in `plan.Refusal`."""

    owner: Owner
    container_id: ContainerId
    name: str
    inode: int
    code: RefusalCode
    kubelet_reason: str
    message: str
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Restored:
    """
    A cgroup that got back what it had before our pin, which reads like somebody's choice and is none.

    A populated v2 cgroup cannot be made to inherit again, so it got its parent's nodes as a value of its own
    (``follows``: as they grow, so shall it); on v1, and where a value equal to the parent's stood there, that one.
    ``mems`` are what we wrote, or were about to, the newest last: any other value is somebody else's.
    """

    inode: int
    mems: tuple[NodeSet, ...]
    follows: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    Everything one generation of the file holds.

    ``policy`` is the topology policy's word, ``boot_id`` the kernel's, ``saved_ns`` wall time in nanoseconds.
    ``containers`` and ``refusals`` are keyed by cgroup path (``/system.slice/docker-….scope``). ``cpuset_enabled``
    are cgroup paths, ascending, in which the controller was enabled for containers below, or was about to be.
    ``restored`` are living cgroups in which a value that we put back may stand, keyed by path. ``handed_over`` are
    pins that hold no more since another memory manager places their containers: their values may stand still, and
    only these records know what was there before.
    """

    policy: str
    boot_id: str
    saved_ns: int
    books: Books
    containers: Mapping[str, PinRecord] = field(default_factory=dict)
    refusals: Mapping[str, RefusalRecord] = field(default_factory=dict)
    version: int = CHECKPOINT_VERSION
    cpuset_enabled: tuple[str, ...] = ()
    restored: Mapping[str, Restored] = field(default_factory=dict)
    handed_over: Mapping[str, PinRecord] = field(default_factory=dict)


def explained_owners(records: Iterable[PinRecord]) -> set[Owner]:
    """Who holds memory because of these records: their owners, and what is kept for their pods or shared in them."""
    return {owner for record in records for owner in (record.owner, *of_pod(record.owner.pod))}


def _holds(owner: Owner, assignments: Mapping[Owner, object]) -> bool:
    """True also for what a pod holds as a whole when its containers hold all of it as their own."""
    return owner in assignments or (owner in of_pod(owner.pod) and any(o.pod == owner.pod for o in assignments))


def record_problems(checkpoint: Checkpoint) -> tuple[str, ...]:
    """
    Sentences about records and books that contradict each other; empty when all is well.

    The books' own arithmetic is not looked at here.
    """
    problems: list[str] = []
    assignments = checkpoint.books.assignments
    explained = explained_owners(checkpoint.containers.values())
    for cgroup, record in checkpoint.containers.items():
        if record.cgroup != cgroup:
            problems.append(f"containers[{cgroup}]: its own cgroup is {record.cgroup}")
        promised = NodeSet()
        for block in assignments.get(record.owner, ()):
            promised |= block.affinity
        if record.phase in RESERVING and not _holds(record.owner, assignments):
            problems.append(f"containers[{cgroup}]: {record.phase}, but nothing is reserved for {record.owner}")
        elif not promised.issubset(record.nodes):
            problems.append(
                f"containers[{cgroup}]: pinned to {record.nodes.named}, "
                f"but memory is reserved on {promised} for {record.owner}"
            )
        if cgroup in checkpoint.refusals:
            problems.append(f"containers[{cgroup}]: also among the refusals")
    problems.extend(
        f"entries[{owner}]: memory is reserved, but no container has it" for owner in assignments.keys() - explained
    )
    return tuple(sorted(problems))

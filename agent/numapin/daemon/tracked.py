"""One container as the daemon sees it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numapin.kernel.cgroupfs import Cgroup
from numapin.model.container import Classification, ContainerRecord
from numapin.model.kubelet import Hands
from numapin.model.nodeset import NodeId, NodeSet


class ContainerState(StrEnum):
    """What became of a container; the words stand in ``status``."""

    PINNED = "pinned"
    """Its nodes are guaranteed and the kernel holds it to them."""
    PINNING = "pinning"
    """Decided and saved; the kernel is still moving its pages."""
    CONTESTED = "contested"
    """Somebody else writes its nodes again and again; they are put right less often, and are not right now."""
    DEFERRED = "deferred"
    """Reserved, but its pages do not fit on the target yet."""
    LOST = "pin-lost"
    """Reserved, but a node of it has no memory at the moment; pinned again when it has."""
    WOULD_PIN = "would-pin"
    """Dry run: decided, not written."""
    FOREIGN = "pinned-by-others"
    """Somebody else chose its nodes; accounted and left alone."""
    REFUSED = "refused"
    """No promise can be kept; runs unrestricted."""
    RELEASED = "released"
    """Taken back by `numapin release`: nothing is promised until it or the daemon is started again."""
    FAILED = "failed"
    """The kernel did not grant the nodes: no promise stands, unless the value before could not be put back."""
    UNPINNED = "unpinned"
    """Guaranteed by class, but something forbids a pin; the message says what."""
    UNMANAGED = "not-managed"
    """Not Guaranteed, or not a container."""
    UNDECIDED = "not-decided"
    """Only looked at, without a daemon."""


class DriftCause(StrEnum):
    """Who wrote a pinned container's nodes, as far as it can be told."""

    SYSTEMD = "systemd-unit-change"
    """The unit's AllowedMemoryNodes said something else than ours."""
    RUNTIME = "runtime-update"
    """The runtime wrote the container's state at the same time."""
    OTHER = "by-hand-or-another-program"


NO_NODES = NodeSet()
NEVER_TRIED = (0, "")


@dataclass(slots=True)
class Tracked:
    """
    A container, its class, and the outcome so far. ``nodes`` is what it is promised (empty: nothing).

    ``cgroup`` is the open directory of a managed container; whoever drops the value closes it.
    """

    record: ContainerRecord
    classification: Classification
    state: ContainerState
    message: str = ""
    nodes: NodeSet = NO_NODES
    cgroup: Cgroup | None = None
    writes: int = 0
    """Of its ``cpuset.mems``, by this daemon."""
    repairs: int = 0
    repair_cause: DriftCause | None = None
    """Of the latest repair."""
    repaired_wall_ns: int | None = None
    """When that was."""
    wish: str = ""
    """A sentence while its size is raised beyond what its nodes could give; tried again like a refused one."""
    not_enabled: tuple[int, str] = NEVER_TRIED
    """How often in succession cpuset could not be enabled above it, and why last (`numapin.daemon.enabling`)."""
    decided_ns: int = 0
    """When this view was made, monotonic."""
    contest: str = ""
    """A sentence while its repairs are slowed down."""
    left: Mapping[NodeId, int] = field(default_factory=dict)
    """Bytes per node that it still has outside ``nodes``, as last looked at while pinned."""
    unit_note: str = ""
    """What became of the systemd unit's property; empty where there is none to set."""
    said: tuple[ContainerState, object, NodeSet] | None = None
    """What the last log line about it said."""
    hands: Hands = Hands.OURS
    """Whose decision this was."""
    seen_ns: int = 0
    """When its cgroup was first seen, monotonic; 0 when it was there before the daemon."""

    def follow(self, old: Tracked) -> None:
        """Take over from the view before what stays with the container, its open directory too."""
        self.cgroup, old.cgroup = old.cgroup, None
        self.repairs, self.repair_cause, self.contest = old.repairs, old.repair_cause, old.contest
        self.writes, self.repaired_wall_ns = old.writes, old.repaired_wall_ns
        self.unit_note, self.seen_ns, self.said = old.unit_note, old.seen_ns, old.said
        self.left = old.left if self.nodes == old.nodes else {}
        self.not_enabled = old.not_enabled
        if self.wish and self.state is ContainerState.DEFERRED and old.state is ContainerState.LOST:
            self.state = old.state  # a larger size that is refused says nothing of why the pin is held back

    def close(self) -> None:
        """Let go of the open directory."""
        if self.cgroup is not None:
            self.cgroup.close()
            self.cgroup = None


RECHECK_NS = tuple(ms * 1_000_000 for ms in (20, 80, 300, 1_000, 4_000))
"""When a container whose limits may not be written yet is looked at again, after it was first seen."""


class Youngsters:
    """Containers to look at again soon, because their limits may not have reached the cgroup yet."""

    def __init__(self) -> None:
        self._tries: dict[str, tuple[int, int]] = {}  # cgroup -> (first seen ns, looks so far)

    def add(self, cgroup: str, seen_ns: int) -> None:
        """Remember a container; one that is already known keeps its turn."""
        self._tries.setdefault(cgroup, (seen_ns, 0))

    def drop(self, cgroup: str) -> None:
        """Forget a container that is decided or gone."""
        self._tries.pop(cgroup, None)

    def take_due(self, now_ns: int) -> list[str]:
        """Containers whose next look is due; each call counts as a look."""
        due = [c for c, (seen, n) in self._tries.items() if n < len(RECHECK_NS) and seen + RECHECK_NS[n] <= now_ns]
        for cgroup in due:
            seen, n = self._tries[cgroup]
            self._tries[cgroup] = (seen, n + 1)  # one that had its last look stays known, or it would begin anew
        return due

    def next_ns(self) -> int | None:
        """Monotonic time of the next look, or ``None``."""
        return min((seen + RECHECK_NS[n] for seen, n in self._tries.values() if n < len(RECHECK_NS)), default=None)

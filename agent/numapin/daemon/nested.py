"""
What runs inside containers (kind, Docker in Docker, CI runners), as rows beside the containers themselves.

Owns: their wording, and how much looking one question may cost. Must never: make a view, a promise or a watch of one:
they are listed when somebody asks, and known to nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from numapin.daemon.documents import container_facts
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.clock import Clock
from numapin.kernel.recognition import MOST_INSIDE, Inside
from numapin.model.container import NestedContainer, QosClass
from numapin.model.nodeset import NodeSet

MOST_AT_ONCE = 6_000
"""What one answer over all containers may cost, in names looked at: some 40 ms of the loop."""
KEPT_NS = 2_000_000_000
"""How long one look serves: whoever may ask for the status could keep the daemon busy else."""
RULE = "inside-a-container"
STATE = "nested"
REASON = "a container inside another container is that container's own affair"

Row = dict[str, object]


class Looker(Protocol):
    """Looks inside a container (`numapin.kernel.discovery.Discovery`)."""

    def nested(self, outer: str, most: int = ...) -> Inside: ...


@dataclass(frozen=True, slots=True)
class NestedRows:
    """Rows by cgroup path, and the containers that hold more than was looked at."""

    rows: Sequence[Row] = ()
    unfinished: Sequence[str] = ()


class Nested:
    """Looks inside the containers of *views*, not more often than every `KEPT_NS`."""

    def __init__(self, looker: Looker, clock: Clock) -> None:
        self._looker = looker
        self._clock = clock
        self._last: tuple[int, NestedRows] | None = None

    def look(self, views: Sequence[Tracked]) -> NestedRows:
        """What is inside the containers now, or was a moment ago."""
        now = self._clock.monotonic_ns()
        if self._last is None or now - self._last[0] >= KEPT_NS:
            self._last = (now, nested_rows(self._looker, views))
        return self._last[1]


def nested_rows(looker: Looker, views: Sequence[Tracked]) -> NestedRows:
    """One look inside each container; what a container without directories costs is one question for its links."""
    rows: list[Row] = []
    unfinished = []
    left = MOST_AT_ONCE
    for view in sorted(views, key=lambda v: v.record.cgroup):
        inside = looker.nested(view.record.cgroup, min(MOST_INSIDE, left))
        left = max(left - inside.cost, 0)
        rows += [_row(nested, view) for nested in inside.found]
        if not inside.complete:
            unfinished.append(view.record.cgroup)
    return NestedRows(sorted(rows, key=lambda r: str(r["cgroup"])), unfinished)


def _row(nested: NestedContainer, outer: Tracked) -> Row:
    return container_facts(
        id=nested.id,
        name=nested.id[:12],
        pod_uid=nested.pod_uid,
        runtime=nested.runtime.value,
        kind=STATE,
        cgroup=nested.cgroup,
        qos=QosClass.UNKNOWN.value,
        rule=RULE,
        reason=REASON,
        state=STATE,
        message=f"runs inside {_outer(outer)}, {_covered(outer)}",
        nested_in=nested.outer,
    )


def _outer(view: Tracked) -> str:
    record = view.record
    name = "" if record.name == record.id else f"{record.name} "
    return f"{name}({record.id[:12]})"


def _covered(view: Tracked) -> str:
    """How far the outer container's reservation serves what is inside it."""
    nodes = view.nodes if view.state is not ContainerState.UNDECIDED else NodeSet()
    if nodes:
        return f"whose reservation on {nodes.named} covers it"
    if view.state is ContainerState.UNDECIDED:
        return "whose reservation, where it gets one, covers it"
    return f"which has no reservation ({view.state.value})"

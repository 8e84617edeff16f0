"""
Drift: somebody else wrote a pinned container's ``cpuset.mems``.

Owns: when it is put right, how often before it is put right more slowly, and who it probably was. Must never: decide
nodes, or fight another writer for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numapin.daemon.report import Reporter
from numapin.daemon.tracked import ContainerState, DriftCause, Tracked
from numapin.kernel.clock import Clock
from numapin.model.errors import KernelError
from numapin.model.nodeset import NodeSet

FREE_REPAIRS = 30
"""So many within `WINDOW_NS` are done at once: a script that reloads or updates twenty times is no quarrel."""
WINDOW_NS = 60_000_000_000
FIRST_WAIT_NS = 1_000_000_000
"""Between repairs once there were too many; doubled after each, up to `LONGEST_WAIT_NS`."""
LONGEST_WAIT_NS = 60_000_000_000

NEAR_NS = 2_000_000_000
"""A runtime writes its state file after the cgroup (runc) or before it, this near to it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """
    How readily one container's drift is repaired; times are monotonic nanoseconds and passed in.

    ``repairs`` are the times of the latest ones, ascending; ``wait_ns`` is kept between two of them, 0 at first.
    """

    repairs: tuple[int, ...] = ()
    wait_ns: int = 0

    def is_over(self, now_ns: int) -> bool:
        """True when the last repair has held for so long that there is no quarrel (any more)."""
        return not self.repairs or now_ns - self.repairs[-1] > max(WINDOW_NS, 2 * self.wait_ns)

    def due_ns(self, now_ns: int) -> int:
        """When a drift seen now may be repaired: now, or later."""
        if not self.wait_ns or self.is_over(now_ns):
            return now_ns
        return max(now_ns, self.repairs[-1] + self.wait_ns)

    def repaired(self, now_ns: int) -> Patience:
        """After a repair at this time."""
        if self.is_over(now_ns):
            return Patience((now_ns,))
        if self.wait_ns:
            return Patience((now_ns,), min(2 * self.wait_ns, LONGEST_WAIT_NS))
        recent = (*(t for t in self.repairs if now_ns - t < WINDOW_NS), now_ns)
        return Patience(recent, FIRST_WAIT_NS if len(recent) >= FREE_REPAIRS else 0)


@dataclass(slots=True)
class _History:
    """What is remembered of one container; times are monotonic nanoseconds, ``None``: never."""

    patience: Patience = Patience()
    due_ns: int | None = None
    drift_ns: int | None = None
    state_ns: int | None = None


class Repairs:
    """
    Repairs drift of an agent's containers; *write* starts the write of a view's nodes.

    An event leads to `look`, and so does the slow pass; `take_due` tells which containers to look at again.
    """

    def __init__(self, *, write: Callable[[Tracked], object], clock: Clock, reporter: Reporter) -> None:
        self._write = write
        self._clock = clock
        self._reporter = reporter
        self._known: dict[str, _History] = {}

    def look(self, view: Tracked) -> None:
        """Compare a pinned container's ``cpuset.mems`` with its nodes; put it right, or say when it will be."""
        if view.state not in (ContainerState.PINNED, ContainerState.CONTESTED) or view.cgroup is None:
            return
        try:
            found = view.cgroup.read_cpuset_mems()
        except KernelError:
            return  # gone, or the write will say what is wrong
        now = self._clock.monotonic_ns()
        if found == view.nodes:
            self._right_again(view, now)
            return
        history = self._known.setdefault(view.record.cgroup, _History())
        due = history.patience.due_ns(now)
        if due > now:
            history.due_ns = due
            view.state = ContainerState.CONTESTED
            view.message = f"cpuset.mems is {found or 'empty'} now; {view.contest}"
            self._reporter.container(view)
            return
        self._repair(view, found, history, now)

    def runtime_wrote(self, view: Tracked) -> None:
        """The container's runtime wrote its state: that explains a drift just before or just after."""
        now = self._clock.monotonic_ns()
        history = self._known.setdefault(view.record.cgroup, _History())
        history.state_ns = now
        if _near(history.drift_ns, now):
            self._explain(view, DriftCause.RUNTIME)

    def unit_said(self, view: Tracked, *, differed: bool) -> None:
        """The container's unit was asked after a write: it had other nodes than ours, which explains the drift."""
        history = self._known.get(view.record.cgroup)
        known = history is not None and history.drift_ns is not None
        if known and differed and view.repair_cause != DriftCause.RUNTIME:  # a runtime's update goes through systemd
            self._explain(view, DriftCause.SYSTEMD)

    def take_due(self, now_ns: int) -> list[str]:
        """Cgroups whose repair was put off until now."""
        due = [path for path, h in self._known.items() if h.due_ns is not None and h.due_ns <= now_ns]
        for path in due:
            self._known[path].due_ns = None
        return due

    def next_ns(self) -> int | None:
        """Monotonic time of the next `take_due`, or ``None``."""
        return min((h.due_ns for h in self._known.values() if h.due_ns is not None), default=None)

    def contested(self) -> list[str]:
        """Cgroups whose repairs are slowed down at present, to be looked at by the slow pass."""
        return [path for path, history in self._known.items() if history.patience.wait_ns]

    def forget(self, path: str) -> None:
        """The container is gone, or is not ours to keep any more."""
        self._known.pop(path, None)

    def _repair(self, view: Tracked, found: NodeSet, history: _History, now: int) -> None:
        history.patience, history.due_ns = history.patience.repaired(now), None
        history.drift_ns = now
        cause = DriftCause.RUNTIME if _near(history.state_ns, now) else DriftCause.OTHER
        view.repairs += 1
        view.repair_cause, view.repaired_wall_ns = cause, self._clock.wall_ns()
        self._reporter.history.last_repair_ns = now
        counters = self._reporter.counters
        counters.repairs += 1
        counters.repair_causes[cause] = counters.repair_causes.get(cause, 0) + 1
        wait_s = history.patience.wait_ns // 1_000_000_000
        view.contest = (
            f"somebody else writes it again and again, so it is put right once in {wait_s} s now" if wait_s else ""
        )
        self._reporter.log.warning(
            "drift_repaired",
            container_id=view.record.id,
            cgroup=view.record.cgroup,
            mems=str(view.nodes),
            found=str(found),
            cause=cause.value,
            repairs=view.repairs,
            next_wait_s=wait_s,
        )
        self._write(view)

    def _right_again(self, view: Tracked, now: int) -> None:
        """The value is ours: by our repair, or because the other one gave up."""
        history = self._known.get(view.record.cgroup)
        if history is None:
            return
        history.due_ns = None
        before = view.contest
        if before and history.patience.is_over(now):
            history.patience, view.contest = Patience(), ""
        if view.state is ContainerState.CONTESTED or (before != view.contest and view.message == before):
            view.state, view.message = ContainerState.PINNED, view.contest
            self._reporter.container(view)

    def _explain(self, view: Tracked, cause: DriftCause) -> None:
        if view.repair_cause is None or view.repair_cause == cause:
            return
        causes = self._reporter.counters.repair_causes
        causes[view.repair_cause] -= 1
        causes[cause] = causes.get(cause, 0) + 1
        view.repair_cause = cause
        self._reporter.log.info(
            "drift_explained", container_id=view.record.id, cgroup=view.record.cgroup, cause=cause.value
        )


def _near(then_ns: int | None, now_ns: int) -> bool:
    return then_ns is not None and now_ns - then_ns <= NEAR_NS

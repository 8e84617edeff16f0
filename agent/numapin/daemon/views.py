"""
One view per container: which one stands, and which container is to be decided again.

Owns: the views by cgroup, those to look at again soon, those whose last decision is not on disk. Must never: decide,
save or write anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from numapin.daemon.enabling import pause_ns
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.placing import Decision
from numapin.daemon.presence import facts
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import ContainerState, Tracked, Youngsters
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import Phase
from numapin.model.container import ContainerRecord
from numapin.model.kubelet import Hands
from numapin.model.nodeset import NodeSet


class Views:
    """The containers as the daemon sees them; ``known`` is by cgroup path."""

    def __init__(self, ledger: Ledger, clock: Clock, reporter: Reporter) -> None:
        self.known: dict[str, Tracked] = {}
        self.young = Youngsters()
        self._ledger = ledger
        self._clock = clock
        self._reporter = reporter
        self._unsaved: set[str] = set()

    def in_state(self, *states: ContainerState) -> list[Tracked]:
        """Views in one of these states; a list, for what is done with them changes views."""
        return [view for view in self.known.values() if view.state in states]

    def needs_decision(self, record: ContainerRecord, kubelet: Beside | None) -> bool:
        """True for a new container, and for one with other facts than at its last decision."""
        view = self.known.get(record.cgroup)
        if view is None or view.record.inode != record.inode or record.cgroup in self._unsaved:
            return True
        if view.state is ContainerState.FAILED and self._clock.monotonic_ns() - view.decided_ns >= pause_ns(view):
            return True
        if view.state is ContainerState.FOREIGN and record.mems != view.record.mems:
            return True
        if kubelet is not None and kubelet.disagrees(view):
            return True
        return facts(view.record) != facts(record)

    def drifted(self, record: ContainerRecord) -> bool:
        """True when the cgroup says other nodes than its view."""
        view = self.known.get(record.cgroup)
        return view is not None and view.record.inode == record.inode and record.mems != view.nodes

    def saved(self, paths: Iterable[str]) -> None:
        """The last decisions about these are on disk."""
        self._unsaved.difference_update(paths)

    def show(self, view: Tracked, *, first_pass: bool) -> None:
        """Make *view* its container's view. In the *first_pass* nobody knows since when a container is there."""
        path, old = view.record.cgroup, self.known.get(view.record.cgroup)
        view.decided_ns = self._clock.monotonic_ns()
        if old is not None and old.record.inode == view.record.inode:
            view.follow(old)
        else:
            view.seen_ns = 0 if first_pass else self._clock.monotonic_ns()
            self.young.drop(path)
        if old is not None:
            old.close()
        self.known[path] = view
        if view.record.settled or view.nodes:
            self.young.drop(path)
        else:
            self.young.add(path, view.seen_ns or self._clock.monotonic_ns())

    def show_unsaved(self, decision: Decision, *, first_pass: bool) -> None:
        """
        Nothing that this decision promised, gave up or accounted holds, for it is not on disk.

        What stood before stands on; a container without anything is shown as failed, and so looked at again. One that
        is the kubelet's, or may be, is shown as left alone, for that holds without a disk.
        """
        view = decision.view
        old = self.known.get(view.record.cgroup)
        stands = old is not None and old.record.inode == view.record.inode and old.nodes
        if old is not None and old.hands is Hands.KUBELET and view.hands is Hands.OURS:
            stands = False  # what the kubelet gave it holds no more
        self._unsaved.add(view.record.cgroup)
        true = bool(view.nodes) == (view.record.cgroup in self._ledger.pins)
        nothing_done = not decision.pin and decision.unpin is None
        if nothing_done and (self._left_alone(view) if view.state is ContainerState.FOREIGN else true):
            self.show(view, first_pass=first_pass)
        elif not stands and self._ledger.save_error is not None:
            view.state, view.nodes, view.message = ContainerState.FAILED, NodeSet(), str(self._ledger.save_error)
            self.show(view, first_pass=first_pass)
            self._reporter.container(view)

    def _left_alone(self, view: Tracked) -> bool:
        """True when a hand-over is so already: its record went with the reading, or is untouched as it shall be."""
        pin = self._ledger.pins.get(view.record.cgroup)
        if view.hands is Hands.KUBELET:
            return pin is None
        ours = pin is not None and pin.phase is not Phase.FOREIGN and pin.nodes == view.nodes
        return view.hands is Hands.UNKNOWN and ours

    def take(self, path: str) -> Tracked:
        """The container is gone: its view, which is no longer known."""
        self.young.drop(path)
        self._unsaved.discard(path)
        return self.known.pop(path)

    def close(self) -> None:
        """Let go of every open directory; the views stay to be looked at."""
        for view in self.known.values():
            view.close()

"""
Deciding about several containers at once: all decisions, one save, then every write.

Owns: the order *decide → save → write*, and who is decided first. Must never: write a cgroup for a decision that is
not on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numapin.daemon.admission import Admission, foreign_mems
from numapin.daemon.delivery import Delivery
from numapin.daemon.holdings import Holdings, asks_hugepages
from numapin.daemon.inherited import Following
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.placing import Decision
from numapin.daemon.presence import Presence
from numapin.daemon.report import Reporter
from numapin.daemon.saving import Saving
from numapin.daemon.situation import Situation
from numapin.daemon.tracked import ContainerState
from numapin.daemon.views import Views
from numapin.model.container import ContainerRecord
from numapin.planner.accounting import gave_back


class Batch:
    """The way of every container that is to be decided, alone or with others."""

    def __init__(
        self,
        *,
        situation: Situation,
        ledger: Ledger,
        found: Presence,
        views: Views,
        saving: Saving,
        delivery: Delivery,
        following: Following,
        kubelet: Beside | None,
        reporter: Reporter,
        dry_run: bool,
        writing: Callable[[str], bool],
    ) -> None:
        self._situation = situation
        self._ledger = ledger
        self._found = found
        self._views = views
        self._saving = saving
        self._delivery = delivery
        self._following = following
        self._kubelet = kubelet
        self._reporter = reporter
        self._dry_run = dry_run
        self._writing = writing

    def decide(self, records: Sequence[ContainerRecord], *, first_pass: bool) -> None:
        """Decide about all, save once, then write each; in the *first_pass* nothing is new to the log."""
        if not records:
            return
        if any(asks_hugepages(r) for r in records) or self._situation.pools_differ():
            self._situation.refresh_pools()
        mark = self._ledger.mark()
        admission = Admission(
            self._situation.machine,
            self._ledger,
            dry_run=self._dry_run,
            kubelet=self._kubelet,
            released=self._delivery.undo.reason,
            before=self._found.before,
            hugepages=self._found.hugepages,
            writing=self._writing,
        )
        pinned = self._ledger.pins.keys()
        decided = [
            # who has its nodes needs no tie-break, but its huge pages are no more free than they are missing
            admission.decide(
                r, Holdings() if r.cgroup in pinned and not asks_hugepages(r) else self._found.holdings(r)
            )
            for r in self._in_order(records)
        ]
        self._ledger.drop_orphans()
        if self._ledger.dirty and not self._saving.save():
            self._ledger.undo(mark)
            self._ledger.dirty = True  # the next `flush` finds out whether the cause is gone
            for decision in decided:
                self._views.show_unsaved(decision, first_pass=first_pass)
            return
        self._views.saved(r.cgroup for r in records)
        self._situation.released |= gave_back(mark.books, self._ledger.books)
        for decision in decided:
            self._views.show(decision.view, first_pass=first_pass)
        for decision in decided:
            self._act(decision)

    def _in_order(self, records: Sequence[ContainerRecord]) -> list[ContainerRecord]:
        """
        Who has nodes already comes first, by us or by others: a new one must not be given what they use. Among
        equals the oldest: after a release and a new start it is not refused for the sake of who came later.
        """

        def rank(record: ContainerRecord) -> tuple[int, int]:
            pin, age = self._ledger.pins.get(record.cgroup), self._found.age(record)
            if pin is not None and pin.inode == record.inode:
                return 0, age
            return 1 if foreign_mems(record, None, self._ledger.restored) is not None else 2, age

        return sorted(records, key=rank)

    def _act(self, decision: Decision) -> None:
        view = decision.view
        if decision.unpin is not None:
            ends = self._ledger.pins.get(view.record.cgroup) is decision.unpin
            self._delivery.restore(view, decision.unpin, ends=ends)
            self._situation.released = True
        if decision.follow is not None:
            self._following.write(view, decision.follow)
        if decision.pin:
            self._delivery.write(view, self._situation.machine)
            self._situation.released |= view.state is ContainerState.FAILED
            return
        if view.state is ContainerState.PINNED:
            self._delivery.keep(view, self._situation.machine)
        if view.record.settled or view.state is ContainerState.REFUSED:  # else a second look is due soon
            refusal = self._ledger.refusals.get(view.record.cgroup)
            self._reporter.container(view, code="" if refusal is None else refusal.code.value)

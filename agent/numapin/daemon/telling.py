"""
What systemd is told about a pinned container's unit, and when.

Owns: the right moment, and what its answer means for the pin's record. Must never: write a cgroup.
"""

from __future__ import annotations

from numapin.daemon.ledger import Ledger
from numapin.daemon.report import Reporter
from numapin.daemon.tracked import Tracked
from numapin.daemon.units import UnitOutcome, Units


class Telling:
    """Tells *units*, where there are any, the nodes of pinned containers."""

    def __init__(self, units: Units | None, ledger: Ledger, reporter: Reporter) -> None:
        self._units = units
        self._ledger = ledger
        self._log = reporter.log
        self._nobody_to_tell = False

    def tell(self, view: Tracked) -> None:
        """
        Tell the view's nodes, unless its runtime still sets the cgroup up.

        systemd would apply the whole unit again then, its device filter included, under runc's hands, and the
        container's start fails (BPF_PROG_ATTACH: ENOENT, seen with Docker). `tell_late` does it when it is settled.
        """
        if self._units is not None and view.record.settled:
            self._units.submit(view.record.cgroup, view.record.inode, view.nodes)

    def tell_late(self, view: Tracked) -> None:
        """`tell` for a container whose pin stands already, where that was not done yet."""
        pin = self._ledger.pins.get(view.record.cgroup)
        if pin is not None and pin.unit is None:
            self.tell(view)

    def told(self, view: Tracked, outcome: UnitOutcome) -> None:
        """Note whether systemd says the same as the cgroup; where it does not, the direct write stands alone."""
        if outcome.job.nodes != view.nodes:
            return  # overtaken
        note = outcome.problem or f"AllowedMemoryNodes of {outcome.job.unit} says the same"
        self._ledger.update_pin(view.record.cgroup, unit=None if outcome.problem else outcome.job.unit)
        if outcome.problem and note != view.unit_note and not outcome.absent:
            self._log.info(
                "unit_not_told", container_id=view.record.id, cgroup=view.record.cgroup, reason=outcome.problem
            )
        if outcome.absent and not self._nobody_to_tell:
            self._log.info("no_unit_is_told", reason=outcome.problem)  # once: it is the machine's affair
        self._nobody_to_tell = outcome.absent
        view.unit_note = note

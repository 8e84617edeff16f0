"""
Saves of the checkpoint, and the time while it cannot be written or read.

Owns: what is logged about it, and when to try again. Must never: decide what a failed save means for a container.
"""

from __future__ import annotations

from collections.abc import Callable

from numapin.daemon.ledger import Ledger
from numapin.daemon.report import Reporter
from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import CheckpointError, CheckpointUnreadable

Load = Callable[[], Checkpoint | None]
"""
What an earlier run left, ``None`` where there is nothing to believe.

Raises:
    CheckpointUnreadable: There is something, and it cannot be read.
"""


class Saving:
    """The checkpoint of *ledger* on its way to the disk and back."""

    def __init__(self, ledger: Ledger, reporter: Reporter) -> None:
        self._ledger = ledger
        self._reporter = reporter
        self._log = reporter.log
        self._load: Load | None = None
        self._recovered = False

    def hold(self, error: CheckpointUnreadable, load: Load) -> None:
        """Nothing holds until *load* returns what cannot be read now."""
        self._load = load
        self._ledger.hold(error)
        self._log.error("checkpoint_unreadable", code=error.code, reason=str(error))

    @property
    def held(self) -> bool:
        """True while nobody could read what an earlier run promised."""
        return self._load is not None

    def resume(self) -> tuple[bool, Checkpoint | None]:
        """Whether it can be read by now, and what it says."""
        assert self._load is not None
        try:
            checkpoint = self._load()
        except CheckpointUnreadable as exc:
            if str(exc) != str(self._ledger.save_error):
                self.hold(exc, self._load)
            return False, None
        self._load = None
        self._ledger.resume()
        self._log.info("checkpoint_readable_again")
        return True, checkpoint

    def save(self) -> bool:
        """Save; false when that failed, which is logged once for each reason."""
        before = self._ledger.save_error
        try:
            self._ledger.save()
        except CheckpointError as exc:
            if str(exc) != str(before):
                self._reporter.history.save_failures += before is None
                self._log.error("checkpoint_unwritable", code=exc.code, reason=str(exc))
            return False
        if before is not None:
            self._log.info("checkpoint_writable_again")
            self._recovered = True
        self._reporter.counters.saves = self._ledger.saves
        return True

    def take_recovered(self) -> bool:
        """True once after a save that succeeded again: what was decided meanwhile did not hold."""
        recovered, self._recovered = self._recovered, False
        return recovered

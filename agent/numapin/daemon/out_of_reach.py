"""
Pins in cgroups that are no container of ours any more, because ``cgroup.root`` was changed.

Owns: that each gets back what stood there before, however often that has to be tried. Must never: touch a pin that is
in reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.putting_back import Row, put_back, without
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import Checkpoint, Phase, PinRecord, Restored


class OutOfReach:
    """
    *reaches* says whether a container at a path could be found, *boot_id* is the kernel's.

    A pin that cannot be put back stays in the ledger with its memory, which its pages have, and its record, which
    alone knows what was there before; the full pass tries again.
    """

    def __init__(self, root: Path, reaches: Callable[[str], bool], boot_id: str, clock: Clock, log: Log) -> None:
        self._root = root
        self._reaches = reaches
        self._boot_id = boot_id
        self._clock = clock
        self._log = log
        self._left: dict[str, Row] = {}

    def release(self, checkpoint: Checkpoint) -> Checkpoint:
        """*checkpoint* without the pins out of reach, as far as they could be put back; itself without any."""
        self._left.clear()
        living = [p for p in checkpoint.containers.values() if p.ended_ns is None]
        pins = [p for p in living if checkpoint.boot_id == self._boot_id and not self._reaches(p.cgroup)]
        if not pins:
            return checkpoint
        restored = dict(checkpoint.restored)
        for pin in [p for p in pins if p.phase is not Phase.FOREIGN]:
            if (found := self._put_back(pin)) is not None:
                restored[pin.cgroup] = found
        done = without(checkpoint, [p for p in pins if p.cgroup not in self._left], self._clock)
        return replace(done, saved_ns=checkpoint.saved_ns, refusals=checkpoint.refusals, restored=restored)

    def retry(self, ledger: Ledger) -> bool:
        """Try again what could not be put back; returns whether memory was given back."""
        given = False
        for cgroup in list(self._left):
            pin = ledger.pins.get(cgroup)
            if pin is None:
                del self._left[cgroup]
                continue
            found = self._put_back(pin)
            if cgroup not in self._left:
                ledger.set_restored(cgroup, found)
                given |= ledger.drop(cgroup)
        return given

    def has(self, cgroup: str) -> bool:
        """True for a cgroup that is not as before yet."""
        return cgroup in self._left

    def rows(self) -> list[Row]:
        """What is not as before yet, as `release` says it; by cgroup."""
        return [dict(self._left[cgroup]) for cgroup in sorted(self._left)]

    def findings(self) -> list[tuple[str, str]]:
        """The same for the status."""
        why = "is outside of cgroup.root now, and could not be given back what it had before we pinned it"
        return [("out-of-reach", f"{row['cgroup']} {why}: {row['problem']}; tried again") for row in self.rows()]

    def _put_back(self, pin: PinRecord) -> Restored | None:
        row, found = put_back(self._root, pin, self._clock)
        facts = {"container_id": pin.container_id, "cgroup": pin.cgroup, "mems": row["mems"]}
        if not row["problem"]:
            self._left.pop(pin.cgroup, None)
            reason = row["message"] or "outside of cgroup.root now"
            self._log.info("container_out_of_reach", **facts, reason=reason)
            return found
        if self._left.get(pin.cgroup, {}).get("problem") != row["problem"]:
            self._log.warning("container_out_of_reach", **facts, reason=f"{row['problem']}; tried again")
        self._left[pin.cgroup] = row
        return None

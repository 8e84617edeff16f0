"""
The machine as last read, and whether something came free on it.

Owns: the one current `Machine`, putting the promises onto another one, and the word that a refused container may fit
now. Must never: decide about a container.
"""

from __future__ import annotations

from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.machine import Machine
from numapin.model.errors import ConfigError, KernelError
from numapin.planner.accounting import misfits
from numapin.planner.changes import changes


class Situation:
    """``machine`` is what decisions are made on; ``released`` is set where memory was given back, until tried."""

    def __init__(self, machine: Machine, ledger: Ledger, log: Log) -> None:
        self.machine = machine
        self.released = False
        self._ledger = ledger
        self._log = log

    def change(self, machine: Machine) -> None:
        """Put the promises onto *machine*, and name those that no longer fit if its NodeMap is another one."""
        old, self.machine = self.machine, machine
        if machine.node_map == old.node_map:
            return
        found = "; ".join(changes(old.node_map, machine.node_map))
        self._log.info("machine_changed", online=str(machine.topology.online), reason=found)
        self._ledger.rebase(machine.node_map)
        self.name_misfits()

    def refresh_pools(self) -> None:
        """Read the hugepage pools again: they change without any event."""
        try:
            machine = self.machine.with_pools()
        except (KernelError, ConfigError) as exc:
            self._log.warning("pools_unreadable", code=exc.code, reason=str(exc))
            return
        if machine.node_map != self.machine.node_map:
            found = "; ".join(changes(self.machine.node_map, machine.node_map))
            self._log.info("hugepage_pools_changed", reason=found)
            self._ledger.rebase(machine.node_map)
        self.machine = machine

    def name_misfits(self) -> None:
        """Log the promises that the machine does not hold."""
        for owner, sentence in misfits(self._ledger.books).items():
            self._log.warning("promise_does_not_fit", container_id=owner.container, reason=sentence)

"""
The machine as last read, and whether something came free on it.

Owns: the one current `Machine`, putting the promises onto another one, and the word that a refused container may fit
now. Must never: decide about a container.
"""

from __future__ import annotations

from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.machine import Machine
from numapin.kernel.sysfs import read_hugetlb, read_pool_pages
from numapin.model.errors import KernelError
from numapin.planner.changes import changes


class Situation:
    """``machine`` is what decisions are made on; ``released`` is set where memory was given back, until tried."""

    def __init__(self, machine: Machine, ledger: Ledger, log: Log) -> None:
        self.machine = machine
        self.released = False
        self._ledger = ledger
        self._log = log
        self._hugetlb = read_hugetlb(machine.root)
        self._trouble = machine.trouble

    def change(self, machine: Machine) -> None:
        """Put the promises onto *machine*, and name those that no longer fit if its NodeMap is another one."""
        self._put_onto(machine, "machine_changed", online=str(machine.topology.online))

    def pools_differ(self) -> bool:
        """
        True when some hugepage pool has another size than when they were last read, or nobody knows.

        One small file tells, whatever the number of nodes, that a machine has no pages at all; else it can still be
        the same sum in other pools, with pages taken from one node and given to another.
        """
        total, machine = read_hugetlb(self.machine.root), self.machine
        if total is None or total != self._hugetlb:
            return True
        known = [pool.nr_hugepages for n in machine.usable for pool in machine.topology.nodes[n].pools]
        return total > 0 and read_pool_pages(machine.root, machine.topology, machine.usable) != tuple(known)

    def refresh_pools(self) -> None:
        """Read the hugepage pools again: they change without any event, and what is in them is not memory."""
        self._hugetlb = read_hugetlb(self.machine.root)  # before the pools: what changes in between differs next time
        try:
            machine = self.machine.with_pools()
        except KernelError as exc:
            self._log.warning("pools_unreadable", code=exc.code, reason=str(exc))
            return
        if machine.trouble and machine.trouble != self._trouble:
            self._log.warning("reservation_does_not_fit", reason=machine.trouble)
        self._trouble = machine.trouble
        self._put_onto(machine, "hugepage_pools_changed")

    def _put_onto(self, machine: Machine, event: str, **facts: object) -> None:
        old, self.machine = self.machine, machine
        if machine.node_map == old.node_map:
            return
        self._log.info(event, **facts, reason="; ".join(changes(old.node_map, machine.node_map)))
        self._ledger.rebase(machine.node_map)
        self.name_misfits()

    def name_misfits(self) -> None:
        """Log the promises that the machine does not hold."""
        for owner, sentence in self._ledger.misfits.items():
            self._log.warning("promise_does_not_fit", container_id=owner.container, reason=sentence)

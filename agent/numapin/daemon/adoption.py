"""
A start: the promises of an earlier run on the machine and among the containers as they are now.

Owns: which promise lives on, waits, or is given back. Must never: write anything, or refuse to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from numapin.daemon.ledger import Ledger
from numapin.daemon.retention import Retention, parent
from numapin.model.checkpoint import Checkpoint
from numapin.model.container import ContainerRecord
from numapin.model.memory import Owner, of_pod


def adopt(
    checkpoint: Checkpoint,
    *,
    ledger: Ledger,
    retention: Retention,
    records: Mapping[str, ContainerRecord],
    grace_ns: int,
    exists: Callable[[str], bool],
    still_there: Callable[[str, int], bool],
) -> list[str]:
    """
    Take *checkpoint* into *ledger*; returns whose memory was given back, sorted.

    A container that lives keeps its record. One that is there in a new cgroup (after a reboot, a restart) loses the
    record and keeps the memory: the decision about its new cgroup finds it. One that ended while its pod lives, or
    while its runtime keeps it, waits for *grace_ns*. *records* are all containers by path; *exists* and
    *still_there* look at a cgroup, the latter is true also for one that cannot be read at the moment.
    """
    ledger.adopt(checkpoint)
    owners = {r.owner for r in records.values()} | {p.owner for p in ledger.pins.values() if p.cgroup in records}
    pods = {r.pod_uid for r in records.values() if r.pod_uid is not None}
    same_boot = checkpoint.boot_id == ledger.boot_id
    released: set[Owner] = set()
    for cgroup, pin in list(ledger.pins.items()):
        if same_boot and pin.ended_ns is None:
            alive = records.get(cgroup)
            if alive.inode == pin.inode if alive is not None else still_there(cgroup, pin.inode):
                continue
        if pin.owner in owners:
            ledger.forget(cgroup)
        elif (same_boot and retention.restarts(pin)) or (
            pin.pod_uid is not None and (pin.pod_uid in pods or (same_boot and exists(parent(cgroup))))
        ):
            retention.keep(cgroup, grace_ns)
        elif ledger.drop(cgroup):
            released.add(pin.owner)
    owners |= {owner for pod in pods for owner in of_pod(pod)}
    released |= {o for o in list(ledger.books.assignments) if o not in owners and ledger.drop_owner(o)}
    for cgroup in [c for c, r in ledger.refusals.items() if c not in records or records[c].inode != r.inode]:
        del ledger.refusals[cgroup]
        ledger.dirty = True
    return sorted(map(str, released))

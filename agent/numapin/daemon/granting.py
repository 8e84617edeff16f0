"""
What may stand between a promise and its nodes, and what a write's outcome says: questions without an effect.

Owns: the sentences with the numbers. Must never: write, or change a view.
"""

from __future__ import annotations

import errno

from numapin.daemon.machine import Machine
from numapin.daemon.pinning import Outcome
from numapin.daemon.tracked import Tracked
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase, PinRecord
from numapin.model.errors import KernelError, KernelWriteError
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes

MARGIN_BYTES = 32 << 20
"""Left free on the target of a migration: below the kernel's watermarks it would reclaim and stall."""


def short_of_room(cgroup: Cgroup, nodes: NodeSet, held: int | None, machine: Machine) -> str | None:
    """
    A sentence with the numbers when the pages that would move do not fit on *nodes* now, else ``None``.

    *held* is what the cgroup has in all, in bytes; ``None`` where nobody knows.

    Raises:
        KernelError: The kernel does not say where its pages are.
    """
    if held is not None and held <= MARGIN_BYTES:
        return None
    stat = cgroup.read_memory_numa_stat()
    if stat is None:
        return None
    outside = sum(size for node, size in stat.items() if node not in nodes)
    room = machine.available_bytes(nodes)
    if not outside or outside + MARGIN_BYTES <= room:
        return None
    has = "has" if len(nodes) == 1 else "have"
    return (
        f"{format_bytes(outside)} of its memory is on other nodes, and {nodes.named} {has} room for "
        f"{format_available(room)}; the pin waits until there is room"
    )


def lost_nodes(lost: NodeSet, left: NodeSet) -> str:
    """What to say of a promise some of whose nodes have no memory now, while *left* have."""
    where = f"the kernel keeps it to {left.named}" if left else "the kernel lets it use what its parent cgroup may"
    has = "has" if len(lost) == 1 else "have"
    return (
        f"{lost.named} {has} no memory now (taken offline, or unplugged); {where} meanwhile. Its reservation stays, "
        "and it is pinned again as soon as the memory is back; numapin release would give the reservation up"
    )


def not_granted_yet(outcome: Outcome, pin: PinRecord | None) -> str:
    """
    A sentence when a pin that was held back fails only because its nodes are not handed down (again) yet.

    Either the value stands, and cpuset learns of a node's return in a work of its own (before Linux 6.10); or
    cgroup v1, which takes a node that goes out of every cpuset and gives it back to none, refuses it below others.
    """
    if pin is None or pin.phase is not Phase.DEFERRED:
        return ""
    seen = outcome.verification
    if seen is not None and (missing := outcome.nodes - seen.effective):
        return f"the kernel does not grant {missing.named} again yet; looked at again soon"
    if isinstance(outcome.error, KernelWriteError) and outcome.error.errno == errno.EACCES:
        return f"{failure(outcome)}; the cgroups above lost a node and have to get it back, from the top down"
    return ""


def failure(outcome: Outcome) -> str:
    """What went wrong with a write that was not granted."""
    if outcome.error is not None:
        return str(outcome.error)
    seen = outcome.verification
    granted, mems = (seen.effective, seen.mems) if seen is not None else (NodeSet(), NodeSet())
    return (
        f"asked for {outcome.nodes.named}, the kernel grants {granted or 'none'} (cpuset.mems says {mems or 'none'})"
    )


def notes_of_v1(view: Tracked, pin: PinRecord | None, *, migrate: bool) -> list[str]:
    """What cgroup v1 leaves undone when it grants a pin: pages that stay, processes that were moved out."""
    if not view.record.cgroup_v1:
        return []
    notes = []
    if not migrate and view.seen_ns == 0:
        notes.append("pages it had before stay where they are (cgroup v1 without memory_migrate)")
    if pin is not None and pin.phase is Phase.DEFERRED and view.cgroup is not None:
        try:
            empty = not view.cgroup.is_populated()
        except KernelError:
            empty = False
        if empty:  # the kernel does so with a cpuset that loses its last node, and never moves them back
            notes.append("no process is in its cgroup: the kernel moved them out with the last node; restart it")
    return notes

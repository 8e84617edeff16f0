"""
What happened to this run of the daemon that is over and leaves no other trace in the status.

Owns: the facts of the start, the time of the latest repair, changes of the machine. Must never: decide anything.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from numapin.daemon.documents import container_label
from numapin.model.checkpoint import Checkpoint, Phase, PinRecord
from numapin.model.memory import NodeMap, Owner
from numapin.planner.changes import changes


@dataclass(frozen=True, slots=True)
class Adopted:
    """
    What became of an earlier run's promises at the start.

    ``taken_over`` are promises of living containers, ``waiting`` those whose container ended and may come back;
    ``given_back`` names the others, sorted. ``machine_differs`` are the sentences of `planner.changes.changes`.
    """

    taken_over: int
    waiting: int
    given_back: tuple[str, ...]
    same_boot: bool
    machine_differs: tuple[str, ...]


@dataclass(slots=True)
class History:
    """The facts so far; times are monotonic nanoseconds, ``None``: never."""

    adopted: Adopted | None = None
    last_repair_ns: int | None = None
    machine_changes: int = 0
    last_machine_change: tuple[str, ...] = ()
    last_machine_change_ns: int | None = None
    save_failures: int = 0
    """How often a checkpoint could not be saved after one that could."""

    def machine_changed(self, before: NodeMap, after: NodeMap, now_ns: int) -> None:
        """The machine was read again; one with the same NodeMap did not change."""
        if before != after and (found := changes(before, after)):
            self.machine_changes += 1
            self.last_machine_change, self.last_machine_change_ns = found, now_ns


def adopted_from(
    checkpoint: Checkpoint,
    pins: Mapping[str, PinRecord],
    held: Container[Owner],
    *,
    same_boot: bool,
    differs: tuple[str, ...],
) -> Adopted:
    """
    The facts of a start: of the promises in *checkpoint*, *pins* are the records left and *held* has the owners whose
    memory is reserved still. A container that came back in another cgroup has no record until it is decided.
    """
    ours = [p for p in checkpoint.containers.values() if p.phase is not Phase.FOREIGN]
    waiting = sum(p.ended_ns is not None for p in pins.values() if p.phase is not Phase.FOREIGN)
    given_back = sorted(pin_label(p) for p in ours if p.owner not in held)
    return Adopted(
        taken_over=len(ours) - waiting - len(given_back),
        waiting=waiting,
        given_back=tuple(given_back),
        same_boot=same_boot,
        machine_differs=differs,
    )


def pin_label(pin: PinRecord) -> str:
    """How people know the container of this record."""
    return container_label(id=pin.container_id, name=pin.name, pod=pin.pod_uid)


def since_start_document(
    history: History, *, started_ns: int, now_ns: int, repairs: int, causes: Mapping[str, int], overflows: int
) -> dict[str, object]:
    """
    ``since_start`` of a status: seconds, counts and sentences; every key is always there.

    ``promises`` and ``rebooted`` are ``None`` where there was no checkpoint to begin with.
    """
    start = history.adopted

    def ago(then_ns: int | None) -> int | None:
        return None if then_ns is None else max(0, now_ns - then_ns) // 1_000_000_000

    return {
        "seconds": ago(started_ns),
        "promises": None
        if start is None
        else {"taken_over": start.taken_over, "waiting": start.waiting, "given_back": list(start.given_back)},
        "rebooted": None if start is None else not start.same_boot,
        "machine_differs": [] if start is None else list(start.machine_differs),
        "machine_changes": history.machine_changes,
        "last_machine_change": list(history.last_machine_change),
        "last_machine_change_seconds_ago": ago(history.last_machine_change_ns),
        "repairs": repairs,
        "repair_causes": {cause: count for cause, count in sorted(causes.items()) if count},
        "last_repair_seconds_ago": ago(history.last_repair_ns),
        "overflows": overflows,
        "save_failures": history.save_failures,
    }

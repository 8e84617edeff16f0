"""
Memory of ended containers that stays for a while: with their living pod for the pod's next container, or, outside a
pod, for the same container's restart as long as its runtime keeps it.

Owns: how long it stays. Must never: decide who gets it; a plan of the same pod uses it first.
"""

from __future__ import annotations

from collections.abc import Callable

from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import PinRecord

LOOK_NS = 1_000_000_000
"""How often it is looked whether a stopped container outside a pod was removed meanwhile: no event tells."""


class Retention:
    """
    Which reservations wait, and until when.

    *exists* tells whether a cgroup path is there, *kept* whether a runtime still has a container of this id.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        log: Log,
        exists: Callable[[str], bool],
        kept: Callable[[str], bool],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._log = log
        self._exists = exists
        self._kept = kept
        self._due: dict[str, int] = {}  # cgroup of the ended container -> monotonic ns of the next look
        self._until: dict[str, int] = {}  # -> monotonic ns when its memory goes at the latest

    def end(self, cgroup: str, grace_ns: int) -> bool:
        """A container's cgroup went: keep its memory for the pod, or give it back; returns whether it was given."""
        pin = self._ledger.pins.get(cgroup)
        if pin is not None and self._waits(pin):
            self.keep(cgroup, grace_ns)
            waits_for = pin.pod_uid or "its restart"
            self._log.info("container_ended", container_id=pin.container_id, cgroup=cgroup, kept_for=waits_for)
            return False
        released = self._ledger.drop(cgroup)
        self._log.info("container_ended", cgroup=cgroup, released=released)
        return released

    def keep(self, cgroup: str, grace_ns: int) -> None:
        """Mark a record as ended and keep its memory for *grace_ns* from now."""
        pin = self._ledger.pins[cgroup]
        self._ledger.update_pin(cgroup, ended_ns=pin.ended_ns or self._clock.wall_ns())
        now = self._clock.monotonic_ns()
        self._until[cgroup] = now + grace_ns
        self._due[cgroup] = now + (grace_ns if pin.pod_uid is not None else min(grace_ns, LOOK_NS))

    def end_of_pod(self, path: str) -> bool:
        """Give back what waits for a pod whose cgroup *path* went; returns whether anything did."""
        waiting = [c for c, p in self._ledger.pins.items() if p.ended_ns is not None and parent(c) == path]
        if not waiting or self._exists(path):
            return False
        released = [self.give_back(cgroup) for cgroup in waiting]
        return any(released)

    def take_due(self, now_ns: int) -> bool:
        """Give back what has waited long enough, or waits for nothing any more; returns whether anything did."""
        released = False
        for cgroup in [c for c, at in self._due.items() if at <= now_ns]:
            pin = self._ledger.pins.get(cgroup)
            if now_ns < self._until[cgroup] and pin is not None and pin.ended_ns is not None and self.restarts(pin):
                self._due[cgroup] = min(now_ns + LOOK_NS, self._until[cgroup])
            else:
                released |= self.give_back(cgroup)
        return released

    def give_back(self, cgroup: str) -> bool:
        """Give an ended container's memory back now, whatever waits for it; returns whether there was any."""
        self._due.pop(cgroup, None)
        self._until.pop(cgroup, None)
        pin = self._ledger.pins.get(cgroup)
        if pin is None or pin.ended_ns is None or not self._ledger.drop(cgroup):
            return False
        self._log.info("reservation_released", container_id=pin.container_id, cgroup=cgroup)
        return True

    def next_ns(self) -> int | None:
        """Monotonic time of the next `take_due`, or ``None``."""
        return min(self._due.values(), default=None)

    def restarts(self, pin: PinRecord) -> bool:
        """True for a container outside a pod that its runtime still keeps: it may be started again."""
        return pin.pod_uid is None and self._kept(pin.container_id)

    def _waits(self, pin: PinRecord) -> bool:
        """True when nobody has taken the memory over, and the pod's cgroup or the container's metadata is there."""
        if self._ledger.holder(pin.owner, besides=pin.cgroup) is not None:
            return False
        return self.restarts(pin) or (pin.pod_uid is not None and self._exists(parent(pin.cgroup)))


def parent(path: str) -> str:
    """The cgroup above *path*."""
    return path.rpartition("/")[0] or "/"

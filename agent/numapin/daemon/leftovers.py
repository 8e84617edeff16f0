"""
Memory that a pinned container still has on other nodes than its own.

The kernel moves pages when ``cpuset.mems`` is written, but a page that is being allocated at that moment, one that is
locked for a device, and on cgroup v1 without memory_migrate every earlier one stays behind. Nothing can come to
it afterwards, so one look after each pin is enough, and one with each full pass for those that had some.

Owns: when to look, and the sentence. Must never: move anything.
"""

from __future__ import annotations

from numapin.daemon.logs import Log
from numapin.daemon.outcome import SAID_BYTES
from numapin.daemon.tracked import Tracked
from numapin.kernel.clock import Clock
from numapin.model.errors import KernelError
from numapin.model.quantity import format_bytes

LOOK_NS = 2_000_000_000
"""After a pin; what was being allocated then is there by now."""


class Leftovers:
    """When to look at which pinned container."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._due: dict[str, int] = {}

    def pinned(self, cgroup: str) -> None:
        """The container was pinned just now, or was found pinned."""
        self._due[cgroup] = self._clock.monotonic_ns() + LOOK_NS

    def forget(self, cgroup: str) -> None:
        """The container is not ours any more."""
        self._due.pop(cgroup, None)

    def next_ns(self) -> int | None:
        """Monotonic time of the next look, or ``None``."""
        return min(self._due.values(), default=None)

    def take_due(self, now_ns: int) -> list[str]:
        """Cgroups to `look` at now."""
        due = [cgroup for cgroup, at in self._due.items() if at <= now_ns]
        for cgroup in due:
            del self._due[cgroup]
        return due

    def look(self, view: Tracked) -> None:
        """Note the bytes per node outside the view's nodes; a container that cannot be read keeps what was noted."""
        if view.cgroup is None:
            return
        try:
            held = view.cgroup.read_memory_numa_stat() or {}
        except KernelError:
            return
        before, view.left = view.left, {n: size for n, size in held.items() if size and n not in view.nodes}
        if (told := sentence(view)) and not before:
            self._log.warning(
                "pages_left_behind",
                container_id=view.record.id,
                cgroup=view.record.cgroup,
                mems=str(view.nodes),
                left_bytes={str(n): size for n, size in view.left.items()},
                reason=told,
            )


def sentence(view: Tracked) -> str:
    """What to say about it; empty when there is nothing worth saying."""
    if not view.nodes or sum(view.left.values()) < SAID_BYTES:
        return ""
    where = ", ".join(f"{format_bytes(size)} on node {n}" for n, size in view.left.items())
    return (
        f"{where} from before the pin, which the kernel did not move; new memory comes from {view.nodes.named}, and "
        "a restart of the container brings all of it there"
    )

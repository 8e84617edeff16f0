"""
Enabling the cpuset controller above a container that shall be pinned (``cgroup.enable_cpuset``, cgroup v2).

Owns: for whom it is done, what is said before and after, and what is remembered of it. Must never: do it for a
container without a promise, or take it back: others may depend on it by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from numapin.daemon.config import Config
from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.tracked import NEVER_TRIED, Tracked
from numapin.kernel.cgroup_controllers import Enabled
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.container import ContainerRecord
from numapin.model.errors import CgroupGone, CheckpointError

Enabler = Callable[[Cgroup], Enabled]
"""`numapin.kernel.cgroup_controllers.enable_cpuset`."""

_FIRST_PAUSE_NS = 60_000_000_000
_LONGEST_PAUSE_NS = 600_000_000_000

EFFECT = (
    "the kernel gives every process below the CPUs of its cgroup anew, so a CPU affinity set by other means "
    "(taskset, CPUAffinity= of systemd) can be lost there"
)


def may_enable(record: ContainerRecord, config: Config) -> bool:
    """True when nothing but the controller is in the way, and it may be enabled: never at the hierarchy's root."""
    missing = record.cpuset_missing
    return config.enable_cpuset and bool(missing) and "/" not in missing and len(record.doubts) == 1


def why_not(record: ContainerRecord, config: Config) -> str:
    """What to add to the doubts of a container without cpuset, empty where nothing is."""
    missing = record.cpuset_missing
    if "/" in missing:
        return (
            "; at the root of the hierarchy that resets the CPU affinity of every process on the host, so numapin "
            "leaves it to you"
        )
    return "; cgroup.enable_cpuset = true has numapin do it" if missing and not config.enable_cpuset else ""


def enable_for(view: Tracked, cgroup: Cgroup, enable: Enabler, ledger: Ledger, log: Log) -> str:
    """
    Enable cpuset on the way to the view's container where it is not; a sentence when it still has none, empty when
    it has.

    The promise must be on disk, and the cgroups that are about to be changed are before they are: those that were
    not changed are taken out again. What a kernel refuses for good is said once, and tried again after `pause_ns`.

    Raises:
        CheckpointError: They cannot be saved; nothing was enabled.
    """
    missing = view.record.cpuset_missing
    if not missing:
        view.not_enabled = NEVER_TRIED
        return ""
    new = frozenset(missing) - ledger.enabled
    if ledger.will_enable(new):
        try:
            ledger.save()
        except CheckpointError:
            ledger.not_enabled(new)
            raise
    facts = {"container_id": view.record.id, "cgroup": view.record.cgroup}
    tries, said = view.not_enabled
    if not tries:
        log.warning("cpuset_enabling", **facts, paths=list(missing), reason=EFFECT)
    came = enable(cgroup)
    ledger.not_enabled({*came.left, *new.difference(came.done)})  # another program may have been quicker
    if came.done:
        log.warning("cpuset_enabled", **facts, paths=list(came.done))
    if came.error is None or isinstance(came.error, CgroupGone):
        view.record, view.not_enabled = replace(view.record, cpuset_missing=()), NEVER_TRIED
        return ""
    problem = str(came.error)
    if problem != said:
        log.error("cpuset_not_enabled", **facts, code=came.error.code, reason=problem)
    view.not_enabled = (tries + 1, problem)
    return problem


def pause_ns(view: Tracked) -> int:
    """How long after its last decision a container waits whose cpuset could not be enabled: each try costs saves."""
    tries, _ = view.not_enabled
    return min(_FIRST_PAUSE_NS << min(tries - 2, 10), _LONGEST_PAUSE_NS) if tries > 1 else 0


def enabled_findings(paths: Iterable[str]) -> list[tuple[str, str]]:
    """The finding that stays as long as the cgroups do."""
    known = ", ".join(sorted(paths))
    return [("cpuset-enabled", f"numapin enabled cpuset in {known}: {EFFECT}; it stays enabled")] if known else []

"""
Enabling the cpuset controller above a container that shall be pinned (``cgroup.enable_cpuset``, cgroup v2).

Owns: for whom it is done, what is said before and after, and what is remembered of it. Must never: do it for a
container without a promise, or take it back: others may depend on it by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from numapin.daemon.config import Config
from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.tracked import Tracked
from numapin.kernel.cgroup_controllers import Enabled
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.container import ContainerRecord
from numapin.model.errors import CgroupGone

Enabler = Callable[[Cgroup], Enabled]
"""`numapin.kernel.cgroup_controllers.enable_cpuset`."""

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
    Enable cpuset on the way to the view's container; a sentence when it still has none, empty when it has.

    The promise must be on disk, and with it the cgroups that are about to be changed: those that were not are taken
    out again.
    """
    facts = {"container_id": view.record.id, "cgroup": view.record.cgroup}
    log.warning("cpuset_enabling", **facts, paths=list(view.record.cpuset_missing), reason=EFFECT)
    came = enable(cgroup)
    ledger.not_enabled(came.left)
    if came.done:
        log.warning("cpuset_enabled", **facts, paths=list(came.done))
    if came.error is None or isinstance(came.error, CgroupGone):
        return ""
    log.error("cpuset_not_enabled", **facts, code=came.error.code, reason=str(came.error))
    return str(came.error)


def enabled_findings(paths: Iterable[str]) -> list[tuple[str, str]]:
    """The finding that stays as long as the cgroups do."""
    known = ", ".join(sorted(paths))
    return [("cpuset-enabled", f"numapin enabled cpuset in {known}: {EFFECT}; it stays enabled")] if known else []

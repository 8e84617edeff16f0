"""One log line per handled container, with the whole outcome."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from numapin.daemon.logs import Log
from numapin.daemon.pinning import Outcome
from numapin.daemon.since_start import History
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.model.memory import MEMORY

_PROBLEMS = (
    ContainerState.REFUSED,
    ContainerState.FAILED,
    ContainerState.DEFERRED,
    ContainerState.LOST,
    ContainerState.CONTESTED,
)

_FIGURES = re.compile(r"\d[\d.]* (B|[KMGTPE]iB|bytes)\b")


@dataclass(slots=True)
class Counters:
    """Events since the daemon started."""

    pins: int = 0
    writes: int = 0
    refusals: int = 0
    failures: int = 0
    repairs: int = 0
    repair_causes: dict[str, int] = field(default_factory=dict)
    """Repairs by `numapin.daemon.tracked.DriftCause`."""
    saves: int = 0
    overflows: int = 0


@dataclass(slots=True)
class Reporter:
    """Writes the line and counts; a state that did not change since the last line is not said again."""

    log: Log
    counters: Counters = field(default_factory=Counters)
    history: History = field(default_factory=History)

    def container(self, view: Tracked, outcome: Outcome | None = None, *, code: str = "") -> None:
        """
        Say what became of a container; *code* is that of its refusal.

        Figures of what is free change with every other container, so they alone are not said again.
        """
        said = (view.state, _gist(view, code), view.nodes)
        if said == view.said and outcome is None:
            return
        view.said = said
        record, verdict = view.record, view.classification
        facts: dict[str, object] = {
            "container_id": record.id,
            "name": record.name,
            "cgroup": record.cgroup,
            "qos": verdict.qos.value,
            "rule": verdict.rule,
        }
        if view.nodes:
            facts["mems"] = str(view.nodes)
        if MEMORY in verdict.request:
            facts["size_bytes"] = verdict.request[MEMORY]
        if outcome is not None:
            facts["took_us"] = outcome.took_ns // 1000
            if outcome.verification is not None:
                facts["effective_mems"] = str(outcome.verification.effective)
        if view.message:
            facts["reason"] = view.message
        if code:
            facts["code"] = code
        if view.state is ContainerState.REFUSED:
            self.counters.refusals += 1
        say = self.log.warning if view.state in _PROBLEMS else self.log.info
        say("container_" + view.state.value.replace("-", "_"), **facts)


def _gist(view: Tracked, code: str) -> object:
    """What of a state's reason is new when it changes: of a refusal its code, and what the container asks for."""
    request = tuple(sorted(view.classification.request.items()))
    if view.wish or (code and view.state is ContainerState.REFUSED):
        return code, request
    return _FIGURES.sub("", view.message) if view.state is ContainerState.DEFERRED else view.message

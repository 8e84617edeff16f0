"""What happened since the daemon started, as one sentence. Owns: its words. Must never: import rich."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numapin.daemon.outcome import REPAIR_CAUSES
from numapin.model.age import format_age

SHOWN = 4
"""Of names and of differences; JSON has them all."""


def since_start(facts: Mapping[str, Any]) -> str:
    """The sentence about ``since_start`` of a status document; empty where nothing happened."""
    said = "; ".join(_parts(facts)) if facts else ""
    return f"Since the start ({format_age(facts['seconds'])} ago): {said}." if said else ""


def _parts(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["rebooted"]:
        yield "the machine was booted anew before"
    if (promises := facts["promises"]) is not None and (taken := _promises(promises)):
        yield taken
    if facts["machine_differs"]:
        yield f"the machine differs from before: {_some(facts['machine_differs'])}"
    if count := facts["machine_changes"]:
        when = format_age(facts["last_machine_change_seconds_ago"])
        yield f"the machine changed {_times(count)}, {_last(count)}{when} ago: {_some(facts['last_machine_change'])}"
    if count := facts["repairs"]:
        causes = ", ".join(f"{REPAIR_CAUSES.get(cause, cause)}: {n}" for cause, n in facts["repair_causes"].items())
        when = format_age(facts["last_repair_seconds_ago"])
        others = f"{_counted(count, 'change')} of cpuset.mems by others put right"
        yield f"{others} ({causes}), {_last(count)}{when} ago"
    if count := facts["overflows"]:
        yield f"{_counted(count, 'event overflow')}, everything was looked at again"
    if count := facts["save_failures"]:
        yield f"the checkpoint could not be saved {_times(count)}"


def _promises(promises: Mapping[str, Any]) -> str:
    waiting, back = promises["waiting"], promises["given_back"]
    gone = "its container is gone" if len(back) == 1 else "their containers are gone"
    parts = [
        (promises["taken_over"], "taken over"),
        (waiting, f"kept for {'a container' if waiting == 1 else 'containers'} that ended"),
        (len(back), f"given back ({_some(back, ', ')}: {gone})"),
    ]
    said: list[str] = []
    for count, what in parts:
        if count:
            said.append(f"{count if said else _counted(count, 'promise')} {what}")
    return ", ".join(said)


def _some(lines: Sequence[str], separator: str = "; ") -> str:
    more = [f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return separator.join([*lines[:SHOWN], *more])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _last(count: int) -> str:
    return "" if count == 1 else "the last "

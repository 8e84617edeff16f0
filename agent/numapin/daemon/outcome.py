"""
What became of one container, in one sentence, and what would change it.

Owns: the words for each state of `daemon.tracked`, and for ``ended``. Must never: promise in words what the books,
the configuration or the kubelet do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numapin.daemon.config_keys import toml_text
from numapin.model.age import format_age
from numapin.model.memory import MEMORY
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Explanation
from numapin.model.quantity import at_most
from numapin.planner.explain import ADVICE, advice_for, remedies
from numapin.planner.wording import amounts

SAID_BYTES = 1 << 20
"""Less memory than this on other nodes is not worth a sentence; the JSON documents have every byte."""
IN_DOUBT = "not pinned, its facts are in doubt: "
_HEADS = ("left alone: ", "released by hand; ")
"""How a message begins that says the state itself, which the sentence has said by then."""


REPAIR_CAUSES: Mapping[str, str] = {
    "systemd-unit-change": "by a change of a systemd unit",
    "runtime-update": "by an update of the runtime",
    "by-hand-or-another-program": "by hand or by another program",
}
"""Who wrote other nodes into a container's cpuset.mems, by `daemon.tracked.DriftCause`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    One container as ``containers`` lists it (*row*), with what its state alone does not tell.

    *promise* is the decision behind what it holds, *misfit* why the machine does not hold that any more,
    *retry_refused* as in `explain.Known`, *hopeless* where even the empty machine could not hold what was refused,
    and *unfinished* is true while a failed one has a promise still: its nodes are to be put back first. *in_use* says
    that others use memory of its nodes that is promised.
    """

    row: Mapping[str, Any]
    promise: Explanation | None = None
    misfit: str = ""
    retry_refused: bool | None = None
    hopeless: bool = False
    unfinished: bool = False
    in_use: str = ""

    @property
    def wants_more(self) -> bool:
        """True for a container whose limits grew beyond its nodes: it keeps what it was promised before."""
        if self.promise is None or self.row["state"] not in ("pinned", "deferred"):
            return False
        return any(size > self.promise.sizes.get(kind, 0) for kind, size in self.row["request"].items())

    def became(self) -> str:
        """What became of it; a sentence, or two."""
        row, message = self.row, self._told()
        where = NodeSet.from_ids(row["nodes"])
        nodes, stay = where.named, "stays" if len(where) == 1 else "stay"
        match row["state"]:
            case "pinned":
                said = f"Pinned to {nodes}{self._guarantee()}{message}"
            case "pinning":
                said = f"Being pinned to {nodes}: decided and saved; the kernel is still moving its pages{message}"
            case "would-pin":
                said = f"Would be pinned to {nodes}; this is a dry run and nothing is written{message}"
            case "deferred":
                said = f"Deferred, {nodes} reserved for it but not written yet{message}"
            case "pin-lost":
                said = f"Pin lost, {nodes} {stay} reserved for it{message}"
            case "pinned-by-others":
                whole = where and "could not be accounted" not in row["message"]
                booked = f"; its bytes are taken out of the books on {nodes}" if whole else ""
                said = f"Left alone{message}{booked}"
            case "refused":
                said = f"Refused{message}. It runs on, unrestricted{self._again()}"
            case "failed":
                held = "and what it was promised stays reserved" if self.unfinished else "nothing is promised"
                said = f"Failed, {held}{message}; it is tried again at the next full pass"
            case "unpinned":
                held = f"; what it was promised on {nodes} {stay} reserved" if where else ""
                said = f"Not pinned, although its class is Guaranteed{message}{held}"
            case "contested":
                written = "is" if len(where) == 1 else "are"
                said = f"Contested, {nodes} {stay} reserved for it and {written} written again later{message}"
            case "released":
                # after release --all that is also one that came later, and had nothing to be released
                head = "Released by hand, nothing" if row["message"].startswith(_HEADS) else "Nothing"
                said = f"{head} is promised{message}"
            case "nested":
                said = f"Nested{message}. On its own it gets no nodes and no reservation"
            case "ended":
                next_one = "the next container of its pod" if row.get("pod_uid") else "its restart"
                said = f"Ended; its memory on {nodes} waits for {next_one}{message}"
            case "not-managed":
                said = "Not managed: no nodes are chosen for it, and it may use all that its parent cgroups allow"
            case state:
                said = f"{state}{message}"
        if self.misfit and row["state"] != "pinned":
            said += f". Not all of it is there: {self.misfit}"
        return said + "."

    def _guarantee(self) -> str:
        kept = "and the kernel keeps it there"
        if self.misfit:
            return f", {kept}, but its memory is not guaranteed there any more: {self.misfit}"
        if self.wants_more and self.promise is not None:
            return f" with the {amounts(self.promise.sizes)} it was promised before, {kept}; no more is guaranteed"
        if self.in_use:
            return (
                f": its memory is reserved there before other managed containers, {kept}, but {self.in_use}. When it "
                "needs more than is left, the kernel may kill it although other nodes have room"
            )
        if self._left():
            return ": its memory is guaranteed there, but not all of it is there yet"
        return f": its memory is guaranteed there, {kept}"

    def _left(self) -> bool:
        """True when its message names memory of it on other nodes."""
        return int(sum(self.row.get("left_bytes", {}).values())) >= SAID_BYTES

    def _again(self) -> str:
        if self.hopeless:
            return ", and does not fit here whatever memory is released"
        if self.retry_refused is None:
            return ""
        if self.retry_refused:
            return ", and is tried again when memory is released"
        return ", and is not tried again until it changes or the daemon is started (retry_refused = false)"

    def _told(self) -> str:
        message = str(self.row["message"]).rstrip(".")
        if not message or self.row["message"] == self.row.get("reason"):
            return ""
        if self.wants_more and self.row["state"] == "pinned":
            message = message.rpartition("with the old size; ")[2]
        for head in _HEADS:
            message = message.removeprefix(head)
        return f"; {message}" if self.misfit and self.row["state"] == "pinned" else f": {message}"

    def remedies(self, refused: Explanation | None) -> Iterable[str]:
        """What would change it, a clause each; *refused* is the record of the refusal, where there is one."""
        row = self.row
        match row["state"]:
            case "refused" if refused is not None:
                yield from remedies(refused)
            case "not-managed" if advice := advice_for(str(row.get("rule")), str(row.get("reason"))):
                yield advice
            case "unpinned" if row["message"] == row.get("reason"):  # no doubts, only the size is unknown
                yield ADVICE["limits-disagree"]
            case "nested":
                yield (
                    f"cgroup.root = {toml_text(str(row['nested_in']))} in the configuration, and a restart of the "
                    "service: then the containers inside it are placed one by one, and it and all others outside it "
                    "are left alone"
                )
            case "pinned-by-others" if row["pod_uid"] is None:
                yield (
                    "start it without a node list of its own (docker run without --cpuset-mems) to have its nodes "
                    "chosen"
                )
        if self.misfit:
            yield "it is guaranteed again when the memory is back, or when enough of what is promised there ends"
        if self.in_use and row["state"] == "pinned":
            yield (
                "what others use there can be limited or kept elsewhere (numapin containers lists who is not "
                "managed), or more be reserved for the system on that node ([reserved.node.N] in the configuration)"
            )
        if self.wants_more and self.promise is not None:
            last = str(row["message"]).rpartition("; ")[2]
            if last.startswith("it would fit "):
                yield last
            old = self.promise.sizes
            if MEMORY in old and all(size <= old.get(k, 0) for k, size in row["request"].items() if k != MEMORY):
                where = NodeSet.from_ids(row["nodes"]).named
                yield f"with a memory limit of {at_most(old[MEMORY])} or less all of it is guaranteed on {where}"


def repaired(row: Mapping[str, Any], wall_seconds: int | None) -> list[str]:
    """A sentence about a container whose nodes were put right since the daemon started; *wall_seconds* is now."""
    count, last = row.get("repairs", 0), row.get("last_repair_seconds")
    if not count:
        return []
    times = "once" if count == 1 else f"{count} times"
    when = "" if last is None or wall_seconds is None else f"{format_age(max(0, wall_seconds - last))} ago, "
    cause = REPAIR_CAUSES.get(str(row["repair_cause"]), str(row["repair_cause"]))
    latest = "" if count == 1 else "the last time "
    return [
        f"Its cpuset.mems was changed and put right {times} since the daemon started: {latest}{when}changed {cause}."
    ]


def unsaid(row: Mapping[str, Any]) -> list[str]:
    """The findings about a container that its message does not say already."""
    said = str(row["message"])
    found: list[str] = []
    for finding in row.get("findings", ()):
        core = str(finding).removeprefix(IN_DOUBT)
        if not (core in said or (said and said in core) or any(core in other for other in found)):
            found.append(str(finding))
    return found

"""
One container's decision as a document: who it is, what became of it, why, and what would change that.

Owns: which container an id means, and the shape of ``explain``. Must never: import the daemon's moving parts; with
the daemon down the same document is made from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numapin import API_VERSION
from numapin.daemon.documents import container_facts
from numapin.daemon.offline import offline_status
from numapin.daemon.outcome import Outcome, repaired, unsaid
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import Phase, PinRecord, RefusalRecord
from numapin.model.errors import ExitStatus, RequestFailed
from numapin.model.memory import Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Explanation, ProviderHints, Refusal, RefusalCode
from numapin.planner.accounting import misfits
from numapin.planner.explain import kubelet_clause, node_verdicts, why_sentences
from numapin.state.checkpoint import CheckpointFile

Row = Mapping[str, Any]
"""One container as ``containers`` and ``status`` list it."""

SHOWN_MATCHES = 20
_HOPELESS = (RefusalCode.DOES_NOT_FIT, RefusalCode.UNKNOWN_TYPE)
"""Refusals that no release of memory changes."""


@dataclass(frozen=True, slots=True)
class Known:
    """
    Every container that can be explained: its rows, and the records of the decisions by cgroup path.

    ``nested`` are rows of what runs inside containers. They are asked only after the others: nobody may take another
    container's name or id by what he runs inside his own.
    """

    rows: Sequence[Row]
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    refusals: Mapping[str, RefusalRecord] = field(default_factory=dict)
    nested: Sequence[Row] = ()
    misfits: Mapping[Owner, str] = field(default_factory=dict)
    """Promises that the machine does not hold any more, each with the sentence of `planner.accounting.misfits`."""
    retry_refused: bool | None = None
    """As configured; ``None`` where no daemon runs that would try again."""
    wall_seconds: int | None = None
    """The time now; ``None`` where no daemon runs."""
    in_use: Mapping[NodeSet, str] = field(default_factory=dict)
    """Nodes and groups whose memory others use although it is promised, each with the sentence."""


def explain_document(known: Known, wanted: object, source: Mapping[str, object]) -> dict[str, object]:
    """
    The document about the container that *wanted* names; *source* says where it was looked up.

    Raises:
        RequestFailed: No container is meant (``unknown-container``, exit 1), several are (``ambiguous``) or
            *wanted* is no text (both exit 2).
    """
    row = _find(known, wanted, source)
    cgroup = str(row["cgroup"])
    pin, refusal = known.pins.get(cgroup), known.refusals.get(cgroup)
    record = refusal.explanation if refusal is not None else pin.explanation if pin is not None else None
    outcome = Outcome(
        row,
        record if pin is not None and refusal is None else None,
        "" if pin is None else known.misfits.get(pin.owner, ""),
        known.retry_refused,
        hopeless=refusal is not None and refusal.code in _HOPELESS,
        in_use="; ".join(s for nodes, s in known.in_use.items() if nodes & NodeSet.from_ids(row["nodes"])),
        unfinished=row["state"] == "failed" and pin is not None and pin.phase is not Phase.FOREIGN,
    )
    said = [outcome.became()]
    if refusal is not None and row["state"] == "refused":
        clause = kubelet_clause(refusal.kubelet_reason, refusal.explanation)
        said.append(_sentence(f"{clause}; numapin's code is {refusal.code}"))
    if row.get("reason"):
        said.append(f"{row['qos']}: {row['reason']} (rule {row['rule']}).")
    if record is not None and not outcome.unfinished:  # it is not placed so any more
        needs, *others = why_sentences(record)
        said += [needs.replace("It needs", "Before, it needed", 1) if outcome.wants_more else needs, *others]
    said += repaired(row, known.wall_seconds)
    said += [_sentence(f) for f in unsaid(row)]
    return {
        "apiVersion": API_VERSION,
        "kind": "Explanation",
        "source": dict(source),
        "container": dict(row),
        "sentences": said,
        "remedies": list(outcome.remedies(None if refusal is None else refusal.explanation)),
        "refusal": None if refusal is None else refusal_part(refusal),
        "decision": None if record is None else decision_part(record),
    }


def offline_explanation(state: Path, why: str, clock: Clock, wanted: str) -> dict[str, object]:
    """
    The document from the checkpoint in *state*; *why* is the sentence about the daemon.

    Raises:
        CheckpointError: There is a checkpoint and no generation of it can be believed.
        RequestFailed: As `explain_document`.
    """
    status = offline_status(state, why, clock)
    loaded = CheckpointFile(state).peek()
    checkpoint = loaded.checkpoint
    source: dict[str, object] = {"from": "checkpoint", "path": str(state), "why": why}
    if checkpoint is None:
        if loaded.damaged:
            raise loaded.damaged[0].error
        raise RequestFailed(
            "unknown-container", f"{why}, and there is no checkpoint {state} either", ExitStatus.NOT_RUNNING
        )
    source["saved_seconds_ago"] = status["saved_seconds_ago"]
    rows = status["containers"]
    assert isinstance(rows, list)
    known = Known(rows, checkpoint.containers, checkpoint.refusals, misfits=misfits(checkpoint.books))
    return explain_document(known, wanted, source)


def _find(known: Known, wanted: object, source: Mapping[str, object]) -> Row:
    ended = ended_rows(known.pins, {row["cgroup"] for row in known.rows})
    try:
        return find_container([*known.rows, *ended], wanted, source)
    except RequestFailed as exc:
        if exc.code != "unknown-container" or not known.nested:
            raise
    return find_container(known.nested, wanted, source)


def find_container(rows: Iterable[Row], wanted: object, source: Mapping[str, object]) -> Row:
    """
    The one row that *wanted* means: a cgroup path, an id, ``pod/name``, a name, or the beginning of an id.

    The first of these that matches anything counts: a container named ``db`` is found although an id begins so.

    Raises:
        RequestFailed: As `explain_document`.
    """
    if not isinstance(wanted, str) or not wanted.strip():
        raise RequestFailed("bad-request", "say which container: an id, a name, or a cgroup", ExitStatus.USAGE)
    text = wanted.strip()
    path = "/" + text.removeprefix("/sys/fs/cgroup/").strip("/")
    ways: tuple[Callable[[Row], bool], ...] = (
        lambda r: "/" in text and bool(r["cgroup"] == path),
        lambda r: bool(r["id"] == text),
        lambda r: text in _names_in_pod(r),
        lambda r: bool(r["name"] == text),
        lambda r: str(r["id"]).startswith(text),
    )
    every = sorted(rows, key=lambda r: str(r["cgroup"]))
    for means in ways:
        found = [row for row in every if means(row)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RequestFailed("ambiguous", _ambiguous(text, found), ExitStatus.USAGE)
    raise RequestFailed("unknown-container", _unknown(text, source))


def _names_in_pod(row: Row) -> set[str]:
    """``namespace/pod/name``, ``pod/name`` and ``uid/name``, as far as they are known."""
    full = row.get("pod_name")
    pods = {full, full.rpartition("/")[2] if full else None, row.get("pod_uid")}
    return {f"{pod}/{row['name']}" for pod in pods if pod}


def decision_part(record: Explanation) -> dict[str, object]:
    """
    A decision's record with stable keys, bytes as integers, node sets as lists.

    Alone it is enough to come to the same verdict again; ``tests/support/checker.py`` does.
    """
    return {
        "admitted": record.chosen is not None,
        "policy": record.policy.value,
        "sizes": dict(sorted(record.sizes.items())),
        "width": record.width,
        "chosen": None if record.chosen is None else list(record.chosen),
        "preferred": record.preferred,
        "tie_break": record.tie_break,
        "candidates": [list(c) for c in record.candidates],
        "would_fit": record.would_fit,
        "hints": [_provider_part(p) for p in record.hints],
        "distances": {str(a): {str(b): d for b, d in row.items()} for a, row in record.distances.items()},
        "nodes": [
            {
                "id": v.node,
                "allocatable": dict(sorted(v.allocatable.items())),
                "free": dict(sorted(v.free.items())),
                "kernel_free": dict(sorted(v.kernel_free.items())),
                "cells": list(v.cells),
                "assignments": v.assignments,
                "exclusion": None if v.exclusion is None else v.exclusion.value,
                "verdict": verdict,
                "normal": v.normal,
                "own": v.own,
                "resident_bytes": v.resident,
                "ended": v.ended,
            }
            for v, verdict in zip(record.nodes, node_verdicts(record), strict=True)
        ],
    }


def refusal_part(refusal: RefusalRecord | Refusal) -> dict[str, object]:
    """Code, the kubelet's word (empty where a kubelet would admit it), and the sentence of a refusal."""
    return {
        "code": refusal.code.value,
        "kubelet_reason": refusal.kubelet_reason,
        "message": refusal.message,
    }


def _provider_part(provider: ProviderHints) -> dict[str, object]:
    if provider.hints is None:
        return {"resource": provider.resource, "hints": None}
    hints = [
        {"nodes": None if h.affinity is None else list(h.affinity), "preferred": h.preferred} for h in provider.hints
    ]
    return {"resource": provider.resource, "hints": hints}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def ended_rows(pins: Mapping[str, PinRecord], there: Container[str]) -> Iterable[Row]:
    """
    Rows for ended containers whose memory waits; the daemon has no view of them any more. *there* are the cgroups
    that have a row already.
    """
    for cgroup, pin in pins.items():
        if pin.ended_ns is not None and cgroup not in there:
            sizes = dict(pin.explanation.sizes) if pin.explanation is not None else {}
            yield container_facts(
                id=pin.container_id,
                name=pin.name,
                pod_uid=pin.pod_uid,
                runtime=pin.runtime.value,
                cgroup=cgroup,
                qos="Guaranteed",
                request=sizes,
                nodes=list(pin.nodes),
                state="ended",
                message=pin.message,
            )


def _ambiguous(text: str, found: Sequence[Row]) -> str:
    lines = [f"  {_plain(r['id'])[:12]}  {_plain(_full_name(r))}  {_plain(r['cgroup'])}" for r in found]
    more = [f"  and {len(lines) - SHOWN_MATCHES} more"] if len(lines) > SHOWN_MATCHES else []
    head = f"{_plain(text)!r} means {len(found)} containers; say which by its id or cgroup:"
    return "\n".join([head, *lines[:SHOWN_MATCHES], *more])


def _unknown(text: str, source: Mapping[str, object]) -> str:
    head = f"no container {_plain(text)!r} is known"
    if source.get("from") == "checkpoint":
        return (
            f"{head} to the checkpoint {source['path']}, which holds only those with a promise or a refusal "
            f"({source['why']})"
        )
    return f"{head}; numapin containers lists them all with their ids, and numapin explain CODE takes a code"


def _full_name(row: Row) -> str:
    pod = row.get("pod_name") or row.get("pod_uid")
    return f"{pod}/{row['name']}" if pod else str(row["name"])


def _plain(text: object) -> str:
    """On one line; names come from containers."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[:200])

"""Tables of ``status`` and ``containers`` for people. Names come from containers: each is made safe first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from numapin.cli.since_start import since_start
from numapin.cli.table import console, grid, say
from numapin.cli.text import bar, safe
from numapin.daemon.outcome import unsaid
from numapin.model.age import format_age
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes

Row = Mapping[str, Any]

WIDE = 100
"""Terminals from this width on get bars and every column."""

_WARN = ("refused", "failed", "deferred", "pin-lost", "unpinned")


def render_status(document: Row) -> None:
    """Print a status document: a line about the daemon, the nodes with a bar each, groups, containers, findings."""
    out = console()
    for line in _headline(document):
        say(out, line)
    if not document["running"] and not document["checkpoint"]["found"]:
        return
    out.print()
    out.print(_nodes(document["nodes"], bars=out.width >= WIDE, ascii_only=out.encoding.lower() != "utf-8"))
    if document["groups"]:
        groups = ", ".join(str(NodeSet.from_ids(g)) for g in document["groups"])
        say(out, f"Groups of nodes tied by one container's memory: {groups}")
    out.print()
    containers = document["containers"]
    if containers:
        out.print(_containers(containers, "CONTAINER", "NAME", "RUNTIME", "REQUEST", "NODES", "STATE"))
        for row in containers:
            if row["message"]:
                _about(out, _sentence(row, row["message"]))
    else:
        out.print("No Guaranteed container.")
    for held in document.get("held", ()):
        nodes = NodeSet.from_ids(held["nodes"])
        waits = "its restart" if held["pod_uid"] is None else "its pod's next container"
        _about(out, f"{safe(held['name'])} ended; its memory on {nodes.named} waits for {waits}")
    for kept in document.get("kept_for_pods", ()):
        nodes, sizes = NodeSet.from_ids(kept["nodes"]), _request(kept["sizes"])
        _about(out, f"pod {safe(kept['pod_uid'])}: {sizes} on {nodes.named} kept for its containers still to come")
    if "counts" in document:
        counts = ", ".join(f"{n} {word}" for word, n in document["counts"].items() if n) or "none"
        say(out, f"All containers: {counts}")
    for finding in document["findings"]:
        say(out, f"! {finding['code']}: {safe(finding['message'], limit=600)}", rest="  ")


def render_containers(document: Row) -> None:
    """Print a containers document: one row each, then a sentence for each that has something to say."""
    out = console()
    rows: Sequence[Row] = document["containers"]
    if not rows:
        out.print("No containers found.")
        return
    more = ("RUNTIME", "CLASS", "RULE") if out.width >= WIDE else ("CLASS",)
    out.print(_containers(rows, "CONTAINER", "NAME", *more, "REQUEST", "NODES", "STATE"))
    for row in rows:
        for sentence in filter(None, (row["message"], *unsaid(row))):
            if row["state"] not in ("pinned", "not-managed"):
                _about(out, _sentence(row, sentence))
    for outer in document.get("nested_unfinished", ()):
        _about(out, f"{safe(outer, limit=300)} holds more than was looked at.")


def _about(out: Console, sentence: str) -> None:
    """What is said below a table about one of its rows."""
    say(out, sentence, first="  ", rest="    ")


def _headline(document: Row) -> list[str]:
    if not document["running"]:
        lines = [f"numapin is NOT RUNNING: {safe(document['why'], limit=400)}"]
        if document["checkpoint"]["found"]:
            age = format_age(max(0, document["saved_seconds_ago"]))
            lines.append(f"What follows is the checkpoint {document['checkpoint']['path']}, saved {age} ago:")
        elif document["checkpoint"]["error"]:
            lines.append(f"Its checkpoint cannot be shown: {safe(document['checkpoint']['error'], limit=400)}")
        else:
            lines.append(f"There is no checkpoint {document['checkpoint']['path']} either.")
        return lines
    last, top = document["last_full_pass_seconds_ago"], document.get("cgroup_root")
    words = [
        f"numapin {document['version']}",
        f"policy {document['policy']}, {document['scope']} scope",
        f"cgroup {document['cgroup_version']}" + ("" if top in (None, "/") else f" below {safe(top, limit=300)}"),
        f"up {format_age(document['uptime_seconds'])}",
        "no full pass yet" if last is None else f"last full pass {format_age(int(last))} ago",
    ]
    lines = [" | ".join(words), document["summary"]]
    if told := since_start(document.get("since_start") or {}):  # a daemon from before an upgrade has none
        lines.append(safe(told, limit=2000))
    if document["dry_run"]:
        lines.append("DRY RUN: everything is decided and reported, nothing is written to any cgroup.")
    return lines


def _nodes(nodes: Sequence[Row], *, bars: bool, ascii_only: bool) -> object:
    table = grid("NODE", "MEMORY TYPE", ">TOTAL", ">SYSTEM", ">ALLOCATABLE", ">RESERVED", ">FREE", "USE", "GROUP")
    for node in nodes:
        if not node["used"]:
            table.add_row(str(node["id"]), f"({node['kind']}, not used)", *[""] * 7)
            continue
        group = str(NodeSet.from_ids(node["cells"])) if len(node["cells"]) > 1 else ""
        name = str(node["id"])
        for kind, memory in sorted(node["memory_map"].items(), key=_memory_first):
            promised = memory["reserved"] or (kind == "memory" and node["assignments"])
            if not memory["total"] and not promised:
                continue
            share = memory["reserved"] / memory["allocatable"] if memory["allocatable"] > 0 else 0.0
            use = f"{share:4.0%}" if memory["total"] else "lost"
            if bars and memory["total"]:
                use = f"{bar(share, 16, ascii_only=ascii_only)} {use}"
            total, system, reserved = (format_bytes(memory[s]) for s in ("total", "system_reserved", "reserved"))
            most, free = format_available(memory["allocatable"]), format_available(memory["free"])
            table.add_row(name, kind, total, system, most, reserved, free, use, group)
            name = group = ""
    return table


def _containers(rows: Sequence[Row], *columns: str) -> object:
    table = grid(*columns)
    for row in rows:
        cells = {
            "CONTAINER": row["id"][:12],
            "NAME": _name(row),
            "RUNTIME": row["runtime"] or "",
            "CLASS": row["qos"],
            "RULE": row.get("rule", ""),
            "REQUEST": _request(row["request"]),
            "NODES": str(NodeSet.from_ids(row["nodes"])) or "-",
            "STATE": row["state"].upper() if row["state"] in _WARN else row["state"],
        }
        table.add_row(*[safe(cells[c]) for c in columns])
    return table


def _request(request: Mapping[str, int]) -> str:
    sizes = sorted(request.items(), key=_memory_first)
    return " + ".join(format_bytes(n) + ("" if t == "memory" else f" {t}") for t, n in sizes) or "-"


def _memory_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0] != "memory", item[0]


def _name(row: Row) -> str:
    pod = row.get("pod_name") or row.get("pod_uid")
    return "/".join(part for part in (pod, row["name"] if row["name"] != row["id"] else "") if part)


def _sentence(row: Row, text: str) -> str:
    said = text.removeprefix("released by hand; ") if row["state"] == "released" else text
    return f"{safe(_label(row))}: {safe(row['state'])}: {safe(said, limit=600)}"


def _label(row: Row) -> str:
    return _name(row) or str(row["id"])[:12]

"""Tables of ``status`` and ``containers`` for people. Names come from containers: each is made safe first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from numapin.cli.columns import Cells, Column, fit
from numapin.cli.since_start import since_start
from numapin.cli.table import console, fitted, say
from numapin.cli.text import bar, safe
from numapin.daemon.outcome import unsaid
from numapin.model.age import format_age
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes

Row = Mapping[str, Any]

WIDE = 100
"""Terminals from this width on get bars."""

NOT_IN_A_CHECKPOINT = (
    "A checkpoint has promises and refusals, with the names of when they were decided; containers that were released "
    "by hand or are not managed are not in it."
)

_WARN = ("refused", "failed", "deferred", "pin-lost", "unpinned")


def render_status(document: Row) -> None:
    """Print a status document: a line about the daemon, the nodes with a bar each, groups, containers, findings."""
    out = console()
    for line in _headline(document):
        say(out, line)
    if not document["running"] and not document["checkpoint"]["found"]:
        return
    out.print()
    out.print(_nodes(document["nodes"], out.width, ascii_only=out.encoding.lower() != "utf-8"))
    if document["groups"]:
        groups = ", ".join(str(NodeSet.from_ids(g)) for g in document["groups"])
        say(out, f"Groups of nodes tied by one container's memory: {groups}")
    out.print()
    containers = document["containers"]
    if containers:
        out.print(_containers(containers, out.width, "CLASS", "RULE"))
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
        whose = "shared by its containers" if kept["shared"] else "kept for its containers still to come"
        _about(out, f"pod {safe(kept['pod_uid'])}: {sizes} on {nodes.named} {whose}")
    if not document["running"]:
        say(out, NOT_IN_A_CHECKPOINT)
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
    out.print(_containers(rows, out.width))
    for row in rows:
        for sentence in _worth_saying(row):
            _about(out, _sentence(row, sentence))
    for outer in document.get("nested_unfinished", ()):
        _about(out, f"{safe(outer, limit=300)} holds more than was looked at.")


def _worth_saying(row: Row) -> list[str]:
    """What is wrong with a container; of a pinned one that is its message, as when it grew beyond its nodes."""
    findings = () if row["state"] == "pinned" else unsaid(row)
    return [] if row["state"] == "not-managed" else [*filter(None, (row["message"], *findings))]


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


_NODES = (
    Column("NODE"),
    Column("MEMORY TYPE", folds=20),
    Column("TOTAL", right=True, goes=3),
    Column("SYSTEM", right=True, goes=2),
    Column("ALLOCATABLE", right=True, goes=5),
    Column("RESERVED", right=True),
    Column("FREE", right=True),
    Column("KERNEL", right=True, goes=1),
    Column("USE"),
    Column("GROUP", folds=20, goes=4),
)
_CONTAINERS = (
    Column("CONTAINER", goes=4),
    Column("NAME", folds=36),
    Column("RUNTIME", folds=16, goes=2),
    Column("CLASS", folds=16, goes=3),
    Column("RULE", folds=20, goes=1),
    Column("REQUEST", folds=16),
    Column("NODES", folds=16),
    Column("STATE", folds=16),
)


def _nodes(nodes: Sequence[Row], width: int, *, ascii_only: bool) -> Table:
    """With bars where there is room for them and every column but one."""
    columns = _NODES if any(node.get("available_bytes") is not None for node in nodes) else _without("KERNEL", _NODES)
    rows = list(_node_rows(nodes, bars=True, ascii_only=ascii_only))
    if width < WIDE or len(fit(_without("KERNEL", columns), rows, width)) < len(_NODES) - 1:
        rows = list(_node_rows(nodes, bars=False, ascii_only=ascii_only))
    return fitted(columns, rows, width)


def _without(name: str, columns: Sequence[Column]) -> Sequence[Column]:
    return tuple(c for c in columns if c.name != name)


def _node_rows(nodes: Sequence[Row], *, bars: bool, ascii_only: bool) -> Iterator[Cells]:
    nothing = {column.name: "" for column in _NODES}
    for node in nodes:
        if not node["used"]:
            yield nothing | {"NODE": str(node["id"]), "MEMORY TYPE": f"({node['kind']}, not used)"}
            continue
        group = str(NodeSet.from_ids(node["cells"])) if len(node["cells"]) > 1 else ""
        name, available = str(node["id"]), node.get("available_bytes")
        for kind, memory in sorted(node["memory_map"].items(), key=_memory_first):
            promised = memory["reserved"] or (kind == "memory" and node["assignments"])
            if not memory["total"] and not promised:
                continue
            share = memory["reserved"] / memory["allocatable"] if memory["allocatable"] > 0 else 0.0
            use = f"{share:4.0%}" if memory["total"] else "lost"
            if bars and memory["total"]:
                use = f"{bar(share, 16, ascii_only=ascii_only)} {use}"
            yield {
                "NODE": name,
                "MEMORY TYPE": kind,
                "TOTAL": format_bytes(memory["total"]),
                "SYSTEM": format_bytes(memory["system_reserved"]),
                "ALLOCATABLE": format_available(memory["allocatable"]),
                "RESERVED": format_bytes(memory["reserved"]),
                "FREE": format_available(memory["free"]),
                "KERNEL": format_available(available) if kind == "memory" and available is not None else "",
                "USE": use,
                "GROUP": group,
            }
            name = group = ""


def _containers(rows: Sequence[Row], width: int, *left_out: str) -> Table:
    """Every column but those *left_out*; where the id has no room, who has no name is shown by his id."""
    columns = tuple(c for c in _CONTAINERS if c.name not in left_out)
    cells = [
        {
            "CONTAINER": safe(row["id"][:12]),
            "NAME": safe(_name(row)),
            "RUNTIME": safe(row["runtime"] or ""),
            "CLASS": safe(row["qos"]),
            "RULE": safe(row.get("rule", "")),
            "REQUEST": safe(_request(row["request"])),
            "NODES": safe(str(NodeSet.from_ids(row["nodes"])) or "-"),
            "STATE": safe(row["state"].upper() if row["state"] in _WARN else row["state"]),
        }
        for row in rows
    ]
    if all(column.name != "CONTAINER" for column, _ in fit(columns, cells, width)):
        columns = tuple(c for c in columns if c.name != "CONTAINER")
        cells = [row | {"NAME": row["NAME"] or row["CONTAINER"]} for row in cells]
    return fitted(columns, cells, width)


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

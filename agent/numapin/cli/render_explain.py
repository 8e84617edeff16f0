"""Sentences and the table of nodes of an explanation. Names come from containers: each is made safe first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding

from numapin.cli.table import console, grid, say
from numapin.cli.text import safe
from numapin.model.age import format_age
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes

Row = Mapping[str, Any]

SHOWN_NODES = 16
"""More nodes than this are cut to the chosen ones and those with most to offer; JSON has them all."""


def render_explanation(document: Row) -> None:
    """Print who it is, what became of it and why, the nodes as they were then, and what would change it."""
    out = console()
    source = document["source"]
    if source["from"] == "checkpoint":
        age = format_age(source["saved_seconds_ago"])
        say(out, f"numapin is NOT RUNNING: {safe(source['why'], limit=400)}")
        say(out, f"What follows is from the checkpoint {safe(source['path'])}, saved {age} ago:")
        out.print()
    say(out, _who(document["container"]), limit=200)
    for sentence in document["sentences"]:
        item(out, sentence)
    if document["decision"] is not None:
        out.print()
        print_nodes(out, document["decision"])
    print_remedies(out, document["remedies"])


def print_remedies(out: Console, remedies: Sequence[str]) -> None:
    """What would change the outcome, as a list; nothing when there is nothing to say."""
    if remedies:
        out.print()
        out.print("What would change that:")
        for sentence in remedies:
            item(out, f"- {sentence}", hang=2)


def item(out: Console, sentence: str, *, hang: int = 0) -> None:
    """One sentence, indented; lines after the first begin *hang* columns further right."""
    say(out, sentence, first="  ", rest=" " * (2 + hang))


def print_nodes(out: Console, decision: Row, *, title: str = "The nodes as they were when it was decided:") -> None:
    """The nodes as the decision saw them: what each could promise, had free, was asked for, and the finding."""
    nodes = decision["nodes"]
    shown = _worth_showing(nodes, decision)
    short = any(view["kernel_free"] for view in shown)
    columns = ["NODE", "MEMORY TYPE", ">ALLOCATABLE", ">FREE", ">ASKED", "FOUND"]
    if short:
        columns[4:4] = [">KERNEL"]
    table = grid(*columns)
    table.columns[1].no_wrap = True
    for view in shown:
        name, verdict = str(view["id"]), view["verdict"]
        for kind in sorted(decision["sizes"], key=lambda k: (k != "memory", k)):
            cells = [_size(view["allocatable"].get(kind)), _size(view["free"].get(kind))]
            if short:
                cells.append(_size(view["kernel_free"].get(kind)))
            table.add_row(name, kind, *cells, format_bytes(decision["sizes"][kind]), safe(verdict))
            name = verdict = ""
    out.print(title)
    out.print(Padding.indent(table, 2))
    if len(shown) < len(nodes):
        out.print(f"  and {len(nodes) - len(shown)} more nodes (-o json has them all)")


def _worth_showing(nodes: Sequence[Row], decision: Row) -> Sequence[Row]:
    if len(nodes) <= SHOWN_NODES:
        return nodes
    chosen = set(decision["chosen"] or ())

    def rank(view: Row) -> tuple[bool, bool, int]:
        least = min((view["free"].get(k, 0) for k in decision["sizes"]), default=0)
        return view["id"] not in chosen, view["exclusion"] == "not-allowed", -least

    best = sorted(nodes, key=rank)[:SHOWN_NODES]
    return sorted(best, key=lambda view: int(view["id"]))


def _size(value: int | None) -> str:
    """What can be had of it; ``-`` where there is none."""
    return "-" if value is None else format_available(value)


def _who(row: Row) -> str:
    pod = row.get("pod_name") or row.get("pod_uid")
    name = f"{pod}/{row['name']}" if pod else row["name"]
    short = str(row["id"])[:12]
    known = [w for w in (row["runtime"], short if name != row["id"] else None) if w]
    name = short if name == row["id"] else name
    request = " + ".join(
        format_bytes(n) + ("" if t == "memory" else f" {t}")
        for t, n in sorted(row["request"].items(), key=lambda i: (i[0] != "memory", i[0]))
    )
    nodes = NodeSet.from_ids(row["nodes"])
    where = f", {nodes.named}" if nodes else ""
    facts = ", ".join([*known, row["qos"], *([request] if request else [])])
    return f"{name} ({facts}): {row['state']}{where}"

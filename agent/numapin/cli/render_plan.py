"""Answers of ``plan`` for people. Names come from manifests: each is made safe first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numapin.cli.render_explain import item, print_nodes, print_remedies
from numapin.cli.table import console, grid, say
from numapin.cli.text import safe
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_bytes

Row = Mapping[str, Any]


def render_plan(document: Row) -> None:
    """Print the answer, why, and the nodes as the last decision saw them."""
    out = console()
    head, *rest = document["sentences"]
    say(out, f"On {_source(document['source'])}, policy {document['policy']}:")
    for sentence in (head, *_not_now(document["source"]), *rest):
        item(out, sentence)
    out.print()
    print_nodes(out, document["decision"], title=_title(document))
    print_remedies(out, document["remedies"])


def render_pod_plan(document: Row) -> None:
    """Print the kubelet's verdict, a row per container, and the nodes as it found them for what does not fit."""
    out = console()
    source = _source(document["source"])
    say(out, f"A kubelet on {source}, policy {document['policy']}, {document['scope']} scope:")
    verdict = f"{safe(document['pod'])} ({document['qos']}): {document['verdict']}"
    say(out, verdict + (f": {safe(document['detail'], limit=600)}" if document["detail"] else ""))
    for note in (*(f"Note: {safe(n, limit=600)}." for n in document["notes"]), *_not_now(document["source"])):
        say(out, note)
    out.print()
    table = grid("CONTAINER", "KIND", "REQUEST", "NODES", "VERDICT")
    for row in document["containers"]:
        nodes = "-" if not row["nodes"] else str(NodeSet.from_ids(row["nodes"]))
        table.add_row(safe(row["name"]), row["kind"], _request(row["request"]), nodes, row["verdict"])
    out.print(table)
    if document["decision"] is not None:
        out.print()
        print_nodes(out, document["decision"], title=_asked(document["asked"]))
    print_remedies(out, document["remedies"])


def _source(source: Row) -> str:
    match source["from"]:
        case "checkpoint":
            return f"the books of {safe(str(source['path']))}"
        case "machine":
            return f"an empty machine ({safe(str(source['root']))})"
        case _:
            return "the daemon's books as they are now"


def _not_now(source: Row) -> Iterator[str]:
    """Why the daemon would promise nothing at present, whatever fits."""
    if source.get("note"):
        yield f"But not now: {safe(str(source['note']), limit=600)}."


def _title(document: Row) -> str:
    if document["count"] == 1:
        return "The nodes:"
    if document["admitted"]:
        return "The nodes before the last one was placed:"
    if not document["fits"]:
        return "The nodes before any was placed:"
    return f"The nodes after {document['fits']} {'was' if document['fits'] == 1 else 'were'} placed:"


def _asked(asked: Row) -> str:
    if asked["container"] is None:
        return f"The nodes as the kubelet found them for the whole pod, which asks for {_request(asked['sizes'])}:"
    return f"The nodes as the kubelet found them for {safe(asked['container'])}:"


def _request(request: Mapping[str, int] | None) -> str:
    if request is None:
        return "not whole bytes"
    parts = [
        format_bytes(n) + ("" if t == "memory" else f" {t}")
        for t, n in sorted(request.items(), key=lambda i: (i[0] != "memory", i[0]))
    ]
    return " + ".join(parts) or "-"

"""
Pieces of documents that the daemon and a look at its checkpoint share.

Owns: how books look as plain mappings. Must never: import the daemon's moving parts; a command without a daemon
pays for every import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from numapin.model.errors import InvariantError
from numapin.model.memory import Books
from numapin.model.nodeset import NodeId
from numapin.model.topology import Topology


def container_label(*, id: str, name: str, pod: str | None) -> str:
    """How people know a container: ``pod/name`` as far as there are any, with the beginning of its id."""
    known = "/".join(part for part in (pod, name if name != id else "") if part)
    return f"{known} ({id[:12]})" if known else id[:12]


def container_facts(**known: object) -> dict[str, object]:
    """
    A container's row in ``status`` and ``containers``: the facts *known*, and every other key of a row, empty.

    ``request`` and ``left_bytes`` are bytes, ``nodes`` and ``allowed_nodes`` lists of node ids, ``writes`` and
    ``repairs`` counts since the daemon started, ``last_repair_seconds`` wall time since 1970.
    """
    row: dict[str, object] = {
        "id": "",
        "name": "",
        "pod_uid": None,
        "pod_name": None,
        "runtime": None,
        "kind": "container",
        "cgroup": "",
        "qos": "Unknown",
        "rule": "",
        "reason": "",
        "request": {},
        "nodes": [],
        "allowed_nodes": [],
        "state": "",
        "message": "",
        "left_bytes": {},
        "writes": 0,
        "repairs": 0,
        "repair_cause": None,
        "last_repair_seconds": None,
        "unit": None,
        "findings": [],
        "nested_in": None,
    }
    if unknown := known.keys() - row.keys():
        raise InvariantError(f"a container's row has no {', '.join(sorted(unknown))}")
    return row | known


def node_tables(
    books: Books, topology: Topology | None, available: Mapping[NodeId, int] | None = None
) -> list[dict[str, object]]:
    """
    One mapping per node, ascending: its books, and for online nodes outside the books why they are not used.

    Memory types are sorted with ``memory`` first. ``available_bytes`` is what the kernel could give now as
    *available* says, ``None`` where it does not.
    """
    rows: list[dict[str, object]] = []
    online = set(topology.nodes) if topology is not None else set()
    for node in sorted(online | set(books.node_map.nodes)):
        kind = topology.nodes[node].kind.value if topology is not None and node in topology.nodes else None
        state = books.node_map.nodes.get(node)
        row: dict[str, object] = {"id": node, "kind": kind, "used": state is not None}
        row["available_bytes"] = (available or {}).get(node)
        if state is not None:
            row["assignments"] = state.number_of_assignments
            row["cells"] = list(state.cells)
            row["memory_map"] = {
                t: asdict(state.memory_map[t]) for t in sorted(state.memory_map, key=lambda t: (t != "memory", t))
            }
        rows.append(row)
    return rows


def kept_for_pods(books: Books) -> list[dict[str, object]]:
    """
    What pods hold beside their single containers, one mapping per pod; bytes per type.

    With ``shared`` it is what those of its containers use together that have no limit of their own, else what is
    reserved for containers that are still to come (pod scope).
    """
    return [
        {
            "pod_uid": owner.pod,
            "nodes": sorted({int(node) for block in blocks for node in block.affinity}),
            "sizes": {block.type: block.size_bytes for block in blocks},
            "shared": owner.is_shared,
        }
        for owner, blocks in sorted(books.assignments.items())
        if owner.is_rest or owner.is_shared
    ]

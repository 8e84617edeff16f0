"""
Pieces of documents that the daemon and a look at its checkpoint share.

Owns: how books look as plain mappings. Must never: import the daemon's moving parts; a command without a daemon
pays for every import.
"""

from __future__ import annotations

from dataclasses import asdict

from numapin.model.memory import Books
from numapin.model.topology import Topology


def node_tables(books: Books, topology: Topology | None) -> list[dict[str, object]]:
    """
    One mapping per node, ascending: its books, and for online nodes outside the books why they are not used.

    Memory types are sorted with ``memory`` first.
    """
    rows: list[dict[str, object]] = []
    online = set(topology.nodes) if topology is not None else set()
    for node in sorted(online | set(books.node_map.nodes)):
        kind = topology.nodes[node].kind.value if topology is not None and node in topology.nodes else None
        state = books.node_map.nodes.get(node)
        row: dict[str, object] = {"id": node, "kind": kind, "used": state is not None}
        if state is not None:
            row["assignments"] = state.number_of_assignments
            row["cells"] = list(state.cells)
            row["memory_map"] = {
                t: asdict(state.memory_map[t]) for t in sorted(state.memory_map, key=lambda t: (t != "memory", t))
            }
        rows.append(row)
    return rows

"""
What differs between two NodeMaps, in sentences for log and people.

Owns: which differences matter: nodes, totals, what is kept for the system. Must never: compare what is promised.
"""

from __future__ import annotations

from numapin.model.memory import NodeMap
from numapin.model.quantity import format_bytes


def changes(before: NodeMap, after: NodeMap) -> tuple[str, ...]:
    """
    A sentence per difference, by node; empty when both describe the same machine.

    Totals are in bytes, because a reboot moves less than any rounding shows.
    """
    found: list[str] = []
    for node in sorted(before.nodes.keys() | after.nodes.keys()):
        old, new = before.nodes.get(node), after.nodes.get(node)
        if old is None or new is None:
            found.append(f"node {node} is {'new' if old is None else 'gone'}")
            continue
        for kind in sorted(old.memory_map.keys() | new.memory_map.keys()):
            was, now = old.memory_map.get(kind), new.memory_map.get(kind)
            totals = (was.total if was is not None else 0, now.total if now is not None else 0)
            kept = (was.system_reserved if was is not None else 0, now.system_reserved if now is not None else 0)
            if totals[0] != totals[1]:
                found.append(f"node {node}, {kind}: {totals[1]} bytes instead of {totals[0]}")
            if kept[0] != kept[1]:
                words = f"{format_bytes(kept[1])} instead of {format_bytes(kept[0])}"
                found.append(f"node {node}, {kind}: {words} reserved for the system")
    return tuple(found)

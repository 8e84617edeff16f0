"""
What the kernel has free of huge pages, as promises are made of it that nobody has used yet.

Owns: from which nodes' figures a promise is taken. Must never: change its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from numapin.model.memory import MemoryType
from numapin.model.nodeset import NodeId, NodeSet

Ceilings = Mapping[NodeId, Mapping[MemoryType, int]]
"""Bytes of free pages that the kernel has, per node and type; `plan.Request` takes them."""


def spend(free: Ceilings, promised: Iterable[tuple[NodeSet, MemoryType, int]]) -> Ceilings:
    """
    *free* without what is *promised* (nodes, type, bytes) and not in use; never below zero.

    What is promised on a group is somewhere in it: it is taken from the nodes in their order.
    """
    left = {node: dict(kinds) for node, kinds in free.items()}
    for nodes, kind, size in promised:
        rest = size
        for node in nodes:
            if kind in left.get(node, {}):
                part = min(rest, left[node][kind])
                left[node][kind] -= part
                rest -= part
    return left


def add(free: Ceilings, *more: Ceilings) -> Ceilings:
    """*free* and the bytes of *more*, where *free* knows the node and the type."""
    sums = {node: dict(kinds) for node, kinds in free.items()}
    for found in more:
        for node, kinds in found.items():
            for kind, size in kinds.items():
                if kind in sums.get(node, {}):
                    sums[node][kind] += size
    return sums

"""The order of writes that takes a v1 cpuset and its children from one node set to another. Pure, no I/O.

Owns: v1's rule that a child stays inside its parent at any moment and is never empty. Must never: read or write.
"""

from __future__ import annotations

from collections.abc import Mapping

from numapin.model.nodeset import NodeSet

Writes = list[tuple[str, NodeSet]]


def narrower_children(masks: Mapping[str, NodeSet]) -> dict[str, NodeSet]:
    """Of *masks* those of children with fewer nodes than their parent: what `subtree_targets` could not put back."""
    return {p: own for p, own in masks.items() if p and own != masks[p.rpartition("/")[0]]}


def subtree_targets(
    masks: Mapping[str, NodeSet], target: NodeSet, before: Mapping[str, NodeSet] | None = None
) -> dict[str, NodeSet]:
    """
    Nodes of each cgroup when the outermost gets *target*, in the order of *masks*.

    *masks* is keyed by the path below the outermost cgroup (``""``, ``/a``, ``/a/b``), parents before children,
    every one initialised. A child that had its parent's nodes follows it; one with fewer keeps those of them that
    are still there, or follows when none are. *before* has the masks that single children shall have again; one
    that does not fit into its parent is passed over.
    """
    targets: dict[str, NodeSet] = {}
    for path, own in masks.items():
        if not path:
            targets[path] = target
            continue
        above = path.rpartition("/")[0]
        wanted = (before or {}).get(path, NodeSet())
        if wanted and wanted.issubset(targets[above]):
            targets[path] = wanted
            continue
        targets[path] = targets[above] if own == masks[above] else (own & targets[above]) or targets[above]
    return targets


def subtree_writes(masks: Mapping[str, NodeSet], targets: Mapping[str, NodeSet]) -> Writes:
    """
    Writes from *masks* to *targets*, each accepted by a v1 kernel: all widened from the top, then shrunk from the
    bottom. Only changes are listed.
    """
    widened = {p: old | targets[p] for p, old in masks.items()}
    writes = [(p, nodes) for p, nodes in widened.items() if nodes != masks[p]]
    return writes + [(p, targets[p]) for p in reversed(list(masks)) if targets[p] != widened[p]]

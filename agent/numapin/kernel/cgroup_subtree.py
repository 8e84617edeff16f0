"""The order of writes that takes a v1 cpuset and its children from one node set to another. Pure, no I/O.

Owns: v1's rule that a child stays inside its parent at any moment and is never empty. Must never: read or write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numapin.model.nodeset import NodeSet

Masks = Mapping[str, NodeSet]
"""Nodes of cgroups, keyed by the path below the outermost one (``""``, ``/a``, ``/a/b``)."""

Writes = list[tuple[str, NodeSet]]


@dataclass(frozen=True, slots=True)
class Earlier:
    """
    How a cpuset and its children stood before the cpuset was given ``written``: its own nodes, and the masks of
    children that had fewer than their parent (`narrower_children`).
    """

    own: NodeSet
    written: NodeSet
    below: Masks = field(default_factory=dict)


def narrower_children(masks: Masks) -> dict[str, NodeSet]:
    """Of *masks* those of children with fewer nodes than their parent: what `subtree_targets` could not put back."""
    return {p: own for p, own in masks.items() if p and own != masks[p.rpartition("/")[0]]}


def subtree_targets(masks: Masks, target: NodeSet) -> dict[str, NodeSet]:
    """
    Nodes of each cgroup when the outermost gets *target*, in the order of *masks*.

    *masks* is keyed by the path below the outermost cgroup (``""``, ``/a``, ``/a/b``), parents before children,
    every one initialised. A child that had its parent's nodes follows it; one with fewer keeps those of them that
    are still there, or follows when none are.
    """
    targets: dict[str, NodeSet] = {}
    for path, own in masks.items():
        above = path.rpartition("/")[0]
        if not path:
            targets[path] = target
        elif own == masks[above]:
            targets[path] = targets[above]
        else:
            targets[path] = _inside(own, targets[above])
    return targets


def restored_targets(masks: Masks, target: NodeSet, earlier: Earlier) -> dict[str, NodeSet]:
    """
    Nodes of each cgroup when the outermost gets *target* and the children what they had before, keyed as *masks*.

    The write that is undone may have been stopped anywhere: a child is as before, as that write would have left it,
    or in between. One with other nodes than these was written by somebody else since, and keeps what it has.
    """
    targets, was, ours = {"": target}, {"": earlier.own}, {"": earlier.written}
    for path, own in masks.items():
        if not path:
            continue
        above = path.rpartition("/")[0]
        named = earlier.below.get(path)
        was[path] = named or was[above]
        ours[path] = _inside(named, ours[above]) if named else ours[above]
        is_ours = own in (masks[above], ours[path], was[path] | ours[path])
        targets[path] = _inside((named or targets[above]) if is_ours else own, targets[above])
    return targets


def _inside(wanted: NodeSet, above: NodeSet) -> NodeSet:
    """What of *wanted* the parent has, or all that it has: no child is empty."""
    return (wanted & above) or above


def subtree_writes(masks: Masks, targets: Masks) -> Writes:
    """
    Writes from *masks* to *targets*, each accepted by a v1 kernel: all widened from the top, then shrunk from the
    bottom. Only changes are listed.
    """
    widened = {p: old | targets[p] for p, old in masks.items()}
    writes = [(p, nodes) for p, nodes in widened.items() if nodes != masks[p]]
    return writes + [(p, targets[p]) for p in reversed(list(masks)) if targets[p] != widened[p]]

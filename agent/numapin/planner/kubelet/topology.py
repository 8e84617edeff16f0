"""
The Topology Manager's answer to one question, with memory's lists of sets written down only where every set counts.

Owns: in which cases that is. Must never: give another answer than `merge` of the whole lists, where the pod is
admitted.

Each kind of memory offers the same list. What all lists prefer is one set of the fewest nodes, and that alone is what
restricted and single-numa-node admit, and what best-effort takes first. Without one, best-effort takes the narrowest
set where there is only one list; two lists may meet in a set that neither holds, and then all of them count.
"""

from __future__ import annotations

from collections.abc import Sequence

from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.kubelet.merge import ANY, Distances, agreed, listed, merge, taste_of
from numapin.planner.kubelet.sets import PLAIN, Hints, Sets
from numapin.planner.ties import Taste


def answer(
    own: Sets | Hints | None,
    others: Sequence[ProviderHints],
    nodes: NodeSet,
    policy: TopologyPolicy,
    distances: Distances | None,
) -> Hint:
    """
    The best common choice of memory's *own* sets and the hints of *others*.

    Where the policy rejects it, its nodes are a small set that has room, and not always those the kubelet would name.

    Raises:
        TooManyNodes: It takes too long to work out.
    """
    others = [p for p in others if p.hints is not None]  # no preference changes nothing
    if not isinstance(own, Sets):
        return merge([*others, *lists(own)], nodes, policy, distances)
    if not own.asked or not own.exist():
        return merge(others, nodes, policy, distances)
    taste = taste_of(policy, distances)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        mask = _common_single(own, others)
        return Hint(own.some(), False) if mask is None else _any_if_all(mask, nodes)
    best = None if others else _best_alone(own, policy, taste)
    if others:
        mask = _common(own, others, taste)
        if mask is not None:
            best = Hint(NodeSet(mask), True)
        elif policy is TopologyPolicy.RESTRICTED:
            best = Hint(own.some(), False)
    if best is not None:
        return best
    return merge([*others, *lists(own.hints_to_decide())], nodes, policy, distances)


def lists(hints: Hints | None) -> list[ProviderHints]:
    """Memory's hints as lists; without any, memory has no preference."""
    if not hints:
        return [ProviderHints("memory", None)]
    return [ProviderHints(kind, found) for kind, found in hints.items()]


def _best_alone(own: Sets, policy: TopologyPolicy, taste: Taste) -> Hint | None:
    """Memory's best set; ``None`` where its lists may meet in another one."""
    strict = policy is TopologyPolicy.RESTRICTED
    best = own.best(PLAIN if strict or len(own.asked) > 1 else taste)
    if best is not None and best.preferred and not taste.plain:
        return own.best(taste)
    return best if best is None or best.preferred or strict or len(own.asked) == 1 else None


def _common(own: Sets, others: Sequence[ProviderHints], taste: Taste) -> int | None:
    """The best of memory's preferred sets that the others prefer too."""
    masks = agreed([listed(p) for p in others])
    found = {m for m in masks if m != ANY and own.prefers(m)}
    if ANY in masks:
        best = own.best(taste)
        if best is not None and best.preferred and best.affinity is not None:
            found.add(best.affinity.mask)
    return taste.best(sorted(found))


def _common_single(own: Sets, others: Sequence[ProviderHints]) -> int | None:
    """The lowest node that takes it alone and that the others prefer too."""
    masks = agreed([listed(p, single=True) for p in others])
    found = [m for m in masks if m != ANY and own.fits(m)]
    if ANY in masks and (alone := own.single()) is not None and alone.affinity is not None:
        found.append(alone.affinity.mask)
    return min(found, default=None)


def _any_if_all(mask: int, nodes: NodeSet) -> Hint:
    """A single node, which is called any where it is all nodes."""
    return Hint(None if mask == nodes.mask else NodeSet(mask), True)

"""
The Topology Manager's merge of hint lists, and its verdict.

Owns: the order among merged hints. Must never: know where hints come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.choice import combine
from numapin.planner.ties import Taste

Distances = Mapping[NodeId, Mapping[NodeId, int]]


def merge(
    providers: Sequence[ProviderHints], nodes: NodeSet, policy: TopologyPolicy, distances: Distances | None = None
) -> Hint:
    """
    The best combination of one hint per list; *distances* only when the closest nodes are to be preferred.

    Without any combination: all *nodes*, not preferred. Under single-numa-node a result of all nodes becomes "any".
    The policy none merges nothing.
    """
    if policy is TopologyPolicy.NONE:
        return Hint(None, False)
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    entries, floor = combine(providers, single=single)
    taste = Taste(distances={} if single or distances is None else distances)
    results = {(nodes.mask if e.mask is None else e.mask & nodes.mask, e.agreed) for e in entries}
    preferred = [mask for mask, agreed in results if agreed and mask]
    others = [mask for mask, agreed in results if mask]
    if preferred:
        size = min(mask.bit_count() for mask in preferred)
        best = Hint(NodeSet(min((m for m in preferred if m.bit_count() == size), key=taste.key)), True)
    elif others:
        size = min((m.bit_count() for m in others), key=lambda s: _rank(s, floor))
        best = Hint(NodeSet(min((m for m in others if m.bit_count() == size), key=taste.key)), False)
    else:
        best = Hint(nodes, False)
    if single and best.affinity == nodes:
        return Hint(None, best.preferred)
    return best


def _rank(size: int, wanted: int) -> tuple[int, int]:
    """Sizes in order of liking: the wanted one, then smaller ones from the largest, then larger ones."""
    if size == wanted:
        return 0, 0
    return (1, -size) if size < wanted else (2, size)


def admits(policy: TopologyPolicy, best: Hint) -> bool:
    """The policy's verdict on the merged hint."""
    if policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT):
        return True
    return best.preferred

"""
The Topology Manager's merge of hint lists, and its verdict.

Owns: the order among merged hints. Must never: know where hints come from.

What a combination of one hint per list leaves is an intersection. Which intersections there are is found without
forming the combinations, where these are many: how many combinations lie above a set is the product of how many hints
of each list do, and differences of these numbers tell how many meet in the set itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add, mul, sub

from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, TopologyPolicy
from numapin.planner.kubelet.bounds import LISTED_NODES, TooManyNodes, Unanswered
from numapin.planner.ties import Taste

Distances = Mapping[NodeId, Mapping[NodeId, int]]

ANY = -1
"""The mask of "any nodes": every bit set, so that an intersection needs no special case."""
COMBINED = 1 << 21
"""More combinations than this are not formed."""


def merge(
    providers: Sequence[ProviderHints], nodes: NodeSet, policy: TopologyPolicy, distances: Distances | None = None
) -> Hint:
    """
    The best combination of one hint per list; *distances* only when the closest nodes are to be preferred.

    Without any combination: all *nodes*, not preferred. Under single-numa-node a result of all nodes becomes "any".
    The policy none merges nothing.

    Raises:
        TooManyNodes: So many nodes and hints that the combinations cannot be formed.
    """
    if policy is TopologyPolicy.NONE:
        return Hint(None, False)
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    hints = [listed(provider, single=single) for provider in providers]
    taste = taste_of(policy, distances)
    preferred = {mask & nodes.mask for mask in agreed(hints)} - {0}
    if preferred:
        size = min(mask.bit_count() for mask in preferred)
        best = Hint(NodeSet(min((m for m in preferred if m.bit_count() == size), key=taste.key)), True)
    elif not single and (others := _meetings(hints, nodes)):  # single nodes meet only where they agree
        floor = max(min((m.bit_count() for m, _ in have if m != ANY), default=0) for have in hints)
        size = min({m.bit_count() for m in others}, key=lambda s: _rank(s, floor))
        best = Hint(NodeSet(min((m for m in others if m.bit_count() == size), key=taste.key)), False)
    else:
        best = Hint(nodes, False)
    if single and best.affinity == nodes:
        return Hint(None, best.preferred)
    return best


def listed(provider: ProviderHints, *, single: bool = False) -> set[tuple[int, bool]]:
    """Masks of the hints and whether they are preferred; *single* leaves preferred ones of one node, and "any"."""
    if provider.hints is None:
        return {(ANY, True)}
    found = {(ANY if h.affinity is None else h.affinity.mask, h.preferred) for h in provider.hints} or {(ANY, False)}
    return {(m, p) for m, p in found if p and (m == ANY or m.bit_count() == 1)} if single else found


def agreed(hints: Iterable[Collection[tuple[int, bool]]]) -> set[int]:
    """What all lists prefer: a mask that each has, or `ANY` in its place."""
    found = {ANY}
    for have in hints:
        liked = {mask for mask, preferred in have if preferred}
        found = {m for m in found | liked if not {m, ANY}.isdisjoint(found) and not {m, ANY}.isdisjoint(liked)}
    return found


def taste_of(policy: TopologyPolicy, distances: Distances | None) -> Taste:
    """The order among merged sets of equally many nodes."""
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    return Taste(distances={} if single or distances is None else distances)


def _rank(size: int, wanted: int) -> tuple[int, int]:
    """Sizes in order of liking: the wanted one, then smaller ones from the largest, then larger ones."""
    if size == wanted:
        return 0, 0
    return (1, -size) if size < wanted else (2, size)


def _meetings(hints: Iterable[Iterable[tuple[int, bool]]], nodes: NodeSet) -> set[int]:
    """Every intersection of one mask per list that is not empty."""
    lists = [frozenset(mask & nodes.mask for mask, _ in have) for have in hints]
    dense = len(nodes) << len(nodes) if len(nodes) <= LISTED_NODES else COMBINED
    found = {nodes.mask}
    for masks in lists:
        if len(found) * len(masks) > dense:
            if len(nodes) > LISTED_NODES:
                raise TooManyNodes(len(nodes), LISTED_NODES, Unanswered.ALL_COMPARED)
            return _dense_meetings(lists, nodes)
        found = {have & mask for have in found for mask in masks} - {0}
    return found


def _dense_meetings(lists: Sequence[frozenset[int]], nodes: NodeSet) -> set[int]:
    """The same by counting, for each set of the nodes, the combinations above it."""
    masks = [0]
    for n in nodes:
        masks += [1 << n | mask for mask in masks]
    above = [1] * len(masks)
    counted: dict[frozenset[int], list[int]] = {}
    for have in lists:
        if have not in counted:
            counted[have] = _over_supersets([int(mask in have) for mask in masks], len(nodes), add)
        above = list(map(mul, above, counted[have]))
    met = _over_supersets(above, len(nodes), sub)
    return {mask for mask, times in zip(masks, met, strict=True) if times} - {0}


def _over_supersets(values: list[int], bits: int, operation: Callable[[int, int], int]) -> list[int]:
    """For each set the sum over its supersets (`add`), or the values that have such sums (`sub`)."""
    for _ in range(bits):
        # the lowest bit of the position becomes the highest, so that after all of them the order is as before
        without, having = values[::2], values[1::2]
        values = [*map(operation, without, having), *having]
    return values


def admits(policy: TopologyPolicy, best: Hint) -> bool:
    """The policy's verdict on the merged hint."""
    if policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT):
        return True
    return best.preferred

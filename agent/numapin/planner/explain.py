"""
The record of a decision in sentences: why these nodes, why none, and what would change that.

Owns: every sentence that is read out of an `Explanation`, and the advice for containers that are not managed. Must
never: say a number that is not in the record, or decide again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Exclusion, Explanation, NodeView, ProviderHints, TopologyPolicy
from numapin.model.quantity import at_most
from numapin.planner.smaller import Smaller, largest_at_once
from numapin.planner.ways import KEPT, OUTSIDE, POD_AFFINITY, Bounds, freed, nearest
from numapin.planner.wording import amounts, one_of

_STRICT = (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
_SPOKEN_SETS = 4

TIE_BREAKS: Mapping[str, str] = {
    "only-set-that-fits": "no other set of as few nodes can take it",
    "lowest-node-ids": "among sets of as few nodes that can take it the lowest ids win",
    "closest-nodes": "among sets of as few nodes its nodes are the closest to each other",
    "own-nodes": "among sets of as few nodes the one it had before wins",
    "resident-pages": "among sets of as few nodes the one that already holds most of its pages wins",
    "memory-of-ended-containers": "among sets of as few nodes the one its pod's ended containers used wins",
    "other-providers": "its CPUs or devices want these nodes",
    POD_AFFINITY: "its pod has these nodes already",
    KEPT: "it keeps what it was promised before",
}
"""Sentence for each word in `Explanation.tie_break`."""

_EXCLUDED: Mapping[Exclusion, str] = {
    Exclusion.NOT_ALLOWED: "not allowed for it",
    Exclusion.TYPE_MISSING: "no memory of some type",
    Exclusion.IN_GROUP: "tied into group {cells}",
    Exclusion.HOLDS_SINGLE: "too small alone; holds single-node containers",
    Exclusion.TOO_SMALL: "too small alone, even when empty",
    Exclusion.NOT_ENOUGH_FREE: "not enough free",
    Exclusion.KERNEL_SHORT: "the kernel has less free",
    Exclusion.MEMORYLESS: "has no memory",
    Exclusion.NOT_NORMAL: "movable memory only",
}

_BOTH = "limit both its memory and its CPU (docker run --memory 4g --cpus 2)"
ADVICE: Mapping[str, str] = {
    "pod-path": (
        "to be placed, its pod must be Guaranteed: every container limits CPU and memory, and requests equal limits"
    ),
    "sandbox": "nothing is to be done: the containers of its pod are decided one by one",
    "system-container": "qos.system_containers = true in the configuration manages system containers too",
    "limits-partial": f"to be placed it must be Guaranteed: {_BOTH}",
    "limits-none": f"to be placed it must be Guaranteed: {_BOTH}",
    "limits-disagree": "give it a memory limit that its cgroup shows (docker update --memory 4g)",
    "annotation-opt-out": "its annotation numapin.guaranteed=false opts out; leave it off to be placed by its limits",
    "annotation-missing": "start it with the annotation numapin.guaranteed=true and a memory limit",
    "standalone-never": "qos.standalone = limits in the configuration places containers outside Kubernetes too",
}
"""What makes a container managed, by the rule that says it is not."""


_RESERVATION = "memory reservation"
"""What the reason of the rule ``limits-partial`` names where the limits alone would do."""


def advice_for(rule: str, reason: str) -> str:
    """What would make a container managed that *rule* leaves out for *reason*; empty where nothing is known."""
    if rule == "limits-partial" and _RESERVATION in reason:
        return (
            "to be placed it must be Guaranteed: make its memory reservation equal to its limit, or start it without "
            "one (docker run without --memory-reservation), with its CPU limited"
        )
    return ADVICE.get(rule, "")


def why_sentences(record: Explanation) -> tuple[str, ...]:
    """
    How an admitted request came to its nodes: size, choice, rivals, other providers; whole sentences.

    A record of a refusal gives only what was asked and who else had a say; the refusal's own message has the rest.
    """
    said = [_asked(record)]
    if record.chosen is not None:
        said.append(_chosen(record, record.chosen))
        others = [set_name(c, record) for c in _rivals(record, record.chosen)]
        if others:
            more = " and perhaps others" if len(record.candidates) > _SPOKEN_SETS else ""
            room = "have" if len(others) > 1 or more else "has"
            said.append(_capital(f"{_and(others[:_SPOKEN_SETS])}{more} also {room} room for it."))
        if not record.preferred:
            said.append(_not_preferred(record, record.chosen))
    said += [f"The provider {p.resource} {_wish(p)}." for p in record.hints]
    return tuple(said)


def remedies(record: Explanation) -> tuple[str, ...]:
    """What would make a refused request fit, a clause each; empty for an admitted one."""
    if record.chosen is not None:
        return ()
    said = [
        f"add {kind} to a node that it may use (write the pool's nr_hugepages)"
        for kind in record.sizes
        if kind != MEMORY and not any(v.allocatable.get(kind) for v in record.nodes if v.exclusion not in OUTSIDE)
    ]
    given = record.candidates[0] if record.tie_break == POD_AFFINITY and record.candidates else None
    way = (
        nearest(record.nodes, record.sizes, Bounds.of(record.policy, record.width, record.hints))
        if given is None
        else freed(record.nodes, record.sizes, given)
    )
    if way is not None and way.lacks:
        said.append(f"with {way.more} {way.place} it would fit there")
    if given is None and record.candidates and record.policy in _STRICT:
        best = set_name(record.candidates[0], record)
        single = record.policy is TopologyPolicy.SINGLE_NUMA_NODE
        narrow = record.width is not None and len(record.candidates[0]) <= record.width and not record.hints
        others = "restricted or best-effort" if single and narrow else "best-effort"
        said.append(
            "the policy best-effort would take what is nearest to all that its providers want"
            if any(p.hints is not None for p in record.hints)
            else f"the policy {others} would take it now" + ("" if record.distances else f", on {best}")
        )
    said += [_with_less(smaller, record) for smaller in largest_at_once(record)]
    if not said and record.would_fit:
        said.append(record.would_fit)
    return tuple(said)


def kubelet_clause(reason: str, record: Explanation) -> str:
    """
    ``the kubelet would say`` *reason*, the word of a refusal with this record; where that is empty, that a kubelet
    would admit it and what it does not look at.
    """
    if reason:
        return f"the kubelet would say {reason}"
    unseen = []
    if any(view.kernel_free.get(k, have) < have for view in record.nodes for k, have in view.free.items()):
        unseen.append("what the kernel has free")
    if any(view.exclusion is Exclusion.NOT_ALLOWED for view in record.nodes):
        unseen.append("the nodes that the cgroups above the container allow")
    if any(not view.normal for view in record.nodes):
        unseen.append("which memory is movable")
    return f"a kubelet would admit it: it does not look at {_and(unseen)}"


def node_verdicts(record: Explanation) -> tuple[str, ...]:
    """What the decision found about each of its nodes, a few words, in the record's order."""
    may_take = _policy(record)
    return tuple(_verdict(view, record, may_take) for view in record.nodes)


def set_name(nodes: NodeSet, record: Explanation) -> str:
    """``node 0``, ``nodes 0-1``, or ``group 0-1`` where such a group was there before the decision."""
    if len(nodes) == 1:
        return nodes.named
    is_group = any(view.cells == nodes for view in record.nodes)
    return f"{'group' if is_group else 'nodes'} {nodes}"


def _with_less(smaller: Smaller, record: Explanation) -> str:
    rest = _amounts({k: v for k, v in record.sizes.items() if k != MEMORY})
    beside = f" beside its {rest}" if rest else ""
    whose = " of the whole pod" if record.whole_pod else ""
    size = at_most(smaller.size_bytes) + (" or less" if smaller.or_less else "")
    return f"with a memory limit{whose} of {size}{beside} it would fit on {set_name(smaller.nodes, record)} now"


def _asked(record: Explanation) -> str:
    needs = f"{'Its pod as a whole' if record.whole_pod else 'It'} needs {_amounts(record.sizes)}"
    if record.width is None:
        return needs + "."
    if record.width == 1:
        return f"{needs}, which one node could hold when empty."
    return f"{needs}, for which {record.width} nodes are the fewest that could do, even when empty."


def _chosen(record: Explanation, chosen: NodeSet) -> str:
    rule, _, bounded = record.tie_break.partition("; ")
    why = TIE_BREAKS.get(rule, rule)
    note = " (found by a bounded search: a set with lower ids may exist)" if bounded else ""
    name = set_name(chosen, record)
    joined = "were" if name.startswith("nodes") else "was"
    return _capital(f"{name} {joined} chosen: {why}{note}.")


def _rivals(record: Explanation, chosen: NodeSet) -> Iterable[NodeSet]:
    """The other candidates that the policy would have taken; none where it kept what it had."""
    if record.tie_break == KEPT:
        return ()
    may_take = _policy(record)
    return [c for c in record.candidates if c != chosen and may_take(c)]


def _policy(record: Explanation) -> Callable[[NodeSet], bool]:
    """Whether the request would be admitted on nodes that have room for it, as if no others had."""
    if record.tie_break == KEPT:
        return lambda _: True
    if record.tie_break == POD_AFFINITY:
        return lambda nodes: record.candidates[:1] == (nodes,)
    bounds = Bounds.of(record.policy, record.width, record.hints)
    return lambda nodes: bounds.admits(nodes, len(nodes))


def _verdict(view: NodeView, record: Explanation, may_take: Callable[[NodeSet], bool]) -> str:
    if record.chosen is not None and view.node in record.chosen:
        return "chosen"
    if view.exclusion is None:
        return "has room" if may_take(NodeSet(1 << view.node)) else "has room, but would be refused"
    return _EXCLUDED[view.exclusion].format(cells=view.cells)


def _not_preferred(record: Explanation, chosen: NodeSet) -> str:
    if record.policy is TopologyPolicy.NONE:
        return "The policy none asks no more than that it fits."
    if record.width is not None and len(chosen) > record.width:
        return f"More nodes than necessary; the policy {record.policy} allows that."
    return f"Not every provider prefers these nodes; the policy {record.policy} allows that."


def _wish(provider: ProviderHints) -> str:
    """What another provider wanted, as the end of a sentence."""
    if provider.hints is None:
        return "has no preference"
    sets = [h.affinity for h in provider.hints if h.preferred and h.affinity is not None]
    if sets:
        return f"prefers {one_of(sets)}"
    if any(h.preferred for h in provider.hints):
        return "can live with any nodes"
    return "has no set of nodes that it prefers"


def _amounts(sizes: Mapping[MemoryType, int]) -> str:
    return amounts({k: sizes[k] for k in sorted(sizes, key=lambda k: (k != MEMORY, k))})


def _and(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]

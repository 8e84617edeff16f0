"""
Why: the views of the nodes and the sentences of a refusal.

Owns: every sentence a person reads about a placement. Must never: say a number that is not in the explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from numapin.model.memory import MEMORY, Books, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Exclusion, NodeView, RefusalCode, Request, TopologyPolicy
from numapin.model.quantity import format_available, format_bytes
from numapin.planner.choice import Denial
from numapin.planner.offers import Offers
from numapin.planner.ties import Taste
from numapin.planner.ways import OUTSIDE, Bounds, freed, may_serve, nearest

SPOKEN_NODES = 4
"""More nodes than this are not listed one by one."""


def node_views(books: Books, request: Request, kinds: tuple[MemoryType, ...], taste: Taste) -> tuple[NodeView, ...]:
    """Every node of the books as this decision sees it, ascending."""
    asked = [(kind, request.sizes[kind]) for kind in kinds]
    views = []
    for node, state in books.node_map.nodes.items():
        tables = state.memory_map
        allocatable, free = {}, {}
        missing = small = short = False
        for kind, size in asked:
            table = tables.get(kind)
            if table is None:
                missing = True
                continue
            allocatable[kind], free[kind] = table.allocatable, table.free
            missing |= not table.total
            small |= table.allocatable < size
            short |= table.free < size
        kernel = {k: v for k, v in request.ceilings.get(node, {}).items() if k in kinds} if request.ceilings else {}
        normal = request.normal is None or node in request.normal
        why: Exclusion | None = None
        if request.allowed is not None and node not in request.allowed:
            why = Exclusion.NOT_ALLOWED
        elif missing:
            holds_any = any(t.total for t in tables.values())
            why = Exclusion.TYPE_MISSING if holds_any else Exclusion.MEMORYLESS
        elif state.cells.mask.bit_count() > 1:
            why = Exclusion.IN_GROUP
        elif small:
            why = Exclusion.HOLDS_SINGLE if state.number_of_assignments else Exclusion.TOO_SMALL
        elif short:
            why = Exclusion.NOT_ENOUGH_FREE
        elif kernel and any(kernel.get(k, size) < size for k, size in asked):
            why = Exclusion.KERNEL_SHORT
        elif not normal:
            why = Exclusion.NOT_NORMAL
        own, resident, ended = taste.weights.get(node, (0, 0, 0))
        group, count = state.cells, state.number_of_assignments
        wanted = (normal, bool(own), resident, bool(ended))
        views.append(NodeView(node, allocatable, free, group, count, why, kernel, *wanted))
    return tuple(views)


def amounts(sizes: Mapping[MemoryType, int], show: Callable[[int], str] = format_bytes) -> str:
    """``8 GiB``, or ``8 GiB and 1 GiB of hugepages-2Mi``; what can be had is to be shown by `format_available`."""
    parts = [show(v) if k == MEMORY else f"{show(v)} of {k}" for k, v in sizes.items()]
    return " and ".join(parts)


def one_of(sets: Sequence[NodeSet]) -> str:
    """
    ``node 2``, ``node 2 or 3``, ``any of nodes 2-3`` for all sets that can be made of these, else the sets
    themselves; of many only the first.
    """
    different = list(dict.fromkeys(sets))
    every = reduce(or_, different)
    if len(different) > 1 and len(different) == (1 << len(every)) - 1:
        return f"any of {every.named}"
    spoken = different[:SPOKEN_NODES]
    names = [spoken[0].named] + [str(s) if len(s) == len(spoken[0]) == 1 else s.named for s in spoken[1:]]
    return " or ".join(names) + (" or others" if len(different) > SPOKEN_NODES else "")


def refusal_sentence(denial: Denial, offers: Offers, views: tuple[NodeView, ...], would_fit: str) -> str:
    """One sentence: what is needed, what each node has, and what stands in the way."""
    request = offers.request
    if denial.code is RefusalCode.UNKNOWN_TYPE:
        missing = [k for k in offers.kinds if not any(v.allocatable.get(k) for v in views)]
        return f"needs {amounts(request.sizes)}; no node has memory of type {', '.join(missing)}"
    have = _what_nodes_have(offers, views)
    return f"needs {amounts(request.sizes)}; {_narrowed(views)}{have}; {would_fit}"


def _narrowed(views: tuple[NodeView, ...]) -> str:
    """``only node 1 is allowed for it; `` where the cgroups above the container leave some out, else nothing."""
    allowed = NodeSet.from_ids(v.node for v in views if v.exclusion is not Exclusion.NOT_ALLOWED)
    if not allowed or len(allowed) == len(views):
        return ""
    return f"only {allowed.named} {'is' if len(allowed) == 1 else 'are'} allowed for it; "


def _what_nodes_have(offers: Offers, views: tuple[NodeView, ...]) -> str:
    """``node 0 has 2 GiB free, node 1 7 GiB``; with many nodes only those that have most."""
    said: list[tuple[int, str, str, str]] = []
    for group, offer in offers.groups.items():
        free = dict(zip(offers.kinds, offer, strict=False))
        said.append((min(offer), f"group {NodeSet(group)}", amounts(free, format_available), ""))
    for view in views:
        if view.exclusion is Exclusion.NOT_ALLOWED or view.cells.mask in offers.groups:
            continue
        if not any(view.allocatable.values()):
            continue  # it has nothing, or all is kept for the system
        free = {k: max(0, view.free.get(k, 0)) for k in offers.kinds}
        note = ""
        if view.exclusion is Exclusion.KERNEL_SHORT:
            short = {k: v for k, v in view.kernel_free.items() if v < offers.request.sizes[k]}
            note = f" (the kernel only {amounts(short, format_available)})"
        least = min((min(f, view.kernel_free.get(k, f)) for k, f in free.items()), default=0)
        said.append((least, f"node {view.node}", amounts(free, format_available), note))
    if not said:
        allowed = any(view.exclusion is not Exclusion.NOT_ALLOWED for view in views)
        return "no node has any to promise" if allowed else "no node is allowed for it"
    left = len(said)
    if left > SPOKEN_NODES:
        said = sorted(said, key=lambda item: -item[0])[: SPOKEN_NODES - 1]
    left -= len(said)
    (_, subject, text, note), *rest = said
    more = f" and {left} others no more" if left else ""
    return f"{subject} has {text} free{note}" + "".join(f", {who} {what}{why}" for _, who, what, why in rest) + more


def what_would_fit(
    denial: Denial, offers: Offers, views: tuple[NodeView, ...], width: int | None, policy: TopologyPolicy
) -> str:
    """What would have to change for this request to be kept; a clause without the final stop."""
    request = offers.request
    if denial.code is RefusalCode.UNKNOWN_TYPE:
        return "pages of that size must be added to a node first"
    if request.affinity is not None:
        return _given(offers, views, request.affinity)
    if denial.code is RefusalCode.DOES_NOT_FIT:
        return _never(offers)
    own = NodeSet(denial.own)
    if denial.code is RefusalCode.HINTS_DISAGREE:
        others = " and ".join(_wanted(request))
        return (
            f"memory fits on {_nodes(own)}, but {others}; the policy best-effort would take what is nearest to both"
        )
    if denial.code in (RefusalCode.NOT_FEWEST, RefusalCode.NOT_SINGLE):
        return f"only {_nodes(own)} could hold it now{_why_not(denial, offers, own, width)}"
    bounds = Bounds.of(policy, width, request.hints)
    way = nearest(views, request.sizes, bounds)
    near = "" if way is None else f"it would fit {way.place} with {way.more} there"
    together = offers.together()
    if together is not None and (way is not None or bounds.admits(None, together.bit_count())):
        blocked = f"{_nodes(NodeSet(together))} would do but {_blockers(views, NodeSet(together))}"
        return f"{blocked}; {near}" if near else blocked
    return near or _when_empty(offers, views, bounds)


def _given(offers: Offers, views: tuple[NodeView, ...], nodes: NodeSet) -> str:
    """For a request that may only use *nodes*: those of its pod, or those it has."""
    members = [view for view in views if view.node in nodes]
    head = f"no other nodes than {nodes.named} are open to it"
    if not may_serve(members, nodes):
        if len(members) < len(nodes) or any(view.exclusion in OUTSIDE for view in members):
            return f"{head}, and not all of these are allowed for it"
        return f"{head}, but {_blockers(views, nodes)}"
    way = freed(views, offers.request.sizes, nodes)
    if way is not None:
        return f"{head}; it would fit {way.place} with {way.more} there"
    most = {k: sum(view.allocatable.get(k, 0) for view in members) for k in offers.kinds}
    short = {k: v for k, v in most.items() if v < offers.request.sizes[k]}
    they = "it" if len(nodes) == 1 else "they"
    return f"{head}, and {they} can promise {amounts(short, format_available)} at most, even when empty"


def _when_empty(offers: Offers, views: tuple[NodeView, ...], bounds: Bounds) -> str:
    """What must end where no memory released beside it would help: groups first of all."""
    if bounds.policy is TopologyPolicy.SINGLE_NUMA_NODE and bounds.width != 1:
        return "no single node could ever hold it, and the policy single-numa-node allows one node only"
    if not bounds.admits(None, bounds.width or 0):
        return f"{' and '.join(_wanted(offers.request))}, and memory must be free on nodes that all of them prefer"
    nodes = NodeSet(offers.when_empty(bounds.width or 0) or 0)
    if not nodes:
        return "more nodes must become empty"
    groups = sorted({v.cells for v in views if v.node in nodes and len(v.cells) > 1})
    if not groups:
        held = any(v.assignments for v in views if v.node in nodes)
        why = _blockers(views, nodes) if held else f"the kernel has less free there than {_nodes(nodes)} can promise"
        return f"{_nodes(nodes)} would do when empty but {why}"
    many = len(groups) > SPOKEN_NODES
    names = f"{len(groups)} groups" if many else " and ".join(f"group {g}" for g in groups)
    rest = NodeSet.from_ids(v.node for v in views if v.node in nodes and len(v.cells) == 1 and v.assignments)
    also = f" and the single-node containers on {rest.named} must end" if rest else ""
    if bounds.policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
        count = "one node" if bounds.width == 1 else f"{bounds.width} nodes"
        also += f", because {count} could hold it and the policy {bounds.policy} takes no group of more"
    return f"{_nodes(nodes)} would do when empty, for which {names} must dissolve first{also}"


def _never(offers: Offers) -> str:
    total = {k: sum(v[t] for v in offers.allocatable.values()) for t, k in enumerate(offers.kinds)}
    if not offers.ids:
        return "allow a node with memory for it"
    short = {k: v for k, v in total.items() if v < offers.request.sizes[k]}
    if not short:
        return "no allowed node has normal memory"
    everyone = NodeSet.from_ids(i for i, v in offers.allocatable.items() if any(v)) or NodeSet(offers.all)
    return f"{_nodes(everyone)} can promise {amounts(short, format_available)} at most, even when empty"


def _wanted(request: Request) -> Iterable[str]:
    for provider in request.hints:
        if provider.hints is None:
            continue
        sets = [h.affinity for h in provider.hints if h.affinity is not None and h.preferred]
        if sets:
            yield f"{provider.resource} wants {one_of(sets)}"
        elif not any(h.affinity is None and h.preferred for h in provider.hints):
            yield f"{provider.resource} has no set it prefers"


def _why_not(denial: Denial, offers: Offers, own: NodeSet, width: int | None) -> str:
    if denial.code is RefusalCode.NOT_SINGLE:
        fewest = width is not None and len(own) <= width and not offers.request.hints
        others = "restricted or best-effort" if fewest else "best-effort"
        return f", and the policy single-numa-node allows one node only; {others} would take it"
    count = "1 node" if width == 1 else f"{width} nodes"
    group = ", an existing group" if own.mask in offers.groups else ""
    return (
        f"{group}, and the policy restricted insists on {count}, which would do when empty; best-effort would take it"
    )


def _blockers(views: tuple[NodeView, ...], nodes: NodeSet) -> str:
    held = NodeSet.from_ids(v.node for v in views if v.node in nodes and len(v.cells) == 1 and v.assignments)
    groups = {v.cells for v in views if v.node in nodes and len(v.cells) > 1}
    parts = []
    if held:
        both = "both hold" if len(held) == 2 and held == nodes else "hold" if len(held) > 1 else "holds"
        subject = "" if both == "both hold" else f"{_nodes(held)} "
        parts.append(f"{subject}{both} single-node containers")
    if len(groups) > SPOKEN_NODES:
        parts.append(f"{len(groups)} groups are tied there")
    else:
        parts += [f"{g.named} are a group" for g in sorted(groups)]
    return " and ".join(parts) or "the group rule forbids it"


def _nodes(nodes: NodeSet) -> str:
    return nodes.named if len(nodes) == 1 else f"{nodes.named} together"

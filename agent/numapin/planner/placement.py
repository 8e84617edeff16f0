"""
Where one arriving container goes: the function the daemon calls.

Owns: the whole decision for one request, with the books after it and the record of why. Must never: change its input,
read anything but its arguments, or take time that grows exponentially with the number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from numapin.model.memory import Block, Books, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Explanation, NodeView, Plan, Refusal, RefusalCode, Request, Rules
from numapin.planner.accounting import release, reserve
from numapin.planner.choice import Choice, Denial, choose, deciding, kubelet_reason
from numapin.planner.offers import Offers
from numapin.planner.ties import Taste, Weight
from numapin.planner.ways import KEPT, POD_AFFINITY
from numapin.planner.wording import node_views, refusal_sentence, what_would_fit

NAMED_CANDIDATES = 5
RECORDED_DISTANCES = 64
OWN_NODES = "own-nodes"
"""The tie-break's word when the nodes it has are given, and only its size is another."""


def place(books: Books, request: Request, rules: Rules) -> Plan | Refusal:
    """
    Nodes for *request* and the books with it in them, or a refusal with the numbers.

    The fewest nodes that fit; among equally many the order of `ties.Taste`. The memory of the ``reusable`` owners
    counts as free, and the plan's books no longer have them; after a refusal the caller's books stand. An owner
    that already holds equal sizes keeps its blocks whatever the rules say now, and one that asks for no more than it
    holds, on the nodes that it has, gives back the rest; with other sizes it is placed anew as if it had none, on the
    same nodes among equals.

    Raises:
        ValueError: A size is negative, or none is above zero.
    """
    sizes = {kind: size for kind, size in sorted(request.sizes.items()) if size}
    if not sizes or min(sizes.values()) < 0:
        raise ValueError(f"a request needs sizes above zero, not {dict(request.sizes)}")
    held = books.assignments.get(request.owner, ())
    others = tuple(owner for owner in request.reusable if owner != request.owner)
    if held and (blocks := _kept(held, request, sizes)) is not None:
        return _unchanged(release(books, *others), request, rules, blocks, sizes)
    bare = release(books, request.owner, *others)
    kinds = tuple(sizes)
    offers = Offers(bare, request, kinds)
    taste = _taste(books, request)
    width, answer = _answer(offers, rules, taste, bare, held)
    views = node_views(bare, request, kinds, taste)
    if isinstance(answer, Denial):
        would_fit = what_would_fit(answer, offers, views, width, rules.policy)
        record = Explanation(
            policy=rules.policy,
            sizes=sizes,
            nodes=views,
            width=width,
            candidates=(request.affinity,) if request.affinity is not None else _candidates(offers, answer.own),
            tie_break="" if request.affinity is None else POD_AFFINITY,
            would_fit=would_fit,
            hints=request.hints,
            distances=_recorded(rules, views),
        )
        reason = _kubelet_reason(answer, bare, request, rules, kinds, held)
        sentence = refusal_sentence(answer, offers, views, would_fit)
        return Refusal(request.owner, answer.code, reason, sentence, record)
    nodes = NodeSet(answer.mask)
    rule = deciding(offers, rules, taste, answer)
    blocks = tuple(Block(nodes, kind, size) for kind, size in sizes.items())
    record = Explanation(
        policy=rules.policy,
        sizes=sizes,
        nodes=views,
        width=width,
        candidates=(nodes,) if request.affinity is not None else _candidates(offers, answer.mask),
        chosen=nodes,
        preferred=answer.preferred,
        tie_break=f"{rule}; bounded search" if offers.inexact else rule,
        hints=request.hints,
        distances=_recorded(rules, views),
    )
    return Plan(request.owner, nodes, blocks, reserve(bare, request.owner, blocks), record)


def _answer(
    offers: Offers, rules: Rules, taste: Taste, bare: Books, held: tuple[Block, ...]
) -> tuple[int | None, Choice | Denial]:
    """The width and the set of nodes or the denial; *held* is what the owner has, which *bare* does not count."""
    if _unknown(bare, offers.kinds):
        return None, Denial(RefusalCode.UNKNOWN_TYPE)
    width = offers.width()
    if offers.request.affinity is None:
        return width, choose(offers, rules, taste, width=width)
    given = offers.request.affinity.mask
    if not offers.takes(given):
        return width, Denial(RefusalCode.NO_ROOM)
    kept = held and {b.affinity.mask for b in held} == {given}
    return width, Choice(given, True, OWN_NODES if kept else POD_AFFINITY)


def _kubelet_reason(
    denial: Denial,
    bare: Books,
    request: Request,
    rules: Rules,
    kinds: tuple[MemoryType, ...],
    held: tuple[Block, ...],
) -> str:
    """
    The kubelet's word for *denial*; empty where it would admit what is refused here.

    It knows nothing of what the kernel has free, of the cgroups above the container and of movable memory, so where
    one of these narrows the choice, the question is put once more without them.
    """
    answer: Choice | Denial = denial
    if _narrowed(bare, request, kinds):
        unaware = replace(request, allowed=None, normal=None, ceilings={})
        # the taste decides between sets that are admitted, never whether one is
        _, answer = _answer(Offers(bare, unaware, kinds), rules, Taste(), bare, held)
    return kubelet_reason(answer.code, rules.policy, request.hints) if isinstance(answer, Denial) else ""


def _narrowed(books: Books, request: Request, kinds: tuple[MemoryType, ...]) -> bool:
    """True when the request may use less than the books offer."""
    for node, state in books.node_map.nodes.items():
        if request.allowed is not None and node not in request.allowed:
            return True
        if request.normal is not None and node not in request.normal:
            return True
        for kind, most in request.ceilings.get(node, {}).items():
            if kind in kinds and kind in state.memory_map and most < state.memory_map[kind].free:
                return True
    return False


def _unknown(books: Books, kinds: tuple[MemoryType, ...]) -> bool:
    """True when no node has anything to promise of one of *kinds*."""
    for kind in kinds:
        for state in books.node_map.nodes.values():
            table = state.memory_map.get(kind)
            if table is not None and table.allocatable:
                break
        else:
            return True
    return False


def _recorded(rules: Rules, views: tuple[NodeView, ...]) -> Mapping[NodeId, Mapping[NodeId, int]]:
    """Distances for the record, where they count and are not too many to keep."""
    return rules.distances if rules.prefer_closest and len(views) <= RECORDED_DISTANCES else {}


def _sizes(blocks: tuple[Block, ...]) -> dict[MemoryType, int]:
    sizes: dict[MemoryType, int] = {}
    for block in sorted(blocks, key=lambda b: b.type):
        sizes[block.type] = sizes.get(block.type, 0) + block.size_bytes
    return sizes


def _kept(held: tuple[Block, ...], request: Request, sizes: dict[MemoryType, int]) -> tuple[Block, ...] | None:
    """What the owner goes on holding whatever is free; ``None`` when it is to be placed."""
    had = _sizes(held)
    if had == sizes:
        return held
    nodes = request.affinity
    if nodes is None or any(block.affinity != nodes for block in held):
        return None
    if any(size > had.get(kind, 0) for kind, size in sizes.items()):
        return None
    return tuple(Block(nodes, kind, size) for kind, size in sizes.items())


def _unchanged(
    books: Books, request: Request, rules: Rules, held: tuple[Block, ...], sizes: dict[MemoryType, int]
) -> Plan:
    nodes = NodeSet()
    for block in held:
        nodes |= block.affinity
    record = Explanation(
        policy=rules.policy,
        sizes=sizes,
        nodes=node_views(books, request, tuple(sizes), _taste(books, request)),
        width=None,
        candidates=(nodes,),
        chosen=nodes,
        preferred=True,
        tie_break=KEPT,
        hints=request.hints,
    )
    if held != books.assignments.get(request.owner):
        books = reserve(books, request.owner, held)
    return Plan(request.owner, nodes, held, books, record)


def _taste(books: Books, request: Request) -> Taste:
    """Nodes wanted among equals: the owner's own, those with its pages, those its pod's ended containers had."""
    if not request.resident and not request.reusable and request.owner not in books.assignments:
        return Taste()
    own = books.nodes_of(request.owner)
    ended = books.nodes_of(*request.reusable)
    weights: dict[NodeId, Weight] = {}
    for node in own | ended | NodeSet.from_ids(n for n, size in request.resident.items() if size > 0):
        weights[node] = (int(node in own), max(0, request.resident.get(node, 0)), int(node in ended))
    return Taste(weights)


def _candidates(offers: Offers, chosen: int) -> tuple[NodeSet, ...]:
    """The chosen set, or the best one that was turned down, then other sets that could take the request."""
    found = [chosen] if chosen else []
    fitting = (1 << n for n in NodeSet(offers.fitting))
    for mask in chain(fitting, (g for g, offer in offers.groups.items() if offers.enough(offer))):
        if len(found) == NAMED_CANDIDATES:
            break
        if mask != chosen:
            found.append(mask)
    return tuple(NodeSet(mask) for mask in found)

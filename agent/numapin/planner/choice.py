"""
From offers, other providers' hints and the policy to one set of nodes.

Owns: the Topology Manager's merge with memory as one list, without listing memory's sets. Must never: admit a set
that the group rule forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numapin.model.plan import Hint, ProviderHints, RefusalCode, Rules, TopologyPolicy
from numapin.planner.offers import Offers
from numapin.planner.overlaps import Overlaps
from numapin.planner.ties import Taste

MERGED_SETS = 4_096
"""More different intersections of the other providers' hints than this are cut to the narrowest."""

ANY = -1
"""The mask of "any nodes": every bit set, so that an intersection needs no special case."""
OTHER_PROVIDERS = "other-providers"


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Admitted: exactly *mask*.

    *rule* names what chose it among sets of equally many nodes; ``None``: the order of `ties.Taste`, in which
    `deciding` finds the word.
    """

    mask: int
    preferred: bool
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Denial:
    """Not admitted. *own* is the best set for memory alone (0: none)."""

    code: RefusalCode
    own: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One combination of the others' hints: the intersection (``None``: any), and whether all agree on it."""

    mask: int | None
    agreed: bool


def combine(providers: Sequence[ProviderHints], *, single: bool) -> tuple[list[Entry], int]:
    """
    Every different combination of one hint per provider, and the largest of the lists' smallest set sizes.

    Intersections that are empty are left out. With *single* only preferred hints of one node, or any, count.
    """
    merged: set[tuple[int, bool]] = {(ANY, True)}
    floor = 0
    for provider in providers:
        hints = _listed(provider)
        if single:
            hints = tuple(h for h in hints if h.preferred and (h.affinity is None or len(h.affinity) == 1))
        floor = max(floor, min((len(h.affinity) for h in hints if h.affinity is not None), default=0))
        masks = {(ANY if h.affinity is None else h.affinity.mask, h.preferred) for h in hints}
        merged = {
            (have & mask, agreed and preferred and (have == mask or ANY in (have, mask)))
            for have, agreed in merged
            for mask, preferred in masks
            if have & mask
        }
        if len(merged) > MERGED_SETS:
            order = sorted(merged, key=lambda e: (not e[1], e[0].bit_count(), e[0]))
            merged = set(order[:MERGED_SETS])
    return [Entry(None if mask == ANY else mask, agreed) for mask, agreed in sorted(merged)], floor


def _listed(provider: ProviderHints) -> tuple[Hint, ...]:
    if provider.hints is None:
        return (Hint(None, True),)
    return provider.hints or (Hint(None, False),)


def choose(offers: Offers, rules: Rules, taste: Taste, *, width: int | None) -> Choice | Denial:
    """
    The kubelet's answer, except that memory's sets are never intersected with each other.

    *taste* carries the nodes in use; the policy decides whether distances count.
    """
    if width is None:
        return Denial(RefusalCode.DOES_NOT_FIT)
    closest = _closest(rules, taste)
    own = offers.narrowest(closest)
    if own is None:
        return Denial(RefusalCode.NO_ROOM)
    narrow = own.bit_count() <= width
    if rules.policy is TopologyPolicy.NONE or not offers.request.hints:
        return _memory_alone(rules.policy, own, narrow)
    single = rules.policy is TopologyPolicy.SINGLE_NUMA_NODE
    entries, floor = combine(offers.request.hints, single=single)
    if narrow and (not single or own.bit_count() == 1):
        agreed = _agreed(offers, entries, closest, own)
        if agreed is not None:
            return Choice(agreed, True, OTHER_PROVIDERS if agreed != own else None)
        denial = Denial(RefusalCode.HINTS_DISAGREE, own)
    else:
        denial = Denial(RefusalCode.NOT_SINGLE if single else RefusalCode.NOT_FEWEST, own)
    if rules.policy is not TopologyPolicy.BEST_EFFORT:
        return denial
    merged = _compromise(offers, entries, max(floor, own.bit_count()), closest)
    if merged is None:
        # The kubelet would now take all nodes; the narrowest set that fits is what best effort means.
        return Choice(own, False)
    if not offers.takes(merged):
        merged = offers.narrowest(taste, containing=merged) or own
    return Choice(merged, False, OTHER_PROVIDERS if merged != own else None)


def _memory_alone(policy: TopologyPolicy, own: int, narrow: bool) -> Choice | Denial:
    if policy is TopologyPolicy.SINGLE_NUMA_NODE and not (narrow and own.bit_count() == 1):
        return Denial(RefusalCode.NOT_SINGLE, own)
    if policy is TopologyPolicy.RESTRICTED and not narrow:
        return Denial(RefusalCode.NOT_FEWEST, own)
    return Choice(own, narrow)


def _closest(rules: Rules, taste: Taste) -> Taste:
    """*taste* with distances where policy and option let them count."""
    if rules.policy in (TopologyPolicy.NONE, TopologyPolicy.SINGLE_NUMA_NODE) or not rules.prefer_closest:
        return taste
    return Taste(taste.weights, rules.distances)


def deciding(offers: Offers, rules: Rules, taste: Taste, choice: Choice) -> str:
    """What chose *choice* of `choose` among sets of equally many nodes; for the record only, as it searches again."""
    if choice.rule is not None:
        return choice.rule
    if not offers.has_rival(choice.mask):
        return "only-set-that-fits"
    closest = _closest(rules, taste)
    plainest = choice.mask if closest.plain else offers.narrowest(Taste()) or choice.mask
    return closest.deciding(choice.mask, plainest)


def _agreed(offers: Offers, entries: Sequence[Entry], taste: Taste, own: int) -> int | None:
    """Best set of memory's fewest nodes that all the other providers prefer too."""
    size = own.bit_count()
    found = [own for entry in entries if entry.agreed and entry.mask is None]
    found += [
        entry.mask
        for entry in entries
        if entry.agreed and entry.mask is not None and entry.mask.bit_count() == size and offers.takes(entry.mask)
    ]
    return taste.best(found)


def _compromise(offers: Offers, entries: Sequence[Entry], wanted: int, taste: Taste) -> int | None:
    """
    Best intersection of one of memory's sets with a combination: *wanted* nodes, else fewer, else more.

    This is the Topology Manager's order among results that are not preferred.
    """
    masks = (ANY if entry.mask is None else entry.mask for entry in entries)
    return Overlaps(offers, masks).best(wanted, taste)


def kubelet_reason(code: RefusalCode, policy: TopologyPolicy, hints: Sequence[ProviderHints]) -> str:
    """
    The word the kubelet has for a refusal that it would come to as well.

    Where memory fits nowhere it offers no hint, which the merge takes for "no preference": the pod passes there,
    unless the other providers disagree among themselves, and fails in the allocation.
    """
    if code in (RefusalCode.NOT_FEWEST, RefusalCode.NOT_SINGLE, RefusalCode.HINTS_DISAGREE):
        return "TopologyAffinityError"
    strict = policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
    if strict and hints:
        entries, _ = combine(hints, single=policy is TopologyPolicy.SINGLE_NUMA_NODE)
        if not any(entry.agreed for entry in entries):
            return "TopologyAffinityError"
    return "UnexpectedAdmissionError"

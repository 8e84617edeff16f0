"""
What the containers of a pod use together: a limit that only the pod has.

Owns: that it is reserved once for the pod, on nodes that all of them get. Must never: change its input.

A container without a memory limit of its own (pod-level resources), or whose hugepage limit its runtime dropped
(containerd by default), may use what its pod's cgroup allows. Its siblings may use the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner, rest_of, shared_of
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules
from numapin.planner.accounting import release, reserve
from numapin.planner.placement import place


def place_sharing(books: Books, request: Request, rules: Rules, borrowed: frozenset[MemoryType]) -> Plan | Refusal:
    """
    As `place`, for a container whose sizes of the *borrowed* types are its pod's limits.

    The nodes of the first such container hold them, once for the pod (`shared_of`), and the next ones go there too.
    One that does not fit there gets the same sizes for itself on other nodes, so that what it may use is on its nodes
    whatever happens. ``request.owner`` is `shared_of` its pod when it has no size of its own.
    """
    pot = shared_of(request.owner.pod)
    there = _nodes(books, pot)
    own, sizes = split(books, request, borrowed, pot)
    bound = request.affinity or (_nodes(books, request.owner) if request.owner != pot else None)
    if not sizes:
        return beside(books, request, rules)
    if there and bound and bound != there:
        return place(books, request, rules)
    ours = books.assignments.get(pot, ())
    others = tuple(block for block in ours if block.type not in borrowed)  # that only siblings share
    start = books
    if request.owner != pot:
        start = reserve(books, pot, others) if others else release(books, pot)
        if held := books.assignments.get(request.owner):
            kept = [block for block in held if block.type not in borrowed]
            start = reserve(start, request.owner, (*kept, *(b for b in ours if b.type in borrowed)))
    reusable = tuple(owner for owner in request.reusable if owner != pot)
    wanted = replace(request, sizes=sizes, reusable=reusable, affinity=request.affinity or there or None)
    answer = place(start, wanted, rules)
    if isinstance(answer, Plan):
        shared = _blocks(answer.nodes, ((t, size) for t, size in sizes.items() if t not in own))
        return with_own(answer, own, pot, (*others, *shared))
    if there and request.affinity is None and own:
        alone = place(books, request, rules)
        return alone if isinstance(alone, Plan) else answer
    return answer


def beside(books: Books, request: Request, rules: Rules) -> Plan | Refusal:
    """Nothing is left to share: its siblings hold all that the pod may use, so it goes where most of that is."""
    siblings = [owner for owner in books.assignments if owner.pod == request.owner.pod]
    most = max(siblings, key=lambda o: (sum(b.size_bytes for b in books.assignments[o] if b.type == MEMORY), o))
    nodes = request.affinity or _nodes(books, most)
    answer = place(release(books, *siblings), replace(request, affinity=nodes), rules)
    return answer if isinstance(answer, Refusal) else replace(answer, blocks=(), books=books)


def split(
    books: Books, request: Request, borrowed: frozenset[MemoryType], pot: Owner
) -> tuple[Mapping[MemoryType, int], Mapping[MemoryType, int]]:
    """
    The container's own sizes, and these together with what is left of its pod's limits for *pot* to hold.

    What siblings hold of the same type as their own is not shared. What *pot* holds already stays as it is while the
    pod's limit allows it: a sibling elsewhere may hold the same bytes once more.
    """
    own = {kind: size for kind, size in request.sizes.items() if kind not in borrowed}
    with_shared = dict(own)
    apart = {request.owner, pot, rest_of(pot.pod)}
    for kind in sorted(borrowed & request.sizes.keys()):
        limit = request.sizes[kind]
        taken = sum(
            block.size_bytes
            for owner, blocks in books.assignments.items()
            if owner.pod == pot.pod and owner not in apart
            for block in blocks
            if block.type == kind
        )
        stays = sum(b.size_bytes for b in books.assignments.get(pot, ()) if b.type == kind and not pot.is_rest)
        if (size := min(limit, max(stays, limit - taken))) > 0:
            with_shared[kind] = size
    return own, with_shared


def with_own(plan: Plan, own: Mapping[MemoryType, int], pot: Owner, shared: tuple[Block, ...]) -> Plan:
    """*plan* with only the *own* sizes under its owner, and the *shared* blocks under *pot*."""
    mine = _blocks(plan.nodes, own.items())
    books = release(plan.books, plan.owner, pot)
    books = reserve(books, plan.owner, mine) if mine else books
    return replace(plan, blocks=mine or shared, books=reserve(books, pot, shared) if shared else books)


def _blocks(nodes: NodeSet, sizes: Iterable[tuple[MemoryType, int]]) -> tuple[Block, ...]:
    return tuple(Block(nodes, kind, size) for kind, size in sorted(sizes) if size)


def _nodes(books: Books, owner: Owner) -> NodeSet:
    nodes = NodeSet()
    for block in books.assignments.get(owner, ()):
        nodes |= block.affinity
    return nodes

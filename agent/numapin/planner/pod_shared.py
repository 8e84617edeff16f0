"""
What the containers of a pod use together: a limit that only the pod has.

Owns: that it is reserved once for the pod, on nodes that all of them get. Must never: change its input.

A container without a memory limit of its own (pod-level resources), or whose hugepage limit its runtime dropped
(containerd by default), may use what its pod's cgroup allows. Its siblings may use the same bytes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner, rest_of, shared_of
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules
from numapin.planner.accounting import release, reserve
from numapin.planner.placement import place


def place_sharing(
    books: Books,
    request: Request,
    rules: Rules,
    borrowed: frozenset[MemoryType],
    limits: Mapping[MemoryType, int],
) -> Plan | Refusal:
    """
    As `place`, for a container whose sizes of the *borrowed* types are its pod's *limits* (bytes per type).

    The nodes of the first such container hold them, once for the pod (`shared_of`), and the next ones go there too.
    One that does not fit there gets the same sizes for itself on other nodes, so that what it may use is on its nodes
    whatever happens. ``request.owner`` is `shared_of` its pod when it has no size of its own.
    """
    pot = shared_of(request.owner.pod)
    there = books.nodes_of(pot)
    own, sizes = split(books, request, borrowed, pot)
    bound = request.affinity or (books.nodes_of(request.owner) if request.owner != pot else None)
    if not sizes:
        return beside(books, request, rules)
    if there and bound and bound != there:
        return place(books, request, rules)
    ours = books.assignments.get(pot, ())
    others = _shrunk(books, request, limits, [b for b in ours if b.type not in borrowed])  # that only siblings share
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


def place_beside(books: Books, request: Request, rules: Rules, limits: Mapping[MemoryType, int]) -> Plan | Refusal:
    """
    As `place`, for a container with sizes of its own whose siblings share what their pod may have (*limits*, bytes by
    type): on their nodes its sizes are part of that, and what is shared shrinks. Elsewhere they are not.
    """
    pot = shared_of(request.owner.pod)
    there, ours = books.nodes_of(pot), books.assignments.get(pot, ())
    if request.affinity in (None, there) and any(block.type in request.sizes for block in ours):
        left = _shrunk(books, request, limits, ours)
        smaller = reserve(books, pot, left) if left else release(books, pot)
        reusable = tuple(owner for owner in request.reusable if owner != pot)
        answer = place(smaller, replace(request, affinity=there, reusable=reusable), rules)
        if isinstance(answer, Plan):
            return answer
    return place(books, request, rules)


def _shrunk(
    books: Books, request: Request, limits: Mapping[MemoryType, int], ours: Iterable[Block]
) -> tuple[Block, ...]:
    """*ours*, which a pod's containers share, without what *request* and others there have of it as their own."""
    pod, left = request.owner.pod, list[Block]()
    apart = {request.owner, shared_of(pod), rest_of(pod)}
    for block in ours:
        taken = _taken(books, pod, block.type, apart, block.affinity) + request.sizes.get(block.type, 0)
        room = limits[block.type] - taken if block.type in limits else block.size_bytes
        if size := min(block.size_bytes, max(0, room)):
            left.append(replace(block, size_bytes=size))
    return tuple(left)


def _taken(books: Books, pod: str, kind: MemoryType, apart: Container[Owner], nodes: NodeSet | None = None) -> int:
    """Bytes of one type that the pod's containers hold as their own, on *nodes* or anywhere."""
    return sum(
        block.size_bytes
        for owner, blocks in books.assignments.items()
        if owner.pod == pod and owner not in apart
        for block in blocks
        if block.type == kind and nodes in (None, block.affinity)
    )


def beside(books: Books, request: Request, rules: Rules) -> Plan | Refusal:
    """Nothing is left to share: its siblings hold all that the pod may use, so it goes where most of that is."""
    siblings = [owner for owner in books.assignments if owner.pod == request.owner.pod]
    most = max(siblings, key=lambda o: (sum(b.size_bytes for b in books.assignments[o] if b.type == MEMORY), o))
    nodes = request.affinity or books.nodes_of(most)
    answer = place(release(books, *siblings), replace(request, affinity=nodes), rules)
    return answer if isinstance(answer, Refusal) else replace(answer, blocks=(), books=books)


def split(
    books: Books, request: Request, borrowed: frozenset[MemoryType], pot: Owner
) -> tuple[Mapping[MemoryType, int], Mapping[MemoryType, int]]:
    """
    The container's own sizes, and these together with what is left of its pod's limits for *pot* to hold.

    What siblings hold of the same type as their own is not shared. What *pot* holds already stays as it is while the
    pod's limit and siblings on its nodes allow it: one elsewhere may hold the same bytes once more.
    """
    own = {kind: size for kind, size in request.sizes.items() if kind not in borrowed}
    with_shared = dict(own)
    apart, there = {request.owner, pot, rest_of(pot.pod)}, books.nodes_of(pot)
    for kind in sorted(borrowed & request.sizes.keys()):
        limit = request.sizes[kind]
        taken = _taken(books, pot.pod, kind, apart)
        here = _taken(books, pot.pod, kind, apart, there) if there else taken
        stays = sum(b.size_bytes for b in books.assignments.get(pot, ()) if b.type == kind and not pot.is_rest)
        if (size := min(limit - here, max(stays, limit - taken))) > 0:
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

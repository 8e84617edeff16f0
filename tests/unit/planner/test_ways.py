"""What a refusal says would help does help: each remedy is read from its words, applied, and asked again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Hint, Plan, ProviderHints, Refusal, Request, Rules, TopologyPolicy
from numapin.model.quantity import at_least, at_most, format_available
from numapin.planner.accounting import release, reserve
from numapin.planner.explain import remedies
from numapin.planner.placement import place
from support.cases import random_case
from support.strategies import empty_books

GIB = 1 << 30
CASES = 3_000
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
AMOUNTS = r"((?:[\d.]+ \w+(?: of [\w-]+)?(?: and )?)+)"
PLACE = r"(?:on node|in group) ([\d,-]+)"


def machine(*sizes: int) -> Books:
    """Nodes from 0 up with so many GiB."""
    return empty_books({n: {MEMORY: size * GIB} for n, size in enumerate(sizes)})


def holding(books: Books, **blocks: tuple[str, int]) -> Books:
    """The books with ``name=(nodes, MiB)`` reserved."""
    for name, (nodes, size) in blocks.items():
        books = reserve(books, Owner("pod", name), (Block(NodeSet.parse(nodes), MEMORY, size << 20),))
    return books


def refused(books: Books, size_mib: int, policy: TopologyPolicy = TopologyPolicy.RESTRICTED) -> Refusal:
    """The refusal of so many MiB."""
    answer = place(books, Request(Owner("pod", "new"), {MEMORY: size_mib << 20}), Rules(policy))

    assert isinstance(answer, Refusal)
    return answer


# ---- examples ------------------------------------------------------------------------------------------------------


def test_a_group_is_never_joined_for_what_one_node_could_hold() -> None:
    """Under restricted no memory released inside the group helps: it must dissolve, and that is what is said."""
    books = holding(machine(10, 10), a=("0-1", 15 << 10), b=("0-1", 3 << 10))
    said = refused(books, 8 << 10)

    assert "group 0-1 has 2 GiB free" in said.message
    assert (
        "node 0 would do when empty, for which group 0-1 must dissolve first, because one node could hold it "
        "and the policy restricted takes no group of more",
    ) == remedies(said.explanation)


def test_the_group_that_lacks_least_is_named() -> None:
    """What is free in two groups is no sum: one group is named with what that one lacks."""
    books = holding(machine(4, 4, 4, 4), a=("0-1", 4353), b=("2-3", 6861))
    said = refused(books, 8181, TopologyPolicy.BEST_EFFORT)

    assert "it would fit in group 0-1 with 4.25 GiB more free there" in said.message
    assert "with 4.25 GiB more free in group 0-1 it would fit there" in remedies(said.explanation)


def test_a_group_as_wide_as_needed_may_be_joined() -> None:
    """Under restricted too, where no narrower set could do even when empty."""
    books = holding(machine(10, 10), a=("0-1", 10 << 10))
    said = refused(books, 12 << 10)

    assert ("with 2 GiB more free in group 0-1 it would fit there",) == remedies(said.explanation)


@pytest.mark.parametrize(
    ("held", "size", "others"),
    [({}, 15 << 10, "restricted or best-effort"), ({"a": ("0-1", 15 << 10)}, 3 << 10, "best-effort")],
)
def test_single_node_names_only_policies_that_take_it(
    held: dict[str, tuple[str, int]], size: int, others: str
) -> None:
    """Restricted is named beside best-effort only where it would admit the request."""
    said = refused(holding(machine(10, 10), **held), size, TopologyPolicy.SINGLE_NUMA_NODE)

    assert said.message.endswith(f"the policy single-numa-node allows one node only; {others} would take it")
    assert f"the policy {others} would take it now, on " in remedies(said.explanation)[0]


def test_cpus_keep_restricted_from_taking_more() -> None:
    """With CPUs of one node only best-effort is promised to take two."""
    hints = (ProviderHints("cpu", (Hint(NodeSet.of(0), True),)),)
    request = Request(Owner("pod", "new"), {MEMORY: 15 * GIB}, hints=hints)
    answer = place(machine(10, 10), request, Rules(TopologyPolicy.SINGLE_NUMA_NODE))

    assert isinstance(answer, Refusal)
    assert answer.message.endswith("allows one node only; best-effort would take it")


def test_given_nodes_are_the_only_ones_spoken_of() -> None:
    """What has its nodes already is told what they lack or can promise, never about others."""
    books = holding(machine(10, 20), a=("0", 6 << 10))
    request = Request(Owner("pod", "new"), {MEMORY: 8 * GIB}, affinity=NodeSet.of(0))
    small, large = (place(books, replace(request, sizes={MEMORY: n * GIB}), Rules()) for n in (8, 30))

    assert (
        "with 4 GiB more free on node 0 it would fit there",
        "with a memory limit of 4 GiB or less it would fit on node 0 now",
    ) == remedies(small.explanation)
    assert isinstance(large, Refusal)
    assert large.message.endswith(
        "no other nodes than node 0 are open to it, and it can promise 10 GiB at most, even when empty"
    )


@pytest.mark.parametrize(
    ("size", "least", "most"),
    [(0, "0 bytes", "0 bytes"), (1023, "1023 bytes", "1023 bytes"), (GIB, "1 GiB", "1 GiB"),
     (GIB + 1, "1.01 GiB", "1 GiB"), (3 * GIB // 2, "1.5 GiB", "1.5 GiB"), ((100 << 20) - 1, "100 MiB", "99.9 MiB")],
)  # fmt: skip
def test_rounding(size: int, least: str, most: str) -> None:
    """What must become free is rounded up, what would fit is rounded down."""
    assert (least, most) == (at_least(size), at_most(size))


def test_a_table_and_a_remedy_name_the_same_size() -> None:
    """Free memory is never shown larger than it is, so the limit that would fit is the figure in the table."""
    size = (842 << 20) - 1
    books = empty_books({0: {MEMORY: size}})
    answer = place(books, Request(Owner("pod", "new"), {MEMORY: GIB}), Rules())

    assert isinstance(answer, Refusal)
    assert (format_available(size), format_available(0), format_available(-GIB)) == ("841 MiB", "0", "-1 GiB")
    assert answer.message.startswith("needs 1 GiB; node 0 has 841 MiB free; node 0 can promise 841 MiB at most")
    assert remedies(answer.explanation) == ("with a memory limit of 841 MiB or less it would fit on node 0 now",)


# ---- every remedy is true ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 123_456_789])
def test_every_remedy_is_true(scale: int) -> None:
    """In thousands of refusals each remedy and each clause of the sentence, applied to the books, admits."""
    rng = Random(33 + scale)
    seen: Counter[str] = Counter()
    for number in range(CASES):
        books, request, rules = random_case(rng, most_nodes=5)
        books, request = scaled(books, request, scale)
        if rng.random() < 0.1:
            request = replace(request, affinity=rng.choice([s.cells for s in books.node_map.nodes.values()]))
        answer = place(books, request, rules)
        if isinstance(answer, Plan):
            continue
        for said in dict.fromkeys((*remedies(answer.explanation), *answer.explanation.would_fit.split("; "))):
            for kind, (then, ask, by) in changed(said, books, request, rules):
                seen[kind] += 1

                assert isinstance(place(then, ask, by), Plan), (number, said, answer.message, books, request, rules)
    assert {"free on node", "free in group", "limit", "limit of several", "policy", "ended", "emptied"} == set(seen)
    assert min(seen.values()) > 10, seen


Asked = tuple[Books, Request, Rules]


def changed(said: str, books: Books, request: Request, rules: Rules) -> list[tuple[str, Asked]]:
    """The question again, with what the sentence says done; empty where it recommends nothing."""
    if m := re.search(f"with {AMOUNTS} more free (?:there|{PLACE})", said):
        where = m[2] or re.search(PLACE, said)[1]  # type: ignore[index]
        kind = "free on node" if "node" in said else "free in group"
        return [(kind, (*freed(books, request, NodeSet.parse(where), amounts_of(m[1])), rules))]
    if m := re.search(
        r"with a memory limit of ([\d.]+ \w+?)( or less)?(?: beside .*)? it would fit on (.*) now", said
    ):
        kind = "limit" if "node " in m[3] else "limit of several"
        return [(kind, (books, replace(request, sizes={**request.sizes, MEMORY: bytes_of(m[1])}), rules))]
    if m := re.search(r"(?:the policy |; )?(restricted or )?best-effort would take", said):
        names = ["restricted", "best-effort"] if m[1] else ["best-effort"]
        return [("policy", (books, request, replace(rules, policy=TopologyPolicy(n)))) for n in names]
    if m := re.match(r"nodes? ([\d,-]+)(?: together)? would do( when empty)?", said):
        if not m[2] and "more free" in place(books, request, rules).explanation.would_fit:
            return []  # a fact beside the remedy that follows it
        return [("emptied" if m[2] else "ended", (*ended(books, request, NodeSet.parse(m[1]), bool(m[2])), rules))]
    return []


def freed(books: Books, request: Request, nodes: NodeSet, more: Mapping[MemoryType, int]) -> tuple[Books, Request]:
    """Others on the nodes hold so much less, and the kernel has so much more free."""
    left = dict(more)
    for owner, blocks in books.assignments.items():
        if (
            owner == request.owner
            or owner in request.reusable
            or not any(b.affinity.mask & nodes.mask for b in blocks)
        ):
            continue
        smaller = []
        for block in blocks:
            part = min(block.size_bytes, left.get(block.type, 0))
            left[block.type] = left.get(block.type, 0) - part
            smaller.append(replace(block, size_bytes=block.size_bytes - part))
        books = reserve(books, owner, tuple(smaller))
    ceilings = {n: dict(kinds) for n, kinds in request.ceilings.items()}
    for kind, size in more.items():
        if limited := [n for n in nodes if kind in ceilings.get(n, {})]:
            ceilings[limited[0]][kind] += size
    return books, replace(request, ceilings=ceilings)


def ended(books: Books, request: Request, nodes: NodeSet, kernel: bool) -> tuple[Books, Request]:
    """All that holds memory on the nodes, or in groups with them, has ended, and with *kernel* all else there too."""
    reached = nodes
    for node in nodes:
        reached |= books.node_map.nodes[node].cells
    gone = [o for o, blocks in books.assignments.items() if any(b.affinity.mask & reached.mask for b in blocks)]
    ceilings = {n: k for n, k in request.ceilings.items() if not kernel or n not in nodes}
    return release(books, *gone), replace(request, ceilings=ceilings)


def scaled(books: Books, request: Request, by: int) -> tuple[Books, Request]:
    """The same case with every amount so many times as large."""
    nodes = books.node_map.nodes
    large = empty_books({n: {k: t.allocatable * by for k, t in s.memory_map.items()} for n, s in nodes.items()})
    for owner, blocks in books.assignments.items():
        large = reserve(large, owner, tuple(replace(b, size_bytes=b.size_bytes * by) for b in blocks))
    ceilings: dict[NodeId, dict[MemoryType, int]] = {
        n: {k: v * by for k, v in kinds.items()} for n, kinds in request.ceilings.items()
    }
    return large, replace(request, sizes={k: v * by for k, v in request.sizes.items()}, ceilings=ceilings)


def amounts_of(text: str) -> dict[MemoryType, int]:
    """Bytes by type of ``1 GiB and 2 MiB of hugepages-2Mi``."""
    found = {}
    for part in text.split(" and "):
        size, _, kind = part.partition(" of ")
        found[MemoryType(kind) if kind else MEMORY] = bytes_of(size)
    return found


def bytes_of(text: str) -> int:
    """Bytes of ``1.5 GiB``."""
    number, unit = text.split()
    whole, _, fraction = number.partition(".")
    return int(whole + fraction) * UNITS[unit] // int(10 ** len(fraction))

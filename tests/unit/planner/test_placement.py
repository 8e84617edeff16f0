"""Placement of one container, on machines small enough to follow by hand."""

from __future__ import annotations

from time import process_time

import pytest

from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import (
    Exclusion,
    Hint,
    Plan,
    ProviderHints,
    Refusal,
    RefusalCode,
    Request,
    Rules,
    TopologyPolicy,
)
from numapin.planner.accounting import rebase, reserve
from numapin.planner.explain import remedies
from numapin.planner.placement import place
from support.strategies import KINDS, empty_books

GIB = 1 << 30
HUGE = MemoryType("hugepages-2Mi")
NONE, BEST, RESTRICTED, SINGLE = TopologyPolicy


def machine(*sizes: int) -> Books:
    """Nodes from 0 up with so many bytes of memory."""
    return empty_books({n: {MEMORY: size} for n, size in enumerate(sizes)})


def asked(name: str, size: int, **narrowed: object) -> Request:
    """A request for memory."""
    return Request(Owner("pod", name), {MEMORY: size}, **narrowed)  # type: ignore[arg-type]


def planned(books: Books, request: Request, rules: Rules = Rules()) -> Plan:  # noqa: B008 # frozen
    """The plan; a refusal fails the test."""
    answer = place(books, request, rules)
    assert isinstance(answer, Plan), answer
    return answer


def refused(books: Books, request: Request, rules: Rules = Rules()) -> Refusal:  # noqa: B008 # frozen
    """The refusal; a plan fails the test."""
    answer = place(books, request, rules)
    assert isinstance(answer, Refusal), answer
    return answer


def holding(books: Books, **blocks: tuple[str, int]) -> Books:
    """The books with ``name=(nodes, bytes)`` reserved."""
    for name, (nodes, size) in blocks.items():
        books = reserve(books, Owner("pod", name), (Block(NodeSet.parse(nodes), MEMORY, size),))
    return books


def cpu(*hints: tuple[str, bool] | None) -> tuple[ProviderHints, ...]:
    """One other provider's hints; ``None`` is any node."""
    made = tuple(Hint(None, True) if h is None else Hint(NodeSet.parse(h[0]), h[1]) for h in hints)
    return (ProviderHints("cpu", made),)


def test_walk_through_of_a_group() -> None:
    """15 on two nodes of 10 makes a group; 5 is refused there by restricted, joins it under best-effort."""
    first = planned(machine(10, 10), asked("big", 15))
    denied = refused(first.books, asked("small", 5))
    joined = planned(first.books, asked("small", 5), Rules(BEST))

    assert first.nodes == NodeSet.of(0, 1)
    assert (denied.code, denied.kubelet_reason) == (RefusalCode.NOT_FEWEST, "TopologyAffinityError")
    assert (joined.nodes, joined.explanation.preferred) == (NodeSet.of(0, 1), False)


def test_walk_through_of_single_nodes() -> None:
    """2, 6, 3 and 8 on nodes of 10: two share a node, the third goes to the next, the fourth fits nowhere."""
    books = machine(10 * GIB, 10 * GIB)
    nodes: list[NodeSet] = []
    for name, size in (("a", 2), ("b", 6), ("c", 3)):
        plan = planned(books, asked(name, size * GIB))
        books, nodes = plan.books, [*nodes, plan.nodes]
    denied = refused(books, asked("d", 8 * GIB))

    assert [NodeSet.of(0), NodeSet.of(0), NodeSet.of(1)] == nodes
    assert (denied.code, denied.kubelet_reason) == (RefusalCode.NO_ROOM, "UnexpectedAdmissionError")
    assert (
        "needs 8 GiB; node 0 has 2 GiB free, node 1 7 GiB; nodes 0-1 together would do but both hold single-node "
        "containers; it would fit on node 1 with 1 GiB more free there" == denied.message
    )


def test_lowest_ids_among_equals() -> None:
    """{1,2} is numerically smaller than {0,3} where both fit and smaller sets do not."""
    plan = planned(machine(1, 8, 8, 15), asked("a", 16))

    assert (plan.nodes, plan.explanation.tie_break) == (NodeSet.of(1, 2), "lowest-node-ids")


@pytest.mark.parametrize(
    ("policy", "code"),
    [(NONE, None), (BEST, None), (RESTRICTED, None), (SINGLE, RefusalCode.NOT_SINGLE)],
)
def test_two_nodes_needed(policy: TopologyPolicy, code: RefusalCode | None) -> None:
    """What needs two nodes gets them, except under single-numa-node."""
    answer = place(machine(10, 10), asked("a", 15), Rules(policy))

    if isinstance(answer, Refusal):
        assert code is answer.code
    else:
        assert (code, answer.nodes) == (None, NodeSet.of(0, 1))


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [(NONE, "1-2"), (BEST, "1-2"), (RESTRICTED, None), (SINGLE, None)],
)
def test_only_a_wider_set_is_free(policy: TopologyPolicy, nodes: str | None) -> None:
    """One node would do on an empty machine; with none free only the lax policies take two."""
    books = holding(empty_books({0: {MEMORY: 10}, 1: {MEMORY: 4}, 2: {MEMORY: 4}}), a=("0", 5))
    answer = place(books, asked("b", 6), Rules(policy))

    assert nodes == (str(answer.nodes).replace(",", "-") if isinstance(answer, Plan) else None)
    assert answer.explanation.width == 1


def test_all_types_come_from_the_same_nodes() -> None:
    """A node with enough memory and too few pages is passed over."""
    books = empty_books({0: {MEMORY: 10, HUGE: 2}, 1: {MEMORY: 10, HUGE: 8}})
    plan = planned(books, Request(Owner("pod", "a"), {MEMORY: 4, HUGE: 3}))

    assert {HUGE: 3, MEMORY: 4} == {b.type: b.size_bytes for b in plan.blocks}
    assert {NodeSet.of(1)} == {b.affinity for b in plan.blocks}
    assert (plan.explanation.tie_break, plan.explanation.width) == ("only-set-that-fits", 1)


def test_idempotent_for_equal_sizes() -> None:
    """An owner that already has what it asks for keeps its blocks, whatever the policy says today."""
    plan = planned(machine(10, 10), asked("a", 15))
    again = planned(plan.books, asked("a", 15), Rules(SINGLE))

    assert (plan.blocks, plan.books) == (again.blocks, again.books)
    assert again.explanation.tie_break == "already-assigned"


def test_another_size_is_placed_anew_on_the_same_node() -> None:
    """A container that grew stays on its node when it fits there, and its old bytes count as free."""
    books = holding(machine(10, 10), a=("1", 6))
    plan = planned(books, asked("a", 9))

    assert (plan.nodes, plan.explanation.tie_break) == (NodeSet.of(1), "own-nodes")
    assert [9] == [b.size_bytes for b in plan.books.assignments[Owner("pod", "a")]]


def test_growth_beyond_its_node_keeps_it_in_the_set() -> None:
    """A container that outgrows its node gets a set with it, among equally many nodes."""
    books = holding(machine(10, 10, 10, 10), a=("2", 6))

    assert planned(books, asked("a", 14)).nodes == NodeSet.of(0, 2)


def test_pages_that_are_there_break_ties() -> None:
    """A running container stays where most of its pages are, among equally many nodes only."""
    books = machine(10, 10, 10)

    plan = planned(books, asked("a", 5, resident={NodeId(1): 2, NodeId(2): 3}))
    wide = planned(books, asked("a", 15, resident={NodeId(2): 3}))

    assert (plan.nodes, plan.explanation.tie_break) == (NodeSet.of(2), "resident-pages")
    assert wide.nodes == NodeSet.of(0, 2)


def test_residency_never_beats_fewer_nodes() -> None:
    """Pages on two nodes do not make one container a group."""
    plan = planned(machine(10, 10, 10), asked("a", 5, resident={NodeId(1): 9, NodeId(2): 9}))

    assert len(plan.nodes) == 1


def test_memory_of_ended_containers_is_used_first() -> None:
    """An ended container's memory counts as free, its node is taken among equals, its assignment is gone."""
    books = holding(machine(10, 10), init=("1", 8), other=("1", 2))
    reusable = (Owner("pod", "init"),)
    plan = planned(books, asked("app", 7, reusable=reusable))

    assert (plan.nodes, plan.explanation.tie_break) == (NodeSet.of(1), "memory-of-ended-containers")
    assert sorted(plan.books.assignments) == [Owner("pod", "app"), Owner("pod", "other")]


def test_only_allowed_nodes() -> None:
    """Nodes outside the parent's set are not taken, and the width is that of the allowed ones."""
    plan = planned(machine(10, 6, 6), asked("a", 9, allowed=NodeSet.of(1, 2)))

    assert (plan.nodes, plan.explanation.width, plan.explanation.preferred) == (NodeSet.of(1, 2), 2, True)
    assert plan.explanation.nodes[0].exclusion is Exclusion.NOT_ALLOWED


def test_no_allowed_node() -> None:
    """An empty intersection is a refusal that says so."""
    denied = refused(machine(10), asked("a", 5, allowed=NodeSet.of(4)))

    assert denied.code is RefusalCode.DOES_NOT_FIT
    assert denied.message == "needs 5 B; no node is allowed for it; allow a node with memory for it"


def test_one_node_with_normal_memory() -> None:
    """A movable-only node serves only together with another."""
    books = machine(10, 10)
    alone = planned(books, asked("a", 5, normal=NodeSet.of(1)))
    both = planned(books, asked("a", 15, normal=NodeSet.of(1)))

    assert (alone.nodes, both.nodes) == (NodeSet.of(1), NodeSet.of(0, 1))
    assert alone.explanation.nodes[0].exclusion is Exclusion.NOT_NORMAL


def test_the_kernel_only_lowers_what_the_books_offer() -> None:
    """A node whose books are fuller than the kernel's free pages is passed over; more in the kernel adds nothing."""
    short = {NodeId(0): {MEMORY: 2 * GIB}, NodeId(1): {MEMORY: 99 * GIB}}
    plan = planned(machine(4 * GIB, 4 * GIB), asked("a", 3 * GIB, ceilings=short))
    denied = refused(machine(4 * GIB, 2 * GIB), asked("a", 3 * GIB, ceilings=short))

    assert plan.nodes == NodeSet.of(1)
    assert denied.message.startswith("needs 3 GiB; node 0 has 4 GiB free (the kernel only 2 GiB), node 1 2 GiB; ")


@pytest.mark.parametrize(
    ("policy", "hints", "nodes"),
    [
        (RESTRICTED, cpu(("1", True)), "1"),
        (RESTRICTED, cpu(None), "0"),
        (RESTRICTED, (ProviderHints("cpu", None),), "0"),
        (RESTRICTED, (ProviderHints("cpu", ()),), None),
        (RESTRICTED, cpu(("1", False)), None),
        (RESTRICTED, cpu(("0-1", True)), None),
        (SINGLE, cpu(("1", True), ("0-1", True)), "1"),
        (SINGLE, cpu(("0-1", True)), None),
        (BEST, cpu(("1", False)), "1"),
        (BEST, cpu(("0-1", True)), "0-1"),
        (BEST, cpu(("5", True)), "0"),
        (NONE, cpu(("1", True)), "0"),
        (RESTRICTED, (*cpu(("1", True)), *cpu(("1", True), ("0", True))), "1"),
        (RESTRICTED, (*cpu(("1", True)), *cpu(("0", True))), None),
    ],
)
def test_other_providers(policy: TopologyPolicy, hints: tuple[ProviderHints, ...], nodes: str | None) -> None:
    """Memory and the others meet on one set, or the policy decides."""
    answer = place(machine(10, 10), asked("a", 5, hints=hints), Rules(policy))

    if isinstance(answer, Refusal):
        assert (nodes, answer.code) == (None, RefusalCode.HINTS_DISAGREE)
        assert answer.kubelet_reason == "TopologyAffinityError"
    else:
        assert nodes == str(answer.nodes)


def test_hints_that_disagree_are_told() -> None:
    """The refusal says where memory would fit and what the other wants."""
    books = holding(machine(10 * GIB, 10 * GIB), a=("0", 9 * GIB))
    denied = refused(books, asked("b", 4 * GIB, hints=cpu(("0", True))))

    assert (
        "needs 4 GiB; node 0 has 1 GiB free, node 1 10 GiB; memory fits on node 1, but cpu wants node 0; "
        "the policy best-effort would take what is nearest to both" == denied.message
    )


def test_a_single_node_hint_inside_a_group_takes_the_group() -> None:
    """A device on one node of a group does not split it: the whole group serves, under best-effort."""
    books = holding(machine(10, 10), big=("0-1", 15))
    plan = planned(books, asked("b", 2, hints=cpu(("1", True))), Rules(BEST))

    assert plan.nodes == NodeSet.of(0, 1)
    assert [NodeSet.of(0, 1)] == list(plan.books.groups())


def test_closest_nodes() -> None:
    """With the option the nearest pair wins over the lowest ids, and only then."""
    rows = [[10, 31, 31, 12], [31, 10, 20, 31], [31, 20, 10, 31], [12, 31, 31, 10]]
    distances = {NodeId(a): {NodeId(b): d for b, d in enumerate(row)} for a, row in enumerate(rows)}
    near = planned(machine(10, 10, 10, 10), asked("a", 15), Rules(prefer_closest=True, distances=distances))
    far = planned(machine(10, 10, 10, 10), asked("a", 15), Rules(distances=distances))

    assert (near.nodes, near.explanation.tie_break) == (NodeSet.of(0, 3), "closest-nodes")
    assert far.nodes == NodeSet.of(0, 1)


def test_two_types_under_best_effort_get_the_narrowest_set() -> None:
    """Where upstream meets in the middle of two of its own sets, the fewest nodes that fit are taken."""
    books = empty_books({n: {MEMORY: 10, HUGE: 10} for n in range(4)})
    books = reserve(books, Owner("pod", "x"), (Block(NodeSet.of(0), MEMORY, 9),))
    request = Request(Owner("pod", "a"), {MEMORY: 19, HUGE: 19})

    assert planned(books, request, Rules(BEST)).nodes == NodeSet.of(1, 2)


def test_unknown_type() -> None:
    """A page size that no node has is refused with its name."""
    denied = refused(machine(10), Request(Owner("pod", "a"), {MEMORY: 5, HUGE: 5}))

    assert denied.code is RefusalCode.UNKNOWN_TYPE
    assert "no node has memory of type hugepages-2Mi" in denied.message


def test_more_than_the_machine_has() -> None:
    """A request above everything says what all nodes together can promise."""
    denied = refused(machine(10 * GIB, 10 * GIB), asked("a", 25 * GIB))

    assert (denied.code, denied.explanation.width) == (RefusalCode.DOES_NOT_FIT, None)
    assert denied.explanation.would_fit == "nodes 0-1 together can promise 20 GiB at most, even when empty"


@pytest.mark.parametrize("sizes", [{}, {MEMORY: 0}, {MEMORY: -1}, {MEMORY: 5, HUGE: -1}])
def test_nothing_to_place(sizes: dict[MemoryType, int]) -> None:
    """A request for nothing or less is the caller's mistake."""
    with pytest.raises(ValueError, match="needs sizes above zero"):
        place(machine(10), Request(Owner("pod", "a"), sizes), Rules())


def test_input_is_not_changed() -> None:
    """The books given stay as they were."""
    books = holding(machine(10, 10), a=("0", 4))
    before = repr(books)
    place(books, asked("b", 5, reusable=(Owner("pod", "a"),)), Rules())

    assert before == repr(books)


def test_long_machines_get_short_sentences() -> None:
    """On 64 nodes only the few with the most free are listed."""
    books = machine(*[GIB] * 64)
    for n in range(64):
        books = holding(books, **{f"c{n}": (str(n), GIB // 2 + n)})
    denied = refused(books, asked("big", GIB))

    assert len(denied.message) < 300
    assert "and 61 others no more" in denied.message


def test_every_exclusion_is_told() -> None:
    """Each node's view says why it alone cannot take the request."""
    nodes = {n: {MEMORY: 10, HUGE: 10} for n in range(7)}
    nodes |= {7: {MEMORY: 10}, 8: {MEMORY: 0}, 9: {MEMORY: 4, HUGE: 10}, 10: {MEMORY: 4, HUGE: 10}}
    books = holding(empty_books(nodes), a=("1-2", 1), b=("3", 6), e=("10", 1))
    request = Request(
        Owner("pod", "x"),
        {MEMORY: 5, HUGE: 1},
        allowed=NodeSet.from_ids(n for n in nodes if n != 6),
        normal=NodeSet.from_ids(n for n in nodes if n != 5),
        ceilings={NodeId(4): {HUGE: 0}},
    )

    told = {view.node: view.exclusion for view in planned(books, request).explanation.nodes}

    assert {
        0: None,
        1: Exclusion.IN_GROUP,
        2: Exclusion.IN_GROUP,
        3: Exclusion.NOT_ENOUGH_FREE,
        4: Exclusion.KERNEL_SHORT,
        5: Exclusion.NOT_NORMAL,
        6: Exclusion.NOT_ALLOWED,
        7: Exclusion.TYPE_MISSING,
        8: Exclusion.MEMORYLESS,
        9: Exclusion.TOO_SMALL,
        10: Exclusion.HOLDS_SINGLE,
    } == told


@pytest.mark.parametrize("policy", list(TopologyPolicy))
@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_large_machines_answer_in_time(policy: TopologyPolicy, kinds: int) -> None:
    """1,024 nodes of random sizes, groups and hints: the set is enough, and far below a second of processor time."""
    names = KINDS[:kinds]
    books = empty_books({n: {k: 50 + (n * 37 + i * 11) % 50 for i, k in enumerate(names)} for n in range(1024)})
    books = holding(books, g1=("0-9", 300), g2=("20-21", 100), s=("30", 20))
    hints = (ProviderHints("cpu", tuple(Hint(NodeSet.of(n), True) for n in range(40, 48))),)
    for size in (60, 130, 3_000):
        for others in ((), hints):
            request = Request(Owner("pod", "a"), dict.fromkeys(names, size), hints=others)
            begin = process_time()
            answer = place(books, request, Rules(policy))
            spent = process_time() - begin

            assert spent < 1
            if isinstance(answer, Plan):
                assert all(
                    sum(books.node_map.nodes[n].memory_map[k].free for n in answer.nodes) >= size for k in names
                )


@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_refusals_on_large_machines_come_in_time(policy: TopologyPolicy) -> None:
    """1,024 nodes that each have some room and not enough, CPUs of a thousand: refused far below a second."""
    books = empty_books({n: dict.fromkeys(KINDS[:3], 100) for n in range(1024)})
    kept = {Owner("used", str(n)): tuple(Block(NodeSet.of(n), k, 60) for k in KINDS[:3]) for n in range(1024)}
    books = rebase(Books(books.node_map, kept), books.node_map)
    singles = tuple(Hint(NodeSet.of(n), True) for n in range(1000))
    hints = (ProviderHints("cpu", (*singles, Hint(NodeSet.from_ids(range(1000)), False))),)
    request = Request(Owner("new", "a"), dict.fromkeys(KINDS[:3], 80), hints=hints)
    begin = process_time()
    answer = place(books, request, Rules(policy))
    said = remedies(answer.explanation)
    spent = process_time() - begin

    assert isinstance(answer, Refusal)
    assert answer.code is RefusalCode.NO_ROOM
    assert said
    assert spent < 1

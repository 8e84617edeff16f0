"""The sentences of a decision's record, and the record itself checked by somebody who knows nothing else."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest

from numapin.daemon.explain import decision_part
from numapin.model.memory import MEMORY, Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Explanation, Hint, Plan, ProviderHints, Refusal, Request, Rules, TopologyPolicy
from numapin.planner.accounting import reserve
from numapin.planner.explain import TIE_BREAKS, node_verdicts, remedies, why_sentences
from numapin.planner.placement import place
from numapin.planner.smaller import Smaller, largest_at_once
from numapin.planner.wording import one_of
from support.cases import random_case
from support.checker import verdict, without_verdict
from support.strategies import empty_books

GIB = 1 << 30
HUGE = MemoryType("hugepages-2Mi")
CASES = 10_000


def asked(size: int, **narrowed: Any) -> Request:
    """A request for so many GiB."""
    return Request(Owner("pod", "new"), {MEMORY: size * GIB}, **narrowed)


def machine(*sizes: int) -> Books:
    """Nodes from 0 up with so many GiB."""
    return empty_books({n: {MEMORY: size * GIB} for n, size in enumerate(sizes)})


def holding(books: Books, **blocks: tuple[str, int]) -> Books:
    """The books with ``name=(nodes, GiB)`` reserved."""
    for name, (nodes, size) in blocks.items():
        books = reserve(books, Owner("pod", name), (Block(NodeSet.parse(nodes), MEMORY, size * GIB),))
    return books


def record(books: Books, request: Request, policy: TopologyPolicy = TopologyPolicy.RESTRICTED) -> Explanation:
    """The record of a decision."""
    return place(books, request, Rules(policy)).explanation


# ---- the independent checker -------------------------------------------------------------------------------------


def test_the_record_as_json_gives_the_same_verdict() -> None:
    """Ten thousand decisions: from the record alone, without what tells its end, the checker gives the same nodes."""
    rng = Random(2026)
    admitted = 0
    for number in range(CASES):
        books, request, rules = random_case(rng, most_nodes=6)
        answer = place(books, request, rules)
        wanted = list(answer.nodes) if isinstance(answer, Plan) else None
        told = json.loads(json.dumps(decision_part(answer.explanation)))
        admitted += wanted is not None

        assert wanted == told["chosen"], number
        assert (wanted is not None) is told["admitted"], number
        assert wanted == verdict(without_verdict(told)), (number, told)
    assert CASES * 0.2 < admitted < CASES * 0.8


@pytest.mark.parametrize(
    ("key", "value"),
    [("free", {"memory": 0}), ("cells", [0, 1]), ("assignments", 1), ("exclusion", "not-allowed"), ("normal", False)],
)
def test_the_checker_looks_at_every_fact(key: str, value: object) -> None:
    """A record with one fact of a node changed gives another verdict, so the facts are what counts."""
    request = asked(8) if key != "assignments" else asked(15)
    told = json.loads(json.dumps(decision_part(record(machine(10, 10), request))))
    facts = without_verdict(told)
    facts["nodes"][0][key] = value

    assert told["chosen"] == verdict(without_verdict(told))
    assert told["chosen"] != verdict(facts)


# ---- sentences -----------------------------------------------------------------------------------------------------


def test_an_admitted_request() -> None:
    """What it needs, where it went and by which rule, and who else had room."""
    said = why_sentences(record(holding(machine(10, 10, 10), a=("0", 6)), asked(5)))

    assert said == (
        "It needs 5 GiB, which one node could hold when empty.",
        "Node 1 was chosen: among sets of as few nodes that can take it the lowest ids win.",
        "Node 2 also has room for it.",
    )


def test_a_group_and_a_wider_set() -> None:
    """A group is called one, and more nodes than necessary are named with the policy that allows them."""
    books = holding(machine(10, 10), a=("0-1", 12))
    said = why_sentences(record(books, asked(5), TopologyPolicy.BEST_EFFORT))

    assert said[1:] == (
        "Group 0-1 was chosen: no other set of as few nodes can take it.",
        "More nodes than necessary; the policy best-effort allows that.",
    )


def test_only_what_the_policy_would_take_has_room() -> None:
    """A wider group with enough free is a rival under best-effort, and is not spoken of where it would be refused."""
    books = holding(machine(10, 10, 10), a=("1-2", 12))
    strict, single, lax = (
        why_sentences(record(books, asked(5), policy))[1:]
        for policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE, TopologyPolicy.BEST_EFFORT)
    )

    assert strict == single == ("Node 0 was chosen: no other set of as few nodes can take it.",)
    assert lax == (*strict, "Group 1-2 also has room for it.")


def test_nodes_that_other_providers_do_not_want_are_no_rivals() -> None:
    """Under restricted a node with room that the CPUs do not want is said to be refused, under best-effort not."""
    hints = (ProviderHints("cpu", (Hint(NodeSet.of(1), True),)),)
    strict, lax = (
        record(machine(10, 10, 10), asked(5, hints=hints), policy)
        for policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT)
    )

    assert not any("also" in sentence for sentence in why_sentences(strict))
    assert node_verdicts(strict) == ("has room, but would be refused", "chosen", "has room, but would be refused")
    assert "Node 0 and node 2 also have room for it." in why_sentences(lax)
    assert node_verdicts(lax) == ("has room", "chosen", "has room")


def test_given_nodes_have_no_rivals() -> None:
    """Where its pod has nodes already, or it keeps what it was promised, no others are open to it."""
    given = record(machine(10, 10), asked(5, affinity=NodeSet.of(1)))
    kept = record(holding(machine(10, 10), new=("1", 5)), asked(5))

    assert given.candidates == (NodeSet.of(1),)
    assert why_sentences(given)[1:] == ("Node 1 was chosen: its pod has these nodes already.",)
    assert node_verdicts(given) == ("has room, but would be refused", "chosen")
    assert why_sentences(kept)[1:] == ("Node 1 was chosen: it keeps what it was promised before.",)


def test_rivals_would_be_taken() -> None:
    """In thousands of decisions: with nothing but a rival left to it, the request is admitted there."""
    rng = Random(17)
    rivals = 0
    for _ in range(3_000):
        books, request, rules = random_case(rng, most_nodes=5)
        found = place(books, request, rules).explanation
        if found.chosen is None or found.tie_break.startswith(("already", "nodes-of")):
            continue
        said = "".join(s for s in why_sentences(found) if " also ha" in s).lower()
        for nodes in map(NodeSet.parse, re.findall(r"(?:node|group) ([\d,-]*\d)", said)):
            alone = Request(**{**fields(request), "allowed": nodes})
            wide = rules.policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT)
            rivals += 1

            assert wide or len(nodes) == found.width, said
            assert isinstance(place(books, alone, rules), Plan), said
    assert rivals > 300


def test_other_providers_are_named() -> None:
    """Each provider's wish is a sentence, without repetitions."""
    hints = (
        ProviderHints("cpu", (Hint(NodeSet.of(1), True), Hint(NodeSet.of(1), True), Hint(NodeSet.of(0, 1), False))),
        ProviderHints("device /dev/a", None),
        ProviderHints("device /dev/b", ()),
        ProviderHints("device /dev/c", (Hint(None, True),)),
    )
    said = why_sentences(record(machine(10, 10), asked(5, hints=hints), TopologyPolicy.BEST_EFFORT))

    assert [
        "The provider cpu prefers node 1.",
        "The provider device /dev/a has no preference.",
        "The provider device /dev/b has no set of nodes that it prefers.",
        "The provider device /dev/c can live with any nodes.",
    ] == list(said[-4:])


@pytest.mark.parametrize(
    ("books", "request_", "policy", "expected"),
    [
        (
            holding(machine(10, 10), a=("0", 8), b=("1", 3)),
            asked(8),
            TopologyPolicy.RESTRICTED,
            (
                "with 1 GiB more free on node 1 it would fit there",
                "with a memory limit of 7 GiB or less it would fit on node 1 now",
            ),
        ),
        (
            holding(machine(10, 10), a=("0-1", 12)),
            asked(5),
            TopologyPolicy.RESTRICTED,
            ("the policy best-effort would take it now, on group 0-1",),
        ),
        (
            machine(10, 10),
            asked(30),
            TopologyPolicy.RESTRICTED,
            (
                "with a memory limit of 20 GiB it would fit on nodes 0-1 now",
                "with a memory limit of 10 GiB or less it would fit on node 0 now",
            ),
        ),
        (
            machine(10),
            Request(Owner("p", "c"), {MEMORY: GIB, HUGE: 2 << 20}),
            TopologyPolicy.RESTRICTED,
            ("add hugepages-2Mi to a node that it may use (write the pool's nr_hugepages)",),
        ),
        (machine(10, 10), asked(5), TopologyPolicy.RESTRICTED, ()),
    ],
)
def test_remedies(books: Books, request_: Request, policy: TopologyPolicy, expected: tuple[str, ...]) -> None:
    """A refusal says what would change it, with the numbers; an admitted request has nothing to change."""
    assert expected == remedies(record(books, request_, policy))


def test_remedies_are_true() -> None:
    """In thousands of refusals: the smaller limit does fit, and best-effort does take what it is said to take."""
    rng = Random(5)
    smaller = others = 0
    for _ in range(4_000):
        books, request, rules = random_case(rng, most_nodes=5)
        answer = place(books, request, rules)
        if isinstance(answer, Plan):
            continue
        said = " | ".join(remedies(answer.explanation))
        largest = largest_at_once(answer.explanation)
        if (found := re.search(r"limit of (\d+) bytes or less[^|]* on node (\d+) now", said)) is not None:
            smaller += 1
            less = Request(**{**fields(request), "sizes": {**request.sizes, MEMORY: int(found[1])}})

            assert Smaller(NodeSet.of(int(found[2])), int(found[1]), True) in largest
            assert isinstance(place(books, less, rules), Plan), said
        if (found := re.search(r"best-effort would take it now, on \w+ (\S+)$", said.split(" | ")[0])) is not None:
            others += 1
            lax = place(books, request, Rules(TopologyPolicy.BEST_EFFORT, rules.prefer_closest, rules.distances))

            assert found[1] == str(lax.nodes) if isinstance(lax, Plan) else None
    assert (smaller > 100, others > 20) == (True, True)


def fields(request: Request) -> dict[str, Any]:
    """A request's fields by name."""
    return {name: getattr(request, name) for name in Request.__slots__}


def test_every_tie_break_has_its_sentence() -> None:
    """No decision of thousands names a rule that has no sentence."""
    rng = Random(11)
    seen = set()
    for _ in range(3_000):
        seen.add(place(*random_case(rng, most_nodes=6)).explanation.tie_break.partition(";")[0])

    assert seen - {""} <= set(TIE_BREAKS)
    assert len(seen) > 6


def test_each_node_has_its_finding() -> None:
    """Chosen, with room, or the rule that excludes it in a few words."""
    books = holding(machine(10, 10, 10, 10, 1), a=("0", 8), b=("2-3", 11))
    found = record(books, asked(5, allowed=NodeSet.of(0, 1, 2, 3)))

    assert (
        "not enough free",
        "chosen",
        "tied into group 2-3",
        "tied into group 2-3",
        "not allowed for it",
    ) == node_verdicts(found)


def test_refused_and_admitted_differ_only_in_the_verdict() -> None:
    """A refusal's record has the same facts; its sentences only say what was asked."""
    answer = place(machine(10), asked(11), Rules())

    assert isinstance(answer, Refusal)
    assert why_sentences(answer.explanation) == ("It needs 11 GiB.",)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["2"], "node 2"),
        (["2", "3"], "node 2 or 3"),
        (["2", "3", "2-3"], "any of nodes 2-3"),
        (["0", "1", "2", "0-1", "0,2", "1-2", "0-2"], "any of nodes 0-2"),
        (["0-1", "2"], "nodes 0-1 or node 2"),
        (["0", "1", "2", "3", "4"], "node 0 or 1 or 2 or 3 or others"),
    ],
)
def test_what_another_provider_prefers_is_short(sets: list[str], said: str) -> None:
    """Sets that come to "any of these" are not listed."""
    assert one_of([NodeSet.parse(s) for s in sets]) == said

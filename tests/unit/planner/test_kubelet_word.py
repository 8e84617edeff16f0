"""The kubelet's word for a refusal, and its absence, against the planner's kubelet."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random
from time import process_time

import pytest

from numapin.model.container import QosClass
from numapin.model.memory import MEMORY, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Refusal, RefusalCode, Request, Rules, Scope, TopologyPolicy
from numapin.planner.explain import kubelet_clause
from numapin.planner.kubelet.node import Kubelet
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.placement import place
from support.cases import random_case
from support.strategies import empty_books

NEW = Owner("new", "c")
HUGE = MemoryType("hugepages-2Mi")


def kubelets_word(books: Books, request: Request, rules: Rules) -> str:
    """What a kubelet says to a Guaranteed pod of the same size on the same books; empty: it is admitted."""
    limits = {str(kind): Decimal(size) for kind, size in request.sizes.items()}
    pod = Pod(NEW.pod, (PodContainer(NEW.container, limits=limits),), qos=QosClass.GUARANTEED)
    distances = rules.distances if rules.prefer_closest else None
    kubelet = Kubelet.over(books, rules.policy, Scope.CONTAINER, distances)
    return kubelet.admit(pod, {NEW.container: request.hints}).reason


def comparable(books: Books, request: Request, rules: Rules) -> bool:
    """
    True where a kubelet is asked the same: every node has memory, and so has the pod. Under best-effort it widens
    what other providers' hints leave, which is one of the differences on purpose.
    """
    with_memory = all(MEMORY in s.memory_map and s.memory_map[MEMORY].total for s in books.node_map.nodes.values())
    widened = rules.policy is TopologyPolicy.BEST_EFFORT and request.hints
    return with_memory and MEMORY in request.sizes and not widened


@pytest.mark.parametrize("most_nodes", [2, 4, 6])
def test_the_word_is_the_kubelets(most_nodes: int) -> None:
    """Whatever narrows a request, a refusal has the word of a kubelet that knows none of it, or none."""
    rng = Random(most_nodes)
    words: Counter[str] = Counter()
    for _ in range(6_000):
        books, request, rules = random_case(rng, most_nodes=most_nodes)
        request = replace(request, owner=NEW, reusable=(), resident={})
        answer = place(books, request, rules)
        if isinstance(answer, Refusal) and comparable(books, request, rules):
            words[answer.kubelet_reason] += 1
            assert answer.kubelet_reason == kubelets_word(books, request, rules), (books, request, rules)

    assert set(words) == {"", "UnexpectedAdmissionError", "TopologyAffinityError"}
    assert min(words.values()) > 50


@pytest.mark.parametrize(
    ("narrowed", "looks_not_at"),
    [
        ({"ceilings": {NodeId(n): {MEMORY: 3} for n in (0, 1)}}, "what the kernel has free"),
        ({"allowed": NodeSet()}, "the nodes that the cgroups above the container allow"),
        ({"normal": NodeSet()}, "which memory is movable"),
        (
            {"ceilings": {NodeId(0): {MEMORY: 3}}, "allowed": NodeSet.of(0)},
            "what the kernel has free and the nodes that the cgroups above the container allow",
        ),
    ],
)
def test_what_a_kubelet_does_not_look_at(narrowed: dict[str, object], looks_not_at: str) -> None:
    """What only the kernel or the cgroups above refuse, a kubelet would admit, and the sentence says why."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    request = Request(NEW, {MEMORY: 8})
    answer = place(books, replace(request, **narrowed), Rules())  # type: ignore[arg-type]

    assert isinstance(answer, Refusal)
    assert answer.kubelet_reason == ""
    assert kubelet_clause("", answer.explanation) == f"a kubelet would admit it: it does not look at {looks_not_at}"


def test_another_word_without_what_narrows() -> None:
    """Where a kubelet refuses as well, but for another reason, the word is that one's."""
    books = empty_books({0: {MEMORY: 10}, 1: {MEMORY: 10}})
    for name, size in (("a", 15), ("b", 3)):  # a group of both nodes, with room for 5 before the second comes
        answer = place(books, Request(Owner("pod", name), {MEMORY: size}), Rules(TopologyPolicy.BEST_EFFORT))
        assert not isinstance(answer, Refusal)
        books = answer.books
    ceilings = {NodeId(n): {MEMORY: 0} for n in (0, 1)}
    answer = place(books, Request(NEW, {MEMORY: 2}, ceilings=ceilings), Rules())

    assert isinstance(answer, Refusal)
    assert (answer.code, answer.kubelet_reason) == (RefusalCode.NO_ROOM, "TopologyAffinityError")
    assert kubelet_clause(answer.kubelet_reason, answer.explanation) == "the kubelet would say TopologyAffinityError"


def test_the_second_question_costs_no_more_than_the_first() -> None:
    """A refusal for what the kernel has free takes at most twice the time of one that nothing narrows."""
    kinds = {MEMORY: 100, HUGE: 64}
    full = empty_books(dict.fromkeys(range(64), kinds))
    for n in range(64):
        answer = place(full, Request(Owner("pod", f"c{n}"), {MEMORY: 60, HUGE: 40}), Rules())
        assert not isinstance(answer, Refusal)
        full = answer.books
    plain = Request(NEW, {MEMORY: 70, HUGE: 50})
    narrowed = replace(plain, ceilings={NodeId(n): {MEMORY: 10, HUGE: 10} for n in range(64)})

    assert quickest(full, narrowed) < 2 * quickest(full, plain)


def quickest(books: Books, request: Request) -> float:
    """Seconds of the quickest of some refusals, which the machine's other work disturbs least."""
    taken = []
    for _ in range(20):
        begin = process_time()
        answer = place(books, request, Rules())
        taken.append(process_time() - begin)
        assert isinstance(answer, Refusal)
    return min(taken)

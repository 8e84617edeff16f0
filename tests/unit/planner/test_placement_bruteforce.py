"""`place` against the listing of every set of nodes, and that listing against the kubelet's recorded answers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numapin.model.memory import Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules, TopologyPolicy
from numapin.planner.accounting import check, rebase
from numapin.planner.kubelet.pods import PodContainer
from numapin.planner.placement import place
from support.bruteforce import Verdict, case_of, case_of_record, verdict
from support.cases import random_case
from support.strategies import requests, rules, used_machines
from support.vectors import OURS, Json, distances_of, node_map_of, out_of_scope, pod_of, read_vectors


def answered(answer: Plan | Refusal) -> Verdict:
    """An answer in the listing's words."""
    if isinstance(answer, Refusal):
        return Verdict(None)
    return Verdict(frozenset(answer.nodes), answer.explanation.preferred)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_machine_of_up_to_ten_nodes(data: st.DataObject) -> None:
    """The nodes are those that listing every set gives, and so is the refusal."""
    books = data.draw(used_machines())
    request = data.draw(requests(books))
    rule = data.draw(rules(books))

    assert verdict(case_of(books, request, rule)) == answered(place(books, request, rule))


@pytest.mark.parametrize(("most_nodes", "cases"), [(5, 8_000), (10, 2_000)])
def test_many_random_cases(most_nodes: int, cases: int) -> None:
    """The same for thousands of cases with seeded numbers, owners with an earlier assignment among them."""
    rng = Random(most_nodes)
    for _ in range(cases):
        books, request, rule = random_case(rng, most_nodes=most_nodes)
        answer = place(books, request, rule)
        if isinstance(answer, Plan):
            assert check(answer.books) == ()
        if answer.explanation.tie_break != "already-assigned":
            assert verdict(case_of(books, request, rule)) == answered(answer), (books, request, rule)


def test_the_record_alone_gives_the_same_verdict() -> None:
    """Ten thousand decisions are checked again from nothing but their explanations."""
    rng = Random(7)
    for _ in range(10_000):
        books, request, rule = random_case(rng, most_nodes=5)
        answer = place(books, request, rule)
        if answer.explanation.tie_break != "already-assigned":
            assert verdict(case_of_record(answer.explanation)) == answered(answer), answer.explanation


def recorded_admissions() -> list[tuple[str, Books, Request, Rules, Verdict]]:
    """Admissions of single containers that the kubelet decided on a state it reported itself."""
    found = []
    for path in OURS:
        for vector in read_vectors(path):
            scenario = vector["scenario"]
            if not out_of_scope(vector) and "mode" not in scenario:
                found += _admissions(vector["id"], scenario, vector["expected"]["steps"])
    return found


def _admissions(name: str, scenario: Json, answers: Json) -> list[tuple[str, Books, Request, Rules, Verdict]]:
    settings = scenario["topology"]
    closest = str((settings.get("options") or {}).get("prefer-closest-numa-nodes")) == "true"
    rule = Rules(TopologyPolicy(settings["policy"]), closest, distances_of(scenario) if closest else {})
    empty = node_map_of(scenario)
    assigned: Json = {}
    found = []
    for number, (step, answer) in enumerate(zip(scenario["steps"], answers, strict=True)):
        if step["op"] == "restart":
            break
        pod = pod_of(step) if step["op"] == "admit" else None
        if pod is not None and pod.is_managed() and len(pod.containers) == 1 and pod.uid not in assigned:
            books = rebase(Books(empty, dict(_held(assigned))), empty)
            sizes = pod.containers[0].memory_requests() if _whole(pod.containers[0]) else {}
            if sizes and all(sizes.values()) and "extra_hints" not in step:
                nodes = answer["cpuset_mems"].get(pod.containers[0].name)
                wanted = Verdict(frozenset(NodeSet.parse(nodes))) if answer["admitted"] and nodes else Verdict(None)
                request = Request(Owner(pod.uid, pod.containers[0].name), sizes)
                found.append((f"{name} step {number + 1}", books, request, rule, wanted))
        state = answer.get("state_after_gc") or answer.get("state")
        assigned = state["assignments"] if state else assigned
    return found


def _whole(container: PodContainer) -> bool:
    return all(q == int(q) for q in container.limits.values() if q > 1 << 20)


def _held(assigned: Json) -> list[tuple[Owner, tuple[Block, ...]]]:
    return [
        (
            Owner(pod, name),
            tuple(Block(NodeSet.from_ids(b["nodes"]), MemoryType(k), b["size"]) for k, b in blocks.items()),
        )
        for pod, containers in assigned.items()
        for name, blocks in containers.items()
    ]


def two_types_without_a_preferred_set(books: Books, request: Request, rule: Rules) -> bool:
    """Where upstream intersects memory's own sets with each other, which we do not."""
    answer = place(books, request, rule)
    return rule.policy is TopologyPolicy.BEST_EFFORT and len(request.sizes) > 1 and not answer.explanation.preferred


def test_the_listing_and_the_planner_agree_with_the_kubelet() -> None:
    """For every recorded single-container admission both give the nodes the real kubelet gave."""
    compared = 0
    for name, books, request, rule, wanted in recorded_admissions():
        if two_types_without_a_preferred_set(books, request, rule):
            continue
        compared += 1

        assert wanted.nodes == verdict(case_of(books, request, rule)).nodes, name
        assert wanted.nodes == answered(place(books, request, rule)).nodes, name
    assert compared > 600

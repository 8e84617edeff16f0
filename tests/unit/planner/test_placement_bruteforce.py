"""`place` against the listing of every set of nodes, and that listing against the kubelet's recorded answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numapin.model.memory import Block, Books, MemoryType, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Plan, Refusal, Request, Rules, TopologyPolicy
from numapin.planner.accounting import check, rebase
from numapin.planner.kubelet.node import POD
from numapin.planner.kubelet.pods import PodContainer
from numapin.planner.placement import place
from support.bruteforce import Verdict, case_of, case_of_record, merged, verdict
from support.cases import random_case
from support.strategies import requests, rules, used_machines
from support.vectors import (
    OURS,
    Json,
    distances_of,
    node_map_of,
    others_of,
    out_of_scope,
    pod_of,
    provider_of,
    read_vectors,
)


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


@dataclass(frozen=True)
class Recorded:
    """An admission of a single container that the kubelet decided on a state it reported itself."""

    name: str
    books: Books
    request: Request
    rule: Rules
    wanted: Verdict


def recorded_admissions() -> list[Recorded]:
    """All that are in scope, with other providers' hints and without."""
    found = []
    for path in OURS:
        for vector in read_vectors(path):
            scenario = vector["scenario"]
            if not out_of_scope(vector) and "mode" not in scenario:
                found += _admissions(vector["id"], scenario, vector["expected"]["steps"])
    return found


def _rule(scenario: Json) -> Rules:
    settings = scenario["topology"]
    closest = str((settings.get("options") or {}).get("prefer-closest-numa-nodes")) == "true"
    return Rules(TopologyPolicy(settings["policy"]), closest, distances_of(scenario) if closest else {})


def _admissions(name: str, scenario: Json, answers: Json) -> list[Recorded]:
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
            if sizes and all(sizes.values()):
                only = pod.containers[0].name
                nodes = answer["cpuset_mems"].get(only)
                wanted = Verdict(frozenset(NodeSet.parse(nodes))) if answer["admitted"] and nodes else Verdict(None)
                asker = POD if scenario["topology"].get("scope") == "pod" else only
                request = Request(Owner(pod.uid, only), sizes, hints=tuple(others_of(step).get(asker, ())))
                found.append(Recorded(f"{name} step {number + 1}", books, request, _rule(scenario), wanted))
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
    compared = Counter[bool]()
    for case in recorded_admissions():
        if two_types_without_a_preferred_set(case.books, case.request, case.rule):
            continue
        compared[bool(case.request.hints)] += 1
        listing = verdict(case_of(case.books, case.request, case.rule))

        assert case.wanted.nodes == listing.nodes, case.name
        assert case.wanted.nodes == answered(place(case.books, case.request, case.rule)).nodes, case.name
    assert compared[False] > 600
    assert compared[True] > 40


def test_the_listing_merges_as_the_kubelet_does() -> None:
    """Every recorded merge of hints has the nodes and the preference that the listing's own merge gives."""
    compared = 0
    for path in OURS:
        for vector in read_vectors(path):
            if out_of_scope(vector) or "mode" in vector["scenario"]:
                continue
            nodes = [NodeId(node["id"]) for node in vector["scenario"]["nodes"]]
            closest = _rule(vector["scenario"]).distances
            for step, answer in zip(vector["scenario"]["steps"], vector["expected"]["steps"], strict=True):
                if step["op"] != "merge" or step["policy"] == "none":
                    continue
                compared += 1
                policy = TopologyPolicy(step["policy"])
                hints = [entry for provider in step["providers"] or () for entry in provider_of(provider)]
                found, preferred = merged(nodes, hints, policy, closest)
                found = frozenset(nodes) if found is None else found
                if policy is TopologyPolicy.SINGLE_NUMA_NODE and found == frozenset(nodes):
                    found = None
                told = answer["affinity"]["nodes"]

                assert (None if told is None else frozenset(told)) == found, vector["id"]
                assert answer["affinity"]["preferred"] == preferred, vector["id"]
    assert compared > 200

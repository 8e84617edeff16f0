"""``plan``: what would happen to containers and pods, on books from a machine, a daemon or a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from numapin.daemon.basis import Basis, basis_document, checkpoint_basis, machine_basis, read_basis
from numapin.daemon.what_if import Question, container_plan, pod_plan
from numapin.model.errors import CheckpointCorrupt, ConfigError, ExitStatus, RequestFailed
from numapin.model.memory import MEMORY, Books, MemoryType, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Plan, Request, Rules, Scope, TopologyPolicy
from numapin.planner.kubelet.manifest import parse_pod
from numapin.planner.placement import place
from numapin.state.codec import encode
from support.checker import verdict, without_verdict
from support.daemon import Host, docker
from support.machines import GIB, PAGE_1G, PAGE_2M, Node, Pool, even, write_machine
from support.strategies import empty_books
from support.trees import write_tree

HUGE = MemoryType("hugepages-2Mi")
UNRESERVED = {"etc/numapin/numapin.toml": '[reserved]\nfraction = "0%"\nminimum = "0"\n'}


def empty(root: Path, *, count: int = 2, pools: dict[int, Pool | int] | None = None) -> Basis:
    """A machine of nodes of 10 GiB with nothing kept for the system."""
    write_machine(root, even(count, memory=10 * GIB, pools=pools))
    return machine_basis(write_tree(root, UNRESERVED))


def ask(basis: Basis, gib: float, **more: Any) -> dict[str, Any]:
    """The answer for containers of so many GiB."""
    sizes = {MEMORY: int(gib * GIB), **more.pop("pages", {})}
    return container_plan(basis, Question(sizes, **more))


def pod(**limits: dict[str, Any]) -> dict[str, Any]:
    """A manifest of containers with these limits; ``_init`` names come first as init containers."""
    made = [{"name": n.removesuffix("_init"), "resources": {"limits": v}} for n, v in limits.items()]
    inits = [c for c, n in zip(made, limits, strict=True) if n.endswith("_init")]
    spec = {"initContainers": inits, "containers": [c for c in made if c not in inits]}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def ask_kubelet(basis: Basis, manifest: dict[str, Any], **how: Any) -> dict[str, Any]:
    """The kubelet's answer for a manifest."""
    return pod_plan(basis, parse_pod(manifest, uid="u"), **how)


# ---- containers ----------------------------------------------------------------------------------------------


def test_one_that_fits(tmp_path: Path) -> None:
    """Nodes, the sentence, and a record that can be checked."""
    answer = ask(empty(tmp_path), 8)

    assert (answer["admitted"], answer["fits"], answer["refusal"]) == (True, 1, None)
    assert answer["placements"] == [{"nodes": [0], "preferred": True, "tie_break": "lowest-node-ids"}]
    assert answer["sentences"][0] == "It would be pinned to node 0."
    assert [0] == verdict(without_verdict(json.loads(json.dumps(answer["decision"]))))


def test_one_that_does_not_fit(tmp_path: Path) -> None:
    """The refusal, the kubelet's word, and what would make it fit."""
    answer = ask(empty(tmp_path), 15, policy=TopologyPolicy.SINGLE_NUMA_NODE)

    assert (answer["admitted"], answer["fits"]) == (False, 0)
    assert (answer["refusal"]["code"], answer["refusal"]["kubelet_reason"]) == (
        "not-single-node",
        "TopologyAffinityError",
    )
    assert answer["remedies"] == [
        "the policy restricted or best-effort would take it now, on nodes 0-1",
        "with a memory limit of 10 GiB or less it would fit on node 0 now",
    ]


def test_several_one_after_the_other(tmp_path: Path) -> None:
    """As many as fit, where each goes, and why the next does not."""
    answer = ask(empty(tmp_path), 3, count=9)

    assert (answer["admitted"], answer["fits"], answer["count"]) == (False, 6, 9)
    assert [p["nodes"] for p in answer["placements"]] == [[0], [0], [0], [1], [1], [1]]
    assert answer["sentences"][0].startswith(
        "6 of 9 would fit: 3 on node 0, 3 on node 1; the next would be refused: needs 3 GiB; node 0 has 1 GiB free"
    )
    assert ask(empty(tmp_path), 3, count=6)["sentences"][0] == "All 6 would fit: 3 on node 0, 3 on node 1."


def test_many_nodes_are_said_together(tmp_path: Path) -> None:
    """Nodes that take equally many are one range, and of many groups the number is told."""
    many = empty(tmp_path, count=10)

    assert "All 10 would fit: 1 on each of nodes 0-9." == ask(many, 8, count=10)["sentences"][0]
    assert "All 28 would fit: 3 on each of nodes 0-8, 1 on node 9." == ask(many, 3, count=28)["sentences"][0]


def test_many_groups_are_said_together(tmp_path: Path) -> None:
    """Of more groups than a few the number is told."""
    answer = ask(empty(tmp_path, count=12), 15, count=6)

    assert "All 6 would fit: 1 on each of 6 groups (0-1 to 10-11)." == answer["sentences"][0]


def test_all_types_together(tmp_path: Path) -> None:
    """Hugepages count beside memory, from the same node."""
    write_machine(
        tmp_path, [Node(0, "0", 10 * GIB, pools={PAGE_2M: 10}), Node(1, "1", 10 * GIB, pools={PAGE_2M: 512})]
    )
    basis = machine_basis(write_tree(tmp_path, UNRESERVED))

    assert ask(basis, 1, pages={HUGE: GIB})["placements"][0]["nodes"] == [1]
    assert ask(basis, 1, pages={HUGE: 2 * GIB})["refusal"]["code"] == "does-not-fit"


def test_a_pool_that_no_node_has(tmp_path: Path) -> None:
    """The refusal names the page size."""
    answer = ask(empty(tmp_path), 1, pages={MemoryType("hugepages-64Ki"): 1 << 20})

    assert answer["refusal"]["code"] == "unknown-type"
    assert "hugepages-64Ki" in answer["refusal"]["message"]


def test_allowed_nodes(tmp_path: Path) -> None:
    """Only the allowed nodes count; one that is not there is a usage error that names it."""
    basis = empty(tmp_path)

    assert ask(basis, 8, nodes_allowed=NodeSet.of(1))["placements"][0]["nodes"] == [1]
    assert not ask(basis, 15, nodes_allowed=NodeSet.of(1))["admitted"]
    with pytest.raises(RequestFailed, match=r"node 7 is not one of the nodes in the books \(0-1\)") as raised:
        ask(basis, 8, nodes_allowed=NodeSet.of(1, 7))
    assert raised.value.exit_status == ExitStatus.USAGE


def test_cpus(tmp_path: Path) -> None:
    """The nodes of the CPUs are wanted; all CPUs want nothing; CPUs that are not there are a usage error."""
    basis = empty(tmp_path)

    assert ask(basis, 8, cpus=CpuSet.parse("2-3"))["placements"][0]["nodes"] == [1]
    assert ask(basis, 8, cpus=CpuSet.parse("0-3"))["decision"]["hints"] == []
    assert ask(basis, 15, cpus=CpuSet.parse("2"))["refusal"]["code"] == "hints-disagree"
    with pytest.raises(RequestFailed, match=r"8-9 are not CPUs of this machine \(0-3\)") as raised:
        ask(basis, 8, cpus=CpuSet.parse("0,8-9"))
    assert raised.value.exit_status == ExitStatus.USAGE


def test_reservations_of_the_configuration(tmp_path: Path) -> None:
    """On a machine the configuration below its root counts, and a wrong one is told."""
    write_machine(tmp_path, even(2, memory=10 * GIB))
    write_tree(tmp_path, {"etc/numapin/numapin.toml": 'policy = "best-effort"\n[reserved.node.0]\nmemory = "9Gi"\n'})
    answer = ask(machine_basis(tmp_path), 2)

    assert (answer["placements"][0]["nodes"], answer["policy"]) == ([1], "best-effort")
    write_tree(tmp_path, {"etc/numapin/numapin.toml": '[reserved.node.0]\nmemory = "11Gi"\n'})
    with pytest.raises(ConfigError):
        machine_basis(tmp_path)


@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_a_thousand_nodes(policy: TopologyPolicy) -> None:
    """Questions about 1,024 nodes are answered soon: twenty containers one after the other."""
    kinds = {MEMORY: 10 * GIB, HUGE: 2 * GIB}
    basis = Basis(empty_books(dict.fromkeys(range(1024), kinds)), Rules(policy))
    before = process_time()
    answer = ask(basis, 6, pages={HUGE: GIB}, count=20)

    assert (answer["fits"], answer["placements"][-1]["nodes"]) == (20, [19])
    assert process_time() - before < 20


def test_nothing_is_changed(tmp_path: Path) -> None:
    """The same question gives the same answer again: the basis is only read."""
    basis = empty(tmp_path)

    assert ask(basis, 3, count=9) == ask(basis, 3, count=9)


# ---- where it is asked ---------------------------------------------------------------------------------------


def running(root: Path, **options: Any) -> Host:
    """A daemon with one container of 4 GiB on node 0."""
    host = Host(root, **options)
    host.guaranteed(docker(1), 4, effective="0")
    host.start()
    host.wait_for_writes()
    return host


def live(host: Host) -> Basis:
    """The basis as the daemon gives it to the command."""
    document = basis_document(host.agent.machine, host.agent.ledger.books, wall_ns=1)
    return read_basis(json.loads(json.dumps(document)), "/run/x.sock")


def test_on_the_daemon(tmp_path: Path) -> None:
    """What is promised counts, and the answer is what the daemon then does."""
    host = running(tmp_path)
    before = host.agent.ledger.books
    answer = ask(live(host), 7)
    path = host.guaranteed(docker(2), 7, effective="1")
    host.agent.on_created([path])
    host.wait_for_writes()

    assert answer["source"] == {"from": "daemon", "socket": "/run/x.sock", "note": ""}
    assert (answer["placements"][0]["nodes"], answer["decision"]["nodes"][0]["free"]) == ([1], {"memory": 6 * GIB})
    assert list(host.view(path).nodes) == [1]
    assert before != host.agent.ledger.books
    host.stop()


def test_pages_the_kernel_does_not_have(tmp_path: Path) -> None:
    """Pools are read again for the answer, and pages in use by others are not promised."""
    nodes = even(2, memory=10 * GIB, pools={PAGE_2M: Pool(1024)})
    host = running(tmp_path, nodes=nodes)
    write_machine(tmp_path, even(2, memory=10 * GIB, pools={PAGE_2M: Pool(512, free=64), PAGE_1G: Pool(1)}))
    basis = live(host)

    assert ask(basis, 1, pages={HUGE: 64 * PAGE_2M})["admitted"]
    assert ask(basis, 1, pages={HUGE: 65 * PAGE_2M})["decision"]["nodes"][0]["exclusion"] == "kernel-has-less"
    assert ask(basis, 1, pages={MemoryType("hugepages-1Gi"): GIB})["admitted"]
    assert basis.books.node_map.nodes[NodeId(0)].memory_map[HUGE].total == GIB
    assert host.agent.ledger.books.node_map.nodes[NodeId(0)].memory_map[HUGE].total == 2 * GIB  # only looked at
    host.stop()


def test_a_kubelet_knows_nothing_of_free_pages(tmp_path: Path) -> None:
    """What the kernel alone is short of is refused without a word of the kubelet, which would admit the same pod."""
    host = running(tmp_path, nodes=even(2, memory=10 * GIB, pools={PAGE_2M: Pool(1024, free=100)}))
    basis = live(host)
    alone = ask(basis, 1, pages={HUGE: GIB // 2})
    several = ask(basis, 1, pages={HUGE: 101 * PAGE_2M}, count=3)
    pages = {"cpu": 1, "memory": "1Gi", "hugepages-2Mi": "512Mi"}

    assert (alone["admitted"], alone["refusal"]["kubelet_reason"]) == (False, "")
    for sentence in (alone["sentences"][0], several["sentences"][0]):
        assert sentence.endswith(" (a kubelet would admit it: it does not look at what the kernel has free).")
    assert ask_kubelet(basis, pod(main=pages))["verdict"] == "admitted"
    host.stop()


def test_the_whole_basis_travels(tmp_path: Path) -> None:
    """Books, rules with distances, CPUs and node kinds are the same on both sides."""
    host = running(tmp_path)
    found, machine = live(host), host.agent.machine

    assert (found.books, found.rules, found.scope) == (host.agent.ledger.books, machine.rules(), Scope.CONTAINER)
    assert (found.usable, found.normal) == (machine.usable, machine.topology.with_normal_memory)
    assert found.topology is not None
    assert {i: n.cpus for i, n in found.topology.nodes.items()} == {
        i: n.cpus for i, n in machine.topology.nodes.items()
    }
    host.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Status"},
        {"checkpoint": "{}"},
        {"usable": "x"},
        {"scope": "all"},
        {"cpus": {"a": "0"}},
        {"free_pages": 3},
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, change: dict[str, object]) -> None:
    """What a daemon cannot have meant is named, not planned on."""
    host = running(tmp_path)
    document = basis_document(host.agent.machine, host.agent.ledger.books, wall_ns=1) | change
    host.stop()

    with pytest.raises(RequestFailed) as raised:
        read_basis(document, "/run/x.sock")
    assert raised.value.code == "bad-answer"


def test_on_a_checkpoint(tmp_path: Path) -> None:
    """The saved books and policy; CPUs are not in it."""
    host = running(tmp_path)
    host.stop()
    basis = checkpoint_basis(host.file.path.read_bytes(), host.file.path)
    answer = ask(basis, 7)

    assert (answer["placements"][0]["nodes"], answer["policy"]) == ([1], "restricted")
    assert answer["source"] == {"from": "checkpoint", "path": str(host.file.path)}
    with pytest.raises(
        RequestFailed, match="--cpus needs the nodes' CPUs, which a checkpoint does not hold"
    ) as raised:
        ask(basis, 7, cpus=CpuSet.parse("0"))
    assert raised.value.exit_status == ExitStatus.USAGE


def test_a_checkpoint_of_a_strange_policy(tmp_path: Path) -> None:
    """A policy that we do not know is named, not replaced."""
    host = running(tmp_path)
    host.agent.ledger.policy = "lenient"
    data = encode(host.agent.ledger.snapshot())
    host.stop()

    with pytest.raises(CheckpointCorrupt, match="'lenient' is no policy"):
        checkpoint_basis(data, host.file.path)


# ---- pods ----------------------------------------------------------------------------------------------------


def test_a_pod_that_is_admitted(tmp_path: Path) -> None:
    """Per container what it asks for and its nodes; the memory of an ended init container is used again."""
    limits = {"cpu": 1, "memory": "8Gi"}
    answer = ask_kubelet(empty(tmp_path), pod(copy_init=limits, main=limits, side={"cpu": 1, "memory": "1Gi"}))

    assert (answer["admitted"], answer["placed"], answer["verdict"], answer["qos"]) == (
        True, True, "admitted", "Guaranteed",
    )  # fmt: skip
    assert [("copy", "init", [0]), ("main", "app", [0]), ("side", "app", [0])] == [
        (c["name"], c["kind"], c["nodes"]) for c in answer["containers"]
    ]


@pytest.mark.parametrize(
    ("limits", "verdict_"),
    [({"memory": "1Gi"}, "admitted, not placed: Burstable"), ({}, "admitted, not placed: BestEffort")],
)
def test_a_pod_that_is_not_guaranteed(tmp_path: Path, limits: dict[str, Any], verdict_: str) -> None:
    """It is admitted whatever its size, and nobody places it."""
    answer = ask_kubelet(empty(tmp_path), pod(main=limits))

    assert (answer["admitted"], answer["placed"], answer["verdict"]) == (True, False, verdict_)
    assert [("not placed", None)] == [(c["verdict"], c["nodes"]) for c in answer["containers"]]


def test_pod_level_resources(tmp_path: Path) -> None:
    """The kubelet neither places nor pins such a pod in its default configuration."""
    manifest = pod(main={})
    manifest["spec"]["resources"] = {"limits": {"cpu": 1, "memory": "1Gi"}}

    assert ask_kubelet(empty(tmp_path), manifest)["verdict"] == (
        "admitted, not placed: resources are set on the pod as a whole"
    )


@pytest.mark.parametrize(
    ("policy", "scope", "reason", "verdicts"),
    [
        (TopologyPolicy.RESTRICTED, Scope.CONTAINER, "", ["admitted", "admitted", "admitted"]),
        (
            TopologyPolicy.SINGLE_NUMA_NODE,
            Scope.CONTAINER,
            "TopologyAffinityError",
            ["fits", "TopologyAffinityError", "not reached"],
        ),
        (TopologyPolicy.SINGLE_NUMA_NODE, Scope.POD, "TopologyAffinityError", ["TopologyAffinityError"] * 3),
    ],
)
def test_where_a_pod_fails(
    tmp_path: Path, policy: TopologyPolicy, scope: Scope, reason: str, verdicts: list[str]
) -> None:
    """The container at which it ends has the kubelet's word, those before fit, those after are not reached."""
    small = {"cpu": 1, "memory": "1Gi"}
    manifest = pod(first=small, second={"cpu": 1, "memory": "15Gi"}, third=small)
    answer = ask_kubelet(empty(tmp_path, count=3), manifest, policy=policy, scope=scope)

    assert (answer["reason"], [c["verdict"] for c in answer["containers"]]) == (reason, verdicts)
    assert (answer["decision"] is None) is (reason == "")


def test_a_fraction_of_a_byte(tmp_path: Path) -> None:
    """The API server takes it, the kubelet cannot allocate it: its word, and the value."""
    answer = ask_kubelet(empty(tmp_path), pod(main={"cpu": 1, "memory": "1500m"}))

    assert (answer["reason"], answer["containers"][0]["request"]) == ("UnexpectedAdmissionError", None)
    assert "memory 1.5" in answer["detail"]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_rejected_pod_shows_what_was_asked(tmp_path: Path, scope: Scope) -> None:
    """Under pod scope the whole pod with its size, else the container; the nodes and the remedies are for that."""
    big = {"cpu": 1, "memory": "11Gi"}
    answer = ask_kubelet(empty(tmp_path), pod(a=big, b=big), policy=TopologyPolicy.SINGLE_NUMA_NODE, scope=scope)
    whole = scope is Scope.POD

    assert {"container": None if whole else "a", "sizes": {MEMORY: (22 if whole else 11) * GIB}} == answer["asked"]
    assert answer["decision"]["sizes"] == answer["asked"]["sizes"]
    assert [10 * GIB] * 2 == [n["free"][MEMORY] for n in answer["decision"]["nodes"]]


def test_nodes_without_cpus_are_the_kubelets_too(tmp_path: Path) -> None:
    """It keeps the nodes that numapin does not use: where the basis has them they count, else that is said."""
    nodes = [Node(0, "0-1", 10 * GIB), Node(2, "", 10 * GIB), Node(5, "2-3", 0)]
    write_machine(tmp_path, nodes)
    machine = machine_basis(write_tree(tmp_path, UNRESERVED))
    wide = pod(main={"cpu": 1, "memory": "15Gi"})
    answer = ask_kubelet(machine, wide)

    assert (answer["containers"][0]["nodes"], answer["notes"]) == ([0, 2], [])
    elsewhere = ask_kubelet(replace(machine, source={"from": "daemon"}), wide)
    assert not elsewhere["admitted"]
    assert ["nodes 2,5 are left out"] == [note.partition(", because")[0] for note in elsewhere["notes"]]
    saved = ask_kubelet(replace(machine, topology=None, source={"from": "checkpoint"}), wide)
    assert ["a checkpoint has only the nodes that numapin uses"] == [n.partition(";")[0] for n in saved["notes"]]


def test_more_nodes_than_a_kubelet_takes(tmp_path: Path) -> None:
    """It does not start on nine nodes unless told to, memoryless ones included; the answer says what it assumes."""
    small = pod(main={"cpu": 1, "memory": "1Gi"})
    write_machine(tmp_path, [*even(8, memory=10 * GIB), Node(9, "90", 0)])
    answer = ask_kubelet(machine_basis(write_tree(tmp_path, UNRESERVED)), small)

    assert answer["admitted"]
    assert [
        "a kubelet with the policy restricted does not start on 9 nodes, unless its option max-allowable-numa-nodes "
        "is raised to 9 or more, as is assumed here"
    ] == answer["notes"]
    assert ask_kubelet(empty(tmp_path / "8", count=8), small)["notes"] == []


def test_so_many_nodes_that_nobody_can_wait(tmp_path: Path) -> None:
    """What cannot be found in time is said with its reason; everything else is answered on any number of nodes."""
    basis = empty(tmp_path, count=34)
    small = pod(main={"cpu": 1, "memory": "1Gi"})
    ids = list(basis.books.node_map.nodes)
    distances = {a: {b: 10 if a == b else 20 for b in ids} for a in ids}

    assert [ask_kubelet(basis, small, policy=policy)["admitted"] for policy in TopologyPolicy] == [True] * 4
    near = replace(basis, rules=replace(basis.rules, prefer_closest=True, distances=distances))
    with pytest.raises(RequestFailed, match="sets of 34 nodes that would do is the closest takes too long") as raised:
        ask_kubelet(near, pod(main={"cpu": 1, "memory": "155Gi"}))
    assert (raised.value.code, raised.value.exit_status) == ("too-many-nodes", ExitStatus.FAILURE)
    answer = ask_kubelet(basis, small, policy=TopologyPolicy.NONE)
    assert ["a kubelet tries every set of 34 nodes for each container, and may never come to this answer"] == (
        answer["notes"]
    )


def test_a_single_container_agrees_with_the_planner(tmp_path: Path) -> None:
    """For one container alone the kubelet's nodes and numapin's are the same, used books or not."""
    host = running(tmp_path)
    basis = live(host)
    for gib in (1, 5, 7, 10, 11, 25, 31, 45):
        for policy in TopologyPolicy:
            answer = ask_kubelet(basis, pod(main={"cpu": 1, "memory": f"{gib}Gi"}), policy=policy)
            ours = place(basis.books, Request(Owner("pod", "new"), {MEMORY: gib * GIB}), Rules(policy))

            assert answer["admitted"] is isinstance(ours, Plan), (gib, policy)
            assert answer["containers"][0]["nodes"] == (list(ours.nodes) if isinstance(ours, Plan) else None)
    host.stop()


def test_books_without_nodes() -> None:
    """Even on nothing there is an answer."""
    answer = ask(Basis(Books(empty_books({}).node_map), Rules()), 1)

    assert (answer["admitted"], answer["refusal"]["code"]) == (False, "unknown-type")

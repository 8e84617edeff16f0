"""Entries G to L of the bug log as a whole agent answers them: reboots, other settings, promises, writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from errno import EACCES, EINVAL
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from numapin.cli.main import main
from numapin.daemon.config import Reserved
from numapin.daemon.drift import FREE_REPAIRS
from numapin.daemon.machine import Machine
from numapin.daemon.pinning import Outcome
from numapin.daemon.status import About, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.container import StandaloneQos
from numapin.model.errors import ExitStatus, KernelWriteError
from numapin.model.memory import MEMORY, MemoryType, Owner, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import (
    Hint,
    Plan,
    ProviderHints,
    Refusal,
    Request,
    Rules,
    Scope,
    TopologyPolicy,
    Verification,
)
from numapin.planner.placement import place
from support.cgroup_trees import GUARANTEED_SLICE, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, Host, cid, cri, docker
from support.machines import GIB, MIB, PAGE_2M, Node, even, write_machine
from support.mems_writes import MemsWrites
from support.strategies import empty_books
from support.waiting import readable

OTHER_BOOT = "0b0b0b0b-0000-4000-8000-000000000002"
HUGE = hugepages(PAGE_2M)


def status(host: Host) -> Mapping[str, Any]:
    """The status document."""
    return status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)


def findings(host: Host, code: str) -> list[str]:
    """Sentences of the status' findings of one code."""
    return [f["message"] for f in status(host)["findings"] if f["code"] == code]


def changed(host: Host, nodes: list[Node]) -> None:
    """The machine has other nodes from now on, and the agent was told."""
    write_machine(host.root, nodes)
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))


def told(host: Host, event: str) -> list[str]:
    """Reasons of all lines of one event."""
    return [facts["reason"] for _, name, facts in host.log.lines if name == event]


# ---- another machine, another setting ---------------------------------------------------------------------------


def test_b079_one_notice_has_the_old_and_the_new_totals(tmp_path: Path) -> None:
    """B079: 41.7 MiB moved between nodes over a reboot: the start says so in one line, in bytes, and goes on."""
    config = replace(BARE, reserved=Reserved(0, 0, {NodeId(2): {MEMORY: 4_429_185_024}}))
    host = Host(tmp_path, nodes=[Node(0, "0", 135_277_490_176), Node(2, "1", 135_233_794_048)], config=config)
    path = host.guaranteed(docker(1), 100)
    host.start()
    host.restart()
    assert told(host, "machine_differs") == []
    host.stop()
    host.boot = OTHER_BOOT
    write_machine(tmp_path, [Node(0, "0", 135_233_794_048), Node(2, "1", 135_277_490_176)])
    host.put(path, {"cpuset.mems": "\n"})

    host.start()

    assert told(host, "machine_differs") == [
        "node 0, memory: 135233794048 bytes instead of 135277490176; "
        "node 2, memory: 135277490176 bytes instead of 135233794048"
    ]
    assert host.states() == {path: "pinned"}
    assert {level for level, _, _ in host.log.lines} == {"info"}


def test_b080_the_state_is_called_degraded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B080: 100 GiB promised to three on a node of 64 now: each in status and `verify`; node 0 works."""
    host = Host(tmp_path, nodes=[Node(0, "0", 128 * GIB), Node(1, "1", 128 * GIB)])
    host.tree.add("/system.slice", effective="1")
    paths = [host.guaranteed(docker(n), size, effective="1") for n, size in ((1, 40), (2, 40), (3, 20))]
    host.start()
    host.stop()
    host.boot = OTHER_BOOT
    write_machine(tmp_path, [Node(0, "0", 128 * GIB), Node(1, "1", 64 * GIB)])
    host.start()
    more = host.guaranteed(docker(4), 1, effective="1")
    elsewhere = host.guaranteed(f"/other.slice/docker-{cid(5)}.scope", 100)
    host.agent.on_created([more, elsewhere])
    host.agent.flush()

    named = findings(host, "promise-does-not-fit")
    verified = main(["checkpoint", "verify", str(host.file.path)])
    printed = capsys.readouterr().out

    assert host.states() == {**dict.fromkeys(paths, "pinned"), more: "refused", elsewhere: "pinned"}
    assert len(named) == 3
    assert all(sentence.startswith(f"{cid(1)[:12]}: ") for sentence in named)
    assert host.agent.ledger.misfits.keys() == {Owner(cid(n), cid(n)) for n in (1, 2, 3)}
    assert status(host)["summary"] == "4 pinned, 1 refused, 0 not managed, 3 promises do not fit"
    assert status(host)["since_start"]["machine_differs"] == told(host, "machine_differs")
    assert all("64 GiB of memory, 100 GiB are promised" in sentence for sentence in named)
    assert told(host, "machine_differs") == [f"node 1, memory: {64 * GIB} bytes instead of {128 * GIB}"]
    assert verified == ExitStatus.FAILURE
    assert [cid(n) in printed for n in (1, 2, 3, 4, 5)] == [True, True, True, False, False]
    assert host.reserved() == {0: 100, 1: 100}


@pytest.mark.parametrize("off", ["policy-none", "nobody-is-managed"])
def test_b083_five_entries_and_another_setting(tmp_path: Path, off: str) -> None:
    """
    B083: with five promises the policy becomes none, or nobody is managed any more: both start. Under none the
    promises stand; else the old values come back, and a line for each says why.
    """
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    paths = [host.guaranteed(docker(n), 1) for n in range(5)]
    host.start()
    host.stop()
    changes: dict[str, Any] = {"policy": TopologyPolicy.NONE}
    host.config = replace(BARE, **(changes if off == "policy-none" else {"qos_standalone": StandaloneQos.NEVER}))
    lines = len(host.log.lines)

    host.start()
    host.agent.flush()

    said = [facts["reason"] for _, name, facts in host.log.lines[lines:] if name == "container_not_managed"]
    if off == "policy-none":
        assert host.states() == dict.fromkeys(paths, "pinned")
        assert ([host.mems(p) for p in paths], host.reserved(), said) == (["0"] * 5, {0: 5}, [])
    else:
        assert host.states() == dict.fromkeys(paths, "not-managed")
        assert ([host.mems(p) for p in paths], host.reserved()) == (["0-1"] * 5, {})
        assert len(said) == 5
        assert all("qos.standalone" in reason for reason in said)
        assert host.saved().containers == {}


def test_b085_what_cannot_be_is_listed(tmp_path: Path) -> None:
    """B085: without a file, live sets that no valid placement gives are listed with what is too much, and kept."""
    host = Host(tmp_path, nodes=even(3, memory=10 * GIB))
    sets = {docker(1): ("0", 8), docker(2): ("0", 8), docker(3): ("0-1", 6)}
    for path, (mems, gib) in sets.items():
        host.guaranteed(path, gib, mems=mems, effective=mems)

    with MemsWrites(host, sets) as writes:
        host.start()
        host.agent.full_pass()

        assert writes.taken() == []
    rows = {c["cgroup"]: c for c in status(host)["containers"]}
    assert host.states() == dict.fromkeys(sets, "pinned-by-others")
    assert {path: host.mems(path) for path in sets} == {path: mems for path, (mems, _) in sets.items()}
    assert "6 GiB of memory could not be accounted: the nodes are already promised" in rows[docker(2)]["message"]
    assert host.reserved() == {0: 10, 1: 6}
    assert host.agent.counters.writes == 0


def test_b088_the_message_names_reservation_and_shortage(tmp_path: Path) -> None:
    """B088: from 3 GiB to 4 on a node of 128 with 126 in use: both sizes, the shortage of 2, whose promise it is."""
    host = Host(tmp_path, nodes=even(1, memory=129 * GIB), config=replace(BARE, reserved=Reserved(0, 3 * GIB)))
    host.guaranteed(docker(1), 126)
    host.start()
    host.stop()
    write_machine(tmp_path, even(1, memory=128 * GIB))
    host.config = replace(BARE, reserved=Reserved(0, 4 * GIB))

    host.start()

    (told_once,) = told(host, "machine_differs")
    assert "node 0, memory: 4 GiB instead of 3 GiB reserved for the system" in told_once
    (sentence,) = findings(host, "promise-does-not-fit")
    assert sentence.startswith(cid(1)[:12])
    assert "124 GiB of memory, 126 GiB are promised" in sentence
    table = host.agent.ledger.books.node_map.nodes[NodeId(0)].memory_map[MEMORY]
    assert (table.total, table.system_reserved, table.free) == (128 * GIB, 4 * GIB, -2 * GIB)


def test_b089_a_node_that_the_configuration_drops(tmp_path: Path) -> None:
    """B089: containers live on a node that is not used any more: they are listed and kept until they end."""
    nodes = [Node(0, "0-1", 4 * GIB), Node(3, "", 40 * GIB)]
    host = Host(tmp_path, nodes=nodes, config=replace(BARE, cpu_less_nodes=NodeSet.of(3)))
    path = host.guaranteed(docker(1), 20, effective="3")
    host.start()
    assert host.mems(path) == "3"
    host.stop()
    host.config = BARE
    host.start()

    assert host.states() == {path: "pinned"}
    assert (host.mems(path), host.reserved()) == ("3", {3: 20})
    assert [sentence.startswith(cid(1)[:12]) for sentence in findings(host, "promise-does-not-fit")] == [True]
    assert told(host, "machine_differs") == ["node 3 is gone"]
    late = host.guaranteed(docker(2), 20, effective="3")
    host.agent.on_created([late])
    assert host.states()[late] == "refused"
    host.agent.on_removed([host.remove(path)])
    assert (host.reserved(), findings(host, "promise-does-not-fit")) == ({}, [])


# ---- decisions --------------------------------------------------------------------------------------------------


def test_b094_the_status_shows_who_holds_a_group(tmp_path: Path) -> None:
    """B094: the large one ended, a small one holds {0,1}: the status lists group and holder; its end makes room."""
    host = Host(tmp_path, nodes=even(2, memory=100 * GIB), config=replace(BARE, policy=TopologyPolicy.BEST_EFFORT))
    big = host.guaranteed(docker(1), 150, effective="0-1")
    host.start()
    small = host.guaranteed(docker(2), 5, effective="0-1")
    host.agent.on_created([small])
    host.agent.on_removed([host.remove(big)])
    host.config = BARE
    host.restart()
    waiting = host.guaranteed(docker(3), 10)
    host.agent.on_created([waiting])

    found = status(host)
    rows = {c["cgroup"]: c for c in found["containers"]}
    assert found["groups"] == [[0, 1]]
    assert (rows[small]["nodes"], rows[small]["state"]) == ([0, 1], "pinned")
    assert rows[waiting]["state"] == "refused"
    assert "only nodes 0-1 together could hold it now, an existing group" in rows[waiting]["message"]
    assert "best-effort would take it" in rows[waiting]["message"]
    host.agent.on_removed([host.remove(small)])
    assert (host.states(), host.mems(waiting)) == ({waiting: "pinned"}, "0")


@pytest.mark.parametrize("scope", list(Scope))
def test_b100_an_app_that_fits_only_elsewhere(tmp_path: Path, scope: Scope) -> None:
    """B100: with one node per container the app of 32 GiB goes to node 1, alone or with its init container."""
    config = replace(BARE, policy=TopologyPolicy.SINGLE_NUMA_NODE, scope=scope)
    host = Host(tmp_path, nodes=even(2, memory=40 * GIB), config=config)
    filler = host.guaranteed(docker(9), 38)
    host.start()
    host.tree.add(GUARANTEED_SLICE, memory=32 * GIB)
    init, app = cri(1), cri(2)
    first = "0" if scope is Scope.CONTAINER else "1"
    for path, number, name, gib, granted in ((init, 1, "init", 1, first), (app, 2, "app", 32, "1")):
        host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name)))
        host.guaranteed(path, gib, effective=granted)
        host.agent.on_created([path])
        if path == init:
            assert (host.states()[init], host.mems(init)) == ("pinned", first)
            host.agent.on_removed([host.remove(init)])

    assert host.states() == {filler: "pinned", app: "pinned"}
    assert host.mems(app) == "1"


def test_b101_nodes_that_are_reserved_to_the_last_byte(tmp_path: Path) -> None:
    """B101: four of six nodes are all kept for the system, one has no memory at all: hints and width know {0,1}."""
    sizes = [10, 10, 10, 10, 10, 0]
    nodes = [Node(n, f"{n}", size * GIB) for n, size in enumerate(sizes)]
    kept = {NodeId(n): {MEMORY: 10 * GIB} for n in (2, 3, 4)}
    host = Host(tmp_path, nodes=nodes, config=replace(BARE, reserved=Reserved(0, 0, kept)))
    wide = host.guaranteed(docker(1), 15, effective="0-1")
    large = host.guaranteed(docker(2), 25)
    host.start()

    explained = host.agent.ledger.pins[wide].explanation
    assert explained is not None
    assert (explained.width, explained.candidates) == (2, (NodeSet.of(0, 1),))
    assert host.states() == {wide: "pinned", large: "refused"}
    assert "nodes 0-1 together can promise 20 GiB at most" in host.view(large).message


def test_b104_a_type_that_only_the_init_container_has(tmp_path: Path) -> None:
    """B104: init wants 512 MiB of 2 MiB pages, the app none, one decision for the pod: node 1 for both, never 0."""
    nodes = [Node(0, "0", 10 * GIB, pools={PAGE_2M: 0}), Node(1, "1", 10 * GIB, pools={PAGE_2M: 512})]
    host = Host(tmp_path, nodes=nodes, config=replace(BARE, scope=Scope.POD))
    host.start()
    host.tree.add(GUARANTEED_SLICE, memory=2 * GIB, hugetlb={"2MB": 512 * MIB})
    for number, name, pages in ((1, "init", {"2MB": 512 * MIB}), (2, "app", {"2MB": 0})):
        path = cri(number)
        host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name)))
        host.guaranteed(path, 1, effective="1", hugetlb=pages)
        host.agent.on_created([path])
        assert (host.states()[path], host.mems(path)) == ("pinned", "1")
        if number == 1:
            assert host.agent.ledger.books.node_map.nodes[NodeId(1)].memory_map[HUGE].reserved == 512 * MIB
            host.agent.on_removed([host.remove(path)])

    assert list(host.states().values()) == ["pinned"]


WIDE = {35: ("0-3", "1-2,5"), 75: ("0-7", "0-6")}
NO_SINGLE = ("not-single-node", "not-single-node")
ANSWERS = {
    TopologyPolicy.NONE: WIDE,
    TopologyPolicy.BEST_EFFORT: WIDE,
    TopologyPolicy.RESTRICTED: {size: ("hints-disagree", nodes) for size, (_, nodes) in WIDE.items()},
    TopologyPolicy.SINGLE_NUMA_NODE: dict.fromkeys(WIDE, NO_SINGLE),
}
"""
By size: on eight nodes of 10 where each of four providers wants one node, and on sixteen of 10, 11 and 12 in turn
with three types of memory. 35 needs four of the eight and three of 12; 75 all eight, and seven of the sixteen.
"""


def outcome(answer: Plan | Refusal) -> str:
    """The nodes of a plan, the code of a refusal."""
    return str(answer.nodes) if isinstance(answer, Plan) else answer.code.value


@pytest.mark.parametrize("policy", list(TopologyPolicy))
def test_b107_four_providers_with_all_their_hints(policy: TopologyPolicy) -> None:
    """
    B107: 8 nodes and four providers of 255 hints each, 16 nodes with three types of memory: 0.1 s and 1 s. Each
    answer is the lowest of the narrowest sets, or the refusal that is due.
    """
    every = tuple(Hint(NodeSet(mask), mask.bit_count() == 1) for mask in range(1, 256))
    providers = tuple(ProviderHints(f"provider {n}", every) for n in range(4))
    small = empty_books({n: {MEMORY: 10} for n in range(8)})
    kinds = (MEMORY, HUGE, MemoryType("hugepages-1Gi"))
    large = empty_books({n: dict.fromkeys(kinds, 10 + n % 3) for n in range(16)})
    always = {5: ("0", "0"), 200: ("does-not-fit", "does-not-fit")}
    for size, expected in {**always, **ANSWERS[policy]}.items():
        begin = process_time()
        few = place(small, Request(Owner("p", "c"), {MEMORY: size}, hints=providers), Rules(policy))
        middle = process_time()
        many = place(large, Request(Owner("p", "c"), dict.fromkeys(kinds, size)), Rules(policy))
        end = process_time()

        assert (middle - begin < 0.1, end - middle < 1) == (True, True)
        assert (outcome(few), outcome(many)) == expected


# ---- writes -----------------------------------------------------------------------------------------------------


def contents(root: Path) -> dict[Path, bytes]:
    """Every file below *root*."""
    return {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_b115_one_file_of_the_whole_tree(tmp_path: Path, version: CgroupVersion) -> None:
    """B115: a decision, a pass, a repair and a release later every other file of all cgroups is as it was."""
    host = Host(tmp_path, version=version, config=replace(BARE, v1_memory_migrate=False))
    path = host.guaranteed(docker(1), 15, mems="0-3" if version is CgroupVersion.V1 else "", effective="0-1")
    host.container(docker(2), memory=GIB)
    before = contents(tmp_path / "sys")

    host.start()
    host.agent.full_pass()
    host.put(path, {"cpuset.mems": "2-3\n"})
    host.agent.on_mems_written([path])
    pinned = contents(tmp_path / "sys")
    host.agent.release()
    after = contents(tmp_path / "sys")

    mems = host.tree.cpuset / path[1:] / "cpuset.mems"
    assert (pinned.pop(mems), before.pop(mems), after.pop(mems)) == (
        b"0-1\n",
        b"0-3\n" if version is CgroupVersion.V1 else b"\n",
        b"0-3\n",
    )
    assert before == pinned == after


def test_b050_a_write_without_an_error_is_no_success(tmp_path: Path) -> None:
    """B050: the value is written back without any error and reads as before: not released, and the promise stands."""
    host = Host(tmp_path, version=CgroupVersion.V1)
    path = host.guaranteed(docker(1), 15, mems="0-3", effective="0-1")
    host.start()
    (tmp_path / f"sys/fs/cgroup/memory{path}/memory.usage_in_bytes").write_text(f"{20 * MIB}\n")
    host.agent.release([path])
    assert readable(host.writer, timeout_s=60)
    host.writer.collect()
    host.put(path, {"cpuset.mems": "0-1\n"})  # as if the kernel had taken nothing
    before, back = NodeSet.of(0, 1), NodeSet.of(0, 1, 2, 3)
    seen = Verification(back, before, before)

    host.agent.on_outcomes([Outcome(path, host.view(path).record.inode, back, seen, None, wrote=True, took_ns=1)])

    assert host.states() == {path: "pinned"}
    assert host.view(path).message == ("could not be released: nodes 0-3 were written back, and cpuset.mems says 0-1")
    assert host.reserved() == {0: 10, 1: 5}
    host.sound()


def test_b116_a_writer_every_two_seconds(tmp_path: Path) -> None:
    """B116: after a minute of it there is a conflict with the value seen, then one repair a minute, for an hour."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    seen: list[str] = []
    for _ in range(1800):
        host.clock.advance(seconds=2)
        host.agent.due(host.clock.monotonic_ns())
        host.put(path, {"cpuset.mems": "1\n"})
        host.agent.on_mems_written([path])
        seen.append(host.states()[path])

    view = host.view(path)
    assert FREE_REPAIRS <= view.repairs <= FREE_REPAIRS + 70
    assert seen.index("contested") <= FREE_REPAIRS + 2
    assert view.message.startswith("cpuset.mems is 1 now; somebody else writes it again and again")
    assert host.log.facts("container_contested")["container_id"] == cid(1)
    assert host.log.events().count("container_contested") <= 70
    assert host.reserved() == {0: 2}


def test_b122_one_write_for_a_decision(tmp_path: Path) -> None:
    """B122: over passes, resizes, refusals, others' ends and restarts a container's nodes are written once."""
    host = Host(tmp_path, nodes=even(4, memory=10 * GIB))
    paths = [host.guaranteed(docker(n), 8, effective=str(n)) for n in range(3)]
    with MemsWrites(host, paths) as writes:
        host.start()
        assert writes.taken() == paths
        large = host.guaranteed(docker(9), 12, effective="2-3")
        writes.watch(large)
        for gib in (9, 7, 30, 8):
            host.agent.on_created([large])
            host.put(paths[0], {"memory.max": f"{gib * GIB}\n"})
            host.agent.full_pass()
        assert writes.taken() == []
        host.agent.on_removed([host.remove(paths[2])])
        host.agent.full_pass()
        changed(host, even(4, memory=12 * GIB))

        assert writes.taken() == [large]
        assert (host.states()[large], host.mems(large), host.agent.counters.writes) == ("pinned", "2-3", 4)
        assert [host.mems(path) for path in paths[:2]] == ["0", "1"]
        rows = {row["cgroup"]: row for row in status(host)["containers"]}
        assert [(rows[path]["writes"], rows[path]["repairs"]) for path in (*paths[:2], large)] == [(1, 0)] * 3
        host.restart()
        host.agent.full_pass()
        assert (writes.taken(), host.agent.counters.writes) == ([], 0)


def test_b124_a_node_that_the_kernel_does_not_take(tmp_path: Path) -> None:
    """B124: EINVAL for a node that came online: said with the node, and its memory is in the books again at once."""
    host = Host(tmp_path, nodes=[Node(0, "0", 4 * GIB)])
    path = host.guaranteed(docker(1), 8, effective="2")
    host.start()
    assert host.states() == {path: "refused"}
    host.tree.add("/system.slice", effective="0,2")
    host.holds(path, {0: 20 * MIB})
    changed(host, [Node(0, "0", 4 * GIB), Node(2, "1", 64 * GIB)])
    assert (host.states(), host.reserved()) == ({path: "pinning"}, {2: 8})
    host.wait_for_writes()
    inode = host.view(path).record.inode
    host.put(path, {"cpuset.mems": "\n"})  # as the kernel leaves it
    error = KernelWriteError(f"{path}/cpuset.mems", EINVAL, "2")

    host.agent.on_outcomes([Outcome(path, inode, NodeSet.of(2), None, error, wrote=True, took_ns=1)])

    assert host.states() == {path: "failed"}
    assert host.view(path).message.startswith(f"cannot write '2' to {path}/cpuset.mems: Invalid argument (EINVAL)")
    assert "does not know one of these nodes" in host.view(path).message
    assert host.reserved() == {}
    host.sound()


def test_b052_parents_that_did_not_get_the_node_back(tmp_path: Path) -> None:
    """B052: on v1 the groups above stay narrowed: named and not widened, and the promise waits."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), version=CgroupVersion.V1)
    host.tree.add("/docker", mems="1", effective="1")
    path = host.guaranteed(f"/docker/{cid(1)}", 2, mems="1", effective="1")
    host.start()
    assert host.states() == {path: "pinned"}
    changed(host, [even(2, memory=10 * GIB)[0], replace(even(2)[1], memory=0)])
    for cgroup in ("/docker", path):
        host.put(cgroup, {"cpuset.mems": "0\n", "cpuset.effective_mems": "0\n"})
    (tmp_path / f"sys/fs/cgroup/memory{path}/memory.usage_in_bytes").write_text(f"{20 * MIB}\n")
    changed(host, even(2, memory=10 * GIB))
    assert host.states() == {path: "pinning"}
    assert readable(host.writer, timeout_s=60)
    host.writer.collect()
    host.put(path, {"cpuset.mems": "0\n"})  # as the kernel leaves it, which refuses
    error = KernelWriteError(f"/sys/fs/cgroup/cpuset{path}/cpuset.mems", EACCES, "1")

    host.agent.on_outcomes([Outcome(path, host.view(path).record.inode, NodeSet.of(1), None, error, True, 1)])

    assert (host.states(), host.reserved()) == ({path: "pin-lost"}, {1: 2})
    assert "the cgroups above lost a node and have to get it back, from the top down" in host.view(path).message
    assert host.mems("/docker") == "0"
    host.agent.full_pass()
    host.wait_for_writes()
    assert (host.states(), host.reserved()) == ({path: "pin-lost"}, {1: 2})
    host.put("/docker", {"cpuset.mems": "1\n", "cpuset.effective_mems": "1\n"})
    host.grant(path, "1")
    host.agent.full_pass()
    host.wait_for_writes()
    assert (host.states(), host.mems(path), host.mems("/docker")) == ({path: "pinned"}, "1", "1")
    assert host.reserved() == {1: 2}


@pytest.mark.parametrize("moved", [True, False], ids=["moved-out-by-the-kernel", "still-there"])
def test_b053_processes_are_not_back_with_the_node(tmp_path: Path, moved: bool) -> None:
    """B053: on v1 a cpuset without nodes loses its processes: with its node back they are not taken to be in it."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), version=CgroupVersion.V1)
    path = host.guaranteed(docker(1), 2, mems="1", effective="1")
    host.tree.add("/system.slice", mems="1", effective="1")
    host.start()
    assert host.states() == {path: "pinned"}

    changed(host, [even(2, memory=10 * GIB)[0], replace(even(2)[1], memory=0)])
    assert host.states() == {path: "pin-lost"}
    assert host.log.lines[-1][0] == "warning"
    if moved:
        host.put(path, {"cgroup.procs": ""})
    changed(host, even(2, memory=10 * GIB))

    assert (host.states(), host.mems(path), host.reserved()) == ({path: "pinned"}, "1", {1: 2})
    assert ("no process is in its cgroup" in host.view(path).message) == moved
    assert host.saved().containers[path].nodes == NodeSet.of(1)


def test_b125_the_cpus_of_a_node_go_offline(tmp_path: Path) -> None:
    """B125: the node is memory only then: its container keeps all, new ones go there when it is named."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    first = host.guaranteed(docker(1), 9)
    path = host.guaranteed(docker(2), 4, effective="1")
    host.start()
    assert (host.mems(first), host.mems(path)) == ("0", "1")

    changed(host, [even(2, memory=10 * GIB)[0], replace(even(2, memory=10 * GIB)[1], cpus="")])
    late = host.guaranteed(docker(3), 4, effective="1")
    host.agent.on_created([late])

    assert host.states() == {first: "pinned", path: "pinned", late: "refused"}
    assert (host.mems(path), host.reserved()) == ("1", {0: 9, 1: 4})
    host.config = replace(BARE, cpu_less_nodes=NodeSet.of(1))
    host.agent.on_machine(Machine.read(tmp_path, host.config, host.agent.machine.known))
    assert host.states() == {first: "pinned", path: "pinned", late: "pinned"}
    assert host.reserved() == {0: 9, 1: 8}

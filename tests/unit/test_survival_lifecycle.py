"""Entries D to L of the bug log that an agent on plain files can show, and odd cgroups, each with its right value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.cli.checkpoint import inconsistencies
from numapin.cli.main import main
from numapin.daemon.config import Reserved
from numapin.daemon.machine import Machine
from numapin.daemon.status import About, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import ConfigError, ExitStatus
from numapin.model.memory import MEMORY, NodeMap, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import TopologyPolicy
from numapin.state.checkpoint import Generation
from support.daemon import BARE, Host, cid, cri, docker
from support.machines import GIB, MIB, PAGE_2M, Node, even, write_machine
from support.mems_writes import MemsWrites

HUGE = hugepages(PAGE_2M)
OTHER_BOOT = "0b0b0b0b-0000-4000-8000-000000000002"


def changed(host: Host, nodes: list[Node]) -> None:
    """The machine has other nodes from now on, and the agent was told."""
    write_machine(host.root, nodes)
    host.agent.on_machine(Machine.read(host.root, host.config))


def table(host: Host, node: int, kind: str = MEMORY) -> tuple[int, int, int]:
    """Allocatable, reserved and free bytes of a node."""
    found = host.agent.ledger.books.node_map.nodes[NodeId(node)].memory_map[
        hugepages(PAGE_2M) if kind != MEMORY else MEMORY
    ]
    return found.allocatable, found.reserved, found.free


def about() -> About:
    """A daemon without findings of its own."""
    return About(1, 0, 0, "v2", "", None)


# ---- the size of a living container ---------------------------------------------------------------------------


def test_b110_a_limit_that_is_raised_and_lowered(tmp_path: Path) -> None:
    """B110: 2 GiB to 6 with 3 free is named and keeps 2; with 5 free it is booked; lowered to 1 it is 1. No move."""
    host = Host(tmp_path, nodes=[Node(0, "0", 10 * GIB), Node(1, "1", 100 * GIB)])
    other, path = host.guaranteed(docker(1), 5), host.guaranteed(docker(2), 2)
    host.start()
    host.put(path, {"memory.max": f"{6 * GIB}\n"})
    host.agent.full_pass()
    assert "keeps node 0 with the old size" in host.view(path).message
    assert "node 0 has 5 GiB free" in host.view(path).message
    assert host.reserved() == {0: 7}
    host.put(other, {"memory.max": f"{3 * GIB}\n"})

    host.agent.full_pass()
    host.agent.full_pass()

    assert (host.view(path).message, host.reserved()) == ("", {0: 9})
    host.put(path, {"memory.max": f"{GIB}\n"})
    host.agent.full_pass()
    assert host.reserved() == {0: 4}
    assert (host.mems(path), host.agent.counters.writes) == ("0", 2)
    host.sound()


def test_changed_hugetlb_limits_are_followed(tmp_path: Path) -> None:
    """More pages where the node has them, fewer, and too many: grown, shrunk, and named with the old promise kept."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB, pools={PAGE_2M: 512}))
    path = host.guaranteed(docker(1), 2, hugetlb={"2MB": 256 * MIB})
    host.start()
    seen = [table(host, 0, HUGE)[1]]
    for size in (512, 128, 2048):
        host.put(path, {"hugetlb.2MB.max": f"{size * MIB}\n"})
        host.agent.full_pass()
        seen.append(table(host, 0, HUGE)[1])

    assert [s // MIB for s in seen] == [256, 512, 128, 128]
    assert "the new size is refused" in host.view(path).message
    assert host.states() == {path: "pinned"}
    host.sound()


# ---- odd cgroups ------------------------------------------------------------------------------------------------


def test_b049_child_cpusets_follow_on_v1(tmp_path: Path) -> None:
    """B049: children a workload made are shrunk before the container, from the bottom, so that none is outside it."""
    host = Host(tmp_path, version=CgroupVersion.V1, nodes=even(4, memory=10 * GIB))
    path = host.guaranteed(docker(1), 15, mems="0-3", effective="0-1")  # a plain file takes a text of the same length
    child = f"{path}/init.scope"
    deepest = f"{child}/job"
    for below in (child, deepest):
        host.tree.add(below, mems="0-3", controllers=False)

    with MemsWrites(host, (path, child, deepest)) as writes:
        host.start()

        assert writes.taken() == [deepest, child, path]
    assert host.states() == {path: "pinned"}
    assert [host.mems(cgroup) for cgroup in (path, child, deepest)] == ["0-1"] * 3
    assert host.reserved() == {0: 10, 1: 5}


def test_children_on_v2_are_the_workloads_own(tmp_path: Path) -> None:
    """On v2 a child inherits: only the outermost cgroup is written, whatever systemd or Docker made inside."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    inner = f"{path}/system.slice/docker-{cid(7)}.scope"
    host.tree.add(inner, memory=GIB, quota=50_000)

    host.start()

    assert host.states()[path] == "pinned"
    assert host.reserved() == {0: 2}
    assert (host.mems(path), host.mems(inner)) == ("0", "")


def test_b065_a_threaded_container_lives(tmp_path: Path) -> None:
    """B065: a cgroup that lists no processes is pinned like any other, and nothing is released while it lives."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.put(path, {"cgroup.type": "threaded\n", "cgroup.threads": "1001\n", "cgroup.procs": ""})
    host.start()
    host.agent.full_pass()
    host.restart()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 2}


def test_b058_cpuset_not_enabled(tmp_path: Path) -> None:
    """B058, B059: no file is made, no other directory taken, no controller enabled; the exact remedy is told."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    directory = host.tree.cpuset / path[1:]
    for name in ("cpuset.mems", "cpuset.mems.effective"):
        (directory / name).unlink()
    host.put("/system.slice", {"cgroup.subtree_control": "cpu memory pids\n"})

    host.start()

    assert host.states() == {path: "unpinned"}
    assert "echo +cpuset > /sys/fs/cgroup/system.slice/cgroup.subtree_control" in host.view(path).message
    assert host.reserved() == {}
    assert not (directory / "cpuset.mems").exists()
    assert (host.tree.cpuset / "system.slice/cgroup.subtree_control").read_text() == "cpu memory pids\n"
    host.put(path, {"cpuset.mems": "\n", "cpuset.mems.effective": "0\n"})
    host.agent.full_pass()
    assert host.states() == {path: "pinned"}


def test_b064_a_slice_that_allows_one_node(tmp_path: Path) -> None:
    """B064: only node 1 is a candidate below a slice with node 1; what does not fit there is refused and says so."""
    host = Host(tmp_path, nodes=[Node(0, "0", 100 * GIB), Node(1, "1", 10 * GIB)])
    host.tree.add("/system.slice", effective="1")
    small, large = host.guaranteed(docker(1), 4, effective="1"), host.guaranteed(docker(2), 40)

    host.start()

    assert host.states() == {small: "pinned", large: "refused"}
    assert host.mems(small) == "1"
    assert "node 1" in host.view(large).message
    assert host.view(large).record.parent_mems == NodeSet.of(1)


@pytest.mark.parametrize("ids", [[1], [0, 2], [8]])
def test_b055_no_node_is_a_default(tmp_path: Path, ids: list[int]) -> None:
    """B055: on nodes {1}, {0,2} and {8} an unmanaged container keeps its value and a pin names a node there is."""
    host = Host(tmp_path, nodes=even(len(ids), memory=10 * GIB, ids=ids))
    plain, path = host.container(docker(1), memory=GIB), host.guaranteed(docker(2), 2, effective=str(ids[0]))

    host.start()

    assert (host.mems(plain), host.mems(path)) == ("", str(ids[0]))


def test_b134_nodes_that_are_none(tmp_path: Path) -> None:
    """B134: a range of CPU numbers where nodes are meant is told with the nodes there are, a reservation refused."""
    host = Host(tmp_path, nodes=even(2), config=replace(BARE, cpu_less_nodes=NodeSet.parse("0-15")))
    host.start()

    found = dict(status_document(host.agent, about(), now_ns=0, wall_ns=0))["findings"]
    assert found == [
        {
            "code": "cpu-less-nodes",
            "message": "nodes.cpu_less names nodes 2-15, and the nodes online are 0-1; "
            "it takes numbers of nodes, not of CPUs",
        }
    ]
    reserved = replace(BARE, reserved=Reserved(0, 0, {NodeId(15): {MEMORY: GIB}}))
    with pytest.raises(ConfigError, match=r"not online \(online: 0-1\)"):
        Machine.read(tmp_path, reserved)


# ---- restart and reboot -----------------------------------------------------------------------------------------


def booted(host: Host, nodes: list[Node]) -> None:
    """A reboot onto *nodes*, with the same containers in new cgroups, and the start of the daemon."""
    host.stop()
    host.boot = OTHER_BOOT
    write_machine(host.root, nodes)
    for path in list(host.agent.views):
        host.put(path, {"cpuset.mems": "\n"})
    host.start()
    host.agent.flush()


def test_b079_totals_drift_over_a_reboot(tmp_path: Path) -> None:
    """B079: 43,696,128 bytes more on one node and fewer on another: the start succeeds, with the new allocatable."""
    first = [Node(0, "0", 135_277_490_176), Node(2, "1", 135_233_794_048)]
    config = replace(BARE, reserved=Reserved(0, 0, {NodeId(2): {MEMORY: 4_429_185_024}}))
    host = Host(tmp_path, nodes=first, config=config)
    path = host.guaranteed(docker(1), 100)
    host.start()
    assert table(host, 2)[0] == 130_804_609_024

    booted(host, [Node(0, "0", 135_233_794_048), Node(2, "1", 135_277_490_176)])

    assert host.states() == {path: "pinned"}
    assert table(host, 2)[0] == 130_848_305_152
    assert table(host, 0)[1] == 100 * GIB
    assert "promise_does_not_fit" not in host.log.events()
    assert inconsistencies(host.saved()) == ()


def test_b080_a_dimm_is_gone(tmp_path: Path) -> None:
    """B080: 100 GiB promised to three on a node that has 64 now: each is named, the node gives nothing, others do."""
    host = Host(tmp_path, nodes=[Node(0, "0", 128 * GIB), Node(1, "1", 128 * GIB)])
    host.tree.add("/system.slice", effective="1")
    paths = [host.guaranteed(docker(n), size, effective="1") for n, size in ((1, 40), (2, 40), (3, 20))]
    host.start()
    host.tree.add("/system.slice", effective="0-1")

    booted(host, [Node(0, "0", 128 * GIB), Node(1, "1", 64 * GIB)])
    new = host.guaranteed(docker(4), 2)
    host.agent.on_created([new])

    assert set(host.states().values()) == {"pinned"}
    assert host.mems(new) == "0"
    named = [f["container_id"] for _, e, f in host.log.lines if e == "promise_does_not_fit"]
    assert sorted(named) == [cid(1), cid(2), cid(3)]
    assert "64 GiB of memory, 100 GiB are promised" in host.log.facts("promise_does_not_fit")["reason"]
    assert len(inconsistencies(host.saved())) == 3
    assert [host.mems(p) for p in paths] == ["1", "1", "1"]


@pytest.mark.parametrize(("first", "then"), [("none", "restricted"), ("restricted", "none")])
def test_b083_another_policy(tmp_path: Path, first: str, then: str) -> None:
    """B083: none to restricted and back: the start succeeds, what is promised stays, nothing is to be deleted."""
    host = Host(tmp_path, config=replace(BARE, policy=TopologyPolicy(first)))
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    before = host.saved()
    host.config = replace(BARE, policy=TopologyPolicy(then))
    host.start()
    host.stop()

    assert host.states() == {path: "pinned"}
    assert (before.policy, host.saved().policy) == (first, then)
    assert before.books.assignments == host.saved().books.assignments


def test_b085_the_checkpoint_was_deleted(tmp_path: Path) -> None:
    """B085: three pinned to {0}, {0}, {1}: without a file the same bytes are accounted there and no pin changes."""
    host = Host(tmp_path)
    paths = [
        host.guaranteed(docker(1), 4),
        host.guaranteed(docker(2), 4),
        host.guaranteed(docker(3), 8, effective="1"),
    ]
    host.start()
    host.stop()
    host.file.path.unlink()
    host.file.previous_path.unlink()

    with MemsWrites(host, paths) as writes:
        host.start()
        host.agent.full_pass()

        assert writes.taken() == []
    assert host.reserved() == {0: 8, 1: 8}
    assert [host.mems(p) for p in paths] == ["0", "0", "1"]
    assert host.agent.counters.writes == 0


def test_b086_a_split_that_history_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B086: 210 and 40 of a group in the file, 220 and 30 when recomputed: well for verify, and for a start."""
    host = Host(tmp_path, nodes=even(2, memory=220 * GIB), config=replace(BARE, policy=TopologyPolicy.BEST_EFFORT))
    paths = [host.guaranteed(docker(n), size, effective="0-1") for n, size in ((1, 240), (2, 10))]
    host.start()
    host.stop()
    assert (host.reserved(), host.agent.ledger.books.groups()) == ({0: 220, 1: 30}, (NodeSet.of(0, 1),))
    host.file.save(with_reserved(host.saved(), {0: 210 * GIB, 1: 40 * GIB}))
    text = host.file.path.read_bytes()

    verified = main(["checkpoint", "verify", str(host.file.path)])
    loaded = host.file.load(wall_ns=host.clock.wall_ns())
    with MemsWrites(host, paths) as writes:
        host.start()
        host.agent.full_pass()

        assert writes.taken() == []
    assert (verified, capsys.readouterr().out.split(": ")[1]) == (ExitStatus.OK, "OK, 2 containers on 2 nodes\n")
    assert (loaded.generation, loaded.damaged) == (Generation.CURRENT, ())
    assert sorted(p.name for p in host.file.path.parent.iterdir()) == ["state.json", "state.json.1"]
    assert text in (host.file.path.read_bytes(), host.file.previous_path.read_bytes())
    assert host.states() == dict.fromkeys(paths, "pinned")
    assert sum(host.reserved().values()) == 250
    assert sum(table(host, n)[2] for n in (0, 1)) == 190 * GIB
    assert {level for level, _, _ in host.log.lines} == {"info"}
    host.sound()


def with_reserved(checkpoint: Checkpoint, reserved: dict[int, int]) -> Checkpoint:
    """The checkpoint with other bytes of memory reserved on its nodes, each node's sum as it was."""
    nodes = {}
    for node, state in checkpoint.books.node_map.nodes.items():
        before = state.memory_map[MEMORY]
        after = replace(before, reserved=reserved[node], free=before.allocatable - reserved[node])
        nodes[node] = replace(state, memory_map={**state.memory_map, MEMORY: after})
    return replace(checkpoint, books=replace(checkpoint.books, node_map=NodeMap(nodes)))


def test_b088_a_larger_reservation(tmp_path: Path) -> None:
    """B088: 3 GiB to 4 with 126 of 128 assigned starts and names who is over; with room it is only re-based."""
    host = Host(tmp_path, nodes=even(1, memory=130 * GIB), config=replace(BARE, reserved=Reserved(0, 3 * GIB)))
    host.guaranteed(docker(1), 126)
    host.start()
    host.stop()
    host.config = replace(BARE, reserved=Reserved(0, 4 * GIB))
    host.start()
    assert (table(host, 0)[2], "promise_does_not_fit" in host.log.events()) == (0, False)
    host.stop()
    host.config = replace(BARE, reserved=Reserved(0, 6 * GIB))

    host.start()

    assert table(host, 0) == (124 * GIB, 126 * GIB, -2 * GIB)
    assert host.log.facts("promise_does_not_fit")["container_id"] == cid(1)
    assert "124 GiB of memory, 126 GiB are promised" in host.log.facts("promise_does_not_fit")["reason"]


def test_b089_nodes_have_other_numbers(tmp_path: Path) -> None:
    """B089: two nodes become eight and nobody of before lives: the old assignments are gone, all eight are usable."""
    host = Host(tmp_path, nodes=even(2, memory=40 * GIB))
    paths = [host.guaranteed(docker(n), 8) for n in range(4)]
    host.start()
    host.stop()
    for path in paths:
        host.remove(path)
    host.boot = OTHER_BOOT
    write_machine(tmp_path, even(8, memory=10 * GIB))

    host.start()
    host.agent.flush()

    assert list(host.agent.ledger.books.node_map.nodes) == list(range(8))
    assert host.agent.ledger.books.assignments == {}
    assert host.log.facts("checkpoint_adopted")["released"] == sorted(cid(n) for n in range(4))


# ---- races and load -------------------------------------------------------------------------------------------


def test_b112_short_jobs_leave_nothing(tmp_path: Path) -> None:
    """B112: 200 jobs, every third gone between look and write: at the end all is free, and no line is an error."""
    host = Host(tmp_path)
    host.start()
    for batch in range(20):
        paths = [host.guaranteed(docker(10 * batch + n), 1) for n in range(10)]
        looked = host.tree.scan()
        for path in paths[::3]:
            host.remove(path)
        host.agent._admit(looked)
        for path in set(paths) - set(paths[::3]):
            host.remove(path)
        host.agent.on_removed(paths)
    host.agent.flush()

    assert host.reserved() == {}
    assert (host.agent.views, host.saved().containers) == ({}, {})
    assert {level for level, _, _ in host.log.lines} <= {"info", "debug"}
    host.sound()


def test_b121_generations_leave_nothing(tmp_path: Path) -> None:
    """B121: after 1,000 containers that came and went no map has grown, and the file is as small as at first."""
    host = Host(tmp_path)
    host.start()
    agent = host.agent
    for number in range(1000):
        path = host.guaranteed(cri(number) if number % 2 else docker(number), 1)
        agent.on_created([path])
        agent.on_removed([host.remove(path)])
        if number % 100 == 99:
            host.clock.advance(seconds=60)
            agent.due(host.clock.monotonic_ns())
    agent.flush()

    assert (agent.views, agent.ledger.pins, agent.ledger.refusals) == ({}, {}, {})
    assert agent.ledger.books.assignments == {}
    assert agent.next_due_ns() is None
    assert host.watched.mems == set()
    assert host.file.path.stat().st_size < 4096


@pytest.mark.parametrize(("containers", "passes"), [(60, 30), (500, 3)])
def test_b127_nothing_is_written_when_nothing_changes(tmp_path: Path, containers: int, passes: int) -> None:
    """
    B127, B122: passes over pinned containers write no cgroup and save nothing. An hour of them over the log's 500
    containers would take some six seconds of a processor: so one of 60 containers, and three passes over 500.
    """
    host = Host(tmp_path, nodes=even(2, memory=1000 * GIB))
    paths = [host.guaranteed(docker(number), 1) for number in range(containers)]
    with MemsWrites(host, paths) as writes:
        host.start()
        host.agent.flush()
        assert sorted(writes.taken()) == sorted(paths)
        before = (host.agent.counters.writes, host.agent.counters.saves, len(host.log.lines))
        assert before[0] == containers
        for _ in range(passes):
            host.clock.advance(seconds=120)
            host.agent.due(host.clock.monotonic_ns())
            host.agent.full_pass()
            host.agent.flush()

        assert writes.taken() == []
    assert before == (host.agent.counters.writes, host.agent.counters.saves, len(host.log.lines))


# ---- nodes that go and come ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "narrowed", [lambda host, path: None, lambda host, path: host.put(path, {"cpuset.mems": "0\n"})], ids=["v2", "v1"]
)
def test_b053_the_only_node_goes(tmp_path: Path, narrowed: Callable[[Host, str], object]) -> None:
    """B053, B052: the pin is lost and says so, the reservation is kept, and the node's return applies it again."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    host.guaranteed(docker(1), 9)
    path = host.guaranteed(docker(2), 2, effective="1")
    host.start()
    assert host.mems(path) == "1"
    narrowed(host, path)  # v1 takes the node out of every mask, v2 only stops granting it

    changed(host, [even(2, memory=10 * GIB)[0], replace(even(2)[1], memory=0)])

    assert host.states()[path] == "pin-lost"
    assert "node 1 has no memory now" in host.view(path).message
    assert host.reserved() == {0: 9, 1: 2}
    changed(host, even(2, memory=10 * GIB))
    assert host.states()[path] == "pinned"
    assert host.mems(path) == "1"
    host.sound()


def test_b124_a_node_without_bytes_grows(tmp_path: Path) -> None:
    """B124: a node that is online with 0 bytes gives nothing, and is used once it has 32 GiB."""
    host = Host(tmp_path, nodes=[Node(0, "0", 4 * GIB), Node(2, "1", 0)])
    path = host.guaranteed(docker(1), 8, effective="2")
    host.start()
    assert host.states() == {path: "refused"}
    host.tree.add("/system.slice", effective="0,2")

    changed(host, [Node(0, "0", 4 * GIB), Node(2, "1", 32 * GIB)])

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "2"

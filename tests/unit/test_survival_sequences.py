"""Entries of the bug log that take a sequence of starts, ends and decisions, each with exactly its trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.config import Config, Reserved
from numapin.daemon.status import About, status_document
from numapin.model.container import StandaloneQos
from numapin.model.memory import MEMORY
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import TopologyPolicy
from support.cgroup_trees import cri as cri_annotations
from support.cgroup_trees import oci
from support.daemon import BARE, POD_SLICE, Host, cid, cri, docker
from support.machines import GIB, Node, even
from support.trees import write_tree

OTHER_SLICE = "/kubepods.slice/kubepods-pod99999999_2222_3333_4444_555555555555.slice"


def status(host: Host) -> Mapping[str, Any]:
    """The status document."""
    return status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)


def disk_is_memory(host: Host) -> None:
    """What is on disk equals what is in memory: promises, records, refusals."""
    saved, held = host.saved(), host.agent.ledger.snapshot()

    assert saved.books == held.books
    assert (saved.containers, saved.refusals) == (held.containers, held.refusals)
    host.sound()


def in_pod(host: Host, path: str, gib: float, name: str, *, effective: str = "0") -> str:
    """A container called *name* in the pod of the slice above *path*."""
    host.tree.task("k8s.io", path[-70:-6], oci(annotations=cri_annotations(name)))
    return host.guaranteed(path, gib, effective=effective)


# ---- entries of the dead ----------------------------------------------------------------------------------------


OFF: dict[str, dict[str, Any]] = {
    "nobody-is-managed": {"config": replace(BARE, qos_standalone=StandaloneQos.NEVER)},
    "another-policy": {"config": replace(BARE, policy=TopologyPolicy.NONE)},
    "dry-run": {"dry_run": True},
}


@pytest.mark.parametrize("off", list(OFF))
def test_b121_three_end_while_the_agent_is_stopped(tmp_path: Path, off: str) -> None:
    """
    B121: three of four containers end while the agent is stopped; a start with management off, and one with it on
    again, hold nothing of them, in memory as on disk.
    """
    host = Host(tmp_path, nodes=even(8, memory=10 * GIB))
    pairs = ("0-1", "2-3", "4-5", "6-7")
    living, *ended = [host.guaranteed(docker(n), 15, effective=pairs[n]) for n in range(4)]
    host.start()
    assert set(host.states().values()) == {"pinned"}
    host.stop()
    for path in ended:
        host.remove(path)
    for key, value in OFF[off].items():
        setattr(host, key, value)
    host.start()
    host.agent.flush()

    assert host.reserved() == ({} if off == "nobody-is-managed" else {0: 10, 1: 5})
    assert set(host.agent.ledger.pins) <= {living}
    if off != "dry-run":
        disk_is_memory(host)
    host.stop()
    host.config, host.dry_run = BARE, False
    host.start()
    host.agent.flush()
    assert host.states() == {living: "pinned"}
    assert host.reserved() == {0: 10, 1: 5}
    assert list(host.saved().containers) == [living]
    disk_is_memory(host)


@pytest.mark.parametrize("where", ["alone", "in-a-living-pod"])
def test_b121_one_ends_and_nothing_else_happens(tmp_path: Path, where: str) -> None:
    """B121: the end of a container frees its memory at its event, in a living pod after the grace, on disk too."""
    host = Host(tmp_path)
    path = in_pod(host, cri(1), 2, "app") if where == "in-a-living-pod" else host.guaranteed(docker(1), 2)
    host.start()
    host.agent.on_removed([host.remove(path)])
    if where == "in-a-living-pod":
        host.clock.advance(ns=host.config.release_grace_ns)
        host.agent.due(host.clock.monotonic_ns())
    host.agent.flush()

    assert host.reserved() == {}
    assert host.saved().containers == {}
    assert host.agent.next_due_ns() is None
    disk_is_memory(host)


def test_b121_ten_thousand_generations(tmp_path: Path) -> None:
    """
    B121: 10,000 containers come and go, a hundred at a time; no map has grown, and the file is as small as at first.

    A directory moves from one name to the next, which is cheaper than making its files.
    """
    host = Host(tmp_path, nodes=even(2, memory=200 * GIB))
    assert host.config.release_grace_ns < 60_000_000_000
    paths = [host.guaranteed(cri(n) if n % 2 else docker(n), 1) for n in range(100)]
    host.start()
    agent = host.agent
    for first in range(100, 10_100, 100):
        assert host.reserved() == {0: 100}
        before = [host.tree.cpuset / path[1:] for path in paths]
        gone, paths = paths, [cri(n) if n % 2 else docker(n) for n in range(first, first + 100)]
        for directory, path in zip(before, paths, strict=True):
            (directory / "cpuset.mems").write_text("\n")
            directory.rename(directory.parent / path.rpartition("/")[2] if first < 10_000 else tmp_path / path[-70:])
        agent.on_removed(gone)
        host.clock.advance(seconds=60)
        agent.due(host.clock.monotonic_ns())
        agent.flush()
        assert host.reserved() == {}
        agent.on_created(paths)
        agent.flush()

    assert agent.counters.pins == 10_000
    assert (agent.views, agent.ledger.pins, agent.ledger.refusals) == ({}, {}, {})
    assert agent.ledger.books.assignments == {}
    assert agent.next_due_ns() is None
    assert host.watched.mems == set()
    assert host.file.path.stat().st_size < 4096
    disk_is_memory(host)


# ---- refusals and reuse -----------------------------------------------------------------------------------------


def test_b092_a_preference_for_both_nodes_is_no_reason(tmp_path: Path) -> None:
    """
    B092: under best-effort, with CPUs on {0,1} that prefer both nodes, the second of 85 GiB is refused with the
    numbers of each node; five hundred more looks cost neither a save nor a line, and write nothing.
    """
    nodes = [Node(0, "0-1", 93 * GIB), Node(1, "2-3", int(94.4 * GIB))]
    config = replace(
        BARE, policy=TopologyPolicy.BEST_EFFORT, reserved=Reserved(0, 0, {NodeId(0): {MEMORY: 10 * GIB}})
    )
    host = Host(tmp_path, nodes=nodes, config=config)
    first = host.guaranteed(docker(1), 85, effective="1")
    host.start()
    second = host.guaranteed(docker(2), 85, cpus="0-3")
    third = host.guaranteed(docker(3), 85, cpus="0,2")
    host.agent.on_created([second, third])

    assert host.states() == {first: "pinned", second: "refused", third: "refused"}
    assert host.agent.machine.hints(host.view(third).record)[0].hints
    for path in (second, third):
        assert "node 0 has 83 GiB free, node 1 9.39 GiB" in host.view(path).message
        assert "nodes 0-1 together would do but node 1 holds single-node containers" in host.view(path).message
    host.agent.flush()
    before = (replace(host.agent.counters), len(host.log.lines))
    for _ in range(250):
        host.agent.full_pass()
        host.agent.on_created([second, third])
        host.agent.flush()

    assert before == (host.agent.counters, len(host.log.lines))
    assert [host.mems(path) for path in (first, second, third)] == ["1", "", ""]
    assert host.reserved() == {1: 85}


def test_b098_the_memory_of_an_ended_init_container_is_its_pods(tmp_path: Path) -> None:
    """
    B098: pod A's init container of 4 GiB, pod B's of 3 while it runs, then A's app of 4: A uses its own 4 again,
    7 GiB are promised, and never 3 or 11.
    """
    host = Host(tmp_path, nodes=even(1, memory=12 * GIB))
    init = in_pod(host, cri(1), 4, "init")
    host.start()
    seen = [host.reserved()]
    other = in_pod(host, f"{OTHER_SLICE}/cri-containerd-{cid(2)}.scope", 3, "b")
    host.agent.on_created([other])
    seen.append(host.reserved())
    host.agent.on_removed([host.remove(init)])
    seen.append(host.reserved())
    app = in_pod(host, cri(3), 4, "app")
    host.agent.on_created([app])
    seen.append(host.reserved())
    host.clock.advance(ns=host.config.release_grace_ns)
    host.agent.due(host.clock.monotonic_ns())
    host.agent.flush()
    seen.append(host.reserved())

    assert seen == [{0: 4}, {0: 7}, {0: 7}, {0: 7}, {0: 7}]
    assert host.states() == {other: "pinned", app: "pinned"}
    assert {o.container for o in host.agent.ledger.books.assignments} == {"app", "b"}
    assert app.startswith(POD_SLICE)
    disk_is_memory(host)


# ---- which nodes there are --------------------------------------------------------------------------------------


def test_b016_what_the_agent_may_use_itself_is_no_inventory(tmp_path: Path) -> None:
    """
    B016: the agent's own unit allows node 0 and CPUs 0-3, and other lists name ids up to 127: the two nodes online
    are there and used. What a container's ancestors allow counts as far as it exists.
    """
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    own = {"Cpus_allowed_list": "0-3", "Mems_allowed_list": "0"}
    write_tree(
        tmp_path,
        {
            "proc/self/status": "".join(f"{k}:\t{v}\n" for k, v in own.items()),
            "proc/self/cgroup": "0::/system.slice/numapin.service\n",
            "sys/devices/system/node/possible": "0-127\n",
            "sys/devices/system/cpu/possible": "0-127\n",
        },
    )
    host.tree.add("/system.slice/numapin.service", mems="0", effective="0")
    host.tree.add("/wide.slice", mems="0-127", effective="0-127")
    host.tree.add("/beyond.slice", mems="64-127", effective="64-127")
    full = host.guaranteed(docker(1), 9)
    wide = host.guaranteed(f"/wide.slice/docker-{cid(2)}.scope", 8, effective="1")
    beyond = host.guaranteed(f"/beyond.slice/docker-{cid(3)}.scope", 1, effective="64-127")

    host.start()

    topology = host.agent.machine.topology
    assert (topology.online, list(topology.nodes)) == (NodeSet.of(0, 1), [0, 1])
    assert [n.cpus for n in topology.nodes.values()] == [CpuSet.parse("0-1"), CpuSet.parse("2-3")]
    assert host.states() == {full: "pinned", wide: "pinned", beyond: "refused"}
    assert [host.mems(path) for path in (full, wide, beyond)] == ["0", "1", ""]
    assert host.reserved() == {0: 9, 1: 8}


@pytest.mark.parametrize(("named", "untouched"), [("", "2-9"), ("2", "3-9")])
def test_b008_the_status_says_which_gpu_memory_is_not_used(tmp_path: Path, named: str, untouched: str) -> None:
    """
    B008: two nodes of 240 GiB, eight of GPU memory beside them: 300 GiB get {0,1}, and the status names the nodes
    that are there and not used, each with its kind; one that the administrator names is used and no more said so.
    """
    nodes = [Node(n, f"{n}", 240 * GIB) for n in range(2)] + [Node(n, "", 96 * GIB) for n in range(2, 10)]
    host = Host(tmp_path, nodes=nodes, config=replace(Config(), cpu_less_nodes=NodeSet.parse(named)))
    path = host.guaranteed(docker(1), 300, effective="0-1")

    host.start()

    found = status(host)
    assert host.mems(path) == "0-1"
    assert found["findings"] == [
        {
            "code": "cpu-less-nodes",
            "message": f"nodes {untouched} have memory but no CPUs and are not used; "
            "name them in nodes.cpu_less to use them",
        }
    ]
    listed = {n["id"]: n for n in found["nodes"]}
    assert list(listed) == list(range(10))
    assert NodeSet.parse(untouched) == NodeSet.from_ids(i for i, n in listed.items() if not n["used"])
    assert {listed[n]["kind"] for n in range(2, 10)} == {"cpu-less"}

"""Nodes whose memory goes and comes back, as the whole agent bears it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.machine import Machine
from numapin.daemon.status import About, status_document
from numapin.model.checkpoint import Phase, record_problems
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Scope
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, POD_SLICE, Host, cid, cri, docker
from support.machines import Node, even, write_machine

LESS = [even(2, memory=10 * GIB)[0], replace(even(2)[1], memory=0)]
WHOLE = even(2, memory=10 * GIB)


def changed(host: Host, nodes: list[Node]) -> None:
    """The machine has other nodes from now on, and the agent was told."""
    write_machine(host.root, nodes)
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))


def lost(tmp_path: Path, *, filler: float = 9) -> tuple[Host, str]:
    """A container on node 1, whose memory has just gone, and another on node 0."""
    host = Host(tmp_path, nodes=WHOLE)
    host.guaranteed(docker(1), filler)
    host.start()
    path = host.guaranteed(docker(2), 2, effective="1")
    host.agent.on_created([path])
    changed(host, LESS)
    assert host.states()[path] == "pin-lost"
    return host, path


def started_again(host: Host, path: str, *, effective: str) -> None:
    """The container's cgroup is another one."""
    host.remove(path)
    host.guaranteed(path, 2, effective=effective)
    host.agent.on_created([path])


def of_pod(host: Host, number: int, name: str, gib: float) -> str:
    """A container of the pod, which gets whatever nodes are asked for it."""
    path = host.obedient(host.guaranteed(cri(number), gib))
    host.tree.task("k8s.io", cid(number), oci(memory=int(gib * GIB), quota=50_000, annotations=cri_annotations(name)))
    return path


def parents_have(host: Host, nodes: str) -> None:
    """What the kernel grants the pod's cgroups from now on."""
    for path in ("/kubepods.slice", POD_SLICE):
        host.grant(path, nodes)


def findings(host: Host) -> list[dict[str, str]]:
    """Findings of the status."""
    about = About(1, 0, 0, "v2", "", None)
    found = status_document(host.agent, about, now_ns=host.clock.monotonic_ns(), wall_ns=host.clock.wall_ns())
    rows = found["findings"]
    assert isinstance(rows, list)
    return rows


def test_granted_later(tmp_path: Path) -> None:
    """A kernel that grants the node a moment after its memory is back: still lost, and pinned with the next pass."""
    host, path = lost(tmp_path, filler=9)
    host.grant(path, "0")

    changed(host, WHOLE)
    first, told = host.states()[path], host.view(path).message
    saved = host.agent.ledger.pins[path].phase
    host.grant(path, "1")
    host.agent.full_pass()

    assert ("pin-lost", Phase.DEFERRED) == (first, saved)
    assert "the kernel does not grant node 1 again yet" in told
    assert host.states()[path] == "pinned"
    assert host.reserved() == {0: 9, 1: 2}
    host.sound()


def test_started_again_elsewhere(tmp_path: Path) -> None:
    """A container that is started again while its node is gone gets another one, if any has room."""
    host, path = lost(tmp_path, filler=9)
    host.agent.on_removed([host.remove(docker(1))])

    started_again(host, path, effective="0")

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    assert host.reserved() == {0: 2}
    host.sound()


def test_started_again_without_room(tmp_path: Path) -> None:
    """Where no other node has room it keeps what it had and waits; the node's return pins the new cgroup."""
    host, path = lost(tmp_path, filler=9)

    started_again(host, path, effective="1")
    waits = host.states()[path]
    changed(host, WHOLE)

    assert waits == "pin-lost"
    assert host.states()[path] == "pinned"
    assert host.mems(path) == "1"
    assert host.reserved() == {0: 9, 1: 2}
    host.sound()


def test_released_while_lost(tmp_path: Path) -> None:
    """``numapin release`` gives the reservation up, and the node's return brings no pin."""
    host, path = lost(tmp_path)

    host.agent.release([path])
    changed(host, WHOLE)

    assert host.states()[path] == "released"
    assert host.reserved() == {0: 9}
    assert path not in host.agent.ledger.pins
    host.sound()


def test_its_owner_appears_twice(tmp_path: Path) -> None:
    """While a container waits for its node, a second one of the same name leaves it its promise and waits with it."""
    host = Host(tmp_path)
    first = of_pod(host, 1, "app", 15)
    host.start()
    changed(host, [host.nodes[0], replace(host.nodes[1], memory=0), *host.nodes[2:]])
    parents_have(host, "0,2-3")

    second = of_pod(host, 2, "app", 15)
    host.agent.on_created([second])
    waiting = host.states()
    parents_have(host, "0-3")
    changed(host, host.nodes)

    assert waiting == {first: "pin-lost", second: "pin-lost"}
    assert [str(p.nodes) for p in host.agent.ledger.pins.values()] == ["0-1", "0-1"]
    assert (host.mems(first), host.mems(second)) == ("0-1", "0-1")
    assert record_problems(host.saved()) == ()
    host.sound()


@pytest.mark.parametrize("other_runs", [True, False])
def test_started_again_under_pod_scope(tmp_path: Path, *, other_runs: bool) -> None:
    """With a node of the pod lost, a container that runs keeps the others with it; ended ones keep nobody."""
    host = Host(tmp_path, config=replace(BARE, scope=Scope.POD))
    paths = [of_pod(host, 1, "a", 7), of_pod(host, 2, "b", 8)]
    host.put(POD_SLICE, {"memory.max": str(15 * GIB), "cpu.max": "100000 100000\n"})
    host.start()
    assert host.reserved() == {0: 10, 1: 5}
    changed(host, [host.nodes[0], replace(host.nodes[1], memory=0), *host.nodes[2:]])
    parents_have(host, "0,2-3")

    host.agent.on_removed([host.remove(p) for p in (paths[:1] if other_runs else paths)])
    again = of_pod(host, 3, "a", 7)
    host.agent.on_created([again])

    assert host.states()[again] == ("pin-lost" if other_runs else "pinned")
    assert host.view(again).nodes == NodeSet.parse("0-1" if other_runs else "0,2")
    host.sound()


def test_nothing_new_is_said_or_saved(tmp_path: Path) -> None:
    """However often the machine and the containers are looked at, a lost pin costs one line and one save."""
    host, _ = lost(tmp_path)
    host.agent.flush()
    before = (host.agent.counters.saves, len(host.log.lines))

    for _ in range(5):
        changed(host, LESS)
        host.agent.full_pass()
        host.agent.flush()

    assert before == (host.agent.counters.saves, len(host.log.lines))


def test_a_named_node_that_went_is_no_mistake(tmp_path: Path) -> None:
    """``nodes.cpu_less`` naming a node that was there is right; one that never was is a finding."""
    third = Node(2, "", 10 * GIB)
    host = Host(tmp_path, nodes=[*WHOLE, third], config=replace(BARE, cpu_less_nodes=NodeSet.of(2, 7)))
    host.start()

    changed(host, WHOLE)

    codes = {f["message"] for f in findings(host) if f["code"] == "cpu-less-nodes"}
    assert codes == {
        "nodes.cpu_less names node 7, and the nodes online are 0-1; it takes numbers of nodes, not of CPUs"
    }

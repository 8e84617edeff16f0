"""Containers that grew beyond what their nodes can give, while their pin is held back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from numapin.daemon.machine import Machine
from numapin.planner.accounting import misfits
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.machines import MIB, Node, even, write_machine

PATH = docker(1)
PASS_NS = 120_000_000_000


def changed(host: Host, nodes: list[Node]) -> None:
    """The machine has other nodes from now on, and the agent was told."""
    write_machine(host.root, nodes)
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))
    host.agent.flush()


def grows(host: Host, gib: int) -> None:
    """The container's limit is raised."""
    host.put(PATH, {"memory.max": f"{gib * GIB}\n"})
    host.agent.on_created([PATH])
    host.agent.flush()


def passes(host: Host) -> tuple[int, int]:
    """Lines and saves of three slow passes."""
    lines, saves = len(host.log.lines), host.agent.ledger.saves
    for _ in range(3):
        host.clock.advance(ns=PASS_NS)
        host.agent.full_pass()
        host.agent.flush()
    return len(host.log.lines) - lines, host.agent.ledger.saves - saves


def test_while_a_node_is_lost(tmp_path: Path) -> None:
    """It stays pin-lost, with both sentences and not a word more with each pass; the node's return pins it."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 15, effective="0-1")
    host.start()
    host.put(PATH, {"cpuset.mems.effective": "0\n"})
    changed(host, [host.nodes[0], replace(host.nodes[1], memory=0), *host.nodes[2:]])
    grows(host, 25)
    lost, told = host.states(), host.view(PATH).message
    cost = passes(host)
    after = host.states(), host.view(PATH).message
    host.put(PATH, {"cpuset.mems.effective": "0-1\n"})
    changed(host, host.nodes)

    assert lost == {PATH: "pin-lost"}
    assert "node 1 has no memory now" in told
    assert "the new size is refused" in told
    assert cost == (0, 0)
    assert after == (lost, told)
    assert host.states() == {PATH: "pinned"}
    assert host.view(PATH).message.startswith("keeps nodes 0-1 with the old size; the new size is refused")
    assert sum(host.reserved().values()) == 15
    assert passes(host) == (0, 0)
    host.sound()


def test_lost_after_it_grew(tmp_path: Path) -> None:
    """A node that goes afterwards is named beside the size that was refused before."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 15, effective="0-1")
    host.start()
    grows(host, 25)
    changed(host, [host.nodes[0], replace(host.nodes[1], memory=0), *host.nodes[2:]])

    assert host.states() == {PATH: "pin-lost"}
    assert "node 1 has no memory now" in host.view(PATH).message
    assert "the new size is refused" in host.view(PATH).message
    assert passes(host) == (0, 0)


def test_not_granted_yet(tmp_path: Path) -> None:
    """A node that is back and not granted yet leaves it pin-lost, pass for pass."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 15, effective="0-1")
    host.start()
    host.put(PATH, {"cpuset.mems.effective": "0\n"})
    changed(host, [host.nodes[0], replace(host.nodes[1], memory=0), *host.nodes[2:]])
    grows(host, 25)
    changed(host, host.nodes)
    states = host.states()

    assert states == {PATH: "pin-lost"}
    assert "does not grant node 1 again yet" in host.view(PATH).message
    assert passes(host) == (0, 0)
    assert host.states() == states


def test_while_there_is_no_room(tmp_path: Path) -> None:
    """A pin that waits for room says why beside the size that was refused, and is written once there is room."""
    nodes = [Node(0, "0-1", 10 * GIB, free=255 * MIB), Node(1, "2-3", GIB, free=GIB)]
    host = Host(tmp_path, nodes=nodes)
    host.guaranteed(PATH, 2)
    host.holds(PATH, {0: 0, 1: 600 * MIB})
    host.start()
    grows(host, 25)
    states, told = host.states(), host.view(PATH).message
    cost = passes(host)
    write_machine(tmp_path, [replace(nodes[0], free=9 * GIB), nodes[1]])
    host.agent.full_pass()
    host.wait_for_writes()

    assert states == {PATH: "deferred"}
    assert "the pin waits until there is room" in told
    assert "the new size is refused" in told
    assert cost == (0, 0)
    assert host.states() == {PATH: "pinned"}
    assert host.view(PATH).message.startswith("keeps node 0 with the old size; the new size is refused")
    host.sound()


def test_less_is_booked_whatever_is_free(tmp_path: Path) -> None:
    """Containers on a node that shrank heal it by asking for less: a smaller size is never refused."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    for path in (PATH, docker(2)):
        host.guaranteed(path, 5)
    host.start()
    changed(host, [replace(host.nodes[0], memory=6 * GIB), host.nodes[1]])
    seen = []
    for path in (PATH, docker(2)):
        host.put(path, {"memory.max": f"{3 * GIB}\n"})
        host.agent.on_created([path])
        seen.append((host.reserved(), host.view(path).message))

    assert seen == [({0: 8}, ""), ({0: 6}, "")]
    assert not misfits(host.agent.ledger.books)
    host.sound()


def test_less_is_booked_while_a_node_is_lost(tmp_path: Path) -> None:
    """A smaller size of a container whose node is gone is what stays reserved for it."""
    host = Host(tmp_path)
    host.guaranteed(PATH, 9)
    host.start()
    host.put(PATH, {"cpuset.mems.effective": "1\n"})
    changed(host, [replace(host.nodes[0], memory=0), *host.nodes[1:]])
    host.put(PATH, {"memory.max": f"{7 * GIB}\n"})
    host.agent.on_created([PATH])

    assert host.states() == {PATH: "pin-lost"}
    assert host.reserved() == {0: 7}
    assert "refused" not in host.view(PATH).message
    host.sound()


def test_grown_beyond_its_nodes_and_the_parent_takes_them(tmp_path: Path) -> None:
    """What the kernel no longer grants is not called pinned, whatever else was refused before."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    host.guaranteed(PATH, 4)
    host.start()
    grows(host, 15)
    kept = host.states()
    host.put(PATH, {"cpuset.mems.effective": "1\n"})
    host.put("/system.slice", {"cpuset.mems": "1\n", "cpuset.mems.effective": "1\n"})
    host.agent.full_pass()

    assert kept == {PATH: "pinned"}
    assert host.states()[PATH] in ("failed", "refused", "deferred")
    host.sound()

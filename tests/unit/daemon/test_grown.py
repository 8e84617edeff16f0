"""Containers that grew beyond what their nodes can give, while their pin is held back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from numapin.daemon.machine import Machine
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.machines import MIB, Node, write_machine

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

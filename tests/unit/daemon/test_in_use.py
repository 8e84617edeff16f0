"""Memory that is promised on a node and that somebody else uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.answers import Answers
from numapin.daemon.api_peer import Peer
from numapin.daemon.nested import Nested
from numapin.daemon.status import About
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.machines import Node, even, write_machine

MIB = 1 << 20


def ask(host: Host, verb: str, **params: object) -> Any:
    """What the API answers."""
    me = About(1, host.clock.wall_ns(), host.clock.monotonic_ns(), "v2", host.boot, None)
    return Answers(host.agent, me, Nested(host.tree.discovery(), host.clock), host.clock)(verb, params, Peer(0, 0, 0))


def in_use(host: Host) -> list[str]:
    """The sentences of the findings."""
    return [f["message"] for f in ask(host, "status")["findings"] if f["code"] == "memory-in-use"]


def free(host: Host, sizes: dict[int, int]) -> None:
    """The kernel has these bytes free now, all else is used; a full pass sees it."""
    write_machine(host.root, [replace(n, free=sizes.get(n.id, n.free)) for n in host.nodes])
    host.agent.full_pass()


def test_others_use_what_is_promised(tmp_path: Path) -> None:
    """Status, node table and explanation say so while it lasts; the books stay as they are."""
    host = Host(tmp_path, nodes=even(2, memory=GIB))
    path = host.guaranteed(docker(1), 0.75)
    elsewhere = host.guaranteed(docker(2), 0.75, effective="1")
    host.start()
    host.holds(path, {0: 168 * MIB})
    free(host, {0: 41 * MIB})

    sentence = "node 0 has 41 MiB left, but 600 MiB are promised there and not used yet: others use its memory"
    assert in_use(host) == [sentence]
    assert [n["available_bytes"] for n in ask(host, "status")["nodes"]] == [41 * MIB, GIB]
    assert [n["memory_map"]["memory"]["free"] for n in ask(host, "status")["nodes"]] == [256 * MIB] * 2
    told = ask(host, "explain", container=path)
    assert sentence in told["sentences"][0]
    assert "guaranteed" not in told["sentences"][0]
    assert "the kernel may kill it although other nodes have room" in told["sentences"][0]
    assert "can be limited" in told["remedies"][0]
    assert "its memory is guaranteed there" in ask(host, "explain", container=elsewhere)["sentences"][0]
    free(host, {0: 590 * MIB})
    assert in_use(host) == []


def test_who_uses_its_own_memory_is_owed_nothing(tmp_path: Path) -> None:
    """A node that is full of what its containers were promised has nothing left, and that is as it shall be."""
    host = Host(tmp_path, nodes=even(1, memory=GIB))
    paths = [host.guaranteed(docker(n), 0.25) for n in range(3)]
    host.start()
    for path in paths:
        host.holds(path, {0: 250 * MIB})
    free(host, {0: 10 * MIB})

    assert in_use(host) == []


def test_a_group_counts_as_one(tmp_path: Path) -> None:
    """What one node of a group lacks the other may have; what both lack is told once."""
    host = Host(tmp_path, nodes=even(2, memory=GIB))
    path = host.guaranteed(docker(1), 1.5, effective="0-1")
    host.start()
    host.holds(path, {0: 256 * MIB, 1: 256 * MIB})
    free(host, {0: 10 * MIB, 1: GIB})
    assert in_use(host) == []
    free(host, {0: 10 * MIB, 1: 30 * MIB})

    assert in_use(host) == [
        "nodes 0-1 have 40 MiB left, but 1 GiB are promised there and not used yet: others use their memory"
    ]


@pytest.mark.parametrize("odd", ["container", "node"])
def test_what_cannot_be_read_tells_nothing(tmp_path: Path, odd: str) -> None:
    """Without the use of one container, or without the node's numbers, nothing is claimed and nothing stops."""
    host = Host(tmp_path, nodes=[Node(0, "0", GIB), Node(1, "1", GIB)])
    path = host.guaranteed(docker(1), 0.75)
    host.start()
    if odd == "container":
        host.put(path, {"memory.current": "0\n"})
        free(host, {0: 0})
    else:
        host.holds(path, {0: 0})
        (tmp_path / "sys/devices/system/node/node0/meminfo").unlink()
        host.agent.full_pass()

    assert in_use(host) == []
    available = [n["available_bytes"] for n in ask(host, "status")["nodes"]]
    assert available == ([0, GIB] if odd == "container" else [None, GIB])


def test_somebody_elses_choice_is_no_promise(tmp_path: Path) -> None:
    """A container pinned by others, and one that is held back, are owed nothing here."""
    host = Host(tmp_path, nodes=even(2, memory=GIB))
    host.guaranteed(docker(1), 0.75, mems="0")
    host.start()
    free(host, {0: 0})

    assert in_use(host) == []

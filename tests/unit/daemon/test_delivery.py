"""From a promise to a cgroup and back: outcomes that come late, values that are put back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.pinning import Outcome
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Phase
from numapin.model.errors import CgroupGone
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Verification
from support.daemon import BARE, Host, docker
from support.machines import even

MIB = 1 << 20


def threaded(host: Host, path: str) -> None:
    """Give the container enough memory that its writes go to a thread."""
    host.holds(path, {0: 20 * MIB})


def test_the_end_of_a_container_whose_write_runs(tmp_path: Path) -> None:
    """The outcome of a write that ended after its container did changes nothing."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    threaded(host, path)
    host.start()
    assert host.states() == {path: "pinning"}

    host.agent.on_removed([host.remove(path)])
    host.wait_for_writes()

    assert host.states() == {}
    assert host.reserved() == {}
    host.sound()


def test_an_outcome_of_an_earlier_cgroup(tmp_path: Path) -> None:
    """An outcome with another inode is not taken for the present container's."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    stale = Outcome(path, 1, NodeSet.of(0), None, CgroupGone(path), wrote=True, took_ns=0)

    host.agent.on_outcomes([stale])

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 2}


def test_an_outcome_of_other_nodes(tmp_path: Path) -> None:
    """A restored value that comes back as granted makes no pin of a container without a promise."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpu.max": "max 100000\n"})
    host.agent.full_pass()
    inode = host.view(path).record.inode
    for nodes in (NodeSet.of(0, 1, 2, 3), NodeSet()):
        seen = Verification(nodes, nodes, nodes)
        host.agent.on_outcomes([Outcome(path, inode, nodes, seen, None, wrote=True, took_ns=0)])

    assert host.states() == {path: "not-managed"}
    assert host.agent.counters.pins == 1


@pytest.mark.parametrize(("theirs", "said"), [((1,), "node 1 was"), ((1, 2), "nodes 1-2 were")])
def test_a_value_that_another_writer_put_over_ours(tmp_path: Path, theirs: tuple[int, ...], said: str) -> None:
    """What is read back is neither ours nor a refusal: the promise stays, and the nodes are named, one or several."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    nodes, found = NodeSet.of(0), NodeSet.of(*theirs)
    seen = Verification(nodes, found, found)
    inode = host.view(path).record.inode
    host.agent.on_outcomes([Outcome(path, inode, nodes, seen, None, wrote=True, took_ns=0)])

    assert host.states() == {path: "contested"}
    assert host.view(path).message == f"{said} written over ours at once"
    assert host.reserved() == {0: 2}


@pytest.mark.parametrize(("original", "expected"), [("", "0-3"), ("0-3", "0-3")])
def test_the_value_before_is_put_back(tmp_path: Path, original: str, expected: str) -> None:
    """What stood before our first write comes back; an inherited one as the parent's set."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    pin = host.agent.ledger.pins[path]
    host.agent.ledger.pins[path] = replace(pin, original_mems=NodeSet.parse(original))
    host.put(path, {"cpu.max": "max 100000\n"})

    host.agent.full_pass()

    assert host.mems(path) == expected
    assert host.watched.mems == set()


def test_a_value_of_others_is_not_put_back(tmp_path: Path) -> None:
    """A container that ends being ours after somebody else chose other nodes keeps theirs."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    view = host.view(path)
    host.put(path, {"cpu.max": "max 100000\n", "cpuset.mems": "3\n"})
    host.agent.on_created([path])

    assert view is not host.view(path)
    assert host.states() == {path: "not-managed"}
    assert host.mems(path) == "3"


def test_a_held_back_pin_is_not_written_by_a_release(tmp_path: Path) -> None:
    """While there is no room a retry changes neither cgroup nor promise, and says the new numbers."""
    nodes = [replace(n, free=64 * MIB) for n in even(2)]
    host = Host(tmp_path, nodes=nodes)
    path = host.guaranteed(docker(1), 0.5)
    host.holds(path, {0: 0, 1: 300 * MIB})
    other = host.guaranteed(docker(2), 0.75, mems="1")
    host.start()
    assert host.states() == {path: "deferred", other: "pinned-by-others"}

    host.agent.on_removed([host.remove(other)])

    assert host.states() == {path: "deferred"}
    assert host.mems(path) == ""
    assert host.agent.ledger.pins[path].phase is Phase.DEFERRED


def test_memory_migrate_on_v1(tmp_path: Path) -> None:
    """With the setting pages are asked to move, and the status has no word about pages left behind."""
    host = Host(tmp_path, version=CgroupVersion.V1, config=replace(BARE, v1_memory_migrate=True))
    path = host.guaranteed(docker(1), 2)
    host.put(path, {"cpuset.mems": "\n"})

    host.start()

    assert (host.tree.cpuset / path.lstrip("/") / "cpuset.memory_migrate").read_text().strip() == "1"
    assert host.view(path).message == ""


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    """Each managed container has one open directory, closed with it, with its successor, and at the end."""
    host = Host(tmp_path)
    paths = [host.guaranteed(docker(k), 0.125) for k in range(10)]
    host.start()
    handles = [host.view(p).cgroup for p in paths]
    assert None not in handles

    host.agent.on_removed([host.remove(p) for p in paths[:5]])
    host.agent.full_pass()
    host.stop()

    assert {h._fd for h in handles if h is not None} == {-1}

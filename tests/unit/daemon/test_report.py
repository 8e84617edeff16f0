"""One line per handled container, with the whole outcome, and not twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cgroup_trees import GIB
from support.daemon import Host, cid, docker
from support.machines import Node, even, write_machine


def test_the_line_of_a_pinned_container(tmp_path: Path) -> None:
    """Who it is, why it is Guaranteed, how much, where, what the kernel grants, how long the write took."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)

    host.start()

    expected = {
        "container_id": cid(1),
        "name": cid(1),
        "cgroup": path,
        "qos": "Guaranteed",
        "rule": "limits",
        "size_bytes": 2 * GIB,
        "mems": "0",
        "effective_mems": "0",
        "took_us": 0,
    }
    assert ("info", "container_pinned", expected) in host.log.lines


@pytest.mark.parametrize(
    ("gib", "effective", "event", "reason"),
    [(12, "0", "container_refused", "12 GiB"), (2, "0-3", "container_failed", "the kernel grants")],
)
def test_problems_are_warnings_with_their_reason(
    tmp_path: Path, gib: int, effective: str, event: str, reason: str
) -> None:
    """Refused and failed containers stand out in the log."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    host.guaranteed(docker(1), gib, effective=effective)

    host.start()

    assert [level for level, name, _ in host.log.lines if name == event] == ["warning"]
    assert reason in host.log.facts(event)["reason"]


def test_a_state_that_stays_is_said_once(tmp_path: Path) -> None:
    """Passes over the same containers in the same states are silent; a change speaks again."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    first = host.guaranteed(docker(1), 8)
    host.guaranteed(docker(2), 8)
    host.container(docker(3))
    host.start()
    lines = len(host.log.lines)

    host.agent.full_pass()
    host.agent.full_pass()
    assert lines == len(host.log.lines)
    host.agent.on_removed([host.remove(first)])

    assert host.log.events()[lines:] == ["container_ended", "container_pinned"]
    assert host.agent.counters.refusals == 1


def test_figures_alone_are_not_said_again(tmp_path: Path) -> None:
    """
    A refusal whose figures change with other containers, at a reload or within one start is one line, and the status
    has the figures of now; another size or another code is a line again.
    """
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(9), 9)
    host.guaranteed(docker(1), 4)
    host.start()
    first = host.view(path).message
    for number in (2, 3):
        host.agent.on_created([host.guaranteed(docker(number), number)])
        host.agent.on_machine(host.agent.machine)

    def said() -> list[tuple[int, str]]:
        events = [facts for _, event, facts in host.log.lines if event == "container_refused"]
        return [(facts["size_bytes"] // GIB, facts["code"]) for facts in events]

    assert (host.states()[path], host.view(path).message == first) == ("refused", False)
    assert said() == [(9, "no-room")]
    assert host.agent.counters.refusals == 1
    host.put(path, {"memory.max": f"{8 * GIB}\n"})
    host.agent.full_pass()
    host.put(path, {"memory.max": f"{11 * GIB}\n"})
    host.agent.full_pass()
    host.agent.full_pass()
    assert said() == [(9, "no-room"), (8, "no-room"), (11, "does-not-fit")]


def test_a_pin_that_waits_is_said_once(tmp_path: Path) -> None:
    """How much room its target has changes all the time; only the status follows."""
    host = Host(tmp_path, nodes=[Node(0, "0", 10 * GIB, free=GIB), Node(1, "1", 10 * GIB, free=GIB)])
    path = host.guaranteed(docker(1), 6)
    host.holds(path, {0: 3 * GIB, 1: 3 * GIB})
    host.start()
    for free in (2, 1):
        write_machine(tmp_path, [Node(n, str(n), 10 * GIB, free=free * GIB + GIB // 2) for n in (0, 1)])
        host.agent.full_pass()

    assert "1.5 GiB" in host.view(path).message
    assert host.log.events().count("container_deferred") == 1


def test_a_young_container_is_not_talked_about_yet(tmp_path: Path) -> None:
    """One that may get its limits in a moment has no line until it is settled."""
    host = Host(tmp_path)
    host.start()
    host.tree.add(docker(1))

    host.agent.on_created([docker(1)])

    assert host.log.lines == []

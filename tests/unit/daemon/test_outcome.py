"""The sentence about what became of a container says no more than what is so, and what would change it applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.explain import offline_explanation
from numapin.daemon.outcome import Outcome, unsaid
from support.cgroup_trees import write_files
from support.daemon import BARE, Host, cri, docker
from support.explained import explained
from support.fakes import FakeClock
from support.machines import GIB, Node, even, write_machine

STATIC = (
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":10737418240,'
    '"systemReserved":0,"allocatable":10737418240,"reserved":0,"free":10737418240}},"cells":[0]}},"checksum":0}'
)


def told(host: Host, path: str) -> tuple[str, str, list[str]]:
    """The first sentence, all of them, and the remedies."""
    document: Mapping[str, Any] = explained(host, path)
    return document["sentences"][0], " ".join(document["sentences"]), list(document["remedies"])


def arrived(host: Host, path: str) -> str:
    """The container is there and written."""
    host.agent.on_created([path])
    host.wait_for_writes()
    return path


@pytest.mark.parametrize(
    ("retry", "end"),
    [
        (True, "It runs on, unrestricted, and is tried again when memory is released."),
        (
            False,
            "It runs on, unrestricted, and is not tried again until it changes or the daemon is started "
            "(retry_refused = false).",
        ),
    ],
)
def test_a_refusal_is_tried_again_only_where_it_is(tmp_path: Path, retry: bool, end: str) -> None:
    """The sentence follows the configuration; from a checkpoint nothing is said about it."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), config=replace(BARE, retry_refused=retry))
    host.start()
    for number, node in ((1, "0"), (2, "1")):
        arrived(host, host.guaranteed(docker(number), 6, effective=node))
    path = arrived(host, host.guaranteed(docker(3), 6))
    said, _, _ = told(host, path)
    host.stop()
    offline = offline_explanation(host.file.path, "no daemon", FakeClock(), path)["sentences"]

    assert said.endswith(end)
    assert isinstance(offline, list)
    assert offline[0].endswith("more free there. It runs on, unrestricted.")


@pytest.mark.parametrize("retry", [True, False])
def test_what_never_fits_is_not_said_to_be_tried_again(tmp_path: Path, retry: bool) -> None:
    """More than the empty machine has is refused for good, with a daemon and from its checkpoint."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), config=replace(BARE, retry_refused=retry))
    host.start()
    path = arrived(host, host.guaranteed(docker(1), 30))
    said, _, _ = told(host, path)
    host.stop()
    offline = offline_explanation(host.file.path, "no daemon", FakeClock(), path)["sentences"]

    assert said.endswith(
        "even when empty. It runs on, unrestricted, and does not fit here whatever memory is released."
    )
    assert isinstance(offline, list)
    assert said == offline[0]


def test_memory_that_stayed_behind_is_not_called_kept(tmp_path: Path) -> None:
    """What was there before the pin is named beside the promise, and nothing is said that it contradicts."""
    host = Host(tmp_path)
    host.start()
    path = arrived(host, host.guaranteed(docker(1), 2, effective="0"))
    host.holds(path, {0: 50 << 20, 1: 115 << 20})
    host.look_for_leftovers()
    said, _, _ = told(host, path)
    host.stop()

    assert said == (
        "Pinned to node 0: its memory is guaranteed there, but not all of it is there yet: 115 MiB on node 1 from "
        "before the pin, which the kernel did not move; new memory comes from node 0, and a restart of the container "
        "brings all of it there."
    )


def test_a_reservation_is_what_is_to_change(tmp_path: Path) -> None:
    """Where memory and CPU are limited, the advice is about the reservation and not about limits."""
    host = Host(tmp_path)
    host.start()
    path = host.guaranteed(docker(1), 2, effective="0")
    host.put(path, {"memory.low": f"{GIB}\n"})
    _, everything, remedies = told(host, arrived(host, path))
    host.stop()

    assert "its memory reservation (1 GiB) differs from its limit (2 GiB)" in everything
    assert remedies == [
        "to be placed it must be Guaranteed: make its memory reservation equal to its limit, or start it without one "
        "(docker run without --memory-reservation), with its CPU limited"
    ]


def test_a_promise_that_the_machine_lost_is_not_called_guaranteed(tmp_path: Path) -> None:
    """A node that shrank below what is promised there is named, and what would mend it."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    host.start()
    path = arrived(host, host.guaranteed(docker(1), 9, effective="0"))
    host.stop()
    write_machine(host.root, [Node(0, "0-1", 4 * GIB), Node(1, "2-3", 10 * GIB)])
    host.start()
    said, _, remedies = told(host, path)
    host.stop()
    offline = offline_explanation(host.file.path, "no daemon", FakeClock(), path)["sentences"]

    assert (
        "Pinned to node 0, and the kernel keeps it there, but its memory is not guaranteed there any more: node 0 "
        "can promise 4 GiB of memory, 9 GiB are promised." == said
    )
    assert [
        "it is guaranteed again when the memory is back, or when enough of what is promised there ends"
    ] == remedies
    assert isinstance(offline, list)
    assert said == offline[0]


def test_a_pod_left_to_the_kubelet_without_nodes(tmp_path: Path) -> None:
    """No bytes on no nodes are spoken of, and no option of another runtime."""
    host = Host(tmp_path)
    write_files(host.root / "var/lib/kubelet", {"memory_manager_state": STATIC})
    host.start()
    path = arrived(host, host.guaranteed(cri(1), 3))
    said, _, remedies = told(host, path)
    host.stop()

    assert (
        "Left alone: left to the kubelet (memory manager policy Static), which gave it no nodes of its own." == said
    )
    assert [] == remedies


def test_what_grew_keeps_what_it_was_promised(tmp_path: Path) -> None:
    """Only the old size is called guaranteed, the new one is refused with its numbers, and the limit is told."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    host.start()
    path = arrived(host, host.guaranteed(docker(1), 4, effective="0"))
    host.put(path, {"memory.max": f"{30 * GIB}\n"})
    host.agent.full_pass()
    host.wait_for_writes()
    said, everything, remedies = told(host, path)
    host.stop()

    assert (
        "Pinned to node 0 with the 4 GiB it was promised before, and the kernel keeps it there; no more is "
        "guaranteed: the new size is refused: needs 30 GiB; node 0 has 10 GiB free, node 1 10 GiB; no other nodes "
        "than node 0 are open to it, and it can promise 10 GiB at most, even when empty." == said
    )
    assert "Before, it needed 4 GiB" in everything
    assert ["with a memory limit of 4 GiB or less all of it is guaranteed on node 0"] == remedies


def test_released_by_hand_is_said_once(tmp_path: Path) -> None:
    """What the state says already is not said again by the message."""
    host = Host(tmp_path)
    host.start()
    path = arrived(host, host.guaranteed(docker(1), 2, effective="0"))
    host.agent.release([path])
    host.wait_for_writes()
    said, _, _ = told(host, path)
    host.stop()

    assert (
        "Released by hand, nothing is promised: it is decided again when it or the daemon is started again." == said
    )


def test_one_that_came_after_a_release_of_all(tmp_path: Path) -> None:
    """It was not released itself, and is not called so."""
    host = Host(tmp_path)
    host.start()
    host.agent.release()
    path = arrived(host, host.guaranteed(docker(1), 2, effective="0"))
    said, _, _ = told(host, path)

    assert said == (
        "Nothing is promised: numapin release --all: nothing is pinned until the daemon is started again."
    )


@pytest.mark.parametrize(
    ("state", "nodes", "said"),
    [
        ("pin-lost", [3], "Pin lost, node 3 stays reserved for it."),
        ("pin-lost", [0, 4], "Pin lost, nodes 0,4 stay reserved for it."),
        ("contested", [3], "Contested, node 3 stays reserved for it and is written again later."),
        ("contested", [0, 1], "Contested, nodes 0-1 stay reserved for it and are written again later."),
    ],
)
def test_one_node_or_several(state: str, nodes: list[int], said: str) -> None:
    """Verbs follow the number of nodes."""
    assert said == Outcome({"state": state, "nodes": nodes, "message": "", "reason": None}).became()


def test_findings_that_the_message_says_already() -> None:
    """A doubt is said once, not as message, finding and reason."""
    found = ["no cpuset", "not pinned, its facts are in doubt: no cpuset", "another thing"]
    row = {"message": "no cpuset; at the root", "findings": found}

    assert ["another thing"] == unsaid(row)

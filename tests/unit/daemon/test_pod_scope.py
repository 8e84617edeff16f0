"""Pod scope in the daemon: what a pod was accepted with stays its own until its containers take it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from numapin.daemon.machine import Machine
from numapin.daemon.offline import offline_status
from numapin.daemon.status import About, status_document
from numapin.model.checkpoint import record_problems
from numapin.model.memory import MEMORY, Owner, rest_of
from numapin.model.plan import Scope
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, POD_SLICE, Host, cid, cri, docker
from support.daemon import POD as POD_UID
from support.fakes import FakeClock
from support.machines import even

POD = replace(BARE, scope=Scope.POD)
FIRST, SECOND = cri(11), cri(12)


def two_nodes(tmp_path: Path, pod_gib: int = 9) -> Host:
    """Two nodes of 10 GiB and the cgroup of a pod that may use *pod_gib*."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), config=POD)
    host.start()
    host.tree.add(POD_SLICE, memory=pod_gib * GIB, quota=100_000)
    return host


def starts(host: Host, path: str, gib: float, name: str, *, effective: str = "0") -> str:
    """A container of the pod appears; returns its state."""
    number = 11 if path == FIRST else 12
    host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name, pod="db")))
    host.agent.on_created([host.guaranteed(path, gib, effective=effective)])
    host.wait_for_writes()
    return host.states()[path]


def kept(host: Host) -> list[object]:
    """Pods that something is kept for, as status has it: nodes and bytes of memory."""
    document = status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)
    rows = document["kept_for_pods"]
    assert isinstance(rows, list)
    return [(row["nodes"], row["sizes"]["memory"] // GIB) for row in rows]


def test_a_stranger_does_not_get_what_the_pod_was_promised(tmp_path: Path) -> None:
    """Between two containers of a pod somebody else asks for memory: it goes where the pod is not."""
    host = two_nodes(tmp_path)
    first = starts(host, FIRST, 3, "a")
    between = kept(host)
    host.agent.on_created([host.guaranteed(docker(1), 5, effective="1")])
    host.wait_for_writes()
    second = starts(host, SECOND, 6, "b")

    assert (first, second) == ("pinned", "pinned")
    assert between == [([0], 6)]
    assert host.states()[docker(1)] == "pinned"
    assert host.reserved() == {0: 9, 1: 5}
    assert kept(host) == []
    host.sound()


def test_it_lives_through_a_restart_and_ends_with_the_pod(tmp_path: Path) -> None:
    """What is kept is in the checkpoint, is nobody's problem there, and goes with the pod's last container."""
    host = two_nodes(tmp_path)
    starts(host, FIRST, 3, "a")
    host.agent.flush()
    saved = host.saved()
    shown = offline_status(host.file.path, "why", FakeClock())["kept_for_pods"]
    host.restart()
    after = kept(host), host.reserved()
    host.remove(FIRST)
    host.remove(POD_SLICE)
    host.agent.on_removed([FIRST, POD_SLICE])

    assert record_problems(saved) == ()
    assert [row["sizes"] for row in shown] == [{MEMORY: 6 * GIB}]  # type: ignore[attr-defined]
    assert after == ([([0], 6)], {0: 9})
    assert (kept(host), host.reserved()) == ([], {})
    host.sound()


def test_containers_that_end_leave_the_pod_its_whole(tmp_path: Path) -> None:
    """An init container as large as the pod is followed by a smaller one: the rest is kept for the next."""
    host = two_nodes(tmp_path)
    starts(host, FIRST, 9, "init")
    alone = kept(host)
    host.remove(FIRST)
    host.agent.on_removed([FIRST])
    starts(host, SECOND, 4, "app")

    assert alone == []
    assert kept(host) == [([0], 5)]
    assert host.reserved() == {0: 9}
    assert rest_of(POD_UID) in host.agent.ledger.books.assignments
    host.sound()


def test_release_gives_it_back(tmp_path: Path) -> None:
    """After release of the pod's only container nothing is kept for others."""
    host = two_nodes(tmp_path)
    starts(host, FIRST, 3, "a")
    host.obedient(FIRST)
    host.agent.release([FIRST])
    host.wait_for_writes()

    assert host.states()[FIRST] == "released"
    assert (kept(host), host.reserved()) == ([], {})
    host.sound()


def test_another_scope_keeps_nothing(tmp_path: Path) -> None:
    """Under container scope each container is decided alone, so what was kept is to be had by anybody."""
    host = two_nodes(tmp_path)
    starts(host, FIRST, 3, "a")
    host.config = replace(host.config, scope=Scope.CONTAINER)
    host.agent.on_machine(Machine.read(host.root, host.config, host.agent.machine.known))

    assert (kept(host), host.reserved()) == ([], {0: 3})
    host.sound()


def test_a_container_grows_into_what_is_kept(tmp_path: Path) -> None:
    """A container whose limit is raised takes the pod's memory first, though nothing else is free there."""
    host = two_nodes(tmp_path, pod_gib=10)
    starts(host, FIRST, 3, "a")
    host.put(FIRST, {"memory.max": f"{8 * GIB}\n"})
    host.agent.on_created([FIRST])

    assert host.view(FIRST).message == ""
    assert (kept(host), host.reserved()) == ([([0], 2)], {0: 10})
    host.sound()


def test_the_first_containers_reason_is_the_pods(tmp_path: Path) -> None:
    """The first container's record is the decision about its pod, with the whole's size and what chose the nodes."""
    host = two_nodes(tmp_path)
    starts(host, FIRST, 3, "a")
    record = host.agent.ledger.pins[FIRST].explanation
    assert record is not None

    assert record.whole_pod
    assert record.sizes == {MEMORY: 9 * GIB}
    assert record.tie_break == "lowest-node-ids"
    assert host.agent.ledger.pins[FIRST].owner == Owner(POD_UID, "a")

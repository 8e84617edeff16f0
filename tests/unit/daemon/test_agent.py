"""The agent's order of things: decide, save, write, verify; ends, grace, take-over, retries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Phase
from numapin.model.memory import MEMORY
from numapin.model.nodeset import NodeSet
from numapin.model.plan import TopologyPolicy
from support.cgroup_trees import GIB
from support.daemon import BARE, POD, POD_SLICE, Host, cid, cri, docker
from support.machines import Node, even

MIB = 1 << 20
ONE = replace(BARE, policy=TopologyPolicy.BEST_EFFORT)


def refuse_saves(host: Host) -> None:
    """A directory where the new file shall be: every save fails."""
    host.file.path.with_name("state.json.new").mkdir(parents=True)


def allow_saves(host: Host) -> None:
    """The cause is gone."""
    host.file.path.with_name("state.json.new").rmdir()


# ---- decide, save, write --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_guaranteed_container_is_pinned(tmp_path: Path, version: CgroupVersion) -> None:
    """It is reserved, on disk, written, verified, watched for drift, and said in one line, on both versions."""
    host = Host(tmp_path, version=version)
    path = host.guaranteed(docker(1), 2)
    if version is CgroupVersion.V1:  # a fresh v1 cpuset has no nodes
        host.put(path, {"cpuset.mems": "\n"})

    host.start()
    host.agent.flush()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    assert host.reserved() == {0: 2}
    assert host.saved().containers[path].phase is Phase.VERIFIED
    assert host.watched.mems == {path}
    assert host.log.events() == ["container_pinned"]
    assert host.agent.counters.writes == host.agent.counters.pins == 1
    host.sound()


def test_promises_are_on_disk_before_the_write(tmp_path: Path) -> None:
    """The checkpoint that has the container as planned is older than the value in its cgroup."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)

    host.start()

    written = (host.tree.cpuset / path.lstrip("/") / "cpuset.mems").stat().st_mtime_ns
    assert host.saved().containers[path].phase is Phase.PLANNED
    assert host.file.path.stat().st_mtime_ns <= written


def test_a_failing_save_writes_nothing(tmp_path: Path) -> None:
    """Without a checkpoint there is no pin and no promise; the reason is the container's, and is said once."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    refuse_saves(host)

    host.start()
    host.agent.full_pass()

    assert host.mems(path) == ""
    assert host.reserved() == {}
    assert host.agent.ledger.pins == {}
    assert host.states() == {path: "failed"}
    assert "cannot be saved" in host.view(path).message
    assert host.log.events().count("checkpoint_unwritable") == 1
    host.sound()


def test_a_failing_save_heals_by_itself(tmp_path: Path) -> None:
    """When the cause is gone the next pass pins what waited, and the status is clean again."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    refuse_saves(host)
    host.start()
    allow_saves(host)

    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert host.agent.ledger.save_error is None
    assert host.saved().containers[path].nodes == NodeSet.of(0)
    host.sound()


def test_a_failing_save_keeps_what_stands(tmp_path: Path) -> None:
    """Existing pins, their books and the file are as before; only the new container waits."""
    host = Host(tmp_path)
    old = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.flush()
    before = host.saved()
    refuse_saves(host)
    new = host.guaranteed(docker(2), 3)

    host.agent.on_created([new])

    assert host.states() == {old: "pinned", new: "failed"}
    assert host.mems(new) == ""
    assert before.books == host.agent.ledger.books
    host.sound()


def test_a_failing_save_does_not_forget_a_release(tmp_path: Path) -> None:
    """A container that is no longer Guaranteed keeps its pin until that can be saved, then gives it back."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.flush()
    refuse_saves(host)
    host.put(path, {"cpu.max": "max 100000\n"})
    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 2}
    allow_saves(host)
    host.agent.full_pass()
    assert host.states() == {path: "not-managed"}
    assert host.reserved() == {}
    assert host.mems(path) == "0-3"


def test_a_batch_is_one_save(tmp_path: Path) -> None:
    """Fifty containers that appear together cost one save before their writes and one for the results."""
    host = Host(tmp_path)
    host.start()
    paths = [host.guaranteed(docker(k), 0.25) for k in range(40)]

    host.agent.on_created(paths)
    assert host.agent.counters.saves == 1
    host.agent.flush()
    host.agent.flush()

    assert set(host.states().values()) == {"pinned"}
    assert host.agent.counters.saves == 2
    assert host.reserved() == {0: 10}
    host.sound()


def test_an_unchanged_value_is_never_written(tmp_path: Path) -> None:
    """What the kernel holds already is recorded as granted without a write; a second pass writes nothing either."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(1), 2, mems="0")
    stamp = (host.tree.cpuset / path.lstrip("/") / "cpuset.mems").stat().st_mtime_ns

    host.start()
    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert host.agent.counters.writes == 0
    assert stamp == (host.tree.cpuset / path.lstrip("/") / "cpuset.mems").stat().st_mtime_ns
    assert host.saved().containers[path].phase is Phase.VERIFIED


# ---- writes that fail -----------------------------------------------------------------------------------------


def test_a_grant_that_is_not_given_takes_the_promise_back(tmp_path: Path) -> None:
    """When the kernel grants other nodes, nothing stays reserved, the old value is back, and the numbers are told."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, effective="0-3")

    host.start()

    assert host.states() == {path: "failed"}
    assert host.view(path).message == "asked for node 0, the kernel grants 0-3 (cpuset.mems says 0)"
    assert host.reserved() == {}
    assert host.mems(path) in ("", "0-3")
    assert host.agent.counters.failures == 1
    host.sound()


def test_a_failed_container_is_not_taken_for_a_foreign_pin(tmp_path: Path) -> None:
    """What a failed write of ours left is not somebody else's choice: the next pass tries again."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, effective="0-3")
    host.start()
    assert host.mems(path) == "0-3"
    host.put(path, {"cpuset.mems": "\n", "cpuset.mems.effective": "0\n"})

    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 2}
    host.sound()


def test_an_unwritable_file_fails_one_container_only(tmp_path: Path) -> None:
    """One cgroup that takes no write says why, with the path; the others are pinned, in whatever order they come."""
    host = Host(tmp_path)
    first, bad, last = (host.guaranteed(docker(k), 1) for k in (1, 2, 3))
    file = host.tree.cpuset / bad.lstrip("/") / "cpuset.mems"
    file.unlink()
    file.symlink_to("/dev/full")

    host.start()

    assert host.states()[first] == host.states()[last] == "pinned"
    assert host.states()[bad] in ("failed", "unpinned")
    assert str(file) in host.view(bad).message
    assert host.reserved() == {0: 2}
    host.sound()


def test_a_directory_that_cannot_be_opened_fails(tmp_path: Path) -> None:
    """A cgroup that is no directory any more when it shall be written gives its memory back and says why."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    agent = host.prepare()
    record = host.tree.only()
    host.remove(path)
    (host.tree.cpuset / path.lstrip("/")).write_text("")

    agent._admit([record])

    assert host.states() == {path: "failed"}
    assert "ENOTDIR" in host.view(path).message
    assert host.reserved() == {}


def test_a_cgroup_that_vanishes_before_its_write(tmp_path: Path) -> None:
    """It stays promised until its removal is reported, which gives the memory back; no line is an error."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    agent = host.prepare()
    record = host.tree.only()
    host.remove(path)

    agent._admit([record])
    agent.on_removed([path])

    assert host.states() == {}
    assert host.reserved() == {}
    assert not [line for line in host.log.lines if line[0] in ("warning", "error", "exception")]
    host.sound()


def test_a_cgroup_that_vanishes_before_its_look(tmp_path: Path) -> None:
    """An event for what is gone already is nothing at all."""
    host = Host(tmp_path)
    host.start()

    host.agent.on_created([docker(1)])
    host.agent.on_removed([docker(1)])
    host.agent.on_mems_written([docker(1)])

    assert host.states() == {}
    assert host.log.lines == []


# ---- ends ------------------------------------------------------------------------------------------------------


def test_removal_gives_the_memory_back(tmp_path: Path) -> None:
    """A container that is gone holds nothing, in the books, in the file and in the watches."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    host.agent.on_removed([host.remove(path)])
    host.agent.flush()

    assert host.reserved() == {}
    assert host.saved().containers == {}
    assert host.saved().books.assignments == {}
    assert host.watched.mems == set()


def test_a_missed_removal_is_found_by_the_pass(tmp_path: Path) -> None:
    """The slow pass gives back what no event told about."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.remove(path)

    host.agent.full_pass()

    assert host.states() == {}
    assert host.reserved() == {}


def test_a_late_removal_event_does_not_touch_the_successor(tmp_path: Path) -> None:
    """A removal reported after a pass saw the cgroup made anew takes nothing from the new one."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.remove(path)
    host.guaranteed(path, 3)
    host.agent.full_pass()

    host.agent.on_removed([path])
    host.agent.on_created([path])

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 3}
    host.sound()


def test_a_cgroup_made_anew_is_another_container(tmp_path: Path) -> None:
    """Another inode under the same path is decided anew with its own size, also when no event told."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    inode = host.view(path).record.inode
    host.remove(path)
    host.guaranteed(path, 5)

    host.agent.full_pass()

    assert inode != host.view(path).record.inode
    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 5}
    assert host.mems(path) == "0"
    host.sound()


def test_fifty_stops_at_once(tmp_path: Path) -> None:
    """Many ends in one batch leave an empty NodeMap and no complaint."""
    host = Host(tmp_path)
    paths = [host.guaranteed(docker(k), 0.125) for k in range(50)]
    host.start()

    host.agent.on_removed([host.remove(path) for path in paths])

    assert host.reserved() == {}
    assert not [line for line in host.log.lines if line[0] != "info"]


# ---- pods ------------------------------------------------------------------------------------------------------


def pod_container(host: Host, number: int, gib: float = 2, name: str = "app", effective: str = "0") -> str:
    """A container of the pod, called *name* in it."""
    from support.cgroup_trees import cri as annotations
    from support.cgroup_trees import oci

    host.tree.task("k8s.io", cid(number), oci(annotations=annotations(name)))
    return host.guaranteed(cri(number), gib, effective=effective)


def test_an_ended_container_of_a_living_pod_keeps_its_memory(tmp_path: Path) -> None:
    """It is held for the pod's next container and given back after the grace, once."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    host.start()

    host.agent.on_removed([host.remove(path)])

    assert host.reserved() == {0: 2}
    due = host.agent.next_due_ns()
    assert due is not None
    assert due == host.clock.monotonic_ns() + BARE.release_grace_ns
    host.clock.advance(seconds=30)
    host.agent.due(host.clock.monotonic_ns())
    assert host.reserved() == {}
    assert host.agent.next_due_ns() is None
    host.sound()


def test_the_end_of_the_pod_ends_the_grace(tmp_path: Path) -> None:
    """With the pod's own cgroup gone there is no next container: the memory is given back at once."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    host.start()
    host.agent.on_removed([host.remove(path)])

    host.agent.on_removed([host.remove(POD_SLICE)])

    assert host.reserved() == {}
    assert host.agent.next_due_ns() is None
    host.sound()


@pytest.mark.parametrize("order", ["a-ends-first", "b-starts-first"])
def test_a_successor_takes_over(tmp_path: Path, order: str) -> None:
    """
    One reservation for (pod, name), carried over to the new id with the same nodes, whichever event comes first.

    Node 1 holds the first container and is the fuller one then, so the nodes prove the take-over.
    """
    host = Host(tmp_path)
    other = host.guaranteed(docker(9), 9, effective="0")
    host.start()
    path = pod_container(host, 1, 3, effective="1")
    host.agent.on_created([path])
    if order == "a-ends-first":
        host.agent.on_removed([host.remove(path)])
    host.agent.on_removed([host.remove(other)])
    successor = pod_container(host, 2, 3, effective="1")
    host.agent.on_created([successor])
    if order == "b-starts-first":
        host.agent.on_removed([host.remove(path)])

    assert host.states() == {successor: "pinned"}
    assert host.mems(successor) == "1"
    assert host.reserved() == {1: 3}
    assert [p.cgroup for p in host.agent.ledger.pins.values()] == [successor]
    host.clock.advance(seconds=60)
    host.agent.due(host.clock.monotonic_ns())
    assert host.reserved() == {1: 3}
    host.sound()


def test_a_crash_loop_leaves_the_node_map_unchanged(tmp_path: Path) -> None:
    """Fifty restarts of one container, ends before and after the next start, change no number."""
    host = Host(tmp_path)
    path = pod_container(host, 1, 3)
    host.start()
    before = host.agent.ledger.books

    for round_ in range(2, 52):
        if round_ % 2:
            host.agent.on_removed([host.remove(path)])
            path = pod_container(host, round_, 3)
            host.agent.on_created([path])
        else:
            new = pod_container(host, round_, 3)
            host.agent.on_created([new])
            host.agent.on_removed([host.remove(path)])
            path = new
        host.clock.advance(seconds=1)
        host.agent.due(host.clock.monotonic_ns())

    assert before == host.agent.ledger.books
    assert list(host.agent.ledger.pins) == [path]
    host.sound()


def test_an_init_containers_memory_is_used_first(tmp_path: Path) -> None:
    """The pod's next container goes where its init container was, into the memory that waits for it."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    init = pod_container(host, 1, 9, "init")
    host.start()
    host.agent.on_removed([host.remove(init)])
    app = pod_container(host, 2, 8, "app")

    host.agent.on_created([app])

    assert host.states() == {app: "pinned"}
    assert host.reserved() == {0: 8}
    assert host.agent.ledger.books.assignments.keys() == {(POD, "app")}
    host.sound()


# ---- refusals, deferrals, retries ---------------------------------------------------------------------------------


def test_a_refused_container_is_tried_again_on_release(tmp_path: Path) -> None:
    """It runs unrestricted with the numbers as its reason, and is pinned when another's end makes room."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    first = host.guaranteed(docker(1), 8)
    second = host.guaranteed(docker(2), 5)
    host.start()

    assert host.states() == {first: "pinned", second: "refused"}
    assert "5 GiB" in host.view(second).message
    assert "2 GiB" in host.view(second).message
    assert host.mems(second) == ""
    assert list(host.saved().refusals) == [second]
    host.agent.on_removed([host.remove(first)])
    assert host.states() == {second: "pinned"}
    assert host.agent.ledger.refusals == {}
    host.sound()


def test_no_retry_when_it_is_switched_off(tmp_path: Path) -> None:
    """With retry_refused off a refusal stands until something about the container changes."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB), config=replace(BARE, retry_refused=False))
    first, second = host.guaranteed(docker(1), 8), host.guaranteed(docker(2), 5)
    host.start()

    host.agent.on_removed([host.remove(first)])
    host.agent.full_pass()

    assert host.states() == {second: "refused"}


def test_a_standing_refusal_costs_no_save(tmp_path: Path) -> None:
    """Passes over a container that stays refused for the same reason neither save nor speak."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    host.guaranteed(docker(1), 11)
    host.start()
    host.agent.flush()
    saves, lines = host.agent.counters.saves, len(host.log.lines)

    host.agent.full_pass()
    host.agent.flush()

    assert saves == host.agent.counters.saves
    assert lines == len(host.log.lines)


def test_a_gone_refusal_leaves_the_file(tmp_path: Path) -> None:
    """A refused container that ends is not in the next checkpoint."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(1), 11)
    host.start()

    host.agent.on_removed([host.remove(path)])
    host.agent.flush()

    assert host.saved().refusals == {}


def test_pages_that_do_not_fit_hold_the_pin_back(tmp_path: Path) -> None:
    """600 MiB elsewhere and 255 MiB free on the target: reserved, not written, with the numbers; later it is."""
    nodes = [Node(0, "0-1", 10 * GIB, free=255 * MIB), Node(1, "2-3", GIB, free=GIB)]
    host = Host(tmp_path, nodes=nodes)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 0, 1: 600 * MIB})
    host.start()

    assert host.states() == {path: "deferred"}
    assert "600 MiB" in host.view(path).message
    assert "255 MiB" in host.view(path).message
    assert host.mems(path) == ""
    assert host.reserved() == {0: 2}
    host.agent.flush()
    assert host.saved().containers[path].phase is Phase.DEFERRED
    host.nodes[0] = replace(nodes[0], free=9 * GIB)
    rewrite(host)
    host.agent.full_pass()
    host.wait_for_writes()
    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    host.sound()


def test_a_large_container_is_written_in_a_thread(tmp_path: Path) -> None:
    """Above 8 MiB held the loop goes on at once; the outcome comes through the writer's descriptor."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 20 * MIB})
    host.start()

    assert host.states() == {path: "pinning"}
    host.wait_for_writes()
    assert host.states() == {path: "pinned"}


def test_a_running_container_stays_where_its_pages_are(tmp_path: Path) -> None:
    """Among equal nodes the one that holds its memory already is chosen."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, effective="2")
    host.holds(path, {0: 0, 1: 0, 2: 50 * MIB, 3: 0})

    host.start()
    host.wait_for_writes()

    assert host.mems(path) == "2"
    assert host.reserved() == {2: 2}


# ---- drift --------------------------------------------------------------------------------------------------------


def test_a_foreign_write_is_repaired(tmp_path: Path) -> None:
    """An event about another value puts ours back and counts; an event about our own value does nothing."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.on_mems_written([path])
    assert host.agent.counters.repairs == 0
    host.put(path, {"cpuset.mems": "3\n"})

    host.agent.on_mems_written([path])

    assert host.mems(path) == "0"
    assert (host.view(path).repairs, host.agent.counters.repairs) == (1, 1)
    assert host.log.facts("drift_repaired")["found"] == "3"


def test_the_pass_repairs_too(tmp_path: Path) -> None:
    """A foreign write that no event told about is put right by the slow pass, and counted."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpuset.mems": "3\n"})

    host.agent.full_pass()

    assert host.mems(path) == "0"
    assert host.states() == {path: "pinned"}
    assert (host.view(path).repairs, host.agent.counters.repairs) == (1, 1)


# ---- changes ------------------------------------------------------------------------------------------------------


def test_a_grown_container_keeps_its_nodes(tmp_path: Path) -> None:
    """A larger limit that fits on its nodes is followed in the books; nothing is written."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"memory.max": f"{6 * GIB}\n"})

    host.agent.full_pass()

    assert host.reserved() == {0: 6}
    assert host.agent.counters.writes == 1
    host.sound()


def test_a_container_grown_too_large_keeps_the_old_promise(tmp_path: Path) -> None:
    """The pin and the old reservation stay, and the refused wish is named."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"memory.max": f"{16 * GIB}\n"})

    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert "the new size is refused" in host.view(path).message
    assert host.reserved() == {0: 2}


def test_a_container_that_is_no_longer_guaranteed_is_released(tmp_path: Path) -> None:
    """Its memory is given back and its cgroup gets the parent's nodes, v2 having no way back to empty."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 10, effective="1")
    waiting = host.guaranteed(docker(3), 10)
    host.start()
    assert host.states() == {path: "pinned", other: "pinned", waiting: "refused"}
    host.put(path, {"cpu.max": "max 100000\n"})

    host.agent.full_pass()

    assert host.states() == {path: "not-managed", other: "pinned", waiting: "pinned"}
    assert host.mems(path) == "0-1"
    assert host.reserved() == {0: 10, 1: 10}
    host.sound()


def test_limits_that_come_later(tmp_path: Path) -> None:
    """A cgroup without limits yet is looked at again within 20 ms and pinned when they are there."""
    host = Host(tmp_path)
    host.start()
    path = docker(1)
    host.tree.add(path, effective="0")
    host.agent.on_created([path])
    assert host.states() == {path: "not-managed"}
    due = host.agent.next_due_ns()
    assert due is not None
    assert due - host.clock.monotonic_ns() == 20 * 1_000_000
    host.put(path, {"memory.max": f"{2 * GIB}\n", "cpu.max": "50000 100000\n"})

    host.clock.advance(ns=20 * 1_000_000)
    host.agent.due(host.clock.monotonic_ns())

    assert host.states() == {path: "pinned"}
    host.look_for_leftovers()
    assert host.agent.next_due_ns() is None


def test_looks_at_a_young_container_end(tmp_path: Path) -> None:
    """A container that never becomes settled is looked at five times, then left to the slow pass."""
    host = Host(tmp_path)
    host.start()
    host.tree.add(docker(1))
    host.agent.on_created([docker(1)])
    looks = 0

    while (due := host.agent.next_due_ns()) is not None:
        host.clock.advance(ns=max(0, due - host.clock.monotonic_ns()))
        host.agent.due(host.clock.monotonic_ns())
        looks += 1

    assert looks == 5


def test_a_runtime_s_state_settles_a_container(tmp_path: Path) -> None:
    """A runc container is unknown until its state file is there; then it is pinned and not looked into."""
    host = Host(tmp_path)
    host.start()
    path = host.guaranteed("/by-hand", 2)
    host.agent.on_created([path])
    assert host.states() == {}
    host.tree.runc("by-hand", path)

    host.agent.on_state([path])

    assert host.states() == {path: "pinned"}
    assert host.watched.pruned == [path]


# ---- groups -------------------------------------------------------------------------------------------------------


def test_a_group_dissolves(tmp_path: Path) -> None:
    """A container over two nodes ties them; with its end the group is gone and a single one may go there."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    big = host.guaranteed(docker(1), 15, effective="0-1")
    small = host.guaranteed(docker(2), 5)
    host.start()

    assert host.states() == {big: "pinned", small: "refused"}
    assert host.mems(big) == "0-1"
    assert host.agent.ledger.books.groups() == (NodeSet.of(0, 1),)
    host.agent.on_removed([host.remove(big)])
    assert host.agent.ledger.books.groups() == ()
    assert host.states() == {small: "pinned"}
    assert host.reserved() == {0: 5}


def test_best_effort_joins_a_group(tmp_path: Path) -> None:
    """Under best-effort the small one joins the group instead of being refused."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), config=ONE)
    big = host.guaranteed(docker(1), 15, effective="0-1")
    small = host.guaranteed(docker(2), 5, effective="0-1")

    host.start()

    assert host.states() == {big: "pinned", small: "pinned"}
    assert host.mems(small) == "0-1"


def test_parents_limit_the_choice(tmp_path: Path) -> None:
    """Only nodes that the ancestors grant are candidates."""
    host = Host(tmp_path)
    host.tree.add("/system.slice", mems="2-3")
    path = host.guaranteed(docker(1), 2, effective="2")

    host.start()

    assert host.mems(path) == "2"
    assert host.view(path).record.parent_mems == NodeSet.of(2, 3)


def test_parents_that_allow_too_little(tmp_path: Path) -> None:
    """A request that the granted nodes cannot hold is refused, although the machine could hold it."""
    host = Host(tmp_path)
    host.tree.add("/system.slice", mems="2")
    path = host.guaranteed(docker(1), 12)

    host.start()

    assert host.states() == {path: "refused"}
    assert "12 GiB" in host.view(path).message


# ---- dry run -------------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """Everything is decided and counted in the books; no cgroup and no checkpoint is touched."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB), dry_run=True)
    path, refused = host.guaranteed(docker(1), 6), host.guaranteed(docker(2), 6)
    files = snapshot(tmp_path)

    host.start()
    host.agent.full_pass()
    host.agent.on_mems_written([path])
    host.agent.flush()
    host.stop()

    assert host.states() == {path: "would-pin", refused: "refused"}
    assert host.reserved() == {0: 6}
    assert host.agent.counters.saves == host.agent.counters.writes == 0
    assert files == snapshot(tmp_path)


def test_a_dry_run_beside_an_old_checkpoint(tmp_path: Path) -> None:
    """What an earlier run promised is believed, shown, and left exactly as it is."""
    host = Host(tmp_path)
    pinned, gone = host.guaranteed(docker(1), 6), host.guaranteed(docker(2), 2)
    host.start()
    host.stop()
    host.remove(gone)
    files = snapshot(tmp_path)
    host.dry_run = True

    host.start()
    host.stop()

    assert host.states() == {pinned: "pinned"}
    assert host.reserved() == {0: 6}
    assert files == snapshot(tmp_path)


# ---- machine -------------------------------------------------------------------------------------------------------


def test_hugepages_are_read_before_a_decision(tmp_path: Path) -> None:
    """Pools change without an event: a container that asks for more pages than there are by now is refused."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB, pools={2 * MIB: 1024}))
    host.start()
    host.nodes = even(1, memory=10 * GIB, pools={2 * MIB: 256})
    rewrite(host)
    path = host.guaranteed(docker(1), 1, hugetlb={"2MB": GIB})

    host.agent.on_created([path])

    assert host.states() == {path: "refused"}
    assert host.view(path).classification.request[MEMORY] == GIB
    assert "hugepage_pools_changed" in host.log.events()


def test_a_machine_that_grows_admits_the_refused(tmp_path: Path) -> None:
    """Memory hot-added to a node makes room for who was refused."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(1), 15)
    host.start()
    assert host.states() == {path: "refused"}
    host.nodes = even(1, memory=20 * GIB)
    rewrite(host)

    host.agent.on_machine(type(host.agent.machine).read(tmp_path, host.config))

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 15}


def rewrite(host: Host) -> None:
    """Write the machine's nodes again."""
    from support.machines import write_machine

    write_machine(host.root, host.nodes)


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(root.rglob("*")) if p.is_file()}

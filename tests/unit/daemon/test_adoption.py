"""Starts after an earlier run: nothing lost, nothing doubled, nothing written that is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.model.checkpoint import Phase
from numapin.model.memory import MEMORY
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import TopologyPolicy
from numapin.planner.accounting import rebase
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, Host, cid, cri, docker
from support.machines import even, write_machine
from support.mems_writes import MemsWrites

OTHER_BOOT = "0b0b0b0b-0000-4000-8000-000000000002"


def pod_container(host: Host, number: int, gib: float = 2, name: str = "app", effective: str = "0") -> str:
    """A container of the pod, called *name* in it."""
    host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name)))
    return host.guaranteed(cri(number), gib, effective=effective)


def again(host: Host, path: str, gib: float, effective: str = "0") -> str:
    """The container is started again: the same path and id, another inode."""
    host.put("/keeps-inodes-apart-" + path.rpartition("/")[2], {"x": ""})
    host.remove(path)
    return host.guaranteed(path, gib, effective=effective)


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    """Pins, books and files are the same after it, and no cgroup is written."""
    host = Host(tmp_path)
    one = host.guaranteed(docker(1), 2)
    two = host.guaranteed(docker(2), 9, effective="1")
    group = host.guaranteed(docker(3), 15, effective="2-3")
    host.start()
    before = host.agent.ledger.books
    host.stop()
    saved = host.saved()

    with MemsWrites(host, (one, two, group)) as writes:
        host.start()
        host.agent.full_pass()
        host.stop()

        assert writes.taken() == []
    assert host.states() == {one: "pinned", two: "pinned", group: "pinned"}
    assert before == host.agent.ledger.books
    assert host.agent.counters.writes == 0
    assert saved.containers == host.saved().containers
    assert host.agent.ledger.books.groups() == (NodeSet.of(2, 3),)


def test_what_ended_meanwhile_is_given_back(tmp_path: Path) -> None:
    """A container that is gone at the start holds nothing; a refused one that is gone is forgotten."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    path, refused = host.guaranteed(docker(1), 8), host.guaranteed(docker(2), 12)
    host.start()
    host.stop()
    host.remove(path)
    host.remove(refused)

    host.start()
    host.agent.flush()

    assert host.reserved() == {}
    assert host.log.facts("checkpoint_adopted")["released"] == [cid(1)]
    assert (host.saved().containers, host.saved().refusals) == ({}, {})
    host.sound()


def test_what_started_meanwhile_is_decided(tmp_path: Path) -> None:
    """A container that came while no daemon ran gets its nodes beside the promises that stand."""
    host = Host(tmp_path)
    old = host.guaranteed(docker(2), 8)
    host.start()
    host.stop()
    new = host.guaranteed(docker(1), 8, effective="1")

    host.start()

    assert host.states() == {old: "pinned", new: "pinned"}
    assert (host.mems(old), host.mems(new)) == ("0", "1")
    host.sound()


def test_a_promise_without_its_write_is_kept_and_finished(tmp_path: Path) -> None:
    """After a crash between save and write the next start writes what was promised, on the same nodes."""
    host = Host(tmp_path)
    filler = host.guaranteed(docker(9), 9)
    host.start()
    path = host.guaranteed(docker(1), 2, effective="1")
    host.agent.on_created([path])
    saved = host.saved()
    assert saved.containers[path].phase is Phase.PLANNED
    host.put(path, {"cpuset.mems": "\n"})
    host.remove(filler)

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "1"
    assert host.reserved() == {1: 2}


def test_a_crash_right_after_the_write(tmp_path: Path) -> None:
    """The value stands already: it is noted as verified, not written again."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    with MemsWrites(host, [path]) as writes:
        host.start()
        host.agent.flush()

        assert writes.taken() == []
    assert host.states() == {path: "pinned"}
    assert host.agent.counters.writes == 0
    assert host.saved().containers[path].phase is Phase.VERIFIED


def test_a_container_restarted_meanwhile_keeps_its_nodes(tmp_path: Path) -> None:
    """The same id in a new cgroup is one reservation, on the nodes it had."""
    host = Host(tmp_path)
    filler = host.guaranteed(docker(9), 9)
    host.start()
    path = host.guaranteed(docker(1), 2, effective="1")
    host.agent.on_created([path])
    host.stop()
    host.remove(filler)
    again(host, path, 2, effective="1")

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "1"
    assert host.reserved() == {1: 2}
    host.sound()


def test_a_reboot(tmp_path: Path) -> None:
    """After a reboot no record of a cgroup counts, even under the same inode; who is there keeps its nodes."""
    host = Host(tmp_path)
    filler, gone = host.guaranteed(docker(9), 7), host.guaranteed(docker(8), 2)
    host.start()
    path = host.guaranteed(docker(1), 2, effective="1")
    host.agent.on_created([path])
    host.stop()
    host.remove(filler)
    host.remove(gone)
    host.put(path, {"cpuset.mems": "\n"})
    host.boot = OTHER_BOOT

    host.start()
    host.agent.flush()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "1"
    assert host.reserved() == {1: 2}
    assert host.saved().boot_id == OTHER_BOOT
    assert host.log.facts("checkpoint_adopted")["same_boot"] is False
    host.sound()


def test_a_container_that_is_not_guaranteed_any_more_leaves_nothing(tmp_path: Path) -> None:
    """Restarted without limits while no daemon ran: its old reservation is not kept for nobody."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    host.put("/keeps-inodes-apart", {"x": ""})
    host.remove(path)
    host.container(path)

    host.start()

    assert host.states() == {path: "not-managed"}
    assert host.reserved() == {}
    host.sound()


def test_another_container_under_the_path_of_the_old_one(tmp_path: Path) -> None:
    """A path that now is somebody else's frees the old owner's memory."""
    host = Host(tmp_path)
    path = host.guaranteed("/by-hand", 2)
    host.tree.runc("first", path)
    host.start()
    host.stop()
    (tmp_path / "run/runc/first/state.json").unlink()
    (tmp_path / "run/runc/first").rmdir()
    again(host, path, 5)
    host.tree.runc("second", path)

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 5}
    assert [owner.container for owner in host.agent.ledger.books.assignments] == ["second"]
    host.sound()


def test_an_ended_container_waits_on_after_a_restart(tmp_path: Path) -> None:
    """Memory that was kept for a living pod is kept over a restart, and given back after the grace."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    host.start()
    host.agent.on_removed([host.remove(path)])
    host.stop()

    host.start()
    assert host.reserved() == {0: 2}
    host.clock.advance(seconds=30)
    host.agent.due(host.clock.monotonic_ns())

    assert host.reserved() == {}
    host.sound()


def test_a_pod_that_went_meanwhile_keeps_nothing(tmp_path: Path) -> None:
    """Without its pod an ended container's memory is given back at the start."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    host.start()
    host.agent.on_removed([host.remove(path)])
    host.stop()
    host.remove("/kubepods.slice")

    host.start()

    assert host.reserved() == {}


def test_an_unreadable_container_is_not_taken_for_gone(tmp_path: Path) -> None:
    """One whose cgroup cannot be read at the start or in a pass keeps its memory, and the others are served."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 1)
    host.start()
    host.stop()
    procs = host.tree.cpuset / path.lstrip("/") / "cgroup.procs"
    procs.unlink()
    procs.mkdir()

    host.start()
    host.agent.full_pass()

    assert host.reserved() == {0: 3}
    assert host.states()[other] == "pinned"
    assert path == host.log.facts("container_unreadable")["cgroup"]
    procs.rmdir()
    procs.write_text("")
    host.agent.full_pass()
    assert host.states() == {path: "pinned", other: "pinned"}
    assert host.agent.counters.writes == 0
    host.sound()


def test_totals_that_moved(tmp_path: Path) -> None:
    """Some MiB more or less on a node are normal: the books are re-based and nothing is said."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    write_machine(tmp_path, even(4, memory=10 * GIB - (37 << 20)))

    host.start()

    assert host.states() == {path: "pinned"}
    table = host.agent.ledger.books.node_map.nodes[NodeId(0)].memory_map[MEMORY]
    assert (table.total, table.reserved) == (10 * GIB - (37 << 20), 2 * GIB)
    assert "promise_does_not_fit" not in host.log.events()


def test_a_promise_that_no_longer_fits_is_named(tmp_path: Path) -> None:
    """On a machine that shrank the start succeeds, the pin stays, and the log says whose promise is short."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 8)
    host.start()
    host.stop()
    write_machine(tmp_path, even(4, memory=5 * GIB))

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 8}
    assert host.log.facts("promise_does_not_fit")["container_id"] == cid(1)
    assert "5 GiB" in host.log.facts("promise_does_not_fit")["reason"]


def test_a_node_that_went(tmp_path: Path) -> None:
    """Its container keeps the reservation and is not moved; with the node's return the pin comes back."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    filler = host.guaranteed(docker(9), 9)
    host.start()
    path = host.guaranteed(docker(1), 2, effective="1")
    host.agent.on_created([path])
    host.stop()
    write_machine(tmp_path, even(1, memory=10 * GIB))
    host.grant(path, "0")

    host.start()
    host.agent.full_pass()

    assert host.states() == {filler: "pinned", path: "pin-lost"}
    assert host.view(path).message == (
        "node 1 has no memory now (taken offline, or unplugged); the kernel lets it use what its parent cgroup may "
        "meanwhile. Its reservation stays, and it is pinned again as soon as the memory is back; numapin release "
        "would give the reservation up"
    )
    assert host.reserved() == {0: 9, 1: 2}
    write_machine(tmp_path, even(2, memory=10 * GIB))
    host.grant(path, "1")
    host.agent.on_machine(type(host.agent.machine).read(tmp_path, host.config))
    assert host.states() == {filler: "pinned", path: "pinned"}
    host.sound()


def test_another_policy(tmp_path: Path) -> None:
    """What was promised under the old policy stays; the new one counts for what comes."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB), config=replace(BARE, policy=TopologyPolicy.BEST_EFFORT))
    big = host.guaranteed(docker(1), 15, effective="0-1")
    host.start()
    host.stop()
    host.config = replace(BARE, policy=TopologyPolicy.SINGLE_NUMA_NODE)
    late = host.guaranteed(docker(2), 2)

    host.start()
    host.stop()

    assert host.states() == {big: "pinned", late: "refused"}
    assert host.mems(big) == "0-1"
    assert host.saved().policy == "single-numa-node"
    host.sound()


def test_existing_promises_come_before_new_containers(tmp_path: Path) -> None:
    """A new container whose path sorts first is not given what an older one had, or what others chose."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    foreign = host.guaranteed(docker(5), 6, mems="0")
    new = host.guaranteed(docker(1), 6, effective="1")

    host.start()

    assert host.states() == {foreign: "pinned-by-others", new: "pinned"}
    assert host.mems(new) == "1"
    assert host.reserved() == {0: 6, 1: 6}


def test_a_lost_checkpoint_doubles_nothing(tmp_path: Path) -> None:
    """Without its file the daemon takes the pins it finds for somebody's choice: accounted there, and kept."""
    host = Host(tmp_path)
    one, two = host.guaranteed(docker(1), 8), host.guaranteed(docker(2), 8, effective="1")
    host.start()
    host.stop()
    host.file.path.unlink()
    host.file.previous_path.unlink()

    with MemsWrites(host, (one, two)) as writes:
        host.start()

        assert writes.taken() == []
    assert host.states() == {one: "pinned-by-others", two: "pinned-by-others"}
    assert host.reserved() == {0: 8, 1: 8}
    assert host.agent.counters.writes == 0
    host.sound()


steps = st.lists(
    st.sampled_from(["start", "stop-one", "restart", "reboot", "shrink", "grow", "crash"]), min_size=1, max_size=8
)


@settings(max_examples=25)
@given(steps)
def test_any_sequence_leaves_the_books_explained(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[str]
) -> None:
    """Starts, ends, restarts, crashes, reboots, other totals: books follow from the living containers alone."""
    host = Host(tmp_path_factory.mktemp("sequence"), nodes=even(2, memory=10 * GIB))
    host.start()
    alive: list[str] = []
    for number, step in enumerate(sequence):
        match step:
            case "start":
                alive.append(host.guaranteed(docker(number), 3))
                host.agent.on_created(alive[-1:])
            case "stop-one" if alive:
                host.agent.on_removed([host.remove(alive.pop(0))])
            case "restart":
                host.restart()
            case "crash":
                host.start()
            case "reboot":
                host.stop()
                host.boot = f"{number:08x}"
                for path in alive:
                    again(host, path, 3, effective=host.mems(path) or "0")
                host.start()
            case "shrink" | "grow":
                write_machine(host.root, even(2, memory=(9 if step == "shrink" else 12) * GIB))
                host.agent.on_machine(type(host.agent.machine).read(host.root, host.config))
            case _:
                continue
        host.sound()
        ledger = host.agent.ledger
        assert set(host.agent.views) == set(alive)
        assert set(ledger.pins) <= set(alive)
        assert ledger.books == rebase(ledger.books, host.agent.machine.node_map)

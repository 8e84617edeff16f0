"""Drift: noticed, put right at once, explained, and with more and more patience against a second writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.drift import (
    FIRST_WAIT_NS,
    FREE_REPAIRS,
    LONGEST_WAIT_NS,
    NEAR_NS,
    WINDOW_NS,
    Patience,
)
from numapin.daemon.tracked import ContainerState, DriftCause
from numapin.kernel.cgroup_mounts import CgroupVersion
from support.cgroup_trees import oci
from support.daemon import Host, cid, docker
from support.running import wait_for

SECOND = 1_000_000_000


def foreign_write(host: Host, path: str, nodes: str = "1") -> None:
    """Somebody else writes, and the watch tells."""
    host.put(path, {"cpuset.mems": f"{nodes}\n"})
    host.agent.on_mems_written([path])


def quarrel(patience: Patience, *, for_ns: int, every_ns: int, start_ns: int = 0) -> list[int]:
    """When repairs are made while the other writer writes again so often."""
    repairs, now = [], start_ns
    while now < start_ns + for_ns:
        due = patience.due_ns(now)
        if due <= now:
            patience = patience.repaired(now)
            repairs.append(now)
        now += every_ns
    return repairs


# ---- patience -------------------------------------------------------------------------------------------------


def test_the_first_repairs_are_at_once() -> None:
    """Up to the limit within the window nothing waits."""
    patience = Patience()
    for k in range(FREE_REPAIRS):
        assert patience.due_ns(k) == k
        patience = patience.repaired(k)

    assert patience.wait_ns == FIRST_WAIT_NS
    assert patience.due_ns(FREE_REPAIRS) == FREE_REPAIRS - 1 + FIRST_WAIT_NS


def test_the_wait_doubles_up_to_a_minute() -> None:
    """Against a writer that never stops, repairs come after 1, 2, 4, … and then 60 seconds."""
    patience, now, waits = Patience(), 0, []
    for _ in range(FREE_REPAIRS + 9):
        now = patience.due_ns(now)
        patience = patience.repaired(now)
        waits.append(patience.wait_ns // SECOND)

    assert waits[FREE_REPAIRS - 1 :] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_twenty_reloads_are_no_quarrel() -> None:
    """Twenty foreign writes, one each half second, are all put right at once."""
    assert len(quarrel(Patience(), for_ns=10 * SECOND, every_ns=SECOND // 2)) == 20


def test_a_rare_writer_is_always_put_right_at_once() -> None:
    """Somebody who writes every 2.2 seconds for an hour stays below the limit of the window for ever."""
    times = quarrel(Patience(), for_ns=3600 * SECOND, every_ns=2_200_000_000)

    assert len(times) == len(range(0, 3600 * SECOND, 2_200_000_000))


def test_an_hour_of_quarrel_is_bounded() -> None:
    """A writer that writes every millisecond gets the free repairs, a handful more, and then one a minute."""
    times = quarrel(Patience(), for_ns=600 * SECOND, every_ns=SECOND // 100)

    assert FREE_REPAIRS < len(times) < FREE_REPAIRS + 20


def test_peace_is_remembered() -> None:
    """After twice the wait without a drift, and a window at least, the next one is repaired at once again."""
    patience = Patience((0,), LONGEST_WAIT_NS)

    assert not patience.is_over(2 * LONGEST_WAIT_NS)
    assert patience.is_over(2 * LONGEST_WAIT_NS + 1)
    assert patience.due_ns(2 * LONGEST_WAIT_NS + 1) == 2 * LONGEST_WAIT_NS + 1
    assert patience.repaired(2 * LONGEST_WAIT_NS + 1) == Patience((2 * LONGEST_WAIT_NS + 1,))


@given(st.lists(st.integers(1, 200 * SECOND), max_size=200))
def test_laws_of_patience(gaps: list[int]) -> None:
    """
    A repair is never due in the past or more than a minute away, and at no time are there more than the free ones
    and seven others within a window.
    """
    patience, now, done = Patience(), 0, []
    for gap in gaps:
        now += gap
        due = patience.due_ns(now)
        assert now <= due <= now + LONGEST_WAIT_NS
        if due == now:
            patience = patience.repaired(now)
            done.append(now)

    for k, first in enumerate(done):
        assert len([t for t in done[k:] if t - first < WINDOW_NS]) <= FREE_REPAIRS + 7


# ---- repairs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_foreign_write_is_put_right(tmp_path: Path, version: CgroupVersion) -> None:
    """At the event, counted for the container and in total, said in one line with what was found."""
    host = Host(tmp_path, version=version)
    path = host.guaranteed(docker(1), 2)
    host.start()

    foreign_write(host, path)

    assert host.mems(path) == "0"
    assert host.states() == {path: "pinned"}
    assert host.view(path).repairs == host.agent.counters.repairs == 1
    assert host.view(path).repair_cause is DriftCause.OTHER
    assert host.agent.counters.repair_causes == {"by-hand-or-another-program": 1}
    facts = host.log.facts("drift_repaired")
    assert (facts["found"], facts["mems"], facts["cause"]) == ("1", "0", "by-hand-or-another-program")
    assert host.reserved() == {0: 2}
    host.sound()


def test_other_text_is_no_drift(tmp_path: Path) -> None:
    """The same set in another spelling is left as it is."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 15, effective="0-1")
    host.start()
    assert host.mems(path) == "0-1"

    foreign_write(host, path, "0,1")
    host.agent.full_pass()

    assert host.mems(path) == "0,1"
    assert host.agent.counters.repairs == 0


def test_an_emptied_value_is_drift(tmp_path: Path) -> None:
    """Inheriting is not what was promised."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    foreign_write(host, path, "")

    assert host.mems(path) == "0"
    assert host.log.facts("drift_repaired")["found"] == ""


def test_our_own_write_is_none(tmp_path: Path) -> None:
    """The event of our own write finds our own value."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    host.agent.on_mems_written([path])

    assert host.agent.counters.repairs == 0


def test_the_pass_catches_what_no_event_told(tmp_path: Path) -> None:
    """A drift without an event is put right by the slow pass."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpuset.mems": "2\n"})

    host.agent.full_pass()

    assert host.mems(path) == "0"
    assert host.view(path).repairs == 1


def test_the_watch_is_set_before_the_write(tmp_path: Path) -> None:
    """Who writes right after us is seen: a failed write is watched no longer, a pinned container is."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 1)
    failing = host.guaranteed(docker(2), 1, effective="0-3")

    host.start()

    assert host.states() == {path: "pinned", failing: "failed"}
    assert host.watched.mems == {path}


def test_a_vanished_container_drifts_no_more(tmp_path: Path) -> None:
    """An event for a cgroup that is gone repairs nothing and complains about nothing."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.remove(path)

    host.agent.on_mems_written([path])

    assert host.agent.counters.repairs == 0


# ---- two writers ----------------------------------------------------------------------------------------------


def fight(host: Host, path: str, rounds: int) -> None:
    """The other one writes again each time, at once."""
    for _ in range(rounds):
        foreign_write(host, path)


def test_two_writers_do_not_fight_for_ever(tmp_path: Path) -> None:
    """After the free repairs the value is left for a while; state, message and log say so, and the promise stands."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    fight(host, path, FREE_REPAIRS + 5)

    view = host.view(path)
    assert view.repairs == FREE_REPAIRS
    assert host.mems(path) == "1"
    assert view.state is ContainerState.CONTESTED
    assert view.message == (
        "cpuset.mems is 1 now; somebody else writes it again and again, so it is put right once in 1 s now"
    )
    assert host.log.events().count("container_contested") == 1
    assert host.agent.next_due_ns() == host.clock.monotonic_ns() + FIRST_WAIT_NS
    assert host.reserved() == {0: 2}
    host.sound()


def test_a_delayed_repair_comes(tmp_path: Path) -> None:
    """When its time has come the value is put right without any event, and the wait doubles."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    fight(host, path, FREE_REPAIRS + 1)

    host.clock.advance(ns=FIRST_WAIT_NS)
    host.agent.due(host.clock.monotonic_ns())

    assert host.mems(path) == "0"
    assert host.states() == {path: "pinned"}
    assert host.view(path).message == ("somebody else writes it again and again, so it is put right once in 2 s now")
    host.look_for_leftovers()
    assert host.agent.next_due_ns() is None
    foreign_write(host, path)
    assert host.agent.next_due_ns() == host.clock.monotonic_ns() + 2 * FIRST_WAIT_NS


def test_the_other_gives_up(tmp_path: Path) -> None:
    """When the value is right again without us the container is pinned; after the quarrel nothing is left of it."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    fight(host, path, FREE_REPAIRS + 1)

    foreign_write(host, path, "0")
    assert host.states() == {path: "pinned"}
    assert "again and again" in host.view(path).message
    host.clock.advance(ns=WINDOW_NS + 1)
    host.agent.full_pass()

    assert host.view(path).message == ""
    host.look_for_leftovers()
    assert host.agent.next_due_ns() is None


def test_the_pass_does_not_hurry(tmp_path: Path) -> None:
    """The slow pass respects the wait too."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    fight(host, path, FREE_REPAIRS + 1)

    host.agent.full_pass()

    assert host.mems(path) == "1"
    assert host.view(path).repairs == FREE_REPAIRS


def test_one_quarrel_is_not_anothers(tmp_path: Path) -> None:
    """A second container is repaired at once while the first one waits, and its end forgets the first."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 2)
    host.start()
    fight(host, path, FREE_REPAIRS + 1)

    foreign_write(host, other)

    assert host.mems(other) == "0"
    host.agent.on_removed([host.remove(path)])
    host.look_for_leftovers()
    assert host.agent.next_due_ns() is None


# ---- causes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["state-first", "write-first"])
def test_a_runtime_update_is_told(tmp_path: Path, order: str) -> None:
    """A state file written shortly before or after the value explains it; the total stays one."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    if order == "state-first":
        host.agent.on_state([path])
        host.clock.advance(ns=NEAR_NS)
        foreign_write(host, path)
    else:
        foreign_write(host, path)
        host.clock.advance(ns=NEAR_NS)
        host.agent.on_state([path])

    assert host.view(path).repair_cause is DriftCause.RUNTIME
    causes = {k: n for k, n in host.agent.counters.repair_causes.items() if n}
    assert causes == {"runtime-update": 1}
    assert host.mems(path) == "0"


def test_an_old_update_explains_nothing(tmp_path: Path) -> None:
    """A state file of long ago has nothing to do with it."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.agent.on_state([path])

    host.clock.advance(ns=NEAR_NS + 1)
    foreign_write(host, path)

    assert host.view(path).repair_cause is DriftCause.OTHER


def test_new_nodes_by_the_runtime_are_its_choice(tmp_path: Path) -> None:
    """
    ``docker update --cpuset-mems``: the value is taken for drift first; once the runtime's state names the nodes
    they are the admin's own, stand in the cgroup again, and are accounted.
    """
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    base, resources = "/run/docker/runtime-runc/moby", {"memory": 2 << 30, "cpu_quota": 50_000}
    host.tree.task("moby", cid(1), oci(memory=2 << 30, quota=50_000))
    host.tree.runc(cid(1), path, base=base, **resources)
    host.start()

    foreign_write(host, path, "2")
    assert host.mems(path) == "0"
    host.tree.runc(cid(1), path, base=base, **resources, cpuset_mems="2")
    host.agent.on_state([path])

    assert host.states() == {path: "pinned-by-others"}
    assert host.mems(path) == "2"
    assert host.reserved() == {2: 2}
    assert host.watched.mems == set()
    host.sound()


def test_new_nodes_by_the_runtime_while_a_repair_is_on_its_way(tmp_path: Path) -> None:
    """
    The runtime's state names the nodes while a thread has yet to write ours over them: that write comes too, and is
    undone after it.
    """
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    base, resources = "/run/docker/runtime-runc/moby", {"memory": 2 << 30, "cpu_quota": 50_000}
    host.tree.task("moby", cid(1), oci(memory=2 << 30, quota=50_000))
    host.tree.runc(cid(1), path, base=base, **resources)
    host.start()
    host.holds(path, {0: 20 << 20})

    foreign_write(host, path, "2")
    wait_for(lambda: host.mems(path) == "0")
    host.put(path, {"cpuset.mems": "2\n"})  # as it was before the thread came to it
    host.tree.runc(cid(1), path, base=base, **resources, cpuset_mems="2")
    host.agent.on_state([path])
    host.put(path, {"cpuset.mems": "0\n"})  # the thread's write
    host.wait_for_writes()

    assert host.states() == {path: "pinned-by-others"}
    assert host.mems(path) == "2"
    assert host.reserved() == {2: 2}
    host.sound()

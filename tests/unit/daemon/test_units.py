"""Telling systemd: after the write and in a thread, checked by reading back, and never needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.tracked import DriftCause
from numapin.daemon.units import UnitJob, Units, settle
from numapin.kernel.systemd import Systemd, decode_nodes, encode_nodes
from numapin.model.nodeset import NodeSet
from support.daemon import Host, cid, cri, docker
from support.system_bus import DENIED, UNKNOWN_PROPERTY, SystemBus, Unit, system_bus

ONE = NodeSet.of(1)


def job(bus: SystemBus, cgroup: str, nodes: NodeSet, replaces: NodeSet | None = None) -> UnitJob:
    """A job for a unit that is loaded."""
    return UnitJob(cgroup, 7, bus.add(cgroup), nodes, replaces)


def told(bus: SystemBus, cgroup: str) -> NodeSet:
    """What systemd would write."""
    return decode_nodes(bus.units[cgroup.rpartition("/")[2]].nodes)


# ---- one job --------------------------------------------------------------------------------------------------


def test_a_property_is_set_and_read_back(tmp_path: Path) -> None:
    """The new value is asked for once, and what is read back makes it a success."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        outcome = settle(systemd, job(bus, docker(1), ONE))

        assert (outcome.problem, outcome.found, outcome.differed) == ("", NodeSet(), False)
        assert told(bus, docker(1)) == ONE
        assert bus.calls.count("SetUnitProperties") == 1


def test_what_stands_is_not_set_again(tmp_path: Path) -> None:
    """PID 1 is not bothered with a value it has."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        task = job(bus, docker(1), ONE)
        bus.units[task.unit].nodes = encode_nodes(ONE)

        outcome = settle(systemd, task)

        assert outcome.problem == ""
        assert "SetUnitProperties" not in bus.calls


def test_another_value_is_replaced_and_told(tmp_path: Path) -> None:
    """Somebody told the unit other nodes: ours are set, and the outcome says that it differed."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        task = job(bus, docker(1), ONE)
        bus.units[task.unit].nodes = encode_nodes(NodeSet.of(2))

        outcome = settle(systemd, task)

        assert outcome.differed
        assert told(bus, docker(1)) == ONE


def test_only_our_value_is_reset(tmp_path: Path) -> None:
    """A reset takes away what we set, and leaves what somebody else set."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        ours, theirs = (job(bus, docker(k), NodeSet(), replaces=ONE) for k in (1, 2))
        bus.units[ours.unit].nodes = encode_nodes(ONE)
        bus.units[theirs.unit].nodes = encode_nodes(NodeSet.of(2))

        assert settle(systemd, ours).problem == settle(systemd, theirs).problem == ""
        assert told(bus, docker(1)) == NodeSet()
        assert told(bus, docker(2)) == NodeSet.of(2)


def test_a_value_that_is_ignored_is_no_success(tmp_path: Path) -> None:
    """systemd may answer yes and do nothing: the read back tells."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        bus.deaf = True

        outcome = settle(systemd, job(bus, docker(1), ONE))

        assert outcome.problem == "systemd took AllowedMemoryNodes=1 and says (none): ignored"
        assert not outcome.absent


@pytest.mark.parametrize("error", [DENIED, UNKNOWN_PROPERTY])
def test_a_refusal_is_a_sentence(tmp_path: Path, error: str) -> None:
    """What systemd said stands in the outcome, for a property it does not know as for one it does not give."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        if error == DENIED:
            bus.refuse_set = error
        else:
            bus.refuse_get = error

        outcome = settle(systemd, job(bus, docker(1), ONE))

        assert error in outcome.problem
        assert outcome.absent == (error == UNKNOWN_PROPERTY)  # then it is the machine's affair


def test_a_unit_of_another_cgroup_is_left_alone(tmp_path: Path) -> None:
    """The same name elsewhere is another unit: nothing is set."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        task = job(bus, docker(1), ONE)
        bus.units[task.unit] = Unit("/user.slice" + docker(1))

        outcome = settle(systemd, task)

        assert "is the cgroup /user.slice/system.slice/docker-" in outcome.problem
        assert "SetUnitProperties" not in bus.calls


def test_no_unit_and_no_systemd(tmp_path: Path) -> None:
    """A scope of the cgroupfs driver is the container's matter, a missing systemd is the machine's."""
    task = UnitJob("/x.scope", 7, "x.scope", ONE)
    absent = settle(Systemd(tmp_path), task)
    with system_bus(tmp_path), Systemd(tmp_path) as systemd:
        unknown = settle(systemd, task)

    assert absent.absent
    assert not unknown.absent
    assert unknown.problem == "systemd has no unit x.scope: another cgroup driver made it"


# ---- the thread -----------------------------------------------------------------------------------------------


def test_what_is_no_unit_asks_nobody(tmp_path: Path) -> None:
    """A cgroup without a unit's name starts no thread."""
    units = Units(Systemd(tmp_path))

    assert not units.submit("/docker/abc", 7, ONE)
    assert units.busy == frozenset()
    assert units.collect() == []


# ---- with the agent -------------------------------------------------------------------------------------------


def host_with(bus: SystemBus, *paths: str) -> Host:
    """A daemon beside systemd, which writes a unit's nodes into its cgroup as the real one does."""
    host = Host(bus.root)
    host.units = Units(Systemd(bus.root))
    for path in paths:
        bus.add(path)
        host.guaranteed(path, 2)

    def write(unit: Unit) -> None:
        if nodes := decode_nodes(unit.nodes):  # an empty value is refused by the kernel for a populated cgroup
            host.put(unit.cgroup, {"new": f"{nodes}\n"})  # in one step: a kernel's file is never half written
            directory = host.tree.cpuset / unit.cgroup.lstrip("/")
            (directory / "new").rename(directory / "cpuset.mems")

    bus.on_set = write
    return host


def test_a_pin_is_told_after_it_was_written(tmp_path: Path) -> None:
    """The direct write stands at once; then the unit says the same, and the record and the row say that it does."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        host.start()
        assert host.mems(docker(1)) == "0"
        assert host.states() == {docker(1): "pinned"}

        host.wait_for_units()
        host.agent.flush()

        assert told(bus, docker(1)) == NodeSet.of(0)
        assert host.saved().containers[docker(1)].unit == docker(1).rpartition("/")[2]
        assert host.view(docker(1)).unit_note.endswith(".scope says the same")
        assert host.agent.counters.repairs == 0


def test_systemd_sees_the_value_in_place(tmp_path: Path) -> None:
    """When the property is set, the cgroup has the value already: PID 1 has no page to move."""
    seen: list[str] = []
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        bus.on_set = lambda unit: seen.append(host.mems(unit.cgroup))
        host.start()
        host.wait_for_units()

    assert seen == ["0"]


@pytest.mark.parametrize("trouble", ["deaf", "refuse_set", "refuse_get", "unknown"])
def test_the_direct_write_stands_alone(tmp_path: Path, trouble: str) -> None:
    """Whatever systemd says, the pin is the pin; the record says that the unit was not told, the log once why."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        if trouble == "unknown":
            bus.units.clear()
        else:
            setattr(bus, trouble, True if trouble == "deaf" else DENIED)
        host.start()
        host.wait_for_units()
        host.agent.flush()

        assert host.states() == {docker(1): "pinned"}
        assert host.mems(docker(1)) == "0"
        assert host.saved().containers[docker(1)].unit is None
        assert host.log.facts("unit_not_told")["reason"] == host.view(docker(1)).unit_note
        assert host.reserved() == {0: 2}
        host.sound()


def test_b076_no_unit_for_a_container(tmp_path: Path) -> None:
    """
    B076: a Podman container of the cgroupfs driver has no unit, nor has one with a scope's name that systemd does not
    know: both are written directly in the same pass as one that has its unit, and only that one is told.
    """
    plain, unknown, known = f"/libpod_parent/libpod-{cid(1)}", f"/machine.slice/libpod-{cid(2)}.scope", docker(3)
    with system_bus(tmp_path) as bus:
        host = host_with(bus, known)
        for path in (plain, unknown):
            host.guaranteed(path, 2)
        host.start()
        assert [host.mems(path) for path in (plain, unknown, known)] == ["0", "0", "0"]
        host.wait_for_units()
        host.agent.flush()

        assert host.states() == dict.fromkeys((plain, unknown, known), "pinned")
        assert [host.mems(path) for path in (plain, unknown, known)] == ["0", "0", "0"]
        assert host.reserved() == {0: 6}
        assert list(bus.units) == [known.rpartition("/")[2]]
        assert told(bus, known) == NodeSet.of(0)
        assert bus.calls.count("SetUnitProperties") == 1
        saved = host.saved().containers
        assert [saved[path].unit for path in (plain, unknown, known)] == [None, None, known.rpartition("/")[2]]
        assert host.view(plain).unit_note == ""
        assert host.view(unknown).unit_note == (
            f"systemd has no unit libpod-{cid(2)}.scope: another cgroup driver made it"
        )
        assert {level for level, _, _ in host.log.lines} == {"info"}


def test_no_bus_is_one_finding(tmp_path: Path) -> None:
    """Where nobody answers on the bus every container is pinned all the same, and the machine has one finding."""
    host = Host(tmp_path)
    host.units = Units(Systemd(tmp_path))
    paths = [host.guaranteed(docker(k), 1) for k in range(3)]
    host.start()
    host.wait_for_units()

    assert host.states() == dict.fromkeys(paths, "pinned")
    assert "not started by systemd" in host.units.finding
    assert "unit_not_told" not in host.log.events()


@pytest.mark.parametrize("knows", [False, True], ids=["239", "239-with-the-backport"])
def test_b077_a_systemd_without_the_property(tmp_path: Path, knows: bool) -> None:
    """
    B077: what counts is whether the property is known, not a version: where it is not, three containers are pinned
    directly, with one line and one finding for all, and none claims that its unit says the same.
    """
    paths = [docker(k) for k in range(3)]
    with system_bus(tmp_path) as bus:
        host = host_with(bus, *paths)
        bus.refuse_get = "" if knows else UNKNOWN_PROPERTY
        host.start()
        host.wait_for_units()
        host.agent.full_pass()
        host.wait_for_units()
        host.agent.flush()

        assert host.units is not None
        assert host.states() == dict.fromkeys(paths, "pinned")
        assert [host.mems(path) for path in paths] == ["0", "0", "0"]
        assert [bool(host.saved().containers[path].unit) for path in paths] == [knows] * 3
        assert ["says the same" in host.view(path).unit_note for path in paths] == [knows] * 3
        assert host.log.events().count("no_unit_is_told") == (not knows)
        assert host.log.events().count("unit_not_told") == 0
        assert ("came with systemd 244" in host.units.finding) == (not knows)
        assert bus.calls.count("SetUnitProperties") == 3 * knows


def test_a_unit_change_is_told_as_the_cause(tmp_path: Path) -> None:
    """
    ``systemctl set-property AllowedMemoryNodes=`` other nodes: the value is put right in cgroup and unit, and the
    cause is known.
    """
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        host.start()
        host.wait_for_units()
        bus.units[docker(1).rpartition("/")[2]].nodes = encode_nodes(NodeSet.of(2))
        host.put(docker(1), {"cpuset.mems": "2\n"})

        host.agent.on_mems_written([docker(1)])
        assert host.mems(docker(1)) == "0"
        host.wait_for_units()
        host.agent.on_mems_written([docker(1)])

        assert told(bus, docker(1)) == NodeSet.of(0)
        assert host.view(docker(1)).repair_cause is DriftCause.SYSTEMD
        assert {k: n for k, n in host.agent.counters.repair_causes.items() if n} == {"systemd-unit-change": 1}
        assert host.log.facts("drift_explained")["cause"] == "systemd-unit-change"
        assert host.agent.counters.repairs == 1


def test_a_write_by_hand_is_not_systemds(tmp_path: Path) -> None:
    """The unit says ours all the while: somebody else wrote."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        host.start()
        host.wait_for_units()
        host.put(docker(1), {"cpuset.mems": "2\n"})

        host.agent.on_mems_written([docker(1)])
        host.wait_for_units()

        assert host.view(docker(1)).repair_cause is DriftCause.OTHER


def test_a_restart_asks_only_about_what_was_not_told(tmp_path: Path) -> None:
    """A daemon that finds the unit in the record leaves PID 1 in peace; one that does not, tells it."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        host.start()
        host.wait_for_units()
        host.stop()
        bus.calls.clear()

        host.units = Units(Systemd(tmp_path))
        host.start()
        assert host.units.busy == frozenset()
        host.stop()
        host.units = None
        host.guaranteed(docker(2), 2)
        bus.add(docker(2))
        host.start()
        host.stop()
        host.units = Units(Systemd(tmp_path))
        host.start()
        host.wait_for_units()

        assert bus.calls.count("SetUnitProperties") == 1
        assert told(bus, docker(2)) == NodeSet.of(0)


def test_a_container_that_is_managed_no_more(tmp_path: Path) -> None:
    """Its cgroup gets back what was there, and its unit is told nothing again."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, docker(1))
        host.start()
        host.wait_for_units()
        host.put(docker(1), {"cpu.max": "max 100000\n"})

        host.agent.full_pass()
        host.wait_for_units()

        assert host.states() == {docker(1): "not-managed"}
        assert host.mems(docker(1)) == "0-3"
        assert told(bus, docker(1)) == NodeSet()


def test_containers_of_pods_have_units_too(tmp_path: Path) -> None:
    """A containerd scope of a pod is a unit like Docker's."""
    with system_bus(tmp_path) as bus:
        host = host_with(bus, cri(1))
        host.start()
        host.wait_for_units()

        assert told(bus, cri(1)) == NodeSet.of(0)

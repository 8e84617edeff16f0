"""``AllowedMemoryNodes`` over a real socket: the calls, the bit map, and every way it can fail."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.systemd import BOOTED, SYSTEM_BUS, Systemd, decode_nodes, encode_nodes, unit_of
from numapin.model.errors import NoSuchUnit, SystemdAbsent, SystemdError
from numapin.model.nodeset import NodeSet
from support.system_bus import DENIED, UNKNOWN_PROPERTY, system_bus

SCOPE = "/system.slice/docker-" + "a" * 64 + ".scope"


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        (SCOPE, SCOPE.rpartition("/")[2]),
        ("/machine.slice/libpod-1.scope", "libpod-1.scope"),
        ("/machine.slice/systemd-nspawn@a\\x2db.service", "systemd-nspawn@a\\x2db.service"),
        ("/system.slice/_memory.x.scope", "memory.x.scope"),
        ("/machine.slice/libpod-1.scope/container", None),
        ("/kubepods/pod1/abc", None),
        ("/system.slice", None),
        ("/a.slice:cri-containerd:abc", None),
        ("/x/.scope", None),
        ("/x/a b.scope", None),
        ("/x/" + "a" * 300 + ".scope", None),
        ("/", None),
    ],
)
def test_which_cgroup_is_a_unit(cgroup: str, unit: str | None) -> None:
    """Only a directory that is named as a scope or a service is one; what is inside of a unit is not."""
    assert unit == unit_of(cgroup)


@given(st.frozensets(st.integers(0, 1023)))
def test_the_bit_map_goes_both_ways(ids: frozenset[int]) -> None:
    """What is encoded comes back, with systemd's padding too; no node is no byte."""
    nodes = NodeSet.from_ids(ids)

    assert nodes == decode_nodes(encode_nodes(nodes))
    assert nodes == decode_nodes(encode_nodes(nodes) + bytes(9))
    assert bool(ids) == bool(encode_nodes(nodes))


def test_the_bit_map_of_node_1() -> None:
    """Node 1 is the byte 0x02, and node 8 the first bit of the second byte."""
    assert encode_nodes(NodeSet.of(1)) == b"\x02"
    assert encode_nodes(NodeSet.of(8)) == b"\x00\x01"


def test_set_read_reset(tmp_path: Path) -> None:
    """The property follows, the unit tells its cgroup, and an empty set resets it; one connection is enough."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        unit = bus.add(SCOPE)

        assert SCOPE == systemd.read_control_group(unit)
        assert NodeSet() == systemd.read_allowed_memory_nodes(unit)
        systemd.set_allowed_memory_nodes(unit, NodeSet.of(1, 3))
        assert NodeSet.of(1, 3) == systemd.read_allowed_memory_nodes(unit)
        assert bus.units[unit].nodes.rstrip(b"\0") == b"\x0a"
        systemd.set_allowed_memory_nodes(unit, NodeSet())
        assert NodeSet() == systemd.read_allowed_memory_nodes(unit)


def test_services_have_an_interface_of_their_own(tmp_path: Path) -> None:
    """A service is asked as a service."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        unit = bus.add("/machine.slice/systemd-nspawn@a.service", b"\x01")

        assert NodeSet.of(0) == systemd.read_allowed_memory_nodes(unit)


def test_no_systemd(tmp_path: Path) -> None:
    """Without systemd, or without its bus, that is said, and no socket is tried."""
    systemd = Systemd(tmp_path)
    assert not systemd.present
    with pytest.raises(SystemdAbsent):
        systemd.read_allowed_memory_nodes("a.scope")

    (tmp_path / BOOTED).mkdir(parents=True)
    assert not systemd.present


def test_a_dead_socket(tmp_path: Path) -> None:
    """A bus that nobody serves is an absent one."""
    (tmp_path / BOOTED).mkdir(parents=True)
    path = tmp_path / SYSTEM_BUS
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))

    with pytest.raises(SystemdAbsent, match="nobody listens"):
        Systemd(tmp_path).read_control_group("a.scope")


def test_no_such_unit(tmp_path: Path) -> None:
    """A scope of the cgroupfs driver is no unit: an error of its own kind, for reading and for setting."""
    with system_bus(tmp_path), Systemd(tmp_path) as systemd:
        with pytest.raises(NoSuchUnit) as read:
            systemd.read_control_group("x.scope")
        with pytest.raises(NoSuchUnit):
            systemd.set_allowed_memory_nodes("x.scope", NodeSet.of(0))

    assert read.value.unit == "x.scope"
    assert "not loaded" in read.value.detail


@pytest.mark.parametrize("error", [DENIED, UNKNOWN_PROPERTY])
def test_refusals(tmp_path: Path, error: str) -> None:
    """An error of systemd's is passed on with its name and text; the connection goes on serving."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        unit = bus.add(SCOPE)
        bus.refuse_get = bus.refuse_set = error

        with pytest.raises(SystemdError, match=error):
            systemd.read_allowed_memory_nodes(unit)
        with pytest.raises(SystemdError, match=error):
            systemd.set_allowed_memory_nodes(unit, NodeSet.of(0))
        assert SCOPE == systemd.read_control_group(unit)


def test_nobody_owns_the_name(tmp_path: Path) -> None:
    """A bus without systemd on it is an absent systemd."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path) as systemd:
        unit = bus.add(SCOPE)
        bus.refuse_set = "org.freedesktop.DBus.Error.ServiceUnknown"

        with pytest.raises(SystemdAbsent):
            systemd.set_allowed_memory_nodes(unit, NodeSet.of(0))


def test_no_answer(tmp_path: Path) -> None:
    """A silent systemd is left after the given time, and asked on a fresh connection the next time."""
    with system_bus(tmp_path) as bus, Systemd(tmp_path, timeout_s=0.05) as systemd:
        unit = bus.add(SCOPE)
        bus.mute = True
        with pytest.raises(SystemdError, match=r"no answer within 0\.05 s"):
            systemd.read_control_group(unit)
        bus.mute = False

    with pytest.raises(SystemdAbsent):
        systemd.read_control_group(unit)


def test_a_bus_that_says_nothing_at_all(tmp_path: Path) -> None:
    """The authentication has the same limit of time."""
    (tmp_path / BOOTED).mkdir(parents=True)
    (tmp_path / SYSTEM_BUS).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / SYSTEM_BUS))
        sock.listen()

        with pytest.raises(SystemdError, match="no answer"):
            Systemd(tmp_path, timeout_s=0.05).read_control_group("a.scope")


def test_something_else_listens(tmp_path: Path) -> None:
    """What does not speak D-Bus is an error with the socket's path, not a traceback."""
    (tmp_path / BOOTED).mkdir(parents=True)
    (tmp_path / SYSTEM_BUS).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / SYSTEM_BUS))
        sock.listen()
        client = Systemd(tmp_path, timeout_s=5)
        import threading

        def refuse() -> None:
            peer, _ = sock.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"REJECTED\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(SystemdError, match="system_bus_socket"):
            client.read_control_group("a.scope")
        thread.join()


def test_a_bus_that_was_restarted(tmp_path: Path) -> None:
    """A connection that broke since the last call is replaced, and the call goes through."""
    with Systemd(tmp_path) as systemd:
        with system_bus(tmp_path) as bus:
            unit = bus.add(SCOPE)
            assert SCOPE == systemd.read_control_group(unit)
        (tmp_path / SYSTEM_BUS).unlink()
        (tmp_path / SYSTEM_BUS).parent.rmdir()
        (tmp_path / BOOTED).rmdir()
        with system_bus(tmp_path) as bus:
            bus.add(SCOPE, b"\x04")

            assert NodeSet.of(2) == systemd.read_allowed_memory_nodes(unit)

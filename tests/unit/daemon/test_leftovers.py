"""Memory that a pinned container still has on other nodes."""

from __future__ import annotations

from pathlib import Path

from numapin.daemon.status import container_row
from support.daemon import Host, docker

MIB = 1 << 20


def pinned(tmp_path: Path, sizes: dict[int, int]) -> tuple[Host, str]:
    """A container pinned to node 0, whose memory lies as *sizes* (bytes by node) say two seconds later."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.holds(path, sizes)
    host.look_for_leftovers()
    return host, path


def test_what_stays_behind_is_told(tmp_path: Path) -> None:
    """Bytes on other nodes stand in the container's row, in its sentence, and once in the log."""
    host, path = pinned(tmp_path, {0: 50 * MIB, 1: 3 * MIB, 2: 2 * MIB, 3: 0})

    row = container_row(host.view(path))
    assert (row["state"], row["left_bytes"]) == ("pinned", {"1": 3 * MIB, "2": 2 * MIB})
    assert "3 MiB on node 1, 2 MiB on node 2" in str(row["message"])
    host.agent.full_pass()
    assert [2 * MIB] == [f["left_bytes"]["2"] for _, e, f in host.log.lines if e == "pages_left_behind"]


def test_nothing_stays_behind(tmp_path: Path) -> None:
    """A container whose memory is all on its nodes has no sentence, and is not looked at again."""
    host, path = pinned(tmp_path, {0: 50 * MIB, 1: 0})
    host.holds(path, {0: 50 * MIB, 1: 9 * MIB})
    host.agent.full_pass()

    row = container_row(host.view(path))
    assert (row["left_bytes"], row["message"]) == ({}, "")
    assert host.agent.next_due_ns() is None


def test_a_few_pages_are_only_numbers(tmp_path: Path) -> None:
    """Less than 1 MiB makes no sentence, but is in the document."""
    host, path = pinned(tmp_path, {0: 50 * MIB, 3: 8192})

    row = container_row(host.view(path))
    assert (row["left_bytes"], row["message"]) == ({"3": 8192}, "")
    assert "pages_left_behind" not in host.log.events()


def test_what_is_freed_is_gone(tmp_path: Path) -> None:
    """Each full pass looks again at a container that had some, until it has none."""
    host, path = pinned(tmp_path, {0: 50 * MIB, 1: 3 * MIB})
    host.holds(path, {0: 50 * MIB})
    host.agent.full_pass()

    assert container_row(host.view(path))["left_bytes"] == {}


def test_after_a_restart(tmp_path: Path) -> None:
    """A daemon that finds its pin in place looks too: the one before may have ended first."""
    host, path = pinned(tmp_path, {0: 50 * MIB})
    host.holds(path, {0: 50 * MIB, 1: 3 * MIB})
    host.restart()
    host.look_for_leftovers()

    assert container_row(host.view(path))["left_bytes"] == {"1": 3 * MIB}


def test_odd_file(tmp_path: Path) -> None:
    """A file that cannot be understood, or a cgroup that went, tells nothing and stops nothing."""
    host, path = pinned(tmp_path, {0: 50 * MIB, 1: 3 * MIB})
    host.put(path, {"memory.numa_stat": "anon Nx=1\n"})
    host.agent.full_pass()
    assert container_row(host.view(path))["left_bytes"] == {"1": 3 * MIB}
    host.remove(path)
    host.agent.full_pass()

    assert host.states() == {}

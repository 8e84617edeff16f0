"""Containers outside pods that restart, stop, are removed or change their size."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.retention import LOOK_NS
from support.cgroup_trees import GIB
from support.daemon import BARE, Host, cid, docker
from support.trees import write_tree

SECOND = 1_000_000_000


def docker_keeps(host: Host, number: int) -> Path:
    """What Docker has of a container until ``docker rm``."""
    directory = host.root / "var/lib/docker/containers" / cid(number)
    directory.mkdir(parents=True)
    return directory


def anew(host: Host, path: str, gib: float, effective: str = "0") -> str:
    """The same container's next cgroup, which has another inode."""
    return host.guaranteed(path, gib, effective=effective)


def test_a_restart_keeps_the_nodes(tmp_path: Path) -> None:
    """
    ``docker restart``: the cgroup goes and comes again; the memory waited, so the nodes are the same although others
    would be chosen now.
    """
    host = Host(tmp_path)
    filler, path = host.guaranteed(docker(1), 6), host.guaranteed(docker(2), 6, effective="1")
    docker_keeps(host, 2)
    host.start()
    assert host.mems(path) == "1"
    host.agent.on_removed([host.remove(filler)])

    host.agent.on_removed([host.remove(path)])
    assert host.reserved() == {1: 6}
    host.agent.on_created([anew(host, path, 6, "1")])

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "1"
    assert host.reserved() == {1: 6}
    host.clock.advance(ns=BARE.release_grace_ns)
    host.agent.due(host.clock.monotonic_ns())
    assert host.reserved() == {1: 6}
    host.sound()


def test_a_stopped_one_waits_for_the_grace(tmp_path: Path) -> None:
    """``docker stop``: the memory is held, looked at each second, and given back at the end of the grace."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    docker_keeps(host, 1)
    host.start()
    host.agent.on_removed([host.remove(path)])
    assert host.log.facts("container_ended")["kept_for"] == "its restart"

    began = host.clock.monotonic_ns()
    while host.reserved():
        due = host.agent.next_due_ns()
        assert due is not None
        assert due - host.clock.monotonic_ns() <= LOOK_NS
        host.clock.advance(ns=due - host.clock.monotonic_ns())
        host.agent.due(host.clock.monotonic_ns())

    assert host.clock.monotonic_ns() - began == BARE.release_grace_ns
    assert host.agent.next_due_ns() is None
    host.sound()


def test_a_removed_one_waits_a_second_at_most(tmp_path: Path) -> None:
    """``docker rm`` after the stop: the memory is back at the next look, and the refused one gets it."""
    host = Host(tmp_path)
    path, waiting = host.guaranteed(docker(1), 36, effective="0-3"), host.guaranteed(docker(2), 8)
    kept = docker_keeps(host, 1)
    host.start()
    host.agent.on_removed([host.remove(path)])
    assert host.states() == {waiting: "refused"}

    kept.rmdir()
    host.clock.advance(ns=LOOK_NS)
    host.agent.due(host.clock.monotonic_ns())

    assert host.states() == {waiting: "pinned"}
    assert host.reserved() == {0: 8}


def test_without_metadata_the_memory_is_back_at_once(tmp_path: Path) -> None:
    """Nobody keeps it, so nobody will start it again; a task of containerd's that lingers is no sign."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.tree.task("moby", cid(1), {})
    host.start()

    host.agent.on_removed([host.remove(path)])

    assert host.reserved() == {}


def test_podman_keeps_containers_too(tmp_path: Path) -> None:
    """A stopped Podman container is in its storage."""
    host = Host(tmp_path)
    path = host.guaranteed(f"/machine.slice/libpod-{cid(1)}.scope", 2)
    host.tree.storage(cid(1), {})
    host.start()

    host.agent.on_removed([host.remove(path)])

    assert host.reserved() == {0: 2}


@pytest.mark.parametrize(
    ("files", "scope", "place"),
    [
        ({"etc/docker/daemon.json": '{"data-root": "/srv/docker"}'}, "docker", "srv/docker/containers"),
        (
            {"etc/containers/storage.conf": '[storage]\ngraphroot = "/srv/podman"\n'},
            "libpod",
            "srv/podman/overlay-containers",
        ),
        ({}, "nerdctl", "var/lib/nerdctl/1935db59/containers/default"),
    ],
)
def test_kept_elsewhere(tmp_path: Path, files: dict[str, str], scope: str, place: str) -> None:
    """A runtime with its data in another directory, or another runtime: the memory waits until the removal there."""
    write_tree(tmp_path, files)
    host = Host(tmp_path)
    path = host.guaranteed(f"/system.slice/{scope}-{cid(1)}.scope", 2)
    kept = tmp_path / place / cid(1)
    kept.mkdir(parents=True)
    host.start()

    host.agent.on_removed([host.remove(path)])
    stopped = host.reserved()
    kept.rmdir()
    host.clock.advance(ns=LOOK_NS)
    host.agent.due(host.clock.monotonic_ns())

    assert stopped == {0: 2}
    assert host.reserved() == {}
    host.sound()


@pytest.mark.parametrize("kept", [True, False])
def test_a_restart_of_the_daemon_in_between(tmp_path: Path, kept: bool) -> None:
    """A daemon that starts while the container is down holds the memory for the grace, if the runtime keeps it."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    if kept:
        docker_keeps(host, 1)
    host.remove(path)

    host.start()

    assert host.reserved() == ({0: 2} if kept else {})
    host.clock.advance(ns=BARE.release_grace_ns)
    host.agent.due(host.clock.monotonic_ns())
    assert host.reserved() == {}
    host.sound()


def test_a_reboot_keeps_no_stopped_container(tmp_path: Path) -> None:
    """After a boot nothing lives that could be restarted into old nodes."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    docker_keeps(host, 1)
    host.start()
    host.stop()
    host.remove(path)
    host.boot = "another-boot"

    host.start()

    assert host.reserved() == {}


def test_a_crash_loop_changes_nothing(tmp_path: Path) -> None:
    """Fifty restarts leave the same nodes and the same books."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    docker_keeps(host, 1)
    host.start()
    books = host.agent.ledger.books

    for _ in range(50):
        host.agent.on_removed([host.remove(path)])
        host.agent.on_created([host.guaranteed(path, 2)])

    assert books == host.agent.ledger.books
    assert host.states() == {path: "pinned"}
    assert list(host.agent.ledger.pins) == [path]


# ---- other sizes ----------------------------------------------------------------------------------------------


def test_an_update_that_fits(tmp_path: Path) -> None:
    """``docker update --memory``: the runtime's state event brings the new size into the books, nodes as they are."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()

    host.put(path, {"memory.max": f"{7 * GIB}\n"})
    host.agent.on_state([path])

    assert host.reserved() == {0: 7}
    assert host.states() == {path: "pinned"}
    assert host.agent.counters.writes == 1


def test_an_update_that_does_not_fit(tmp_path: Path) -> None:
    """The old promise and the pin stay; the new wish is named with numbers, and met when there is room."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 7)
    for k in (3, 4, 5):
        host.guaranteed(docker(k), 9, effective=str(k - 2))
    host.start()

    host.put(path, {"memory.max": f"{5 * GIB}\n"})
    host.agent.on_state([path])

    assert host.states()[path] == "pinned"
    assert host.view(path).message.startswith("keeps node 0 with the old size; the new size is refused: ")
    assert host.reserved()[0] == 9
    host.agent.on_removed([host.remove(other)])
    host.agent.on_state([path])
    host.agent.full_pass()
    host.sound()


def test_a_smaller_size_gives_back(tmp_path: Path) -> None:
    """What is not asked for any more is free for others."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 6)
    host.start()

    host.put(path, {"memory.max": f"{2 * GIB}\n"})
    host.agent.on_state([path])

    assert host.reserved() == {0: 2}


def test_a_size_without_an_event_is_seen_by_the_pass(tmp_path: Path) -> None:
    """A ``memory.max`` written past the runtime has no event; the slow pass follows it."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"memory.max": f"{3 * GIB}\n"})

    host.agent.full_pass()

    assert host.reserved() == {0: 3}

"""``release``: the daemon's answer, and the same from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.pinning import INLINE_BYTES
from numapin.daemon.release import release_document, release_offline
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.errors import AlreadyRunning, CheckpointUnreadable, ExitStatus, RequestFailed
from numapin.model.nodeset import NodeSet
from numapin.state.lock import DaemonLock
from support.cgroup_trees import GIB
from support.daemon import BARE, BOOT, Host, cid, docker
from support.system_bus import system_bus


def wide(host: Host, number: int) -> str:
    """A container of nodes 0-1 or 2-3, whose texts are as long as that of 0-3: plain files are not truncated."""
    v1 = host.tree.version is CgroupVersion.V1
    return host.guaranteed(docker(number), 15, mems="0-3" if v1 else "", effective=("0-1", "2-3")[number - 1])


def rows(document: dict[str, Any]) -> dict[str, Any]:
    """Containers by cgroup."""
    return {row["cgroup"]: row for row in document["containers"]}


# ---- by the daemon --------------------------------------------------------------------------------------------


def test_one_container(tmp_path: Path) -> None:
    """It is named in any way that means it; the answer has what stands in the cgroup now, and it is on disk."""
    host = Host(tmp_path)
    path, other = wide(host, 1), wide(host, 2)
    agent = host.start()

    document = release_document(agent, {"container": path})

    assert (document["kind"], document["pending"], document["all"]) == ("Release", 0, False)
    (row,) = rows(document).values()
    assert (row["id"], row["state"], row["mems"], row["problem"]) == (cid(1), "released", "0-3", None)
    assert list(host.saved().containers) == [other]


def test_all_containers(tmp_path: Path) -> None:
    """
    What had nodes of ours is released, and only that is in the answer: not what was refused, nor what is not managed.
    A report tells the same; a second release has nothing to do.
    """
    host = Host(tmp_path)
    path, other = wide(host, 1), wide(host, 2)
    refused = host.guaranteed(docker(3), 15)
    host.container(docker(7), memory=GIB)
    agent = host.start()
    assert host.states()[refused] == "refused"

    document: Any = release_document(agent, {"all": True})

    assert rows(document).keys() == {path, other}
    assert [row["message"] for row in document["containers"]] == ["", ""]
    report = rows(release_document(agent, {"all": True, "report": True}))
    assert {path: report[path], other: report[other]} == rows(document)
    assert release_document(agent, {"all": True})["containers"] == []


@pytest.mark.parametrize("params", [{"all": True}, {"container": cid(2)[:64]}, {"container": docker(2)}])
def test_what_ended_and_waits(tmp_path: Path, params: dict[str, object]) -> None:
    """A stopped container whose memory waits for its restart is released by id, by cgroup and with all others."""
    host = Host(tmp_path)
    stays, path = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 2)
    (tmp_path / "var/lib/docker/containers" / cid(2)).mkdir(parents=True)
    agent = host.start()
    agent.on_removed([host.remove(path)])
    assert host.saved().containers.keys() == {stays, path}

    if "container" in params:
        release_document(agent, params | {"report": True})
        assert host.saved().containers.keys() == {stays, path}

    document = release_document(agent, params)

    row = rows(document)[path]
    assert (row["state"], row["mems"], document["pending"]) == ("released", None, 0)
    assert row["message"] == "it had ended, and its memory waits for nobody any more"
    assert host.saved().containers.keys() == (set() if "all" in params else {stays})
    host.clock.advance(ns=2 * BARE.release_grace_ns)
    agent.due(host.clock.monotonic_ns())
    assert host.log.events().count("reservation_released") == 1
    host.sound()


def test_a_report_releases_nothing(tmp_path: Path) -> None:
    """It only tells how far things are."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    agent = host.start()

    document = release_document(agent, {"container": path, "report": True})

    assert rows(document)[path]["state"] == "pinned"
    assert host.mems(path) == "0"


def test_what_takes_time_is_pending(tmp_path: Path) -> None:
    """While a thread writes, the answer says so; a later report says when it is done."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 2 * INLINE_BYTES})
    agent = host.start()
    host.wait_for_writes()

    assert release_document(agent, {"all": True})["pending"] == 1
    host.wait_for_writes()
    assert release_document(agent, {"all": True, "report": True})["pending"] == 0
    assert host.saved().containers == {}


def test_a_problem_is_told(tmp_path: Path) -> None:
    """A cgroup that takes no write: the container is still pinned, and the row says why."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    agent = host.start()
    file = host.tree.cpuset / path.lstrip("/") / "cpuset.mems"
    file.unlink()
    file.symlink_to("/dev/full")

    row = rows(release_document(agent, {"all": True}))[path]

    assert row["state"] == "pinned"
    assert str(file) in row["problem"]


@pytest.mark.parametrize(
    ("params", "code", "status"),
    [
        ({}, "bad-request", ExitStatus.USAGE),
        ({"container": "x", "all": True}, "bad-request", ExitStatus.USAGE),
        ({"container": ["x"]}, "bad-request", ExitStatus.USAGE),
        ({"container": "nobody"}, "unknown-container", ExitStatus.FAILURE),
        ({"container": "0000"}, "ambiguous", ExitStatus.USAGE),
        ({"container": docker(7)}, "nothing-to-release", ExitStatus.FAILURE),
        ({"container": docker(8)}, "nothing-to-release", ExitStatus.FAILURE),
        ({"container": docker(9)}, "nothing-to-release", ExitStatus.FAILURE),
    ],
)
def test_bad_requests(tmp_path: Path, params: dict[str, object], code: str, status: ExitStatus) -> None:
    """Each has its code, and nothing is released."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.container(docker(7), memory=GIB)
    host.guaranteed(docker(8), 1, mems="2", effective="2")
    host.guaranteed(docker(9), 100)
    agent = host.start()

    with pytest.raises(RequestFailed) as failed:
        release_document(agent, params)

    assert (failed.value.code, failed.value.exit_status) == (code, status)
    assert host.states()[path] == "pinned"
    assert host.states()[docker(9)] == "refused"  # and it is tried again, as before


def test_a_dry_run_has_nothing_to_release(tmp_path: Path) -> None:
    """It says why."""
    host = Host(tmp_path, dry_run=True)
    agent = host.start()

    with pytest.raises(RequestFailed, match="--dry-run"):
        release_document(agent, {"all": True})


# ---- from the checkpoint --------------------------------------------------------------------------------------


def offline(host: Host) -> dict[str, Any]:
    """The release without a daemon."""
    boot = host.root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True, exist_ok=True)
    if not boot.exists():
        boot.write_text(f"{BOOT}\n")
    return release_offline(
        host.root, host.file.path, host.root / "run/numapin/lock", why="no daemon answers", clock=host.clock
    )


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_offline_equals_the_daemon(tmp_path: Path, version: CgroupVersion) -> None:
    """The cgroups are as before, the checkpoint promises nothing, the next start pins again."""
    host = Host(tmp_path, version=version)
    path, other = wide(host, 1), wide(host, 2)
    host.start()
    host.stop()
    assert host.mems(path) == "0-1"

    document = offline(host)

    assert {p: r["mems"] for p, r in rows(document).items()} == {path: "0-3", other: "0-3"}
    assert (host.mems(path), host.mems(other)) == ("0-3", "0-3")
    assert document["source"] == {
        "from": "checkpoint", "path": str(host.file.path), "why": "no daemon answers", "found": True, "damaged": [],
        "earlier_boot": False,
    }  # fmt: skip
    assert host.saved().containers == {}
    assert host.saved().books.assignments == {}
    host.start()
    assert host.states() == {path: "pinned", other: "pinned"}


def test_offline_without_a_checkpoint(tmp_path: Path) -> None:
    """Nothing to do is no error, and nothing is made."""
    host = Host(tmp_path)

    document = offline(host)

    assert document["source"]["found"] is False
    assert document["containers"] == []
    assert not host.file.path.exists()


def test_offline_beside_a_daemon(tmp_path: Path) -> None:
    """While a daemon holds the lock nothing is touched."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()

    with DaemonLock(tmp_path / "run/numapin/lock"), pytest.raises(AlreadyRunning):
        offline(host)

    assert host.mems(path) == "0"


def test_offline_after_a_reboot(tmp_path: Path) -> None:
    """Cgroups of another boot are others, whatever their inode: only the promises go, and the answer says so."""
    host = Host(tmp_path, boot="0b0b0b0b-0000-4000-8000-00000000000b")
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()

    document = offline(host)

    assert document["containers"] == []
    assert document["source"]["earlier_boot"] is True
    assert host.mems(path) == "0"
    assert host.saved().containers == {}


def test_offline_with_ended_and_other_values(tmp_path: Path) -> None:
    """A cgroup that is gone, one made anew, and one that somebody else wrote are left alone and said."""
    host = Host(tmp_path)
    gone, anew, others = (host.guaranteed(docker(k), 2) for k in (1, 2, 3))
    host.start()
    host.stop()
    host.remove(gone)
    host.remove(anew)
    host.guaranteed(anew, 2, mems="3")
    host.put(others, {"cpuset.mems": "2\n"})

    found = rows(offline(host))

    assert found[gone]["message"] == found[anew]["message"] == "it has ended"
    assert found[others]["message"] == "cpuset.mems was written by somebody else and is left as it is"
    assert (host.mems(anew), host.mems(others)) == ("3", "2")
    assert host.saved().containers == {}


def test_offline_keeps_what_it_could_not_restore(tmp_path: Path) -> None:
    """A cgroup that takes no write stays in the checkpoint, with its memory; the others are released."""
    host = Host(tmp_path)
    bad, good = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 2)
    host.start()
    host.stop()
    file = host.tree.cpuset / bad.lstrip("/") / "cpuset.mems"
    file.unlink()
    file.symlink_to("/dev/full")

    found = rows(offline(host))

    assert (found[bad]["state"], found[good]["state"]) == ("pinned", "released")
    assert str(file) in found[bad]["problem"]
    assert list(host.saved().containers) == [bad]
    assert [str(o) for o in host.saved().books.assignments] == [str(host.saved().containers[bad].owner)]


def test_offline_leaves_foreign_accounts(tmp_path: Path) -> None:
    """What somebody else pinned is neither written nor forgotten."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(8), 1, mems="2", effective="2")
    host.start()
    host.stop()

    assert offline(host)["containers"] == []
    assert host.mems(path) == "2"
    assert list(host.saved().containers) == [path]


def test_offline_resets_units(tmp_path: Path) -> None:
    """The unit's property that we set goes too; a systemd that refuses is named, and the cgroup is restored."""
    with system_bus(tmp_path) as bus:
        from numapin.daemon.units import Units
        from numapin.kernel.systemd import Systemd, encode_nodes

        host = Host(tmp_path)
        host.units = Units(Systemd(tmp_path))
        path, other = wide(host, 1), wide(host, 2)
        units = [bus.units[bus.add(p)] for p in (path, other)]
        host.start()
        host.wait_for_units()
        host.stop()
        assert units[0].nodes.rstrip(b"\0") == encode_nodes(NodeSet.of(0, 1))
        bus.units.pop(other.rpartition("/")[2])

        found = rows(offline(host))

        assert units[0].nodes == b""
        assert (found[path]["message"], found[path]["problem"]) == ("", None)
        assert "systemd has no unit" in found[other]["message"]
        assert host.mems(other) == "0-3"


def test_offline_with_an_unreadable_checkpoint(tmp_path: Path) -> None:
    """It is said, and nothing is written."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    host.file.path.unlink()
    host.file.path.symlink_to("/nowhere")

    with pytest.raises(CheckpointUnreadable):
        offline(host)

    assert host.mems(path) == "0"


def test_offline_with_every_generation_damaged(tmp_path: Path) -> None:
    """Both files are named, nothing is written or renamed, and nobody is told that there was nothing to do."""
    host = Host(tmp_path)
    first, second = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 2)
    host.start()
    host.stop()
    for file in (host.file.path, host.file.previous_path):
        file.write_bytes(b"{}")

    with pytest.raises(RequestFailed, match=r"nobody knows what stood") as caught:
        offline(host)

    assert caught.value.exit_status == ExitStatus.FAILURE
    assert (host.mems(first), host.mems(second)) == ("0", "0")
    assert (host.file.path.read_bytes(), host.file.previous_path.read_bytes()) == (b"{}", b"{}")


def test_offline_with_one_generation_damaged(tmp_path: Path) -> None:
    """The other one is taken, and that is said."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.guaranteed(docker(2), 2)
    host.agent.full_pass()
    host.stop()
    host.file.path.write_bytes(b"{}")
    document = offline(host)

    assert 1 == len(document["source"]["damaged"])
    assert path in [row["cgroup"] for row in document["containers"]]


def test_a_released_container_whose_directory_was_let_go(tmp_path: Path) -> None:
    """What its cgroup says is read anew: it is not called gone because nobody holds it open any more."""
    host = Host(tmp_path)
    path = wide(host, 1)
    host.start()
    host.agent.release([path])
    host.wait_for_writes()
    host.view(path).close()
    document: Any = release_document(host.agent, {"container": path, "report": True})

    assert document["containers"][0]["mems"] == "0-3"
    assert host.view(path).cgroup is None

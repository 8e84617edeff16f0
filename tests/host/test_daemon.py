"""The daemon as a process on this machine's real cgroups (v1; v2 is tried in the guest)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from numapin.cli.main import main
from support.running import MIB, Containers, Numapin, wait_for

pytestmark = pytest.mark.host
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


def test_a_container_that_appears_is_pinned(numapin: Numapin, docker: Containers) -> None:
    """The kernel's own file has the node, the status the container, the log one line; its end frees the memory."""
    numapin.start()
    path = docker.start(1, mib=3)
    assert docker.mems(path) in ("", "0")

    wait_for(lambda: numapin.states(docker.parent) == {path: "pinned"})

    assert docker.mems(path) == "0"
    row = numapin.rows(docker.parent)[path]
    assert (row["request"], row["nodes"], row["rule"]) == ({"memory": 3 * MIB}, [0], "limits")
    assert len([line for line in numapin.lines("container_pinned") if line["cgroup"] == path]) == 1
    docker.remove(path)
    wait_for(lambda: numapin.states(docker.parent) == {})
    (table,) = (n["memory_map"]["memory"] for n in numapin.status()["nodes"])
    assert table["reserved"] == sum(c["request"]["memory"] for c in numapin.status()["containers"] if c["nodes"])


def test_containers_of_every_class_at_the_start(numapin: Numapin, docker: Containers) -> None:
    """What runs already is pinned before READY; a Burstable container is left alone."""
    guaranteed, burstable = docker.start(1), docker.start(2, guaranteed=False)

    numapin.start()

    assert numapin.states(docker.parent) == {guaranteed: "pinned"}
    assert (docker.mems(guaranteed), docker.mems(burstable)) == ("0", "")


def test_pages_are_moved_with_the_pin(numapin: Numapin, docker: Containers) -> None:
    """On v1 ``cpuset.memory_migrate`` is set before the first write."""
    path = docker.start(1)

    numapin.start()

    assert (docker.cpuset / path[1:] / "cpuset.memory_migrate").read_text() == "1\n"


def test_sigterm_leaves_the_pins(numapin: Numapin, docker: Containers) -> None:
    """It ends within a second with status 0, the socket is gone, the pins and the checkpoint stay."""
    path = docker.start(1)
    numapin.start()

    status, seconds = numapin.stop()

    assert status == 0
    assert seconds < 1
    assert docker.mems(path) == "0"
    assert not numapin.socket.exists()
    assert path in numapin.state.read_text()


def test_sigint_is_sigterm(numapin: Numapin) -> None:
    """Ctrl-C stops it as orderly."""
    numapin.start()
    numapin.signal(signal.SIGINT)

    assert numapin.process is not None
    assert numapin.process.wait(10) == 0
    assert len(numapin.lines("stopped")) == 1


def test_sighup_reloads(numapin: Numapin, docker: Containers) -> None:
    """A new configuration counts at once; a wrong one is refused by file and key, and the old one stays in force."""
    path = docker.start(1)
    numapin.start()
    numapin.configure('policy = "best-effort"\n[qos]\nstandalone = "never"')
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: numapin.status()["policy"] == "best-effort")
    assert numapin.states(docker.parent) == {}

    numapin.configure('policy = "bst-effort"')
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: numapin.lines("configuration_refused"))

    assert "numapin.toml: policy: " in numapin.lines("configuration_refused")[0]["reason"]
    status = numapin.status()
    assert status["policy"] == "best-effort"
    assert status["summary"].endswith(", NEW CONFIGURATION REFUSED")
    (said,) = [f["message"] for f in status["findings"] if f["code"] == "config-refused"]
    assert "the one from before is in force" in said
    assert "numapin.toml: policy: " in said
    assert "\n" not in said
    numapin.configure("")
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: numapin.states(docker.parent) == {path: "pinned"})
    assert [] == [f for f in numapin.status()["findings"] if f["code"] == "config-refused"]
    assert "REFUSED" not in numapin.status()["summary"]


def test_the_oldest_comes_first(numapin: Numapin, docker: Containers) -> None:
    """
    Of two running containers that the daemon finds together and cannot both serve, the one that was made first gets
    the node, whatever their ids: after ``release --all`` and a new start nobody loses his place to a later one.
    """
    numapin.start()
    free = sum(node["memory_map"]["memory"]["free"] for node in numapin.status()["nodes"])
    numapin.stop()
    mib = free * 2 // 3 >> 20
    older, younger = docker.start(9, mib=mib), docker.start(1, mib=mib)
    numapin.start()
    wait_for(lambda: numapin.states(docker.parent) == {older: "pinned", younger: "refused"})

    assert main(["release", "--all", "--socket", str(numapin.socket)]) == 0
    numapin.stop()
    numapin.start()

    wait_for(lambda: numapin.states(docker.parent) == {older: "pinned", younger: "refused"})


def test_what_waits_for_a_restart(numapin: Numapin) -> None:
    """A reload that changes what only a restart takes up says so in log and status until it is changed back."""

    def waiting() -> list[str]:
        return [f["message"] for f in numapin.status()["findings"] if f["code"] == "needs-restart"]

    numapin.start()
    before = numapin.fixed
    numapin.fixed = before.replace('/state"', '/elsewhere"')
    numapin.configure("[cgroup]\nv1_memory_migrate = false")
    numapin.signal(signal.SIGHUP)
    wait_for(waiting)

    sentence = "a change of state_dir, cgroup.v1_memory_migrate takes effect after: systemctl restart numapin"
    assert [sentence] == waiting()
    assert [["state_dir", "cgroup.v1_memory_migrate"]] == [one["keys"] for one in numapin.lines("needs_restart")]
    numapin.fixed = before
    numapin.configure("")
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: not waiting())


def test_a_restart_rewrites_nothing(numapin: Numapin, docker: Containers) -> None:
    """The same reservations on the same nodes, and no write at all."""
    paths = [docker.start(k) for k in range(5)]
    numapin.start()
    before = numapin.rows(docker.parent)
    numapin.stop()

    numapin.start()
    after = numapin.rows(docker.parent)

    assert set(paths) == set(before)
    assert {p: row | {"writes": 0} for p, row in before.items()} == after
    assert numapin.status()["counters"]["writes"] == 0


def test_a_burst(numapin: Numapin, docker: Containers) -> None:
    """Two hundred containers that appear as fast as they can be made are all pinned, in a few saves."""
    numapin.start()
    before = numapin.status()["counters"]["saves"]
    paths = [docker.start(k) for k in range(200)]

    wait_for(lambda: list(numapin.states(docker.parent).values()).count("pinned") == 200)

    assert {docker.mems(path) for path in paths} == {"0"}
    assert numapin.status()["counters"]["saves"] - before < 200


def test_lost_events_lose_nothing(numapin: Numapin, docker: Containers) -> None:
    """While the daemon stands still more happens than the kernel's queue holds; then everything is found."""
    gone = [docker.start(k) for k in range(1000, 1020)]
    limit = QUEUE.read_text()
    QUEUE.write_text("16")
    try:
        numapin.start()
    finally:
        QUEUE.write_text(limit)
    numapin.signal(signal.SIGSTOP)
    paths = [docker.start(k) for k in range(100)]
    for path in gone:
        docker.remove(path)
    numapin.signal(signal.SIGCONT)

    wait_for(lambda: numapin.states(docker.parent) == dict.fromkeys(paths, "pinned"))

    assert numapin.status()["counters"]["overflows"] >= 1
    assert {docker.mems(path) for path in paths} == {"0"}


def test_a_second_daemon_is_refused(numapin: Numapin, docker: Containers) -> None:
    """It ends with status 1 and the first one's process id, and the first serves on."""
    path = docker.start(1)
    numapin.start()
    assert numapin.process is not None

    second = numapin.once()

    assert second.returncode == 1
    assert f"numapin is already running: process {numapin.process.pid} holds" in second.stderr
    assert "Traceback" not in second.stderr
    assert numapin.states(docker.parent) == {path: "pinned"}


def test_kill_and_restart(numapin: Numapin, docker: Containers) -> None:
    """After SIGKILL living containers keep what they had, dead ones give it back, new ones are decided."""
    stays, goes = docker.start(1), docker.start(2)
    numapin.start()
    numapin.kill()
    assert numapin.socket.exists()
    docker.remove(goes)
    comes = docker.start(3)

    numapin.start()

    assert numapin.states(docker.parent) == {stays: "pinned", comes: "pinned"}
    assert numapin.status()["counters"]["writes"] == 1
    assert f"{2:064x}" in numapin.lines("checkpoint_adopted")[-1]["released"]


def test_kills_at_any_time(numapin: Numapin, docker: Containers) -> None:
    """Killed while a burst is being handled, ten times: every container that lives has one reservation in the end."""
    alive: list[str] = []
    for round_ in range(10):
        numapin.start()
        alive += [docker.start(round_ * 10 + k) for k in range(10)]
        if round_ % 3 == 2:
            docker.remove(alive.pop(0))
        wait_for(numapin.state.exists)
        numapin.kill()
    numapin.start()

    assert numapin.states(docker.parent) == dict.fromkeys(alive, "pinned")
    document = numapin.status()
    (table,) = (n["memory_map"]["memory"] for n in document["nodes"])
    assert table["reserved"] == sum(c["request"]["memory"] for c in document["containers"] if c["nodes"])


def test_a_dry_run(numapin: Numapin, docker: Containers) -> None:
    """Everything is reported as it would be and no cgroup is written; there is no checkpoint either."""
    numapin.options = ["--dry-run"]
    path = docker.start(1)
    numapin.start()

    assert numapin.states(docker.parent) == {path: "would-pin"}
    assert numapin.status()["dry_run"] is True
    numapin.stop()
    assert docker.mems(path) == ""
    assert not numapin.state.exists()


def test_a_foreign_write_is_repaired(numapin: Numapin, docker: Containers) -> None:
    """Somebody empties a pinned container's nodes: they are back within a second, and it is counted."""
    path = docker.start(1)
    numapin.start()
    (docker.cpuset / path[1:] / "cpuset.mems").write_text("\n")

    wait_for(lambda: docker.mems(path) == "0", limit_s=1)
    wait_for(lambda: numapin.rows(docker.parent)[path]["repairs"] == 1)


def test_a_written_limit_is_followed(numapin: Numapin, docker: Containers) -> None:
    """A memory limit that is written into the cgroup alone, as crun's update does, is in the books by its event."""
    path = docker.start(1)
    numapin.start()
    (docker.others[0] / path[1:] / "memory.limit_in_bytes").write_text("5M")

    wait_for(lambda: numapin.rows(docker.parent)[path]["request"] == {"memory": 5 * MIB}, limit_s=5)


def test_a_write_that_the_kernel_refuses(numapin: Numapin, docker: Containers) -> None:
    """EACCES (the parent has no nodes): the container's reason has path and remedy, the others are served."""
    inner = docker.cpuset / docker.parent[1:] / "closed/docker"
    for base in (docker.cpuset, *docker.others):
        (base / docker.parent[1:] / "closed/docker").mkdir(parents=True)
    bad = f"{docker.parent}/closed/docker/{7:064x}"
    for base, file, value in zip(
        docker.others, ("memory.limit_in_bytes", "cpu.cfs_quota_us"), ("1M", "50000"), strict=True
    ):
        (base / bad[1:]).mkdir()
        (base / bad[1:] / file).write_text(value)
    (docker.cpuset / bad[1:]).mkdir()
    good = docker.start(1)

    numapin.start()

    states = numapin.states(docker.parent)
    assert states[good] == "pinned"
    assert states[bad] == "failed"
    message = numapin.rows(docker.parent)[bad]["message"]
    assert f"{inner}/{7:064x}/cpuset.mems" in message
    assert "subset of the parent's cpuset.mems" in message
    assert "Traceback" not in numapin.log.read_text()
    for path in (f"{docker.parent}/closed", f"{docker.parent}/closed/docker"):
        docker.ready(path)
    numapin.signal(signal.SIGHUP)
    wait_for(lambda: numapin.states(docker.parent)[bad] == "pinned")


def test_containers_that_live_for_an_instant(numapin: Numapin, docker: Containers) -> None:
    """Cgroups that vanish while they are being looked at leave no reservation and no error."""
    numapin.start()
    for k in range(300):
        docker.remove(docker.start(k))
    last = docker.start(999)

    wait_for(lambda: numapin.states(docker.parent) == {last: "pinned"})

    levels = {line["level"] for event in ("step_failed", "step_not_done") for line in numapin.lines(event)}
    assert levels == set()
    document = numapin.status()
    (table,) = (n["memory_map"]["memory"] for n in document["nodes"])
    assert table["reserved"] == sum(c["request"]["memory"] for c in document["containers"] if c["nodes"])


def test_nothing_grows(numapin: Numapin, docker: Containers) -> None:
    """A thousand containers that came and went leave no descriptor behind."""
    numapin.start()
    assert numapin.process is not None
    descriptors = Path(f"/proc/{numapin.process.pid}/fd")
    first = docker.start(1)
    wait_for(lambda: numapin.states(docker.parent) == {first: "pinned"})
    before = len(os.listdir(descriptors))

    for round_ in range(10):
        paths = [docker.start(100 + round_ * 50 + k) for k in range(50)]
        wait_for(lambda paths=paths: len(numapin.states(docker.parent)) > 1)  # type: ignore[misc]
        for path in paths:
            docker.remove(path)
    wait_for(lambda: numapin.states(docker.parent) == {first: "pinned"})

    wait_for(lambda: len(os.listdir(descriptors)) <= before)


def test_idle_means_asleep(numapin: Numapin, docker: Containers) -> None:
    """With nothing to do the process uses no processor time worth a tick."""
    docker.start(1)
    numapin.start()
    assert numapin.process is not None
    stat = Path(f"/proc/{numapin.process.pid}/stat")

    def ticks() -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    wait_for(lambda: numapin.status()["counters"]["saves"] >= 2)
    before, end = ticks(), os.times().elapsed + 1.5
    wait_for(lambda: os.times().elapsed > end)

    assert ticks() - before <= 2
    with suppress(FileNotFoundError):
        numapin.stop()

"""What the status says of disasters that are over: a start after a crash or a reboot, drift, lost events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from numapin.cli.since_start import since_start
from numapin.daemon.answers import Answers
from numapin.daemon.api_peer import Peer
from numapin.daemon.machine import Machine
from numapin.daemon.nested import Nested
from numapin.daemon.status import About, container_row, status_document
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, Host, cid, cri, docker
from support.machines import even, write_machine

OTHER_BOOT = "0b0b0b0b-0000-4000-8000-000000000002"


def about(host: Host) -> About:
    """What the service knows of itself, started now."""
    return About(1, host.clock.wall_ns(), host.clock.monotonic_ns(), "v2", host.boot, None)


def facts(host: Host, me: About) -> dict[str, Any]:
    """``since_start`` now."""
    found: Any = status_document(host.agent, me, now_ns=host.clock.monotonic_ns(), wall_ns=host.clock.wall_ns())
    return dict(found["since_start"])


def test_a_quiet_start(tmp_path: Path) -> None:
    """A first start after which nothing happened is worth no sentence, and every key is there."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 2)
    host.start()
    found = facts(host, about(host))

    assert (found["promises"], found["rebooted"], found["repairs"]) == (None, None, 0)
    assert since_start(found) == ""
    assert since_start({}) == ""


def test_a_crash_a_container_that_went_and_another_machine(tmp_path: Path) -> None:
    """After SIGKILL the status counts what was taken over and given back, by name, and how the machine differs."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    for number in (1, 2):
        host.guaranteed(docker(number), 2)
    host.tree.task("k8s.io", cid(3), oci(annotations=cri_annotations("db")))
    gone = host.guaranteed(cri(3), 2)
    host.start()
    host.remove(gone)
    host.remove(gone.rpartition("/")[0])
    write_machine(tmp_path, [host.nodes[0], replace(host.nodes[1], memory=10 * GIB - 8192)])
    host.start()
    me = about(host)
    host.clock.advance(seconds=300)

    found = facts(host, me)

    assert found["promises"]["taken_over"] == 2
    assert (found["rebooted"], found["seconds"]) == (False, 300)
    assert since_start(found) == (
        "Since the start (5 min ago): 2 promises taken over, 1 given back "
        f"(11111111-2222-3333-4444-555555555555/db ({cid(3)[:12]}): its container is gone); "
        f"the machine differs from before: node 1, memory: {10 * GIB - 8192} bytes instead of {10 * GIB}."
    )


def test_a_reboot(tmp_path: Path) -> None:
    """After a reboot nobody lives: what was promised to containers that nothing keeps is given back."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 2)
    host.start()
    host.stop()
    host.boot = OTHER_BOOT
    host.remove(docker(1))
    host.start()

    said = since_start(facts(host, about(host)))

    assert said == (
        "Since the start (0 s ago): the machine was booted anew before; "
        f"1 promise given back ({cid(1)[:12]}: its container is gone)."
    )


def test_drift(tmp_path: Path) -> None:
    """Repairs are counted by cause with the time of the last, in the status, the row and the explanation."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    me = about(host)
    for _ in range(2):
        host.put(path, {"cpuset.mems": "1\n"})
        host.agent.on_mems_written([path])
    host.clock.advance(seconds=180)

    row = container_row(host.view(path))
    answers = Answers(host.agent, me, Nested(host.tree.discovery(), host.clock), host.clock)
    explained: Any = answers("explain", {"container": path}, Peer(0, 0, 0))

    assert since_start(facts(host, me)) == (
        "Since the start (3 min ago): 2 changes of cpuset.mems by others put right "
        "(by hand or by another program: 2), the last 3 min ago."
    )
    assert (row["repairs"], row["writes"]) == (2, 3)
    assert row["last_repair_seconds"] == host.clock.wall_ns() // 10**9 - 180
    assert (
        "Its cpuset.mems was changed and put right 2 times since the daemon started: the last time 3 min ago, "
        "changed by hand or by another program."
    ) in explained["sentences"]


def test_lost_events_a_changed_machine_and_a_full_disk(tmp_path: Path) -> None:
    """An overflow, a machine that changed under way and a save that failed are told once they are over."""
    host = Host(tmp_path)
    host.start()
    me = about(host)
    host.agent.counters.overflows += 1
    write_machine(tmp_path, [*host.nodes[:3], replace(host.nodes[3], memory=9 * GIB)])
    blocked = host.file.path.with_name("state.json.new")
    blocked.mkdir(parents=True)
    host.agent.on_machine(Machine.read(tmp_path, BARE))
    host.agent.on_machine(Machine.read(tmp_path, BARE))
    host.agent.flush()
    blocked.rmdir()
    host.agent.flush()
    host.clock.advance(seconds=60)

    assert since_start(facts(host, me)) == (
        "Since the start (1 min ago): the machine changed once, 1 min ago: "
        f"node 3, memory: {9 * GIB} bytes instead of {10 * GIB}; "
        "1 event overflow, everything was looked at again; the checkpoint could not be saved once."
    )


def test_many_differences_are_cut() -> None:
    """Of more than four names or differences the sentence counts the rest."""
    found = {
        "seconds": 1,
        "rebooted": False,
        "promises": {"taken_over": 0, "waiting": 2, "given_back": [f"c{n}" for n in range(6)]},
        "machine_differs": [f"node {n} is new" for n in range(6)],
        "machine_changes": 0,
        "repairs": 0,
        "overflows": 0,
        "save_failures": 0,
    }

    assert since_start(found) == (
        "Since the start (1 s ago): 2 promises kept for containers that ended, 6 given back (c0, c1, c2, c3, 2 more: "
        "their containers are gone); the machine differs from before: node 0 is new; node 1 is new; node 2 is new; "
        "node 3 is new; 2 more."
    )

"""Cgroup namespaces: the agent in one of its own, with the machine's whole tree or a branch; containers in theirs."""

from __future__ import annotations

import pytest

from support.guest.machine import Guest
from support.installed import Numapin
from support.workloads import RUNC, Box, Limits, Workloads, guaranteed

MOUNT_OF_ITS_OWN = "mount -t cgroup2 none /sys/fs/cgroup"


@pytest.fixture
def stopped(numapin: Numapin) -> Numapin:
    """The service's files and socket, for an agent that is started otherwise."""
    numapin.guest.run("systemctl stop numapin")
    return numapin


def all_mems(guest: Guest) -> dict[str, str]:
    """``cpuset.mems`` of every cgroup, by path."""
    lines = guest.run("cd /sys/fs/cgroup; find . -name cpuset.mems -exec grep -H '' {} +").stdout.splitlines()
    found = (line.removeprefix(".").partition("/cpuset.mems:") for line in lines)
    return {path: mems for path, _, mems in found}


def test_the_agent_in_a_cgroup_namespace(guest: Guest, stopped: Numapin, workloads: Workloads) -> None:
    """
    With the machine's mount it serves the whole tree, whose root it sees as ``/..``: the Guaranteed container, in a
    third namespace, is pinned, and no other cgroup is written.
    """
    workloads.start((RUNC, Box("mine", guaranteed(64))), (RUNC, Box("free", Limits())))
    seen = workloads.look()
    before = all_mems(guest)
    guest.run("systemd-run --quiet --unit namespaced --service-type=notify unshare --cgroup numapin run")
    rows = stopped.wait_for({name: one.cgroup for name, one in seen.items() if name == "mine"})
    after = all_mems(guest)
    agent, root = guest.run(
        "pid=$(systemctl show --property MainPID --value namespaced); echo $pid;"
        # the kernel tells roots as who asks sees them
        " nsenter --target $pid --cgroup awk '$5 == \"/sys/fs/cgroup\" {print $4}' /proc/self/mountinfo"
    ).stdout.split()
    spaces = guest.run(f"for pid in 1 {agent} {workloads.pid('mine')}; do readlink /proc/$pid/ns/cgroup; done")
    pinned = workloads.look(["mine"])["mine"]

    assert "/../.." == root
    assert 3 == len(set(spaces.stdout.split()))
    assert "pinned" == rows["mine"]["state"]
    assert (1, pinned.effective, pinned.allowed) == (
        len(rows["mine"]["nodes"]),
        *[str(node) for node in rows["mine"]["nodes"]] * 2,
    )
    assert {"/mine": pinned.effective} == {path: after[path] for path in before if before[path] != after[path]}


def test_the_agent_on_a_branch(guest: Guest, stopped: Numapin, workloads: Workloads) -> None:
    """A mount made inside shows the agent's own cgroup as the root: it says so and how to start it, and ends."""
    workloads.start((RUNC, Box("outside", guaranteed(64))))
    before = all_mems(guest)
    ended = guest.run(
        "systemd-run --quiet --wait --pipe --collect unshare --cgroup --mount "
        f"sh -c '{MOUNT_OF_ITS_OWN} && exec numapin run'",
        check=False,
    )
    after = all_mems(guest)

    assert 1 == ended.status
    assert "shows only a branch of a cgroup tree, for this process has a cgroup namespace of its own" in ended.stderr
    assert "--cgroupns=host" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert before == after
    assert 3 == stopped.guest.run("numapin status", check=False).status

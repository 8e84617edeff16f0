"""Containers inside a container, with a running daemon on this machine's real cgroups: both choices (B038)."""

from __future__ import annotations

from typing import Any

import pytest

from numapin.cli.client import request
from numapin.model.errors import RequestFailed
from support.running import MIB, Containers, Numapin, wait_for

pytestmark = pytest.mark.host


def inner_of(docker: Containers, outer: str) -> str:
    """A container of 40 MiB made inside *outer*, as Docker in Docker makes it with the cgroupfs driver."""
    for base in (docker.cpuset, *docker.others):
        (base / outer[1:] / "docker").mkdir()
    path = f"{outer}/docker/{99:064x}"
    for base in docker.others:
        (base / path[1:]).mkdir()
    memory, cpu = docker.others
    (memory / path[1:] / "memory.limit_in_bytes").write_text(str(40 * MIB))
    (cpu / path[1:] / "cpu.cfs_quota_us").write_text("50000")
    docker.ready(f"{outer}/docker")
    (docker.cpuset / path[1:]).mkdir()
    return path


def listed(numapin: Numapin, docker: Containers) -> dict[str, dict[str, Any]]:
    """Rows of ``numapin containers`` below the test's own parent, by cgroup."""
    document: Any = request(numapin.socket, "containers")
    rows = document["containers"]
    return {row["cgroup"]: row for row in rows if row["cgroup"].startswith(docker.parent + "/")}


def booked(numapin: Numapin, docker: Containers) -> int:
    """Bytes promised to containers below the test's own parent."""
    return sum(row["request"]["memory"] for row in numapin.rows(docker.parent).values() if row["nodes"])


def test_the_inner_one_is_nested(numapin: Numapin, docker: Containers) -> None:
    """The outer one alone is pinned; the inner one is listed, explained, counted and never written."""
    outer = docker.start(1, mib=80)
    numapin.start()
    wait_for(lambda: numapin.states(docker.parent) == {outer: "pinned"})

    inner = inner_of(docker, outer)
    wait_for(lambda: inner in listed(numapin, docker))

    rows = listed(numapin, docker)
    assert {path: row["state"] for path, row in rows.items()} == {outer: "pinned", inner: "nested"}
    assert rows[inner]["nested_in"] == outer
    assert booked(numapin, docker) == 80 * MIB
    assert docker.mems(inner) == ""
    assert numapin.status()["counts"]["nested"] >= 1
    said: Any = request(numapin.socket, "explain", {"container": f"{99:064x}"})
    assert said["container"]["cgroup"] == inner
    assert "whose reservation on node 0 covers it" in said["sentences"][0]
    assert outer in said["remedies"][0]
    with pytest.raises(RequestFailed, match="no container"):
        request(numapin.socket, "release", {"container": inner})


def test_a_root_turns_it_round(numapin: Numapin, docker: Containers) -> None:
    """After a restart with ``cgroup.root`` the inner one is pinned and booked, the outer one neither; then back."""
    outer = docker.start(1, mib=80)
    docker.ready(outer)
    inner = inner_of(docker, outer)
    numapin.start()
    wait_for(lambda: numapin.states(docker.parent) == {outer: "pinned"})
    numapin.stop()

    numapin.configure(f'[cgroup]\nroot = "{outer}"\n')
    numapin.start()

    assert numapin.states(docker.parent) == {inner: "pinned"}
    assert list(listed(numapin, docker)) == [inner]
    assert booked(numapin, docker) == 40 * MIB
    assert docker.mems(inner) == "0"
    assert [line["cgroup"] for line in numapin.lines("container_out_of_reach")] == [outer]
    numapin.stop()
    numapin.configure("")
    numapin.start()
    wait_for(lambda: numapin.states(docker.parent) == {outer: "pinned"})
    assert booked(numapin, docker) == 80 * MIB


def test_a_root_that_comes_later(numapin: Numapin, docker: Containers) -> None:
    """The daemon starts without it, says so, and finds what is in it as soon as it is there."""
    outer = docker.path(1)
    numapin.configure(f'[cgroup]\nroot = "{outer}"\n')
    numapin.start()
    found = {f["code"]: f["message"] for f in numapin.status()["findings"]}
    assert outer in found["cgroup-root"]

    docker.start(1, mib=80)
    docker.ready(outer)
    inner = inner_of(docker, outer)
    wait_for(lambda: numapin.states(docker.parent) == {inner: "pinned"})

    assert "cgroup-root" not in {f["code"] for f in numapin.status()["findings"]}

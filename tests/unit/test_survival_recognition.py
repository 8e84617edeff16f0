"""Entries C to F of the bug log as a whole agent answers them: who is a container, its size, where it may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.status import About, container_row, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import check, rebase
from support.cgroup_trees import BURSTABLE_SLICE, GUARANTEED_SLICE, POD_UID, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import Host, cid, docker
from support.machines import GIB, MIB, Node, even

OTHER_BOOT = "0b0b0b0b-0000-4000-8000-000000000002"
CGROUPFS_POD = f"/kubepods/pod{POD_UID}"


def row(host: Host, path: str) -> dict[str, Any]:
    """The container's row in status and containers."""
    return container_row(host.view(path))


def described(host: Host, number: int, name: str = "app", **limits: Any) -> None:
    """Metadata of a CRI container."""
    host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name), **limits))


# ---- who is a container -----------------------------------------------------------------------------------------


def test_b034_a_change_of_the_cgroup_driver(tmp_path: Path) -> None:
    """B034: after a reboot with the other driver the pod's uid is spelled otherwise; the reservation is the same."""
    host = Host(tmp_path)
    filler = host.guaranteed(docker(9), 9)
    host.start()
    old = f"{GUARANTEED_SLICE}/cri-containerd-{cid(1)}.scope"
    described(host, 1)
    host.guaranteed(old, 4, effective="1")
    host.agent.on_created([old])
    host.stop()
    for path in (filler, old):
        host.remove(path)
    host.boot = OTHER_BOOT
    new = f"{CGROUPFS_POD}/{cid(2)}"
    described(host, 2)
    host.guaranteed(new, 4, effective="1")

    host.start()

    assert host.view(new).record.pod_uid == POD_UID
    assert host.states() == {new: "pinned"}
    assert host.mems(new) == "1"
    assert host.reserved() == {1: 4}
    host.sound()


def test_b035_only_the_monitor_is_left(tmp_path: Path) -> None:
    """B035: beside its monitor there is one container; the monitor is never pinned and keeps no memory alive."""
    host = Host(tmp_path)
    path, monitor = (f"{GUARANTEED_SLICE}/{name}-{cid(1)}.scope" for name in ("crio", "crio-conmon"))
    other = f"/machine.slice/libpod-conmon-{cid(2)}.scope"
    for cgroup in (path, monitor, other):
        host.guaranteed(cgroup, 2)
    host.tree.storage(cid(1), oci(memory=2 * GIB, annotations={"io.kubernetes.cri-o.ContainerType": "container"}))
    host.start()

    assert host.states() == {path: "pinned"}
    assert [host.mems(c) for c in (path, monitor, other)] == ["0", "", ""]
    host.agent.on_removed([host.remove(path)])
    host.clock.advance(ns=host.config.release_grace_ns)
    host.agent.due(host.clock.monotonic_ns())
    assert host.states() == {}
    assert host.reserved() == {}
    assert [host.mems(c) for c in (monitor, other)] == ["", ""]


@pytest.mark.parametrize(("slice_above", "state"), [(GUARANTEED_SLICE, "pinned"), (BURSTABLE_SLICE, "not-managed")])
def test_b037_the_literal_directory_is_written(tmp_path: Path, slice_above: str, state: str) -> None:
    """B037: pod and container come from the text with colons, and the directory of that very name is written."""
    host = Host(tmp_path)
    path = f"/system.slice/containerd.service/{slice_above.rpartition('/')[2]}:cri-containerd:{cid(1)}"
    host.tree.add(slice_above)
    described(host, 1, memory=GIB)
    host.guaranteed(path, 1)

    host.start()

    assert host.states() == {path: state}
    assert (host.view(path).record.pod_uid, host.view(path).record.id) == (POD_UID, cid(1))
    assert host.mems(path) == ("0" if state == "pinned" else "")


# ---- class and size ---------------------------------------------------------------------------------------------


def test_b040_the_pods_class_counts(tmp_path: Path) -> None:
    """B040: in a Burstable pod nothing is pinned, whatever one container has; 1500m of CPU is 4 GiB of memory."""
    host = Host(tmp_path)
    limited = host.container(f"{BURSTABLE_SLICE}/cri-containerd-{cid(1)}.scope", memory=4 * GIB, quota=200_000)
    bare = host.container(f"{BURSTABLE_SLICE}/cri-containerd-{cid(2)}.scope")
    fraction = f"{GUARANTEED_SLICE.replace('1111', '2222', 1)}/cri-containerd-{cid(3)}.scope"
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        described(host, number, name)
    host.container(fraction, memory=4 * GIB, quota=150_000, effective="0")

    host.start()

    assert host.states() == {limited: "not-managed", bare: "not-managed", fraction: "pinned"}
    assert [host.mems(c) for c in (limited, bare, fraction)] == ["", "", "0"]
    assert host.reserved() == {0: 4}


def test_b041_metadata_has_no_requests(tmp_path: Path) -> None:
    """B041: limits alone in the metadata, in the Guaranteed place of the tree: pinned with 2 GiB, nothing to say."""
    host = Host(tmp_path)
    path = f"{GUARANTEED_SLICE}/cri-containerd-{cid(1)}.scope"
    described(host, 1, memory=2_147_483_648, quota=200_000)
    host.container(path, memory=2_147_483_648, quota=200_000, effective="0")

    host.start()

    found = row(host, path)
    assert (found["qos"], found["request"], found["findings"]) == ("Guaranteed", {"memory": 2_147_483_648}, [])
    assert host.states() == {path: "pinned"}


@pytest.mark.parametrize("path", [docker(1), f"/machine.slice/libpod-{cid(1)}.scope"], ids=["docker", "podman"])
def test_b043_a_limit_alone_is_no_guarantee(tmp_path: Path, path: str) -> None:
    """B043: ``-m 4g`` outside Kubernetes is a cap: no pin, and the class stands beside the rule that gave it."""
    host = Host(tmp_path)
    host.container(path, memory=4_294_967_296)

    host.start()

    found = row(host, path)
    assert (found["state"], found["qos"], found["rule"]) == ("not-managed", "Burstable", "limits-partial")
    assert found["reason"]
    assert host.mems(path) == ""
    assert host.reserved() == {}


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (CgroupVersion.V2, "max"),
        (CgroupVersion.V1, "9223372036854771712"),
        (CgroupVersion.V1, "9223372036854710272"),
    ],
)
@pytest.mark.parametrize("told", [False, True], ids=["no-limit-anywhere", "one-in-the-metadata"])
def test_b044_a_size_that_is_not_known(tmp_path: Path, version: CgroupVersion, text: str, told: bool) -> None:
    """B044: without a limit: no reservation, no pin, one finding, which says so when the metadata has a limit."""
    host = Host(tmp_path, version=version)
    path = f"{GUARANTEED_SLICE}/cri-containerd-{cid(1)}.scope"
    described(host, 1, memory=4 * GIB if told else None, quota=50_000)
    host.container(path, quota=50_000)
    if version is CgroupVersion.V1:
        limit = tmp_path / f"sys/fs/cgroup/memory{path}/memory.limit_in_bytes"
        limit.write_text(f"{text}\n")
    else:
        host.put(path, {"memory.max": f"{text}\n"})
    before = host.mems(path)

    host.start()

    (finding,) = row(host, path)["findings"]
    assert host.states() == {path: "unpinned"}
    assert (host.reserved(), host.mems(path)) == ({}, before)
    assert ("metadata says 4 GiB" in finding) == told


# ---- nodes and cgroups ------------------------------------------------------------------------------------------


def test_b061_an_inherited_set_is_shown_and_left(tmp_path: Path) -> None:
    """B061: an empty value below 0-1 is 0-1: an unmanaged container is left empty, a managed one stays inside."""
    host = Host(tmp_path, nodes=[Node(n, f"{n}", (10 if n < 2 else 50) * GIB) for n in range(4)])
    host.tree.add(GUARANTEED_SLICE, mems="0-1", effective="0-1")
    host.tree.add("/narrow.slice", mems="0-1", effective="0-1")
    plain = host.container(f"/narrow.slice/docker-{cid(1)}.scope", memory=GIB, effective="0-1")
    path = f"{GUARANTEED_SLICE}/cri-containerd-{cid(2)}.scope"
    described(host, 2)
    host.guaranteed(path, 8)

    host.start()

    assert (host.mems(plain), host.mems(path)) == ("", "0")
    assert host.view(plain).record.effective_mems == NodeSet.of(0, 1)
    assert row(host, plain)["allowed_nodes"] == row(host, path)["allowed_nodes"] == [0, 1]
    assert host.reserved() == {0: 8}


@pytest.mark.parametrize("gib", [4, 12])
def test_b064_the_status_shows_what_the_slice_allows(tmp_path: Path, gib: int) -> None:
    """B064: kubepods.slice allows node 1, node 0 has most room: {1}, or a refusal that says what is allowed."""
    host = Host(tmp_path, nodes=[Node(0, "0", 100 * GIB), Node(1, "1", 10 * GIB)])
    host.tree.add("/kubepods.slice", mems="1", effective="1")
    host.tree.add(GUARANTEED_SLICE, effective="1")
    path = f"{GUARANTEED_SLICE}/cri-containerd-{cid(1)}.scope"
    described(host, 1)
    host.guaranteed(path, gib, effective="1")

    host.start()

    found: Any = status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)
    (shown,) = found["containers"]
    assert shown["allowed_nodes"] == [1]
    if gib == 4:
        assert (shown["state"], shown["nodes"], host.mems(path)) == ("pinned", [1], "1")
    else:
        assert (shown["state"], shown["nodes"], host.mems(path)) == ("refused", [], "")
        assert "only node 1 is allowed for it; node 1 has 10 GiB free" in shown["message"]


@pytest.mark.parametrize("kind", ["threaded", "domain invalid"])
def test_b065_processes_that_cannot_be_listed(tmp_path: Path, kind: str) -> None:
    """B065: without a readable cgroup.procs it lives, is pinned, and keeps its memory over passes and restarts."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.put(path, {"cgroup.type": f"{kind}\n", "cgroup.threads": "1001\n"})
    (host.tree.cpuset / path[1:] / "cgroup.procs").unlink()
    host.start()
    host.agent.full_pass()
    host.agent.on_removed([path])
    host.restart()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    assert host.reserved() == {0: 2}


def test_b068_fifty_of_sixty_stop(tmp_path: Path) -> None:
    """B068: after fifty stops at once the books equal a fresh recomputation, and no cgroup above was written."""
    host = Host(tmp_path, nodes=even(4, memory=100 * GIB))
    paths = [host.guaranteed(docker(k), 1) for k in range(60)]
    host.start()
    above = {n: (host.tree.cpuset / "system.slice" / n).read_text() for n in ("cpuset.mems", "cpuset.mems.effective")}
    lines = len(host.log.lines)

    for batch in (paths[:30], paths[30:50]):  # two at once: the second is gone before the first is told
        for path in batch:
            host.remove(path)
    host.agent.on_removed(paths[25:50])
    host.agent.on_removed(paths[:30])

    books = host.agent.ledger.books
    assert books == rebase(books, host.agent.machine.node_map)
    assert check(books) == ()
    assert host.reserved() == {0: 10}
    assert above == {name: (host.tree.cpuset / "system.slice" / name).read_text() for name in above}
    assert {level for level, _, _ in host.log.lines[lines:]} == {"info"}


def test_b070_file_pages_elsewhere_do_not_matter(tmp_path: Path) -> None:
    """B070: anonymous memory on its node, page cache on another: pinned, although the latter would not fit."""
    host = Host(tmp_path, nodes=[Node(0, "0", 10 * GIB, free=300 * MIB), Node(1, "1", 10 * GIB)])
    path = host.guaranteed(docker(1), 2)
    stat = f"anon N0={50 * MIB} N1=0\nfile N0=0 N1={800 * MIB}\nshmem N0=0 N1=0\n"
    host.put(path, {"memory.current": f"{850 * MIB}\n", "memory.numa_stat": stat})

    host.start()
    host.wait_for_writes()

    assert host.states() == {path: "pinned"}
    assert host.view(path).message == ""
    assert host.mems(path) == "0"


# ---- what a container may say and what is said ------------------------------------------------------------------


HOSTILE: dict[str, dict[str, Any] | str] = {
    "a-path-with-dots": oci(memory=GIB, quota=50_000, cgroups_path="/../../../etc/cron.d"),
    "a-slice-with-dots": oci(memory=GIB, quota=50_000, cgroups_path="../../etc:docker:x"),
    "ten-megabytes": '{"linux":{"x":"' + "x" * (10 << 20) + '"}}',
    "deeply-nested": "[" * 200_000 + "]" * 200_000,
    "no-json": "\x1b[2J\n{",
}


@pytest.mark.parametrize("trait", list(HOSTILE))
def test_b130_one_hostile_container_is_skipped(tmp_path: Path, trait: str) -> None:
    """B130: the container with such metadata gets no pin and one finding without control characters; others do."""
    host = Host(tmp_path)
    bad, good = host.guaranteed(docker(1), 1), host.guaranteed(docker(2), 1)
    host.tree.task("moby", cid(1), HOSTILE[trait])
    host.tree.task("moby", cid(2), oci(memory=GIB, quota=50_000))
    outside = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "cpuset.mems"}

    host.start()

    assert host.states() == {bad: "unpinned", good: "pinned"}
    assert (host.mems(bad), host.mems(good)) == ("", "0")
    assert all(str(text).isprintable() for text in (host.view(bad).message, *row(host, bad)["findings"]))
    assert len(host.view(bad).message) < 2000
    assert outside == {p: p.read_bytes() for p in outside}


@pytest.mark.parametrize("name", ["a\nb", "../../../etc", "\x1b[31mred", "x" * 300])
def test_b130_a_name_is_only_shown(tmp_path: Path, name: str) -> None:
    """B130: an annotation with control characters or a path for a name changes neither the pin nor any line."""
    host = Host(tmp_path)
    path = f"{GUARANTEED_SLICE}/cri-containerd-{cid(1)}.scope"
    described(host, 1, name)
    host.guaranteed(path, 1)

    host.start()

    assert host.states() == {path: "pinned"}
    assert host.view(path).record.name == cid(1)
    assert all(str(v).isprintable() for _, _, facts in host.log.lines for v in facts.values())


def test_b133_harmless_conditions_are_said_once(tmp_path: Path) -> None:
    """B133: GPU memory, no memory.numa_stat, one that cannot be read any more: no line at a hundred passes."""
    host = Host(tmp_path, nodes=[*even(2, memory=10 * GIB), Node(4, "", 10 * GIB)])
    path, odd = host.guaranteed(docker(1), 1), host.guaranteed(docker(2), 1)
    host.start()
    (host.tree.cpuset / odd[1:] / "cpuset.mems").unlink()
    (host.tree.cpuset / odd[1:] / "cpuset.mems").mkdir()
    host.agent.full_pass()
    lines = len(host.log.lines)
    for _ in range(100):
        host.clock.advance(seconds=10)
        host.agent.due(host.clock.monotonic_ns())
        host.agent.full_pass()
        host.agent.flush()

    assert host.states()[path] == "pinned"
    assert not (host.tree.cpuset / path[1:] / "memory.numa_stat").exists()
    assert host.log.lines[lines:] == []
    found: Any = status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)
    assert [f["code"] for f in found["findings"]] == ["cpu-less-nodes"]

"""OCI documents and runtime state: `numapin.kernel.oci`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.oci import (
    merge_state,
    parse_config,
    parse_crun_status,
    parse_docker_name,
    parse_runc_state,
    parse_task_options,
    read_bundle,
)
from numapin.model.container import Device, Limits, Runtime
from numapin.model.errors import KernelFormatError, KernelReadError
from numapin.model.nodeset import CpuSet, NodeSet
from support.cgroup_trees import GIB, ID_A, MIB, oci

MOUNT = "/sys/fs/cgroup"


def facts(document: object):  # type: ignore[no-untyped-def]
    """Facts of a config.json given as a Python value."""
    return parse_config(json.dumps(document), source="config.json")


def test_every_fact_of_a_config() -> None:
    """Limits, foreign nodes, annotations, the cgroup's name and devices are read; shares stay shares."""
    found = facts(
        oci(
            memory=4 * GIB,
            reservation=GIB,
            quota=200_000,
            shares=2048,
            cpus="0-3,8",
            mems="1",
            hugepages={"2MB": 64 * MIB, "1GB": GIB, "64KB": 65536},
            cgroups_path="system.slice:docker:x",
            annotations={"numapin.guaranteed": "true"},
            devices=("/dev/null", "relative"),
        )
    )

    assert found.limits == Limits(
        4 * GIB, GIB, 200_000, 100_000, 2048, CpuSet.parse("0-3,8"), {2 * MIB: 64 * MIB, GIB: GIB, 65536: 65536}
    )
    assert (found.mems, found.devices) == (
        NodeSet.of(1),
        (Device("/dev/null", False, 1, 3), Device("relative", False, 1, 3)),
    )
    assert found.annotations == {"numapin.guaranteed": "true"}


@pytest.mark.parametrize(
    "document", [{}, {"linux": None}, {"linux": {"resources": None}, "annotations": None}, oci()]
)
def test_nothing_limited(document: dict[str, object]) -> None:
    """Absent and null keys mean no limit; Docker's annotations are null."""
    found = facts(document)

    assert replace(found.limits, cpu_period_us=None) == Limits()
    assert (found.mems, dict(found.annotations)) == (None, {})


@pytest.mark.parametrize("number", [0, -1, 2**62, 2**63 - 1])
def test_numbers_that_mean_unlimited(number: int) -> None:
    """0, -1 and what no kernel can hold are no limits."""
    assert facts(oci(memory=number, quota=number)).limits.memory_bytes is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"linux": 7}',
        '{"linux": {"resources": {"memory": {"limit": "4G"}}}}',
        '{"annotations": {"a": 1}}',
        '{"linux": {"resources": {"cpu": {"mems": "0-x"}}}}',
        '{"linux": {"resources": {"cpu": {"cpus": "9999999999"}}}}',
        '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"linux": {"resources": {"memory": {"limit": 1e400}}}}',
    ],
)
def test_damaged_documents_are_one_typed_error(text: str) -> None:
    """Not JSON, another shape, nested without end: an error that names the file (B130)."""
    with pytest.raises(KernelFormatError) as caught:
        parse_config(text, source="/run/x/config.json")

    assert caught.value.path == "/run/x/config.json"
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    """Whatever the bytes, the answer is a value or the typed error."""
    for parse in (
        lambda t: parse_config(t, source="x"),
        lambda t: parse_runc_state(t, source="x", mount_point=MOUNT),
        lambda t: parse_crun_status(t, source="x"),
        lambda t: parse_task_options(t, source="x"),
        lambda t: parse_docker_name(t, source="x"),
    ):
        try:
            parse(data.decode("utf-8", "replace"))
        except KernelFormatError as exc:
            assert exc.path == "x"


def test_a_bundle_too_long_or_a_link_is_refused(tmp_path: Path) -> None:
    """10 MB of config.json are not read, and a link is not followed (B130)."""
    (tmp_path / "big").write_bytes(b" " * (10 << 20))
    (tmp_path / "good").write_text(json.dumps(oci(memory=GIB)))
    (tmp_path / "link").symlink_to(tmp_path / "good")

    assert read_bundle(tmp_path / "good").limits.memory_bytes == GIB
    for name in ("big", "link", "missing"):
        with pytest.raises(KernelReadError):
            read_bundle(tmp_path / name)


def runc(paths: dict[str, str], **cgroups: object) -> str:
    """A state.json of runc."""
    config = {"labels": ["bundle=/b", "numapin.guaranteed=true", "odd"], "cgroups": cgroups}
    return json.dumps(
        {"id": "c1", "init_process_pid": 7, "init_process_start": 99, "cgroup_paths": paths, "config": config}
    )


def test_runc_state() -> None:
    """runc's state has the cgroup, the first process and the limits as they are after an update."""
    text = runc(
        {"": "/sys/fs/cgroup/system.slice/runc-c1.scope"},
        memory=100 * MIB,
        cpu_quota=50_000,
        cpuset_mems="2",
        hugetlb_limit=[{"page_size": "2MB", "limit": 4 * MIB}],
    )
    state = parse_runc_state(text, source="s", mount_point=MOUNT)

    assert (state.cgroup, state.runtime, state.init_pid) == ("/system.slice/runc-c1.scope", Runtime.RUNC, 7)
    assert state.facts is not None
    assert (state.facts.limits.memory_bytes, state.facts.limits.hugetlb) == (100 * MIB, {2 * MIB: 4 * MIB})
    assert state.facts.mems == NodeSet.of(2)
    assert dict(state.facts.annotations) == {"numapin.guaranteed": "true"}


@pytest.mark.parametrize(
    ("paths", "mount", "cgroup"),
    [
        ({"cpuset": "/sys/fs/cgroup/cpuset/c1", "": "/sys/fs/cgroup/unified/c1"}, "/sys/fs/cgroup/cpuset", "/c1"),
        ({"": "/elsewhere/c1"}, MOUNT, None),
        ({"": "/sys/fs/cgroup/../../etc"}, MOUNT, None),
        ({"": "/sys/fs/cgroup"}, MOUNT, None),
        ({}, MOUNT, None),
    ],
)
def test_runc_paths_stay_below_the_mount(paths: dict[str, str], mount: str, cgroup: str | None) -> None:
    """A path from the state counts only below the hierarchy's mount, v1's cpuset first (B130)."""
    assert parse_runc_state(runc(paths), source="s", mount_point=mount).cgroup == cgroup


@pytest.mark.parametrize(
    ("path", "scope", "cgroup"),
    [
        ("/machine.slice/libpod-x.scope/container", "libpod-x.scope", "/machine.slice/libpod-x.scope"),
        ("/system.slice/c1.scope", "c1.scope", "/system.slice/c1.scope"),
        ("/c1", "", "/c1"),
        ("/../etc", "", None),
        ("", "", None),
    ],
)
def test_crun_status(path: str, scope: str, cgroup: str | None) -> None:
    """crun's processes are below its scope, and the scope is the container (trap 8)."""
    text = json.dumps({"cgroup-path": path, "scope": scope, "pid": 5, "process-start-time": 11})
    state = parse_crun_status(text, source="s")

    assert (state.cgroup, state.init_pid, state.init_start_ticks) == (cgroup, 5, 11)


def test_the_newer_document_wins() -> None:
    """After a resize config.json is stale and runc's state is not; identity stays config.json's (trap 11)."""
    config = facts(oci(memory=128 * MIB, annotations={"a": "b"}, devices=("/dev/x",)))
    state = parse_runc_state(runc({"": "/sys/fs/cgroup/c1"}, memory=100 * MIB), source="s", mount_point=MOUNT)
    merged = merge_state(config, state)

    assert merged is not None
    assert (merged.limits.memory_bytes, merged.devices, merged.init_pid) == (
        100 * MIB,
        (Device("/dev/x", False, 1, 3),),
        7,
    )
    assert merged.annotations["a"] == "b"


def test_crun_has_no_newer_limits() -> None:
    """With crun the bundle is all there is; with nothing at all there are no facts."""
    config = facts(oci(memory=GIB))
    crun = parse_crun_status(json.dumps({"cgroup-path": f"/libpod-{ID_A}", "pid": 5}), source="s")
    merged = merge_state(config, crun)

    assert merged is not None
    assert (merged.limits.memory_bytes, merged.init_pid) == (GIB, 5)
    assert merge_state(None, crun) is None
    assert merge_state(None, None) is None


def test_small_files() -> None:
    """Docker's name loses its slash; a task's options give the state root."""
    assert parse_docker_name('{"Name": "/web", "ID": "x"}', source="s") == "web"
    assert parse_task_options('{"root": "/run/x", "binary_name": "crun"}', source="s") == "/run/x"

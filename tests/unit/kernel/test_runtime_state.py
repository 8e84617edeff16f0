"""What runtimes write beside the OCI specification: `numapin.kernel.runtime_state`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.oci import parse_config
from numapin.kernel.runtime_state import (
    merge_state,
    parse_crun_status,
    parse_docker_name,
    parse_runc_state,
    parse_storage_names,
    parse_task_options,
)
from numapin.model.container import Device, Runtime
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import GIB, ID_A, MIB, oci

MOUNT = "/sys/fs/cgroup"


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    """Whatever the bytes, the answer is a value or the typed error."""
    for parse in (
        lambda t: parse_runc_state(t, source="x", mount_point=MOUNT),
        lambda t: parse_crun_status(t, source="x"),
        lambda t: parse_task_options(t, source="x"),
        lambda t: parse_docker_name(t, source="x"),
    ):
        try:
            parse(data.decode("utf-8", "replace"))
        except KernelFormatError as exc:
            assert exc.path == "x"


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
    asked = oci(memory=128 * MIB, annotations={"a": "b"}, devices=("/dev/x",))
    config = parse_config(json.dumps(asked), source="config.json")
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
    config = parse_config(json.dumps(oci(memory=GIB)), source="config.json")
    crun = parse_crun_status(json.dumps({"cgroup-path": f"/libpod-{ID_A}", "pid": 5}), source="s")
    merged = merge_state(config, crun)

    assert merged is not None
    assert (merged.limits.memory_bytes, merged.init_pid) == (GIB, 5)
    assert merge_state(None, crun) is None
    assert merge_state(None, None) is None


def test_small_files() -> None:
    """Docker's name loses its slash; a task's options give the state root; Podman's list gives first names by id."""
    stored = '[{"id": "a", "names": ["pg", "x"]}, {"id": "b"}, {"id": "c", "names": []}]'
    assert parse_storage_names(stored, source="s") == {"a": "pg"}
    assert parse_docker_name('{"Name": "/web", "ID": "x"}', source="s") == "web"
    assert parse_task_options('{"root": "/run/x", "binary_name": "crun"}', source="s") == "/run/x"

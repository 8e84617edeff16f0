"""Parsers of whole documents: a value, or the one typed error, for any text."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.cli.client import request
from numapin.daemon.api_wire import parse_request
from numapin.daemon.config import Config, load_config
from numapin.kernel.cgroup_mounts import find_hierarchy, parse_mountinfo
from numapin.kernel.kubelet_state import parse_kubelet_state
from numapin.kernel.oci import parse_config
from numapin.kernel.runtime_paths import Storage, parse_data_root, parse_storage_conf
from numapin.kernel.runtime_state import (
    RuntimeState,
    merge_state,
    parse_crun_status,
    parse_docker_name,
    parse_runc_state,
    parse_storage_names,
    parse_task_options,
)
from numapin.model.checkpoint import Checkpoint, record_problems
from numapin.model.container import OciFacts
from numapin.model.errors import (
    CheckpointError,
    ConfigError,
    KernelError,
    KernelFormatError,
    KubeletStateUnusable,
    NumapinError,
    RequestFailed,
)
from numapin.model.kubelet import KubeletState
from numapin.model.quantity import MAX_BYTES
from numapin.planner.accounting import check, rebase
from numapin.planner.kubelet.manifest import Manifest, ManifestError, parse_pod
from numapin.state.codec import decode, encode
from support.cgroup_trees import GIB, cri, oci
from support.checkpoints import reseal, sample
from support.hostile import NASTY, as_json, damaged, documents, fuzz, mangled, survived, texts, values

CONFIG = oci(
    memory=4 * GIB,
    reservation=GIB,
    quota=50_000,
    shares=2,
    cpus="0-3",
    mems="0",
    hugepages={"2MB": 1 << 30},
    cgroups_path="system.slice:docker:" + "a" * 64,
    annotations=cri("db"),
    devices=("/dev/vfio/7",),
)
RUNC = {
    "id": "web",
    "init_process_pid": 7,
    "init_process_start": 100,
    "cgroup_paths": {"": "/sys/fs/cgroup/web", "cpuset": "/sys/fs/cgroup/cpuset/web"},
    "config": {
        "labels": ["bundle=/x", "numapin.guaranteed=true"],
        "cgroups": {"memory": GIB, "cpuset_mems": "0", "hugetlb_limit": [{"page_size": "2MB", "limit": 1}]},
    },
}
CRUN = {"pid": 3, "process-start-time": 9, "cgroup-path": "/machine.slice/x.scope/container", "scope": "x.scope"}
_table = {"total": 9, "systemReserved": 1, "allocatable": 8, "reserved": 3, "free": 5}
_block = {"numaAffinity": [0], "type": "memory", "size": 3}
KUBELET = {
    "policyName": "Static",
    "machineState": {"0": {"numberOfAssignments": 1, "memoryMap": {"memory": _table}, "cells": [0]}},
    "entries": {"11111111-2222-3333-4444-555555555555": {"db": [_block]}},
    "podEntries": {"p": {"memoryBlocks": [_block]}},
    "checksum": 0,
}
WRAPPED = {"policyName": "Static", "data": json.dumps(KUBELET), "dataChecksum": 0}
POD = {
    "kind": "Pod",
    "metadata": {"name": "db", "namespace": "shop"},
    "spec": {
        "containers": [
            {"name": "db", "resources": {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}}
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"memory": "1M"}}}],
        "resources": {"limits": {"memory": "3Gi"}},
    },
    "status": {"qosClass": "Guaranteed"},
}
TOML = (
    'policy = "restricted"\nstate_dir = "/var/lib/numapin"\n[reserved]\nfraction = "5%"\n'
    '[reserved.node.0]\nmemory = "1Gi"\nhugepages-2Mi = 4194304\n[nodes]\ncpu_less = [4]\n[log]\nlevel = "info"\n'
)
MOUNTS = (
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)


@fuzz
@given(documents(CONFIG))
def test_oci_config(text: str) -> None:
    """Facts with every number below what a kernel holds, or one error; what is remembered of it is little."""
    facts = survived(lambda: parse_config(text, source="config.json"), KernelFormatError)

    if isinstance(facts, OciFacts):
        limits = facts.limits
        sizes = [limits.memory_bytes, limits.memory_reservation_bytes, limits.cpu_quota_us, *limits.hugetlb.values()]
        assert all(0 <= n < 2**62 for n in sizes if n is not None)
        assert sum(len(k) + len(v) for k, v in facts.annotations.items()) <= 1 << 16
    else:
        assert isinstance(facts, KernelFormatError)
        assert len(str(facts.args)) < 60_000


@fuzz
@given(documents(RUNC), documents(CRUN), texts)
def test_runtime_states(runc: str, crun: str, mount: str) -> None:
    """A state names a cgroup below the mount, or none, or the file is not believed."""
    found = [
        survived(lambda: parse_runc_state(runc, source="s", mount_point="/sys/fs/cgroup"), KernelFormatError),
        survived(lambda: parse_runc_state(runc, source="s", mount_point=mount), KernelFormatError),
        survived(lambda: parse_crun_status(crun, source="s"), KernelFormatError),
    ]

    for state in found:
        if isinstance(state, RuntimeState):
            merge_state(None, state)
            assert state.cgroup is None or (state.cgroup.startswith("/") and ".." not in state.cgroup.split("/"))


@fuzz
@given(documents([{"id": "a", "names": ["pg"]}]))
def test_names_in_a_storage(text: str) -> None:
    """Podman's list of containers is names by id, or one error."""
    found = survived(lambda: parse_storage_names(text, source="s"), KernelFormatError)

    assert isinstance(found, dict | KernelFormatError)


@fuzz
@given(documents({"root": "/run/x"}, {"Name": "/db"}))
def test_small_documents(text: str) -> None:
    """options.json and config.v2.json are text, or one error."""
    for parse in (parse_task_options, parse_docker_name):
        found = survived(lambda parse=parse: parse(text, source="s"), KernelFormatError)  # type: ignore[misc]

        assert isinstance(found, str | KernelFormatError)


@fuzz
@given(documents({"data-root": "/srv/docker", "debug": True}), texts)
def test_configurations_of_runtimes(daemon: str, storage: str) -> None:
    """Where runtimes keep their files is a plain absolute path below the root, or one error."""
    storages = (storage, f"[storage]\ngraphroot = {json.dumps(storage)}\n", f"[storage]\ndriver = {daemon}\n")
    found = [
        survived(lambda: parse_data_root(daemon, source="s"), KernelFormatError),
        survived(lambda: parse_data_root(json.dumps({"data-root": storage}), source="s"), KernelFormatError),
        *(survived(lambda text=t: parse_storage_conf(text, source="s"), KernelFormatError) for t in storages),  # type: ignore[misc]
    ]

    for one in found:
        paths = one.containers if isinstance(one, Storage) else (one,) if isinstance(one, str) else ()
        assert all(p.startswith("/") and ".." not in p.split("/") and p.isprintable() for p in paths)


@fuzz
@given(documents(KUBELET, WRAPPED))
def test_kubelet_state(text: str) -> None:
    """Assignments of positive sizes on nodes that can be, or one error; never half a file."""
    found = survived(lambda: parse_kubelet_state(text, "memory_manager_state"), KubeletStateUnusable)

    if isinstance(found, KubeletState):
        blocks = [b for held in found.assignments.values() for b in held]
        assert all(b.affinity and 0 <= b.size_bytes <= MAX_BYTES for b in blocks)


CHECKPOINT = json.loads(encode(sample()))


@fuzz
@given(
    damaged(CHECKPOINT).map(as_json).map(str.encode)
    | st.just(encode(sample()).decode()).flatmap(mangled).map(str.encode)
)
def test_sealed_checkpoints(data: bytes) -> None:
    """With the right checksum over whatever it holds, a file is a checkpoint that encodes again, or one error."""
    body = data[: data.rindex(b'"checksum"')] if b'"checksum"' in data else data
    sealed = reseal(body.rstrip(b", \n}") + b',\n"checksum":""\n}\n')
    found = survived(lambda: decode(sealed, "state.json"), CheckpointError)

    if isinstance(found, Checkpoint):
        check(found.books)
        record_problems(found)
        rebase(found.books, sample().books.node_map)
        assert found == decode(encode(found), "again")


@fuzz
@given(
    st.binary(max_size=200)
    | documents({"apiVersion": "numapin/v1", "verb": "status", "params": {}}).map(
        lambda t: t.encode("utf-8", "surrogatepass")
    )
)
def test_requests(data: bytes) -> None:
    """A verb and its parameters, or the error that is answered."""
    found = survived(lambda: parse_request(data), RequestFailed)

    if isinstance(found, tuple):
        verb, params = found
        assert isinstance(verb, str)
        json.dumps(params, allow_nan=False)


@fuzz
@given(damaged(POD) | values)
def test_manifests(document: Any) -> None:
    """A pod, or where its manifest is wrong, in a sentence of one line."""
    found = survived(lambda: parse_pod(document, uid="u"), ManifestError)

    assert isinstance(found, Manifest) or "\n" not in str(found)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for files of one machine."""
    root = tmp_path_factory.mktemp("machine")
    (root / "etc/numapin/conf.d").mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset memory\n")
    return root


@fuzz
@given(data=st.binary(max_size=200) | (mangled(TOML) | texts).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_configuration_files(machine: Path, data: bytes) -> None:
    """A configuration, or every problem with file and key, each on one line."""
    (machine / "etc/numapin/conf.d/10.toml").write_bytes(data)
    found = survived(lambda: load_config(machine), ConfigError)

    assert isinstance(found, Config | ConfigError)
    if isinstance(found, ConfigError):
        assert all(part.isprintable() for problem in found.problems for part in problem)


@fuzz
@given(text=mangled(MOUNTS) | texts)
def test_mountinfo(machine: Path, text: str) -> None:
    """Mounts of cgroup trees, and a hierarchy or one of the kernel's errors."""
    mounts = parse_mountinfo(text)
    (machine / "proc/self/mountinfo").write_text(text, errors="replace")
    survived(lambda: find_hierarchy(machine), KernelError)

    assert len(mounts) <= len(text.splitlines())


@fuzz
@given(
    data=st.binary(max_size=200)
    | documents(
        {"apiVersion": "numapin/v1", "kind": "Answer", "result": {}},
        {"apiVersion": "numapin/v1", "kind": "Error", "code": "x", "message": "y", "exit": 1},
    ).map(lambda t: t.encode("utf-8", "surrogatepass"))
)
def test_answers(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever answers on the socket, a command gets a result or an error of ours."""
    path = tmp_path_factory.mktemp("s") / "api.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        found = survived(lambda: request(path, "status"), NumapinError)
        thread.join()

    assert isinstance(found, dict | NumapinError)


def test_nasty_texts_are_all_tried() -> None:
    """The list of nasty texts has what the properties above stand for: controls, markup, paths, numbers."""
    assert {"\0", "\n", "0-65535", "1e999"} < set(NASTY)
    assert max(map(len, NASTY)) >= 4096

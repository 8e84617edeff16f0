"""Readers of kernel and runtime files: whatever stands in them, a value or one of the kernel's errors."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.config import load_config
from numapin.kernel.cgroup_controllers import missing_cpuset
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import open_cgroup
from numapin.kernel.devices import read_device_node, read_interface_node
from numapin.kernel.processes import is_runtime_init, read_mems_allowed, read_start_ticks, read_thread_group
from numapin.kernel.sysfs import read_hugepage_pools, read_node_available, read_node_free, read_topology
from numapin.kernel.watch import CgroupWatcher
from numapin.model.container import Device, Limits
from numapin.model.errors import ConfigError, KernelError
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.topology import Topology
from support.cgroup_trees import GIB, ID_A, CgroupTree
from support.daemon import Host, docker
from support.hostile import fuzz, mangled, numbers, survived, texts
from support.machines import even, write_machine

CONTAINER = f"/system.slice/docker-{ID_A}.scope"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Path, str]]]:
    """A machine of two nodes with hugepages, and each of its files with its sound text."""
    root = tmp_path_factory.mktemp("nodes")
    write_machine(root, even(2, memory=10 * GIB, pools={2 << 20: 4}))
    files = [p for p in root.rglob("*") if p.is_file()]
    return root, [(path, path.read_text()) for path in files]


@fuzz
@given(data=st.data())
def test_sysfs(nodes: tuple[Path, list[tuple[Path, str]]], data: st.DataObject) -> None:
    """One file of a machine is anything: every number of it is still one, or there is an error with the path."""
    root, files = nodes
    path, good = data.draw(st.sampled_from(files))
    path.write_text(data.draw(mangled(good) | texts), errors="replace")
    try:
        found = survived(lambda: read_topology(root), KernelError)
        others = [
            survived(lambda: read_hugepage_pools(root, NodeId(0)), KernelError),
            survived(lambda: read_node_free(root, NodeId(0)), KernelError),
            survived(lambda: read_node_available(root, NodeId(0)), KernelError),
        ]
    finally:
        path.write_text(good)

    if isinstance(found, Topology):
        assert found.nodes
        assert all(0 <= n.memory_bytes < 2**63 for n in found.nodes.values())
    assert all(n >= 0 for n in others if isinstance(n, int))


@pytest.fixture(scope="module", params=CgroupVersion)
def cgroups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CgroupTree:
    """A tree with one container in it, and the process of that container."""
    tree = CgroupTree(tmp_path_factory.mktemp("cgroups"), request.param)
    tree.process(7)
    directory = tree.add(CONTAINER, memory=GIB, quota=50_000, pids=(7,), hugetlb={"2MB": 1 << 21})
    (directory / "memory.numa_stat").write_text("anon N0=4096 N1=0\nshmem N0=0 N1=0\n")
    (directory / "memory.current").write_text("4096\n")
    return tree


@fuzz
@given(data=st.data())
def test_cgroup_files(cgroups: CgroupTree, data: st.DataObject) -> None:
    """One file of a container's cgroups is anything: each reader has a value within bounds or a typed error."""
    base = cgroups.root / "sys/fs/cgroup"
    files = sorted(p for p in base.rglob(f"{CONTAINER.rpartition('/')[2]}/*") if p.is_file())
    path = data.draw(st.sampled_from(files))
    good = path.read_text()
    path.write_text(data.draw(mangled(good) | texts), errors="replace")
    try:
        hierarchy = cgroups.hierarchy()
        with open_cgroup(hierarchy, CONTAINER) as cgroup:
            limits = survived(cgroup.read_limits, KernelError)
            current = survived(cgroup.read_memory_current, KernelError)
            spread = survived(cgroup.read_memory_numa_stat, KernelError)
            for read in (
                cgroup.read_cpuset_mems,
                cgroup.read_cpuset_mems_effective,
                cgroup.is_populated,
                cgroup.pids,
            ):
                survived(read, KernelError)
        survived(lambda: missing_cpuset(hierarchy, CONTAINER), KernelError)
        survived(cgroups.scan, KernelError)
    finally:
        path.write_text(good)

    if isinstance(limits, Limits):
        assert all(n is None or 0 <= n < 2**62 for n in (limits.memory_bytes, limits.memory_reservation_bytes))
    assert not isinstance(current, int) or abs(current) < 10**20
    assert not isinstance(spread, dict) or all(n < 10**26 for n in spread.values())


@fuzz
@given(
    text=texts | st.binary(max_size=80).map(lambda b: b.decode("latin-1")),
    name=st.sampled_from(["stat", "status", "comm"]),
)
def test_processes(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    """A process's files can hold what its owner likes (its name does): a value, nothing, or a typed error."""
    tree = CgroupTree(tmp_path_factory.mktemp("p"))
    tree.process(7)
    good = (tree.root / "proc/7" / name).read_text()
    for content in (text, good.replace("postgres", text), good + text):
        (tree.root / "proc/7" / name).write_text(content, errors="replace")
        found = survived(lambda: read_start_ticks(tree.root, 7), KernelError)
        nodes = survived(lambda: read_mems_allowed(tree.root, 7), KernelError)
        owner = survived(lambda: read_thread_group(tree.root, 7), KernelError)
        survived(lambda: is_runtime_init(tree.root, 7), KernelError)

        assert found is None or isinstance(found, int | KernelError)
        assert nodes is None or isinstance(nodes, NodeSet | KernelError)
        assert owner is None or isinstance(owner, int | KernelError)


@fuzz
@given(texts, st.builds(Device, texts | texts.map("/dev/vfio/".__add__), st.booleans(), numbers, numbers), texts)
def test_devices(tmp_path_factory: pytest.TempPathFactory, name: str, device: Device, text: str) -> None:
    """A document's devices and interfaces lead to a node, or to none."""
    root = tmp_path_factory.mktemp("d")
    (root / "sys/devices/pci0/net0").mkdir(parents=True)
    (root / "sys/devices/pci0/numa_node").write_text(text, errors="replace")
    (root / "sys/dev/char").mkdir(parents=True)
    (root / "sys/dev/char/1:3").symlink_to("../../devices/pci0/net0")
    found = [
        read_device_node(root, device),
        read_device_node(root, Device("/dev/null", False, 1, 3)),
        read_interface_node(root, name),
    ]

    assert all(node is None or 0 <= node <= 65_535 for node in found)


def test_cgroups_nested_beyond_the_longest_path(tmp_path: Path) -> None:
    """Anybody with a delegated cgroup can nest them so deep; the others are found and watched as ever."""
    tree = CgroupTree(tmp_path)
    here = os.getcwd()
    try:
        os.chdir(tree.cpuset)
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
    finally:
        os.chdir(here)
    tree.add(CONTAINER, memory=GIB, quota=50_000)

    assert [record.cgroup for record in tree.scan()] == [CONTAINER]
    with CgroupWatcher(tree.hierarchy(), lambda path: False) as watcher:
        watcher.resync()
        assert watcher.findings == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives a directory away")
def test_a_user_cannot_play_a_container(tmp_path: Path) -> None:
    """A cgroup with a container's name below one that was given to a user is found, and promised nothing."""
    host = Host(tmp_path)
    home = "/user.slice/user-1000.slice/user@1000.service"
    path = host.guaranteed(f"{home}/docker-{ID_A}.scope", effective="0")
    given_away = host.guaranteed(docker(1), effective="0")
    os.chown(host.tree.cpuset / home[1:], 1000, 1000)
    os.chown(host.tree.cpuset / given_away[1:], 100_000, 100_000)  # its own user namespace's root

    host.start()

    assert (host.mems(path), host.mems(given_away)) == ("", "0")
    assert host.reserved() == {0: 1}
    assert "made by user 1000: rootless containers are not managed" in host.view(path).message


def test_a_container_full_of_cgroups(tmp_path: Path) -> None:
    """However many cgroups a container makes in its own, a look at its processes opens one at a time, and not all."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(CONTAINER, pids=(7,))
    for k in range(1500):
        (directory / str(k)).mkdir()
        (directory / str(k) / "cgroup.procs").write_text(f"{1000 + k}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
    try:
        with open_cgroup(tree.hierarchy(), CONTAINER) as cgroup:
            pids = cgroup.pids()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert 7 in pids
    assert 500 < len(pids) < 1500


def test_a_damaged_document_is_not_remembered_whole(tmp_path: Path) -> None:
    """However often it is looked at, neither its text nor a trace of each look is kept."""
    tree = CgroupTree(tmp_path)
    tree.add(CONTAINER, memory=GIB, quota=50_000)
    tree.task("moby", ID_A, "{" + "x" * 3_000_000)
    discovery = tree.discovery()
    for _ in range(20):
        (record,) = discovery.scan()
    (error,) = [v for _, v in discovery.files._documents._parsed.values() if isinstance(v, KernelError)]
    trace, depth = error.__traceback__, 0
    while trace is not None:
        trace, depth = trace.tb_next, depth + 1

    assert record.doubts
    assert depth < 10
    assert error.__cause__ is None
    assert len(str(error.args)) < 20_000


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_a_configuration_that_is_no_file(tmp_path: Path, kind: str) -> None:
    """Something else under the name of a configuration file is told at once, and waited for by nobody."""
    path = tmp_path / "etc/numapin/numapin.toml"
    path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)

    assert [(str(path), "")] == [(file, key) for file, key, _ in caught.value.problems]


BOMBS = r"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from pathlib import Path
from numapin.daemon.api_wire import parse_request
from numapin.daemon.config import load_config
from numapin.kernel.kubelet_state import parse_kubelet_state
from numapin.kernel.names import names_cgroup, possible_cgroups
from numapin.kernel.oci import parse_config
from numapin.kernel.runtime_state import parse_crun_status, parse_runc_state
from numapin.kernel.systemd import decode_nodes
from numapin.model.errors import NumapinError
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import parse_bytes
from numapin.planner.kubelet.manifest import parse_pod
from numapin.state.codec import decode

MIB4 = 4 << 20
config = lambda inner: parse_config('{"linux":{' + inner + "}}", source="c")
state = lambda text: parse_runc_state(text, source="s", mount_point="/sys/fs/cgroup")
toml = Path(sys.argv[1])
(toml / "etc/numapin").mkdir(parents=True)
def written(text):
    (toml / "etc/numapin/numapin.toml").write_text(text)
    return load_config(toml)
bombs = {
    "slices": lambda: possible_cgroups("a-" * (MIB4 // 2) + "a.slice:x:y"),
    "claims": lambda: names_cgroup("a-" * 2000 + "a.slice:x:y", "/x"),
    "ranges": lambda: NodeSet.parse("0-65535," * (MIB4 // 8)),
    "every second id": lambda: str(NodeSet.parse(",".join(map(str, range(0, 65_536, 2))))),
    "cpus": lambda: config('"resources":{"cpu":{"cpus":"' + "0-65535," * (MIB4 // 8) + '"}}'),
    "deep": lambda: config('"x":' + "[" * MIB4),
    "deep objects": lambda: config('"x":' + '{"a":' * (MIB4 // 5)),
    "digits": lambda: config('"resources":{"memory":{"limit":' + "9" * MIB4 + "}}"),
    "exponent": lambda: config('"resources":{"memory":{"limit":1e' + "9" * 1000 + "}}"),
    "devices": lambda: config('"devices":[' + ",".join(['{"type":"c"}'] * (MIB4 // 14)) + "]"),
    "annotations": lambda: parse_config(
        '{"annotations":{' + ",".join(f'"{k}":"{"v" * 99}"' for k in range(MIB4 // 120)) + "}}", source="c"
    ),
    "labels": lambda: state(
        '{"id":"x","cgroup_paths":{},"config":{"labels":[' + ",".join(['"a=b"'] * 600_000) + "]}}"
    ),
    "scope": lambda: parse_crun_status('{"cgroup-path":"' + "/a" * (MIB4 // 2) + '","scope":"a"}', source="s"),
    "kubelet data": lambda: parse_kubelet_state(
        '{"policyName":"a","dataChecksum":1,"data":"' + "x" * (MIB4 - 99) + '"}', "k"
    ),
    "kubelet cells": lambda: parse_kubelet_state(
        '{"policyName":"a","checksum":1,"machineState":{"0":{"numberOfAssignments":1,"memoryMap":{},"cells":['
        + ",".join(["65535"] * (MIB4 // 6)) + "]}}}", "k"
    ),
    "kubelet deep": lambda: parse_kubelet_state("[" * MIB4, "k"),
    "request": lambda: parse_request(b'{"a":' * 13_000),
    "request digits": lambda: parse_request(b"9" * 65_536),
    "checkpoint": lambda: decode(b"[" * (64 << 20), "state.json"),
    "size": lambda: parse_bytes("9" * MIB4),
    "nodes of a unit": lambda: decode_nodes(b"\xff" * MIB4),
    "pods": lambda: parse_pod({"kind": "Pod", "spec": {"containers": [{"name": "a"}] * 100_000}}, uid="u"),
    "unknown keys": lambda: written("".join(f"polisy{k} = 1\n" for k in range(60_000))),
    "dotted key": lambda: written("a" + ".a" * 300_000 + " = 1\n"),
    "deep arrays": lambda: written("x = " + "[" * 500_000),
    "long line": lambda: written('x = "' + "y" * 1_000_000 + '"\n'),
}
import time
for name, call in bombs.items():
    began = time.process_time()
    try:
        call()
    except (NumapinError, ValueError) as exc:
        str(exc)
    took = time.process_time() - began
    print(f"{took:.2f} s {name}", flush=True)
    assert took < 5, f"{name} took {took:.1f} s of processor time"
print(f"survived {len(bombs)}")
"""


def test_bombs(tmp_path: Path) -> None:
    """Documents made to blow up cost less than five seconds and 700 MiB each, and are values or errors of ours."""
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, str(tmp_path / "m")], capture_output=True, text=True, timeout=300, check=False
    )

    assert "survived " in done.stdout, done.stdout[-300:] + done.stderr[-2000:]

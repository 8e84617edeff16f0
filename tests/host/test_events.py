"""Real events: cgroups, writes, overflow, the limit on watches, uevents."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numapin.kernel.cgroupfs import open_cgroup
from numapin.kernel.discovery import Discovery
from numapin.kernel.uevents import Uevent, UeventWatcher
from numapin.kernel.watch import CgroupWatcher
from numapin.model.errors import KernelError
from numapin.model.nodeset import NodeSet
from support.real_cgroups import ROOT, RealTree
from support.waiting import readable

pytestmark = pytest.mark.host
INOTIFY = Path("/proc/sys/fs/inotify")


@pytest.fixture
def discovery(tree: RealTree) -> Discovery:
    """Discovery on the real hierarchy."""
    return Discovery(tree.hierarchy, ROOT)


@pytest.fixture
def watcher(tree: RealTree, discovery: Discovery) -> Iterator[CgroupWatcher]:
    """Watching the real hierarchy."""
    with CgroupWatcher(tree.hierarchy, discovery.is_container_path) as found:
        yield found


@contextmanager
def sysctl(name: str, value: int) -> Iterator[None]:
    """A limit of inotify, put back afterwards."""
    file = INOTIFY / name
    before = file.read_text()
    try:
        file.write_text(str(value))
    except OSError as exc:
        pytest.skip(f"cannot set {file}: {exc}")
    try:
        yield
    finally:
        file.write_text(before)


def ours(watcher: CgroupWatcher, tree: RealTree) -> list[tuple[str, str]]:
    """Events of the private tree: others' cgroups may come and go meanwhile."""
    return [(e.kind.value, e.path) for e in watcher.read() if e.path.startswith(tree.path) or not e.path]


def containers(tree: RealTree, count: int) -> list[str]:
    """Paths of *count* containers of Docker below the private parent."""
    return [f"{tree.path}/docker/{k:064x}" for k in range(count)]


def test_200_at_once(tree: RealTree, watcher: CgroupWatcher, discovery: Discovery) -> None:
    """200 containers made at once are each created once, found by inspecting, and removed once (B118)."""
    paths = containers(tree, 200)
    for path in paths:
        tree.make(path.removeprefix(tree.path + "/"))
    created = [p for kind, p in ours(watcher, tree) if kind == "created"]
    start = time.process_time()
    records = [discovery.inspect(p) for p in paths]
    spent = (time.process_time() - start) / len(paths)
    for path in paths:
        (tree.hierarchy.cpuset_mount / path[1:]).rmdir()
    removed = [p for kind, p in ours(watcher, tree) if kind == "removed"]

    assert created == [f"{tree.path}/docker", *paths]
    assert [r.cgroup for r in records if r] == paths
    assert [r for r in (discovery.inspect(p) for p in paths) if r] == []
    assert removed == paths
    print(f"inspect: {spent * 1e6:.0f} us of CPU per container")
    assert spent < 0.01


def test_scan_is_cheap(tree: RealTree, discovery: Discovery) -> None:
    """A walk over 500 real containers stays far below a second of CPU time."""
    paths = containers(tree, 500)
    for path in paths:
        tree.make(path.removeprefix(tree.path + "/"))
    start = time.process_time()
    found = {r.cgroup for r in discovery.scan()}
    spent = time.process_time() - start

    assert set(paths) <= found
    print(f"scan of 500: {spent * 1e3:.0f} ms of CPU")
    assert spent < 1.0


def test_overflow_is_told_and_healed(tree: RealTree, discovery: Discovery) -> None:
    """With a queue of 16, 300 new groups are an overflow; afterwards every new one is watched (B119)."""
    with sysctl("max_queued_events", 16), CgroupWatcher(tree.hierarchy, discovery.is_container_path) as watcher:
        for k in range(300):
            tree.make(f"g{k}")
        kinds = [kind for kind, _ in ours(watcher, tree)]
        after = ours(watcher, tree)
        tree.make(f"g299/docker/{'b' * 64}")
        later = ours(watcher, tree)

    assert "overflow" in kinds
    assert after == []
    assert later[-1] == ("created", f"{tree.path}/g299/docker/{'b' * 64}")


def test_running_out_of_watches_is_a_finding(tree: RealTree, discovery: Discovery) -> None:
    """Without a watch left the watcher works on and names the limit and the sysctl."""
    for k in range(30):
        tree.make(f"g{k}")
    with sysctl("max_user_watches", 10), CgroupWatcher(tree.hierarchy, discovery.is_container_path) as watcher:
        findings = watcher.findings

    assert len(findings) == 1
    assert "fs.inotify.max_user_watches" in findings[0]


def test_no_inotify_instance_is_an_error(tree: RealTree, discovery: Discovery) -> None:
    """Without an instance left there is one typed error."""
    with sysctl("max_user_instances", 0), pytest.raises(KernelError) as caught:
        CgroupWatcher(tree.hierarchy, discovery.is_container_path)

    assert "max_user_instances" in str(caught.value)


def test_every_successful_write_is_told(tree: RealTree, watcher: CgroupWatcher) -> None:
    """A write of a pinned container's nodes is seen, also one without a change; a refused one is not."""
    path = tree.make(f"docker/{'a' * 64}")
    ours(watcher, tree)
    watcher.watch_mems(path)
    with open_cgroup(tree.hierarchy, path) as cgroup:
        nodes = cgroup.read_cpuset_mems()
        cgroup.write_cpuset_mems(nodes)
        same = ours(watcher, tree)
        with pytest.raises(KernelError):
            cgroup.write_cpuset_mems(NodeSet.of(999))
        refused = ours(watcher, tree)

    assert same == [("mems-written", path)]
    assert refused == []


def test_uevents_of_nodes() -> None:
    """An uevent of a node reaches us, those of other devices do not (sent by the kernel on request)."""
    node, other = Path("/sys/devices/system/node/node0/uevent"), Path("/sys/devices/virtual/mem/null/uevent")
    if not node.exists():
        pytest.skip("this kernel has no NUMA nodes in sysfs")
    with UeventWatcher() as watcher:
        watcher.read()
        try:
            other.write_text("change")
            node.write_text("change")
        except OSError as exc:
            pytest.skip(f"uevents cannot be asked for here: {exc}")
        ready = readable(watcher, timeout_s=5)
        events = watcher.read()

        assert ready
        assert events == [Uevent("change", "node", "/devices/system/node/node0")]
        assert not watcher.drain()


def test_uevents_cost_little() -> None:
    """The uevent socket is had without the rest of pyroute2, which would be a quarter of the daemon."""
    code = (
        "import sys; from numapin.kernel.uevents import UeventWatcher; UeventWatcher().close();"
        "print(len([m for m in sys.modules if m.startswith('pyroute2')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 40

"""Containers found on recorded machines: `numapin.kernel.discovery` and `numapin.kernel.runtimes`."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.container import ContainerKind, QosClass, Runtime
from numapin.model.errors import CgroupGone, KernelError
from numapin.model.memory import Owner
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import (
    BURSTABLE_SLICE,
    GIB,
    GUARANTEED_SLICE,
    ID_A,
    ID_B,
    ID_C,
    MIB,
    POD_UID,
    CgroupTree,
    cri,
    oci,
    write_files,
)

DOCKER = f"/system.slice/docker-{ID_A}.scope"
CRI = f"{GUARANTEED_SLICE}/cri-containerd-{ID_A}.scope"
BOTH = pytest.mark.parametrize("version", list(CgroupVersion))


@BOTH
def test_a_guaranteed_pod(tmp_path: Path, version: CgroupVersion) -> None:
    """A container of containerd's CRI in a Guaranteed pod carries everything the planner asks for."""
    tree = CgroupTree(tmp_path, version)
    tree.add(GUARANTEED_SLICE, memory=8 * GIB, quota=400_000)
    tree.add(CRI, mems="0-1", memory=4 * GIB, quota=200_000)
    claim = f"{GUARANTEED_SLICE.rpartition('/')[2]}:cri-containerd:{ID_A}"
    config = oci(memory=4 * GIB, quota=200_000, cgroups_path=claim, annotations=cri("db"))
    tree.task("k8s.io", ID_A, config)
    tree.runc(ID_A, CRI, base="/run/containerd/runc/k8s.io", memory=4 * GIB)
    record = tree.only()

    assert (record.id, record.name, record.pod_name) == (ID_A, "db", "shop/web-0")
    assert (record.runtime, record.kind) == (Runtime.CONTAINERD, ContainerKind.CONTAINER)
    assert (record.pod_uid, record.pod_qos, record.pod_cgroup) == (POD_UID, QosClass.GUARANTEED, GUARANTEED_SLICE)
    assert record.pod_limits is not None
    assert (record.limits.memory_bytes, record.pod_limits.memory_bytes) == (4 * GIB, 8 * GIB)
    assert (record.mems, record.parent_mems) == (NodeSet.of(0, 1), NodeSet.of(0, 1, 2, 3))
    assert (record.doubts, record.findings, record.settled) == ((), (), True)
    assert record.owner == Owner(POD_UID, "db")
    assert record.inode == (tree.cpuset / CRI[1:]).stat().st_ino
    assert record.cgroup_v1 == (version is CgroupVersion.V1)


def test_sandboxes_are_told_by_their_annotation(tmp_path: Path) -> None:
    """containerd's and CRI-O's sandboxes sit beside the containers under the same names (trap 5)."""
    tree = CgroupTree(tmp_path)
    tree.add(CRI)
    tree.task("k8s.io", ID_A, oci(shares=2, annotations=cri("", kind="sandbox")))
    tree.add(f"{GUARANTEED_SLICE}/crio-{ID_B}.scope")
    tree.storage(ID_B, oci(annotations={"io.kubernetes.cri-o.ContainerType": "sandbox"}))
    tree.add(f"{GUARANTEED_SLICE}/crio-{ID_C}")

    assert [r.kind for r in tree.scan()] == [ContainerKind.SANDBOX] * 3


def test_monitors_are_no_containers(tmp_path: Path) -> None:
    """Beside conmon there is one container; when only conmon is left there is none (B035)."""
    tree = CgroupTree(tmp_path)
    container = tree.add(f"{GUARANTEED_SLICE}/crio-{ID_A}.scope", memory=GIB)
    tree.add(f"{GUARANTEED_SLICE}/crio-conmon-{ID_A}.scope")
    tree.add(f"/machine.slice/libpod-conmon-{ID_B}.scope")
    tree.storage(ID_A, oci(memory=GIB))
    with_container = tree.scan()
    shutil.rmtree(container)

    assert [r.id for r in with_container] == [ID_A]
    assert tree.scan() == []
    assert tree.discovery().inspect(f"/machine.slice/libpod-conmon-{ID_B}.scope") is None


def test_what_runs_inside_a_container_is_its_own_affair(tmp_path: Path) -> None:
    """kind, Docker in Docker and systemd inside are counted once, at the outermost cgroup (B038, trap 9)."""
    tree = CgroupTree(tmp_path)
    inner = f"{DOCKER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{POD_UID.replace('-', '_')}.slice"
    tree.add(DOCKER, memory=8 * GIB)
    tree.add(f"{inner}/cri-containerd-{ID_B}.scope", memory=4 * GIB)
    tree.add(f"{DOCKER}/docker/{ID_C}", memory=GIB)
    discovery = tree.discovery()

    assert [(r.cgroup, r.limits.memory_bytes, r.pod_qos) for r in discovery.scan()] == [(DOCKER, 8 * GIB, None)]
    assert discovery.inspect(f"{inner}/cri-containerd-{ID_B}.scope") is None
    assert discovery.inspect(f"{DOCKER}/docker/{ID_C}") is None
    assert discovery.is_container_path(f"{DOCKER}/docker")
    assert not discovery.is_container_path("/system.slice")


def test_a_literal_directory_finds_its_pods_limits(tmp_path: Path) -> None:
    """With colons in its name the container is elsewhere than its pod, and both are read (B037)."""
    tree = CgroupTree(tmp_path)
    path = f"/system.slice/containerd.service/{BURSTABLE_SLICE.rpartition('/')[2]}:cri-containerd:{ID_A}"
    tree.add(BURSTABLE_SLICE, memory=3 * GIB)
    tree.add(path, memory=GIB)
    tree.task("k8s.io", ID_A, oci(memory=GIB, cgroups_path=path.rpartition("/")[2], annotations=cri("c")))
    record = tree.only()

    assert (record.cgroup, record.pod_uid, record.pod_qos) == (path, POD_UID, QosClass.BURSTABLE)
    assert record.pod_limits is not None
    assert record.pod_limits.memory_bytes == 3 * GIB
    assert record.doubts == ()


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (DOCKER, Runtime.DOCKER),
        (f"/docker/{ID_A}", Runtime.DOCKER),
        (f"/my-parent/{ID_A}", Runtime.DOCKER),
    ],
)
def test_docker_of_both_drivers(tmp_path: Path, path: str, runtime: Runtime) -> None:
    """Docker's bundle is containerd's, its state root is its own, its name is in its own directory (trap 10)."""
    tree = CgroupTree(tmp_path)
    tree.add(path, memory=4 * GIB, quota=100_000)
    config = oci(memory=4 * GIB, quota=100_000, annotations={"numapin.guaranteed": "true"})
    tree.task("moby", ID_A, config, root="/var/run/docker/runtime-runc")
    tree.runc(ID_A, path, base="/run/docker/runtime-runc/moby", memory=4 * GIB)
    write_files(tmp_path / "var/lib/docker/containers" / ID_A, {"config.v2.json": json.dumps({"Name": "/pg"})})
    record = tree.only()

    assert (record.runtime, record.name, record.id, record.settled) == (runtime, "pg", ID_A, True)
    assert record.pod_uid is None
    assert record.oci is not None
    assert record.oci.annotations["numapin.guaranteed"] == "true"


def test_docker_with_its_data_elsewhere(tmp_path: Path) -> None:
    """Docker's name of a container is found where its configuration puts its data."""
    tree = CgroupTree(tmp_path)
    tree.add(DOCKER, memory=4 * GIB)
    write_files(tmp_path / "etc/docker", {"daemon.json": '{"data-root": "/srv/docker"}'})
    write_files(tmp_path / "srv/docker/containers" / ID_A, {"config.v2.json": json.dumps({"Name": "/pg"})})

    assert tree.only().name == "pg"


def test_podmans_names(tmp_path: Path) -> None:
    """
    Podman's own name for a container is in its storage's list; a list that is damaged, or a name that could not be a
    file's, leaves the id.
    """
    tree = CgroupTree(tmp_path)
    tree.add(f"/machine.slice/libpod-{ID_A}.scope", memory=GIB)
    storage = tmp_path / "var/lib/containers/storage/overlay-containers"
    listed = [{"id": ID_B, "names": ["other"]}, {"id": ID_A, "names": ["pg", "alias"], "layer": "x"}]
    seen = []
    for text in (json.dumps(listed), "[{", json.dumps([{"id": ID_A, "names": ["../x"]}]), json.dumps([{"id": ID_A}])):
        write_files(storage, {"containers.json": text})
        seen.append(tree.only().name)

    assert seen == ["pg", ID_A, ID_A, ID_A]
    assert tree.only().doubts == ()


def test_podman_with_crun(tmp_path: Path) -> None:
    """The container is the scope, not ``container`` below it; CRI-O is told by its annotation (trap 8)."""
    tree = CgroupTree(tmp_path)
    path = f"/machine.slice/libpod-{ID_A}.scope"
    tree.process(41)
    tree.add(path, memory=GIB, mems="1")
    tree.add(f"{path}/container", pids=(41,))
    annotations = {"io.container.manager": "libpod"}
    tree.storage(ID_A, oci(memory=GIB, cgroups_path=f"machine.slice:libpod:{ID_A}", annotations=annotations))
    tree.crun(ID_A, f"{path}/container", scope=f"libpod-{ID_A}.scope")
    record = tree.only()

    assert (record.cgroup, record.runtime, record.doubts) == (path, Runtime.PODMAN, ())
    assert (record.mems, record.settled) == (NodeSet.of(1), True)


def test_quadlet_payload(tmp_path: Path) -> None:
    """A container split into its unit's cgroup has no scope of its own and is found (trap 32)."""
    tree = CgroupTree(tmp_path)
    tree.add(f"/system.slice/web.service/libpod-payload-{ID_A}", memory=GIB)

    assert tree.only().runtime is Runtime.PODMAN


def test_ctr_containers_have_free_names(tmp_path: Path) -> None:
    """``/default/x1`` is a container because containerd has a task that names this cgroup."""
    tree = CgroupTree(tmp_path)
    tree.add("/default/x1", memory=GIB)
    tree.add("/default/x2", memory=GIB)
    tree.task("default", "x1", oci(memory=GIB, cgroups_path="/default/x1"))
    tree.task("default", ".x2", oci(memory=GIB, cgroups_path="/default/x2"))
    record = tree.only()

    assert (record.id, record.runtime, record.cgroup) == ("x1", Runtime.CONTAINERD, "/default/x1")


def test_a_tasks_state_leaves_it_containerds(tmp_path: Path) -> None:
    """When runc has written the state of a containerd task, the container is containerd's as before."""
    tree = CgroupTree(tmp_path)
    tree.add("/default/x1", memory=GIB)
    tree.task("default", "x1", oci(memory=GIB, cgroups_path="/default/x1"))
    tree.runc("x1", "/default/x1", base="/run/containerd/runc/default")

    assert Runtime.CONTAINERD is tree.only().runtime


@BOTH
def test_runc_and_crun_by_hand(tmp_path: Path, version: CgroupVersion) -> None:
    """Without any telling name only the runtime's state says that a cgroup is a container (trap 33)."""
    tree = CgroupTree(tmp_path, version)
    tree.add("/system.slice/c1", memory=GIB)
    tree.add("/c2", memory=GIB)
    tree.add("/system.slice/other.service", memory=GIB)
    discovery = tree.discovery()
    before = discovery.scan()
    tree.runc("c1", "/system.slice/c1", memory=GIB, labels=["numapin.guaranteed=true"])
    tree.crun("c2", "/c2", config=oci(memory=GIB, quota=100_000))
    runc, crun = discovery.inspect("/system.slice/c1"), discovery.inspect("/c2")

    assert before == []
    assert runc is not None
    assert (runc.id, runc.runtime, runc.settled) == ("c1", Runtime.RUNC, True)
    assert runc.oci is not None
    assert runc.oci.annotations["numapin.guaranteed"] == "true"
    assert crun is not None
    assert crun.oci is not None
    assert (crun.id, crun.runtime, crun.oci.limits.cpu_quota_us) == ("c2", Runtime.CRUN, 100_000)
    assert discovery.inspect("/system.slice/other.service") is None


@pytest.mark.parametrize("cgroup", ["/system.slice", "/init.scope", "/"])
def test_a_state_cannot_claim_a_slice(tmp_path: Path, cgroup: str) -> None:
    """A state file that names a slice, PID 1 or the root makes no container of it."""
    tree = CgroupTree(tmp_path)
    tree.add("/system.slice/x.service")
    tree.add("/init.scope")
    tree.runc("evil", cgroup)

    assert tree.scan() == []


def test_system_containers_are_found_and_told(tmp_path: Path) -> None:
    """LXC and nspawn are records of their own kind; their monitors are not."""
    tree = CgroupTree(tmp_path)
    for path in ("/lxc.payload.web", "/lxc.monitor.web", "/machine.slice/machine-box.scope"):
        tree.add(path)

    assert [(r.runtime, r.kind) for r in tree.scan()] == [
        (Runtime.LXC, ContainerKind.SYSTEM),
        (Runtime.NSPAWN, ContainerKind.SYSTEM),
    ]


def test_a_container_that_just_appeared(tmp_path: Path) -> None:
    """Before the runtime's state is written the limits may be missing: not settled, with those of the bundle."""
    tree = CgroupTree(tmp_path)
    tree.add(CRI)
    tree.task("k8s.io", ID_A, oci(memory=GIB, annotations=cri("db")))
    record = tree.only()

    assert (record.settled, record.limits.memory_bytes) == (False, None)
    assert record.oci is not None
    assert record.oci.limits.memory_bytes == GIB


@pytest.mark.parametrize(("comm", "settled"), [("runc:[2:INIT]", False), ("postgres", True)])
def test_settled_without_a_state_file(tmp_path: Path, comm: str, settled: bool) -> None:
    """Where no runtime state is found, the user's program running is what settles it."""
    tree = CgroupTree(tmp_path)
    tree.process(50, comm=comm)
    tree.add(DOCKER, pids=(50,))

    assert tree.only().settled is settled


def test_metadata_of_another_cgroup_is_a_doubt(tmp_path: Path) -> None:
    """A bundle or a state that names another cgroup forbids a pin, and both are shown."""
    tree = CgroupTree(tmp_path)
    tree.add(DOCKER, memory=GIB)
    tree.task("moby", ID_A, oci(memory=GIB, cgroups_path="/somewhere/else"))
    tree.runc(ID_A, "/system.slice/other.scope", base="/run/docker/runtime-runc/moby")
    first, second = tree.only().doubts

    assert "'/somewhere/else'" in first
    assert "/system.slice/other.scope" in second


@pytest.mark.parametrize("text", ["not json", '{"linux": 5}', "[" * 200_000, " " * (5 << 20)])
def test_damaged_metadata_is_a_doubt_about_one_container(tmp_path: Path, text: str) -> None:
    """A damaged or endless config.json is told with its path; the container beside it is served (B130)."""
    tree = CgroupTree(tmp_path)
    tree.add(DOCKER, memory=GIB)
    tree.add(f"/system.slice/docker-{ID_B}.scope", memory=GIB)
    tree.task("moby", ID_A, text)
    tree.task("moby", ID_B, oci(memory=GIB))
    bad, good = tree.scan()

    assert f"/moby/{ID_A}/config.json" in bad.doubts[0]
    assert len(bad.doubts[0]) < 1000
    assert good.doubts == ()


def test_a_bundle_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A bundle directory or config.json replaced by a link is a doubt, and the target is not read (B130)."""
    tree = CgroupTree(tmp_path)
    outside = tmp_path / "outside"
    write_files(outside, {"config.json": json.dumps(oci(memory=GIB))})
    directory = tree.task("moby", ID_A, oci())
    tree.add(DOCKER)
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to(outside / "config.json")
    as_file = tree.only()
    shutil.rmtree(directory)
    directory.symlink_to(outside)
    as_directory = tree.only()

    assert (as_file.oci, as_directory.oci) == (None, None)
    assert "ELOOP" in as_file.doubts[0]
    assert "ENOTDIR" in as_directory.doubts[0]


@pytest.mark.parametrize("name", ["a\nb", "../../etc", "x" * 300, "\x1b[31mred"])
def test_names_from_metadata_are_checked(tmp_path: Path, name: str) -> None:
    """A name with control characters or slashes is not taken over; it is told escaped and short (B130)."""
    tree = CgroupTree(tmp_path)
    tree.add(CRI, memory=GIB)
    tree.task("k8s.io", ID_A, oci(memory=GIB, annotations=cri(name)))
    record = tree.only()

    assert record.name == ID_A
    assert len(record.findings) == 1
    assert record.findings[0].isprintable()
    assert len(record.findings[0]) < 200


def test_options_cannot_lead_the_state_elsewhere(tmp_path: Path) -> None:
    """A state root outside ``/run`` or with ``..`` is not looked at (B130)."""
    for root in ("/etc", "/run/../etc"):
        tree = CgroupTree(tmp_path / root.replace("/", "_"))
        tree.add(DOCKER)
        tree.task("moby", ID_A, oci(), root=root)
        tree.runc(ID_A, DOCKER, base="/etc/moby")

        assert not tree.only().settled


def test_a_recycled_pid_is_nobodys(tmp_path: Path) -> None:
    """The first process counts only with the start time the runtime noted (trap 28)."""
    tree = CgroupTree(tmp_path)
    tree.process(50, start=777)
    tree.add(DOCKER, memory=GIB)
    tree.task("moby", ID_A, oci(memory=GIB))
    state = tmp_path / "run/docker/runtime-runc/moby"
    found = []
    for start in (777, 778):
        shutil.rmtree(state, ignore_errors=True)
        tree.runc(ID_A, DOCKER, base="/run/docker/runtime-runc/moby", pid=50, start=start)
        record = tree.only()
        found.append(record.oci.init_pid if record.oci else None)

    assert found == [50, None]


def test_a_container_without_metadata_in_a_pod(tmp_path: Path) -> None:
    """With neither bundle nor limit it may be the sandbox: in doubt. With a limit it cannot be one."""
    tree = CgroupTree(tmp_path)
    tree.add(GUARANTEED_SLICE, memory=8 * GIB)
    tree.add(CRI)
    tree.add(f"{GUARANTEED_SLICE}/cri-containerd-{ID_B}.scope", memory=GIB)
    nothing, limited = tree.scan()

    assert "sandbox" in nothing.doubts[0]
    assert (limited.doubts, len(limited.findings)) == ((), 1)


def test_cpuset_not_enabled_names_the_remedy(tmp_path: Path) -> None:
    """A container without ``cpuset.mems`` is in doubt; the highest ancestor and the command are told (B058)."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(DOCKER, memory=GIB)
    (directory / "cpuset.mems").unlink()
    (directory / "cpuset.mems.effective").unlink()
    write_files(tree.cpuset, {"system.slice/cgroup.subtree_control": "cpu memory pids\n"})
    (doubt,) = tree.only().doubts

    assert "echo +cpuset > /sys/fs/cgroup/system.slice/cgroup.subtree_control" in doubt


def test_the_parents_nodes(tmp_path: Path) -> None:
    """What the parent grants limits the choice; on v1 an uninitialised parent asks its own (B064)."""
    v2 = CgroupTree(tmp_path / "2")
    v2.add("/system.slice", effective="1")
    v2.add(DOCKER)
    v1 = CgroupTree(tmp_path / "1", CgroupVersion.V1)
    parent = v1.add("/system.slice")
    v1.add(DOCKER)
    write_files(parent, {"cpuset.mems": "\n", "cpuset.effective_mems": "\n"})

    assert (v2.only().parent_mems, v1.only().parent_mems) == (NodeSet.of(1), NodeSet.of(0, 1, 2, 3))


def test_no_memory_controller(tmp_path: Path) -> None:
    """Where no file shows a limit, that is said, not taken for "unlimited" (B056)."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.add(DOCKER, controllers=False)
    tree.add(f"/system.slice/docker-{ID_B}.scope")

    assert [r.sizes_readable for r in tree.scan()] == [False, True]


def test_a_restarted_container_is_the_same_owner(tmp_path: Path) -> None:
    """Two cgroups of one pod's container, both visible, have one owner and differ in id and inode (B046)."""
    tree = CgroupTree(tmp_path)
    for container_id in (ID_A, ID_B):
        tree.add(f"{GUARANTEED_SLICE}/cri-containerd-{container_id}.scope", memory=GIB)
        tree.task("k8s.io", container_id, oci(memory=GIB, annotations=cri("db")))
    old, new = tree.scan()

    assert old.owner == new.owner
    assert (old.id, old.inode) != (new.id, new.inode)


def test_an_unreadable_container_hides_no_other(tmp_path: Path) -> None:
    """What cannot be read at all is told by the scan; the container beside it is found."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(DOCKER)
    tree.add(f"/system.slice/docker-{ID_B}.scope")
    (directory / "cgroup.events").unlink()
    (directory / "cgroup.events").mkdir()
    discovery = tree.discovery()

    assert [r.id for r in discovery.scan()] == [ID_B]
    assert len(discovery.problems) == 1
    assert "cgroup.events" in discovery.problems[0]
    with pytest.raises(KernelError):
        discovery.inspect(DOCKER)


def test_inspect_finds_what_came_after_the_scan(tmp_path: Path) -> None:
    """Containers of ctr, and of runc under a scope's name or any other, are found by inspecting their cgroup."""
    tree = CgroupTree(tmp_path)
    paths = ["/default/x1", "/system.slice/runc-c1.scope", "/odd/place"]
    for path in paths:
        tree.add(path, memory=GIB)
    discovery = tree.discovery()
    before = discovery.scan()
    tree.task("default", "x1", oci(memory=GIB, cgroups_path="/default/x1"))
    tree.runc("c1", "/system.slice/runc-c1.scope")
    tree.runc("c2", "/odd/place")

    assert before == []
    assert [r.id for r in map(discovery.inspect, paths) if r] == ["x1", "c1", "c2"]


def test_inspect_of_nothing(tmp_path: Path) -> None:
    """A cgroup that vanished, a slice, a pod and the root are no containers."""
    tree = CgroupTree(tmp_path)
    tree.add(GUARANTEED_SLICE)
    discovery = tree.discovery()

    assert [discovery.inspect(p) for p in (DOCKER, "/system.slice", GUARANTEED_SLICE, "/")] == [None] * 4
    with pytest.raises(CgroupGone):
        discovery.open(DOCKER)


def test_a_replaced_bundle_is_read_again(tmp_path: Path) -> None:
    """A document is parsed once, and again when it was replaced (a container restarted under its id)."""
    tree = CgroupTree(tmp_path)
    tree.add(DOCKER)
    tree.task("moby", ID_A, oci(memory=GIB))
    discovery = tree.discovery()
    (first,) = discovery.scan()
    tree.task("moby", ID_A, oci(memory=200 * MIB))
    (second,) = discovery.scan()
    again = discovery.inspect(DOCKER)

    assert [r.oci.limits.memory_bytes for r in (first, second, again) if r and r.oci] == [GIB, 200 * MIB, 200 * MIB]


def test_links_in_the_tree_are_not_walked(tmp_path: Path) -> None:
    """A link among the cgroups is passed over, a loop included."""
    tree = CgroupTree(tmp_path)
    tree.add(DOCKER)
    (tree.cpuset / "system.slice" / "loop").symlink_to(tree.cpuset)

    assert [r.cgroup for r in tree.scan()] == [DOCKER]


def test_a_container_with_thousands_of_cgroups_inside_is_cheap(tmp_path: Path) -> None:
    """Whether its program runs already is told by its first process, without a walk through what is inside."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    tree.process(77)
    directory = tree.add(DOCKER, memory=GIB, pids=(77,))
    for k in range(3000):
        (directory / f"unit{k}").mkdir()
    discovery = tree.discovery()
    discovery.scan()
    start = time.process_time()
    (record,) = discovery.scan()
    spent = time.process_time() - start

    assert record.settled
    assert spent < 0.02


def test_500_containers_are_cheap(tmp_path: Path) -> None:
    """A walk over 500 containers with their bundles stays far below a second of CPU time, warm or cold."""
    tree = CgroupTree(tmp_path)
    for k in range(500):
        container_id = f"{k:064x}"
        tree.add(f"/system.slice/docker-{container_id}.scope", memory=GIB)
        tree.task("moby", container_id, oci(memory=GIB))
    discovery = tree.discovery()
    spent = []
    for _ in range(2):
        start = time.process_time()
        count = len(discovery.scan())
        spent.append(time.process_time() - start)
        assert count == 500

    assert max(spent) < 2.0

"""Where the walk over the cgroups begins and ends, and what is only listed: the inside of containers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.recognition import MOST_INSIDE
from numapin.kernel.watch import CgroupWatcher, EventKind
from numapin.model.container import NestedContainer, QosClass, Runtime
from support.cgroup_trees import GIB, GUARANTEED_SLICE, ID_A, ID_B, ID_C, CgroupTree

VERSIONS = (CgroupVersion.V1, CgroupVersion.V2)
OUTER = f"/system.slice/docker-{ID_A}.scope"
KIND = f"{OUTER}/kubelet.slice/kubelet-kubepods.slice"
UID = "0aaaaaaa-1111-2222-3333-444444444444"
INNER_POD = f"{KIND}/kubelet-kubepods-pod{UID.replace('-', '_')}.slice"
INNER = f"{INNER_POD}/cri-containerd-{ID_B}.scope"


def kind(root: Path, version: CgroupVersion = CgroupVersion.V2) -> CgroupTree:
    """The tree of B038: kind's node of 8 GiB with a pod of 4 GiB inside, and a container beside it."""
    tree = CgroupTree(root, version)
    tree.add(OUTER, memory=8 * GIB, quota=50_000)
    tree.add(f"{OUTER}/init.scope")
    tree.add(INNER, memory=4 * GIB)
    tree.add(f"/system.slice/docker-{ID_C}.scope", memory=GIB)
    return tree


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_inside_is_told_with_the_container_around_it(tmp_path: Path, version: CgroupVersion) -> None:
    """The inner container is nested in the outer one, which alone is found by the walk (B038)."""
    tree = kind(tmp_path, version)
    discovery = tree.discovery()

    assert [r.cgroup for r in discovery.scan()] == [OUTER, f"/system.slice/docker-{ID_C}.scope"]
    inside = discovery.nested(OUTER)
    assert inside.found == (NestedContainer(ID_B, Runtime.CONTAINERD, INNER, OUTER, UID),)  # type: ignore[arg-type]
    assert inside.complete
    assert discovery.nested(f"/system.slice/docker-{ID_C}.scope").found == ()


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"/docker/{ID_B}", Runtime.DOCKER),
        (f"/system.slice/docker-{ID_B}.scope", Runtime.DOCKER),
        (f"/kubelet/kubepods/burstable/pod{UID}/{ID_B}", Runtime.CONTAINERD),
        (f"/container/libpod-{ID_B}.scope", Runtime.PODMAN),
        (f"/lxc.payload.{ID_B}", Runtime.LXC),
    ],
)
def test_inner_drivers(tmp_path: Path, path: str, runtime: Runtime) -> None:
    """Docker, kind with either driver, Podman and LXC are recognised inside a container of Docker's."""
    tree = CgroupTree(tmp_path)
    tree.add(f"{OUTER}{path}")
    (found,) = tree.discovery().nested(OUTER).found

    assert (found.id, found.runtime, found.cgroup, found.outer) == (ID_B, runtime, OUTER + path, OUTER)


def test_inside_a_nested_one_nothing_is_looked_at(tmp_path: Path) -> None:
    """What is in the inner container is its own affair again, and so is what is in a monitor."""
    tree = CgroupTree(tmp_path)
    tree.add(f"{OUTER}/docker/{ID_B}/docker/{ID_C}")
    tree.add(f"{OUTER}/crio-conmon-{ID_A}.scope/docker/{ID_C}")

    assert [n.id for n in tree.discovery().nested(OUTER).found] == [ID_B]


def test_links_inside_are_not_followed(tmp_path: Path) -> None:
    """A link in a container leads nowhere, however it is called."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(OUTER)
    (directory / f"docker-{ID_B}.scope").symlink_to(tree.cpuset)
    (directory / "more").symlink_to(tree.cpuset)

    assert tree.discovery().nested(OUTER).found == ()


@pytest.mark.parametrize(
    "name",
    ["{k:064x}", "unit{k}.service", "docker-{k:064x}.scope", "docker-{k:064x}.scope/inner", "unit{k}/inner"],
)
def test_a_look_inside_is_bounded(tmp_path: Path, name: str) -> None:
    """Each name counts, and what it brings about: however they are called, a look ends at its bound and says so."""
    tree = CgroupTree(tmp_path)
    (tmp_path / "run/containerd/io.containerd.runtime.v2.task/k8s.io").mkdir(parents=True)
    directory = tree.add(OUTER)
    for k in range(MOST_INSIDE // 2):
        (directory / str(k % 8) / name.format(k=k)).mkdir(parents=True)
    inside = tree.discovery().nested(OUTER, MOST_INSIDE // 8)

    assert not inside.complete
    assert MOST_INSIDE // 8 <= inside.cost < MOST_INSIDE // 8 + 25
    assert len(inside.found) <= MOST_INSIDE // 8 // 5


def test_a_node_of_kind_is_looked_at_whole(tmp_path: Path) -> None:
    """110 pods of three containers, each with a cgroup inside, and fifty services are within the bound."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(OUTER)
    base = directory / "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
    for pod in range(110):
        inner = base / f"kubelet-kubepods-burstable-pod{pod:032x}.slice"
        for k in range(3):
            (inner / f"cri-containerd-{pod * 3 + k:064x}.scope/init").mkdir(parents=True)
    for k in range(50):
        (directory / f"system.slice/unit{k}.service").mkdir(parents=True)
    inside = tree.discovery().nested(OUTER)

    assert (len(inside.found), inside.complete) == (330, True)


def test_an_id_without_a_prefix_is_looked_up(tmp_path: Path) -> None:
    """Inside too a name of 64 digits alone is a container only when a runtime of the host's knows it."""
    tree = CgroupTree(tmp_path)
    (tmp_path / f"run/containerd/io.containerd.runtime.v2.task/moby/{ID_B}").mkdir(parents=True)
    tree.add(f"{OUTER}/custom/{ID_B}")
    tree.add(f"{OUTER}/custom/{ID_C}")
    (found,) = tree.discovery().nested(OUTER).found

    assert (found.id, found.runtime) == (ID_B, Runtime.DOCKER)


def test_very_deep_down_nothing_is_looked_at(tmp_path: Path) -> None:
    """A path of very many levels costs the more the deeper it is; no runtime makes one, so the look ends before."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(OUTER)
    (directory / "/".join("a" * 6) / f"docker-{ID_B}.scope").mkdir(parents=True)
    (directory / "/".join("b" * 600) / f"docker-{ID_C}.scope").mkdir(parents=True)
    inside = tree.discovery().nested(OUTER)

    assert ([n.id for n in inside.found], inside.complete) == ([ID_B], False)
    assert inside.cost < 500


def test_leaves_cost_no_listing(tmp_path: Path) -> None:
    """A container without cgroups inside costs nothing; a service inside one without any is no more than a name."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(OUTER)
    alone = tree.discovery().nested(OUTER, 0)
    (directory / "unit0.service").mkdir()
    one = tree.discovery().nested(OUTER).cost
    for k in range(1, 100):
        (directory / f"unit{k}.service").mkdir()

    assert (alone.cost, alone.complete) == (0, True)
    assert tree.discovery().nested(OUTER).cost == one + 99


def test_thousands_of_inner_cgroups_do_not_slow_the_walk(tmp_path: Path) -> None:
    """The walk over the host does not enter a container, and the look inside is short."""
    tree = CgroupTree(tmp_path)
    directory = tree.add(OUTER)
    for k in range(3000):
        (directory / f"unit{k}" / "inner").mkdir(parents=True)
    discovery = tree.discovery()
    began = time.process_time()
    discovery.scan()
    walked = time.process_time()
    discovery.nested(OUTER)
    looked = time.process_time()

    assert walked - began < 0.2
    assert looked - walked < 0.2


# ---- the configured root ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("top", [OUTER, f"{OUTER}/kubelet.slice", KIND, INNER_POD])
def test_with_a_root_inside_the_inner_ones_are_the_containers(
    tmp_path: Path, version: CgroupVersion, top: str
) -> None:
    """The inner container has its pod's class and its own limit; the outer one and the neighbour are none (B038)."""
    (record,) = kind(tmp_path, version).discovery(top).scan()

    assert (record.cgroup, record.limits.memory_bytes, record.pod_uid) == (INNER, 4 * GIB, UID)
    assert (record.pod_qos, record.pod_cgroup) == (QosClass.GUARANTEED, INNER_POD)


def test_one_path_is_answered_as_the_walk_does(tmp_path: Path) -> None:
    """`inspect`, `covers` and `reaches` agree with the walk, with and without a root."""
    tree = kind(tmp_path)
    plain, inner = tree.discovery(), tree.discovery(OUTER)

    assert [d.inspect(INNER) is not None for d in (plain, inner)] == [False, True]
    assert [d.inspect(OUTER) is not None for d in (plain, inner)] == [True, False]
    assert [d.covers(OUTER) for d in (plain, inner)] == [True, False]
    assert [d.reaches(OUTER) for d in (plain, inner)] == [True, False]
    assert [d.reaches(INNER) for d in (plain, inner)] == [False, True]
    assert not inner.covers(f"{OUTER}x/docker/{ID_B}")


def test_a_pod_around_the_root_is_not_the_inner_ones_pod(tmp_path: Path) -> None:
    """A CI runner in a pod: Docker's containers inside it belong to no pod, those of the pod itself do."""
    tree = CgroupTree(tmp_path)
    runner = f"{GUARANTEED_SLICE}/cri-containerd-{ID_A}.scope"
    tree.add(f"{runner}/docker/{ID_B}", memory=GIB)
    (inner,) = tree.discovery(runner).scan()
    (of_pod,) = tree.discovery(GUARANTEED_SLICE).scan()

    assert (inner.cgroup, inner.pod_uid) == (f"{runner}/docker/{ID_B}", None)
    assert (of_pod.cgroup, of_pod.pod_uid) == (runner, "11111111-2222-3333-4444-555555555555")


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is found and the sentence names key and path; the root of the hierarchy is always there."""
    tree = kind(tmp_path)
    gone = tree.discovery("/system.slice/docker-gone.scope")

    assert gone.scan() == []
    assert gone.top_problem().startswith("cgroup.root names /system.slice/docker-gone.scope, and /sys/fs/cgroup")
    assert (tree.discovery().top_problem(), tree.discovery(OUTER).top_problem()) == ("", "")


def test_the_watcher_follows_the_way_to_the_root(tmp_path: Path) -> None:
    """The root appears after the start with a container in it: both raise events; nothing beside it is watched."""
    tree = CgroupTree(tmp_path)
    tree.add(f"/system.slice/docker-{ID_C}.scope")
    tree.add("/user.slice/user-0.slice")
    discovery = tree.discovery(OUTER)
    with CgroupWatcher(tree.hierarchy(), discovery.is_container_path) as watcher:
        tree.add(f"/system.slice/docker-{ID_C}.scope/inner")
        tree.add("/user.slice/user-0.slice/inner")
        (tree.cpuset / INNER[1:]).mkdir(parents=True)
        created = [e.path for e in watcher.read() if e.kind is EventKind.CREATED]
        (tree.cpuset / INNER_POD[1:] / f"cri-containerd-{ID_C}.scope").mkdir()
        later = [e.path for e in watcher.read() if e.kind is EventKind.CREATED]

    assert (created[0], created[-1]) == (OUTER, INNER)
    assert all(path.startswith(OUTER) for path in created)
    assert later == [f"{INNER_POD}/cri-containerd-{ID_C}.scope"]

"""Recognition by name alone: `numapin.kernel.names`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.names import (
    Role,
    container_at,
    expand_slice,
    is_safe_id,
    names_cgroup,
    pod_at,
    possible_cgroups,
)
from numapin.model.container import QosClass, Runtime
from support.cgroup_trees import BURSTABLE_SLICE, GUARANTEED_SLICE, ID_A, POD_UID

STATIC_UID = "0123456789abcdef0123456789abcdef"


def parts(path: str) -> list[str]:
    """Components of a cgroup path."""
    return path.strip("/").split("/")


@pytest.mark.parametrize(
    ("path", "uid", "qos"),
    [
        (GUARANTEED_SLICE, POD_UID, QosClass.GUARANTEED),
        (BURSTABLE_SLICE, POD_UID, QosClass.BURSTABLE),
        (BURSTABLE_SLICE.replace("burstable", "besteffort"), POD_UID, QosClass.BEST_EFFORT),
        (f"/kubepods/pod{POD_UID}", POD_UID, QosClass.GUARANTEED),
        (f"/kubepods/burstable/pod{POD_UID}", POD_UID, QosClass.BURSTABLE),
        (f"/kubepods/besteffort/pod{POD_UID}", POD_UID, QosClass.BEST_EFFORT),
    ],
)
def test_pod_paths_of_both_drivers(path: str, uid: str, qos: QosClass) -> None:
    """Both cgroup drivers give the same uid, with dashes, and the class of the path (B034)."""
    pod = pod_at(parts(path))

    assert pod is not None
    assert (uid, qos, path) == (pod.uid, pod.qos, pod.cgroup)


def test_uid_survives_a_change_of_driver() -> None:
    """The uid of the report is the same from the cgroupfs and the systemd name (B034)."""
    uid = "0d33f94b-ab1a-11e6-9e1a-68f7281d8004"
    slice_name = "kubepods-burstable-pod0d33f94b_ab1a_11e6_9e1a_68f7281d8004.slice"
    pods = [pod_at(["kubepods", f"pod{uid}"]), pod_at([slice_name])]

    assert [uid, uid] == [p.uid if p else None for p in pods]


@pytest.mark.parametrize("path", [f"/kubepods/pod{STATIC_UID}", f"/kubepods.slice/kubepods-pod{STATIC_UID}.slice"])
def test_static_pods_have_uids_without_separators(path: str) -> None:
    """A static pod's uid of 32 digits is accepted under both drivers (trap 3)."""
    pod = pod_at(parts(path))

    assert pod is not None
    assert pod.uid == STATIC_UID


@pytest.mark.parametrize(
    "path",
    [
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice",
        f"/x/kubepods/burstable/pod{POD_UID}",
    ],
)
def test_a_custom_cgroup_root_prefixes_the_path(path: str) -> None:
    """A kubelet with --cgroup-root is recognised by the component, not by the start of the path (trap 4)."""
    pod = pod_at(parts(path))

    assert pod is not None
    assert pod.qos == QosClass.BURSTABLE


@pytest.mark.parametrize(
    "path",
    [
        "/docker/" + ID_A,
        f"/system.slice/docker-{ID_A}.scope",
        "/system.slice/burstable.service",
        f"/kubepods/other/pod{POD_UID}",
        f"/burstable/pod{POD_UID}",
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods/podshort",
        "/notkubepods/pod" + POD_UID,
        f"/notkubepods.slice/notkubepods-pod{POD_UID.replace('-', '_')}.slice",
    ],
)
def test_other_paths_are_no_pods(path: str) -> None:
    """No kubepods component in its place means no pod and no class, never Guaranteed (traps 1 and 2)."""
    assert None is pod_at(parts(path))


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"{GUARANTEED_SLICE}/cri-containerd-{ID_A}.scope", Runtime.CONTAINERD),
        (f"/kubepods/pod{POD_UID}/{ID_A}", Runtime.CONTAINERD),
        (f"{GUARANTEED_SLICE}/crio-{ID_A}.scope", Runtime.CRIO),
        (f"/kubepods/pod{POD_UID}/crio-{ID_A}", Runtime.CRIO),
        (f"/system.slice/docker-{ID_A}.scope", Runtime.DOCKER),
        (f"/docker/{ID_A}", Runtime.DOCKER),
        (f"/machine.slice/libpod-{ID_A}.scope", Runtime.PODMAN),
        (f"/libpod_parent/libpod-{ID_A}", Runtime.PODMAN),
        (f"/system.slice/web.service/libpod-payload-{ID_A}", Runtime.PODMAN),
        (f"/system.slice/nerdctl-{ID_A}.scope", Runtime.CONTAINERD),
    ],
)
def test_container_names_of_every_runtime(path: str, runtime: Runtime) -> None:
    """Each runtime's naming under both drivers gives the bare id and the runtime (traps 1 and 32)."""
    names = parts(path)
    name = container_at(names, pod_at(names[:-1]))

    assert name is not None
    assert (ID_A, runtime, Role.CONTAINER) == (name.id, name.runtime, name.role)


@pytest.mark.parametrize(
    "component",
    [
        f"crio-conmon-{ID_A}.scope",
        f"crio-conmon-{ID_A}",
        f"libpod-conmon-{ID_A}.scope",
        "lxc.monitor.web",
        "machine-qemu\\x2d1\\x2ddb.scope",
    ],
)
def test_monitors_are_never_containers(component: str) -> None:
    """conmon, LXC's monitor and virtual machines are told apart by their whole name (B035, trap 7)."""
    name = container_at(["machine.slice", component], None)

    assert name is not None
    assert name.role == Role.MONITOR


def test_cri_o_leaves_a_sandbox_directory() -> None:
    """``crio-<id>`` without ``.scope`` in a pod slice is a dropped sandbox, under cgroupfs a container (trap 6)."""
    under_systemd = container_at([f"crio-{ID_A}"], pod_at(parts(GUARANTEED_SLICE)))
    under_cgroupfs = container_at([f"crio-{ID_A}"], pod_at(["kubepods", f"pod{POD_UID}"]))

    assert under_systemd is not None
    assert under_systemd.role == Role.SANDBOX
    assert under_cgroupfs is not None
    assert under_cgroupfs.role == Role.CONTAINER


@pytest.mark.parametrize(("word", "qos"), [("burstable-", QosClass.BURSTABLE), ("", QosClass.GUARANTEED)])
def test_a_literal_directory_with_colons(word: str, qos: QosClass) -> None:
    """``slice:prefix:name`` as one directory gives pod, class and id; the pod's own cgroup is the slice's (B037)."""
    uid = "b4f3dfaf_f987_499d_a04c_2c60eb01958c"
    component = f"kubepods-{word}pod{uid}.slice:cri-containerd:{ID_A}"
    name = container_at(["system.slice", "containerd.service", component], None)

    assert name is not None
    assert name.pod is not None
    assert (ID_A, uid.replace("_", "-"), qos) == (name.id, name.pod.uid, name.pod.qos)
    assert name.pod.cgroup.endswith(f"/kubepods-{word}pod{uid}.slice")


@pytest.mark.parametrize(
    ("path", "runtime", "name"),
    [
        ("/lxc.payload.web", Runtime.LXC, "web"),
        ("/lxc/old", Runtime.LXC, "old"),
        ("/machine.slice/machine-box.scope", Runtime.NSPAWN, "box"),
        ("/machine.slice/machine-my\\x2dbox.scope", Runtime.NSPAWN, "my-box"),
        ("/machine.slice/systemd-nspawn@box.service", Runtime.NSPAWN, "box"),
    ],
)
def test_system_containers(path: str, runtime: Runtime, name: str) -> None:
    """LXC and nspawn are recognised as what they are."""
    found = container_at(parts(path), None)

    assert found is not None
    assert (name, runtime, Role.SYSTEM) == (found.id, found.runtime, found.role)


def test_a_bare_id_needs_more_than_its_name() -> None:
    """64 hex digits outside a pod and outside ``/docker`` may be anything."""
    name = container_at(["ci", ID_A], None)

    assert name is not None
    assert name.role == Role.MAYBE


@pytest.mark.parametrize(
    "component", ["docker.service", "docker-abc.scope", "c1", "container", ID_A[:-1], ID_A + "0"]
)
def test_other_names_are_nothing(component: str) -> None:
    """What matches only a part of a pattern is no container."""
    assert None is container_at(["system.slice", component], None)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.slice", "/a.slice"),
        ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
        ("-.slice", ""),
        ("a--b.slice", ""),
        ("a.service", ""),
        ("a/b.slice", ""),
        ("", ""),
    ],
)
def test_slices_expand_level_by_level(name: str, path: str) -> None:
    """A slice's path repeats its prefixes; what is no slice name has none."""
    assert path == expand_slice(name)


def test_cgroups_path_forms() -> None:
    """The systemd form names a scope, the cgroupfs form is the path, the empty one says nothing."""
    assert possible_cgroups(f"system.slice:docker:{ID_A}")[0] == f"/system.slice/docker-{ID_A}.scope"
    assert possible_cgroups(":runc:c1")[0] == "/system.slice/runc-c1.scope"
    assert possible_cgroups("-:x:c1")[0] == "/x-c1.scope"
    assert possible_cgroups("/default/x1") == ("/default/x1",)
    assert possible_cgroups("/a/../../etc") == ()
    assert possible_cgroups("") == ()
    assert "/system.slice/c1.scope" in possible_cgroups("::c1")


def test_metadata_may_name_the_cgroup_from_inside_another() -> None:
    """A runtime below a user manager or another cgroup names only the end of the path."""
    claim = f"user.slice:libpod:{ID_A}"

    assert names_cgroup(claim, f"/user.slice/user-0.slice/user@0.service/user.slice/libpod-{ID_A}.scope")
    assert names_cgroup("", "/anything")
    assert not names_cgroup(claim, f"/system.slice/libpod-{ID_A}.scope")
    assert not names_cgroup("/docker/x", "/notdocker/y")


@pytest.mark.parametrize("text", ["../../../etc", "", ".", "..", ".hidden", "a/b", "a\nb", "a\x1b[31m", "x" * 256])
def test_ids_that_lead_elsewhere_are_refused(text: str) -> None:
    """An id must be a file name of its own and printable (B130)."""
    assert not is_safe_id(text)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_any_text_is_survived(components: list[str]) -> None:
    """No component raises, whatever is in it."""
    pod = pod_at(components)
    container_at(components, pod)
    expand_slice(components[0])
    names_cgroup(components[0], "/" + "/".join(components))

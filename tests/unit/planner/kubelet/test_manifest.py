"""Pod manifests: what counts in them, and what the API server would not take."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.model.container import QosClass
from numapin.planner.kubelet.manifest import MAX_CONTAINERS, ManifestError, parse_pod

GI = 1 << 30


def container(name: str = "app", **resources: Any) -> dict[str, Any]:
    """A container with ``limits`` and ``requests``."""
    return {"name": name, "image": "i", "resources": resources}


def manifest(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Pod of these containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db"},
        "spec": {"containers": [*containers], **spec},
    }


GUARANTEED: dict[str, Any] = {"limits": {"cpu": "2", "memory": "1Gi"}}


def test_a_whole_pod() -> None:
    """Init containers come first, sidecars are told apart, quantities are exact, its own uid does not count."""
    pod = manifest(
        container("main", limits={"cpu": "1500m", "memory": "1.5Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 1}),
        initContainers=[
            container("copy", **GUARANTEED),
            {**container("proxy", **GUARANTEED), "restartPolicy": "Always"},
        ],
        ephemeralContainers=[{"name": "debug"}],
    )
    pod["metadata"] = {"name": "db", "namespace": "shop", "uid": "theirs"}
    found = parse_pod(pod, uid="ours")

    assert (found.name, found.pod.uid, found.pod.qos_class()) == ("shop/db", "ours", QosClass.GUARANTEED)
    assert [("copy", True, False), ("proxy", True, True), ("main", False, False)] == [
        (c.name, c.init, c.restartable) for c in found.pod.containers
    ]
    assert found.pod.containers[2].limits == {"cpu": Decimal("1.5"), "memory": 1.5 * GI, "hugepages-2Mi": 4 << 20}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, QosClass.BEST_EFFORT),
        ({"limits": None, "requests": None}, QosClass.BEST_EFFORT),
        ({"limits": {"cpu": 0, "memory": "0"}}, QosClass.BEST_EFFORT),
        ({"requests": {"memory": "1Gi"}}, QosClass.BURSTABLE),
        ({"limits": {"memory": "1Gi"}}, QosClass.BURSTABLE),
        ({"limits": {"cpu": 1, "memory": "1Gi"}}, QosClass.GUARANTEED),
        ({"limits": {"cpu": 0.5, "memory": 1073741824}}, QosClass.GUARANTEED),
        (
            {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}},
            QosClass.GUARANTEED,
        ),
        ({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"memory": "512Mi"}}, QosClass.BURSTABLE),
        ({"limits": {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi"}}, QosClass.GUARANTEED),
    ],
)
def test_class_as_kubernetes_computes_it(resources: dict[str, Any], expected: QosClass) -> None:
    """Guaranteed needs CPU and memory limited and requests equal; a missing request is its limit."""
    assert expected is parse_pod(manifest(container(**resources)), uid="u").pod.qos_class()


def test_one_container_decides_for_all() -> None:
    """An init container without limits makes the pod Burstable."""
    pod = manifest(container("main", **GUARANTEED), initContainers=[container("copy")])

    assert parse_pod(pod, uid="u").pod.qos_class() is QosClass.BURSTABLE


def test_class_in_the_status() -> None:
    """A pod taken from the API server keeps the class it was given."""
    pod = {**manifest(container(**GUARANTEED)), "status": {"qosClass": "Burstable"}}

    assert parse_pod(pod, uid="u").pod.qos_class() is QosClass.BURSTABLE


def test_resources_of_the_whole_pod() -> None:
    """Pod-level resources decide the class alone, and such a pod is not pinned."""
    pod = parse_pod(manifest(container(), resources=GUARANTEED), uid="u").pod

    assert (pod.qos_class(), pod.has_pod_resources, pod.is_managed()) == (QosClass.GUARANTEED, True, False)


@pytest.mark.parametrize(
    ("limits", "key", "says"),
    [
        ({"memory": "-1Gi"}, "spec.containers[0].resources.limits.memory", "'-1Gi' is negative"),
        ({"memory": "lots"}, "spec.containers[0].resources.limits.memory", "'lots' is not a size"),
        ({"memory": "1Gib"}, "spec.containers[0].resources.limits.memory", "'1Gib' is not a size"),
        ({"memory": True}, "spec.containers[0].resources.limits.memory", "True is not a quantity"),
        ({"memory": [1]}, "spec.containers[0].resources.limits.memory", "[1] is not a quantity"),
        ({"memory": float("nan")}, "spec.containers[0].resources.limits.memory", "'nan' is not a size"),
        ({"memory": "1e30"}, "spec.containers[0].resources.limits.memory", "is above"),
        ({"memory": "1" * 100}, "spec.containers[0].resources.limits.memory", "is not a size"),
        ({"cpu": 1, "hugepages-3Mi": "6Mi"}, "spec.containers[0].resources.limits.hugepages-3Mi", "no page size"),
        (
            {"cpu": 1, "hugepages-2Mi": "3Mi"},
            "spec.containers[0].resources.limits.hugepages-2Mi",
            "whole number of pages",
        ),
        ({"hugepages-2Mi": "2Mi"}, "spec.containers[0].resources.limits.hugepages-2Mi", "cpu or memory beside"),
    ],
)
def test_wrong_quantities(limits: dict[str, Any], key: str, says: str) -> None:
    """The sentence names the key and the value."""
    with pytest.raises(ManifestError) as raised:
        parse_pod(manifest(container(limits=limits)), uid="u")

    assert (raised.value.key, says in raised.value.what) == (key, True), raised.value.what


@pytest.mark.parametrize(
    ("resources", "key"),
    [
        ({"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}}, "requests.memory"),
        ({"requests": {"cpu": 1, "hugepages-2Mi": "2Mi"}}, "requests.hugepages-2Mi"),
        (
            {"limits": {"cpu": 1, "hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "2Mi"}},
            "requests.hugepages-2Mi",
        ),
    ],
)
def test_requests_against_limits(resources: dict[str, Any], key: str) -> None:
    """More asked than allowed, and hugepages that are not limited to what is asked, are refused."""
    with pytest.raises(ManifestError) as raised:
        parse_pod(manifest(container(**resources)), uid="u")

    assert raised.value.key == f"spec.containers[0].resources.{key}"


@pytest.mark.parametrize(
    ("document", "key"),
    [
        (None, ""),
        ([], ""),
        ("Pod", ""),
        ({}, "kind"),
        ({"kind": "Deployment", "spec": {"template": {}}}, "kind"),
        ({"kind": "Pod"}, "spec"),
        ({"kind": "Pod", "spec": {}}, "spec.containers"),
        ({"kind": "Pod", "spec": {"containers": []}}, "spec.containers"),
        ({"kind": "Pod", "spec": {"containers": {}}}, "spec.containers"),
        ({"kind": "Pod", "spec": {"containers": ["x"]}}, "spec.containers[0]"),
        ({"kind": "Pod", "spec": {"containers": [{}]}}, "spec.containers[0].name"),
        ({"kind": "Pod", "spec": {"containers": [{"name": 3}]}}, "spec.containers[0].name"),
        ({"kind": "Pod", "spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "spec.containers"),
        ({"kind": "Pod", "spec": {"containers": [{"name": "a", "resources": 1}]}}, "spec.containers[0].resources"),
        (
            {"kind": "Pod", "spec": {"containers": [{"name": str(n)} for n in range(MAX_CONTAINERS + 1)]}},
            "spec.containers",
        ),
        ({"kind": "Pod", "spec": {"containers": [{"name": "a"}], "initContainers": "x"}}, "spec.initContainers"),
        ({"kind": "Pod", "spec": {"containers": [{"name": "a"}]}, "status": {"qosClass": "Best"}}, "status.qosClass"),
        ({"kind": "Pod", "metadata": 3, "spec": {"containers": [{"name": "a"}]}}, "metadata"),
        ({1: 2}, ""),
    ],
)
def test_not_a_pod(document: object, key: str) -> None:
    """Anything else is one sentence with the key that is wrong."""
    with pytest.raises(ManifestError) as raised:
        parse_pod(document, uid="u")

    assert raised.value.key == key


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_PLACES = [
    ("spec",), ("spec", "containers"), ("spec", "containers", 0), ("spec", "containers", 0, "resources"),
    ("spec", "containers", 0, "resources", "limits"), ("spec", "containers", 0, "resources", "limits", "memory"),
    ("spec", "containers", 0, "resources", "limits", "cpu"), ("spec", "initContainers"), ("spec", "resources"),
    ("metadata",), ("metadata", "name"), ("status",), ("status", "qosClass"), ("kind",),
]  # fmt: skip


@given(st.sampled_from(_PLACES), _JSON)
def test_any_value_anywhere(place: tuple[str | int, ...], value: object) -> None:
    """Whatever stands in any place gives a pod or one sentence, never another error."""
    document: Any = deepcopy(manifest(container(**deepcopy(GUARANTEED))))
    holder = document
    for step in place[:-1]:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    holder[place[-1]] = value
    try:
        pod = parse_pod(document, uid="u").pod
    except ManifestError as exc:
        assert str(exc)
    else:
        assert pod.qos_class() in QosClass


def bomb() -> list[Any]:
    """Nine lists of nine lists, ten levels down: small while it is shared, endless when it is written out."""
    value: list[Any] = ["lol"] * 9
    for _ in range(10):
        value = [value] * 9
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"kind": bomb()},
        {"spec": bomb()},
        {"metadata": bomb()},
        {"status": {"qosClass": bomb()}},
        {"spec": {"containers": [{"name": bomb()}]}},
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"memory": bomb()}}}]}},
        {"spec": {"containers": [bomb()]}},
        {"kind": 1 << 80_000},
        {"kind": {"a": {"b": bomb()}}},
        {"kind": b"x" * 100_000},
    ],
    ids=range(10),
)
def test_a_value_that_is_shared_a_billion_times(change: dict[str, Any]) -> None:
    """What YAML's aliases make of a few bytes is named by its beginning, at once."""
    document = {"kind": "Pod", "spec": {"containers": [{"name": "a"}]}} | change

    with pytest.raises(ManifestError) as raised:
        parse_pod(document, uid="u")
    assert len(str(raised.value)) < 200


def test_a_cycle_is_named() -> None:
    """A value that contains itself has a beginning too."""
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(ManifestError, match="this is"):
        parse_pod({"kind": loop, "spec": {}}, uid="u")


@pytest.mark.parametrize("name", [bomb(), 1 << 80_000, ["x"], 7], ids=range(4))
def test_a_name_that_is_no_text(name: object) -> None:
    """A pod's name is for people only: whatever it is, it is short."""
    manifest = parse_pod(
        {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "a"}]}}, uid="u"
    )

    assert 0 < len(manifest.name) < 100

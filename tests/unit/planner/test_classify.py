"""QoS class and request: `numapin.planner.classify`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.model.container import (
    Classification,
    ContainerId,
    ContainerKind,
    ContainerRecord,
    Limits,
    OciFacts,
    QosClass,
    Runtime,
    StandaloneQos,
)
from numapin.model.memory import MEMORY, hugepages
from numapin.model.nodeset import CpuSet, NodeSet
from numapin.planner.classify import ANNOTATION, classify

MIB, GIB = 1 << 20, 1 << 30
TWO_MIB, ONE_GIB = hugepages(2 * MIB), hugepages(GIB)
LIMITED = Limits(memory_bytes=4 * GIB, cpu_quota_us=200_000, cpu_period_us=100_000)


def docker(limits: Limits = LIMITED, **changes: object) -> ContainerRecord:
    """A container outside Kubernetes."""
    record = ContainerRecord(
        id=ContainerId("a" * 64),
        name="pg",
        cgroup="/system.slice/docker-a.scope",
        inode=1,
        runtime=Runtime.DOCKER,
        kind=ContainerKind.CONTAINER,
        limits=limits,
        mems=NodeSet(),
        effective_mems=NodeSet.of(0, 1),
        parent_mems=NodeSet.of(0, 1),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def pod(
    qos: QosClass, limits: Limits = LIMITED, pod_limits: Limits | None = None, **changes: object
) -> ContainerRecord:
    """A container of a pod."""
    return docker(limits, pod_uid="u", pod_qos=qos, pod_limits=pod_limits, pod_cgroup="/kubepods/podu", **changes)


def facts(limits: Limits | None = None, *, guaranteed: str | None = None) -> OciFacts:
    """OCI facts; *guaranteed* is the annotation."""
    annotations = {} if guaranteed is None else {ANNOTATION: guaranteed}
    return OciFacts("config.json", limits or Limits(), annotations=annotations)


def classed(
    record: ContainerRecord, mode: StandaloneQos = StandaloneQos.LIMITS, *, lxc: bool = False
) -> Classification:
    """The product's answer."""
    return classify(record, standalone=mode, lxc=lxc)


@pytest.mark.parametrize("qos", [QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT])
def test_a_pods_class_is_its_paths(qos: QosClass) -> None:
    """A container with memory and CPU limited in a Burstable pod is Burstable, whatever its numbers (B040)."""
    found = classed(pod(qos))

    assert (found.qos, found.rule) == (qos, "pod-path")
    assert dict(found.request) == ({MEMORY: 4 * GIB} if qos is QosClass.GUARANTEED else {})


def test_fractional_cpus_do_not_matter() -> None:
    """1500m of CPU in a Guaranteed pod is memory-pinned for its 4 GiB (B040)."""
    found = classed(pod(QosClass.GUARANTEED, replace(LIMITED, cpu_quota_us=150_000)))

    assert dict(found.request) == {MEMORY: 4 * GIB}


def test_there_are_no_requests_on_a_node() -> None:
    """Only limits, in the Guaranteed place of the tree: Guaranteed with that size and nothing to report (B041)."""
    found = classed(pod(QosClass.GUARANTEED, Limits(memory_bytes=2 * GIB, cpu_quota_us=200_000)))

    assert (found.qos, dict(found.request), found.findings) == (QosClass.GUARANTEED, {MEMORY: 2 * GIB}, ())


@pytest.mark.parametrize(
    ("limits", "qos", "rule"),
    [
        (LIMITED, QosClass.GUARANTEED, "limits"),
        (replace(LIMITED, memory_reservation_bytes=4 * GIB), QosClass.GUARANTEED, "limits"),
        (Limits(memory_bytes=GIB, cpus=CpuSet.of(0, 1)), QosClass.GUARANTEED, "limits"),
        (replace(LIMITED, memory_reservation_bytes=GIB), QosClass.BURSTABLE, "limits-partial"),
        (Limits(memory_bytes=4 * GIB), QosClass.BURSTABLE, "limits-partial"),
        (Limits(memory_bytes=4 * GIB, cpu_shares=4096), QosClass.BURSTABLE, "limits-partial"),
        (Limits(cpu_quota_us=100_000), QosClass.BURSTABLE, "limits-partial"),
        (Limits(memory_reservation_bytes=GIB), QosClass.BURSTABLE, "limits-partial"),
        (Limits(), QosClass.BEST_EFFORT, "limits-none"),
        (Limits(cpu_shares=512), QosClass.BEST_EFFORT, "limits-none"),
    ],
)
def test_outside_kubernetes_limits_decide(limits: Limits, qos: QosClass, rule: str) -> None:
    """Memory alone is a cap, not a guarantee; a soft limit below the hard one is not either (B043, traps 14, 15)."""
    found = classed(docker(limits))

    assert (found.qos, found.rule) == (qos, rule)
    assert bool(found.request) == (qos is QosClass.GUARANTEED)
    assert found.reason


@pytest.mark.parametrize(
    ("mode", "mark", "qos", "rule"),
    [
        (StandaloneQos.LIMITS, "true", QosClass.GUARANTEED, "annotation"),
        (StandaloneQos.LIMITS, "false", QosClass.BURSTABLE, "annotation-opt-out"),
        (StandaloneQos.LIMITS, None, QosClass.GUARANTEED, "limits"),
        (StandaloneQos.ANNOTATION, "true", QosClass.GUARANTEED, "annotation"),
        (StandaloneQos.ANNOTATION, "false", QosClass.BURSTABLE, "annotation-opt-out"),
        (StandaloneQos.ANNOTATION, None, QosClass.BURSTABLE, "annotation-missing"),
        (StandaloneQos.NEVER, "true", QosClass.BURSTABLE, "standalone-never"),
        (StandaloneQos.NEVER, None, QosClass.BURSTABLE, "standalone-never"),
    ],
)
def test_the_configured_way(mode: StandaloneQos, mark: str | None, qos: QosClass, rule: str) -> None:
    """``qos.standalone`` and the annotation decide together, and the rule says which did."""
    record = docker(oci=facts(LIMITED) if mark is None else facts(LIMITED, guaranteed=mark))
    found = classed(record, mode)

    assert (found.qos, found.rule) == (qos, rule)


def test_the_annotation_needs_no_cpu_limit_but_a_size() -> None:
    """Opted in with memory alone it is Guaranteed; without any memory limit nothing can be reserved."""
    sized = classed(docker(Limits(memory_bytes=GIB), oci=facts(guaranteed="true")))
    unsized = classed(docker(Limits(), oci=facts(guaranteed="true")))

    assert dict(sized.request) == {MEMORY: GIB}
    assert (unsized.qos, dict(unsized.request), len(unsized.findings)) == (QosClass.GUARANTEED, {}, 1)


def test_a_misspelt_annotation_is_told() -> None:
    """Any other value than true or false is a finding and decides nothing."""
    found = classed(docker(oci=facts(LIMITED, guaranteed="yes")))

    assert (found.rule, len(found.findings)) == ("limits", 1)


def test_annotations_do_not_reach_into_pods() -> None:
    """Kubernetes' class is the path's only."""
    found = classed(pod(QosClass.BURSTABLE, oci=facts(LIMITED, guaranteed="true")))

    assert found.qos is QosClass.BURSTABLE


def test_sandboxes_ask_for_nothing() -> None:
    """A sandbox in a Guaranteed pod has no request, although the pod has a limit (trap 5)."""
    found = classed(pod(QosClass.GUARANTEED, Limits(), LIMITED, kind=ContainerKind.SANDBOX))

    assert (found.qos, found.rule, dict(found.request)) == (QosClass.UNKNOWN, "sandbox", {})


def test_system_containers_only_on_request() -> None:
    """LXC and nspawn are left alone unless the configuration says otherwise."""
    record = docker(runtime=Runtime.LXC, kind=ContainerKind.SYSTEM)

    assert (classed(record).rule, dict(classed(record).request)) == ("system-container", {})
    assert dict(classed(record, lxc=True).request) == {MEMORY: 4 * GIB}


def test_pod_level_resources() -> None:
    """Without a limit of its own a Guaranteed container asks for its pod's (trap 13)."""
    found = classed(pod(QosClass.GUARANTEED, Limits(), LIMITED, oci=facts()))

    assert dict(found.request) == {MEMORY: 4 * GIB}


def test_hugepages_of_the_container() -> None:
    """Hugepage limits that are numbers are asked for; 0 is none."""
    limits = replace(LIMITED, hugetlb={2 * MIB: 512 * MIB, GIB: 0})
    found = classed(pod(QosClass.GUARANTEED, limits, replace(LIMITED, hugetlb={2 * MIB: GIB, GIB: GIB})))

    assert dict(found.request) == {MEMORY: 4 * GIB, TWO_MIB: 512 * MIB}
    assert found.findings == ()


def test_hugepages_of_the_pod() -> None:
    """Where containerd dropped the container's limit, the pod's is taken, and that is told (trap 12)."""
    found = classed(pod(QosClass.GUARANTEED, LIMITED, replace(LIMITED, hugetlb={2 * MIB: 64 * MIB, GIB: 0})))

    assert dict(found.request) == {MEMORY: 4 * GIB, TWO_MIB: 64 * MIB}
    assert len(found.findings) == 1


def test_hugepages_alone_have_no_size_of_memory() -> None:
    """A hugepage limit with unlimited memory is "size unknown": one finding, no exception (B103)."""
    found = classed(pod(QosClass.GUARANTEED, Limits(hugetlb={2 * MIB: GIB}), Limits()))

    assert (dict(found.request), len(found.findings)) == ({}, 1)


def test_a_lost_limit_is_no_size() -> None:
    """A cgroup without a limit whose metadata has one: nothing reserved, one finding with both facts (B044)."""
    in_pod = classed(pod(QosClass.GUARANTEED, Limits(), LIMITED, oci=facts(LIMITED)))
    alone = classed(docker(Limits(), oci=facts(LIMITED)))

    assert (dict(in_pod.request), dict(alone.request)) == ({}, {})
    assert (len(in_pod.findings), len(alone.findings)) == (1, 1)
    assert "metadata says 4 GiB" in in_pod.findings[0]
    assert (alone.qos, alone.rule) == (QosClass.UNKNOWN, "limits-disagree")


def test_limits_not_written_yet() -> None:
    """While the runtime is still at it, what the cgroup does not say is its metadata's; what it says stands."""
    told = replace(LIMITED, hugetlb={2 * MIB: 64 * MIB})
    empty = classed(docker(Limits(), oci=facts(told), settled=False))
    half = classed(docker(Limits(memory_bytes=GIB), oci=facts(told), settled=False))
    in_pod = classed(pod(QosClass.GUARANTEED, Limits(), Limits(), oci=facts(told), settled=False))

    assert dict(empty.request) == {MEMORY: 4 * GIB, TWO_MIB: 64 * MIB}
    assert dict(half.request) == {MEMORY: GIB, TWO_MIB: 64 * MIB}
    assert dict(in_pod.request) == {MEMORY: 4 * GIB, TWO_MIB: 64 * MIB}
    assert [c.findings for c in (empty, half, in_pod)] == [(), (), ()]


def test_a_resize_is_the_cgroups_word() -> None:
    """After a resize the live limit is the size, larger or smaller than the metadata's (trap 11, B110)."""
    for size in (GIB, 6 * GIB):
        assert dict(classed(docker(replace(LIMITED, memory_bytes=size), oci=facts(LIMITED))).request) == {
            MEMORY: size
        }


def test_no_memory_controller() -> None:
    """Where no controller could show a limit, the metadata's size is used, and that is told (B056)."""
    found = classed(docker(Limits(), oci=facts(LIMITED), sizes_readable=False))

    assert (found.rule, dict(found.request), len(found.findings)) == ("limits", {MEMORY: 4 * GIB}, 1)


def test_doubts_forbid_a_reservation() -> None:
    """A contradiction leaves the class and takes the request, with one finding."""
    found = classed(pod(QosClass.GUARANTEED, doubts=("a names b", "c")))

    assert (found.qos, dict(found.request), len(found.findings)) == (QosClass.GUARANTEED, {}, 1)
    assert "a names b; c" in found.findings[0]


def test_somebody_elses_pin_keeps_its_request() -> None:
    """A container with foreign nodes is accounted like any other (trap 34)."""
    foreign = replace(facts(LIMITED), mems=NodeSet.of(1))

    assert dict(classed(docker(oci=foreign)).request) == {MEMORY: 4 * GIB}


sizes = st.one_of(st.none(), st.integers(1, 1 << 50))
limits_of = st.builds(
    Limits,
    memory_bytes=sizes,
    memory_reservation_bytes=sizes,
    cpu_quota_us=sizes,
    cpu_shares=sizes,
    hugetlb=st.dictionaries(st.sampled_from([2 * MIB, GIB, 64 << 10]), st.integers(0, 1 << 40)),
)


@given(
    live=limits_of,
    told=st.one_of(st.none(), limits_of),
    pod_limits=st.one_of(st.none(), limits_of),
    qos=st.one_of(st.none(), st.sampled_from([QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT])),
    settled=st.booleans(),
    readable=st.booleans(),
    mode=st.sampled_from(StandaloneQos),
)
def test_a_request_is_always_whole(
    live: Limits,
    told: Limits | None,
    pod_limits: Limits | None,
    qos: QosClass | None,
    settled: bool,
    readable: bool,
    mode: StandaloneQos,
) -> None:
    """A request is positive, has memory, and exists only for Guaranteed; without one there is a finding."""
    changes = {"oci": facts(told) if told else None, "settled": settled, "sizes_readable": readable}
    record = docker(live, **changes) if qos is None else pod(qos, live, pod_limits, **changes)
    found = classed(record, mode)

    if found.request:
        assert found.qos is QosClass.GUARANTEED
        assert MEMORY in found.request
        assert min(found.request.values()) > 0
    elif found.qos is QosClass.GUARANTEED:
        assert found.findings

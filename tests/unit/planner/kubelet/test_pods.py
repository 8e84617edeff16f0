"""QoS class and requests of pods, as the kubelet computes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from numapin.model.container import QosClass
from numapin.model.memory import MEMORY, MemoryType
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer

HUGE = MemoryType("hugepages-2Mi")


def container(
    name: str, memory: int | str | None = 8, cpu: int | None = 1, *, kind: str = "app", **more: int
) -> PodContainer:
    """A container that limits CPU and memory; *kind* is app, init or sidecar."""
    limits = {"cpu": cpu, "memory": memory, **{k.replace("_", "-"): v for k, v in more.items()}}
    amounts = {k: Decimal(v) for k, v in limits.items() if v is not None}
    return PodContainer(name, {}, amounts, init=kind != "app", restartable=kind == "sidecar")


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ((container("a"),), QosClass.GUARANTEED),
        ((container("a", cpu=None),), QosClass.BURSTABLE),
        ((container("a", memory=None),), QosClass.BURSTABLE),
        ((container("a", 0),), QosClass.BURSTABLE),
        ((container("a", None, None),), QosClass.BEST_EFFORT),
        ((container("a"), container("b", None, None)), QosClass.BURSTABLE),
        ((container("i", None, None, kind="init"), container("a")), QosClass.BURSTABLE),
        ((container("s", kind="sidecar"), container("a")), QosClass.GUARANTEED),
        ((PodContainer("a", {"memory": Decimal(4)}, container("a").limits),), QosClass.BURSTABLE),
    ],
)
def test_qos_class(containers: tuple[PodContainer, ...], qos: QosClass) -> None:
    """Guaranteed is every container limited and the sums of requests and limits equal."""
    assert Pod("u", containers).qos_class() is qos


def test_sums_decide_over_the_pod() -> None:
    """A request above in one container and below in the other still makes equal sums."""
    one = PodContainer("a", {"cpu": Decimal(1), "memory": Decimal(8)}, {"cpu": Decimal(2), "memory": Decimal(8)})
    two = PodContainer("b", {"cpu": Decimal(2), "memory": Decimal(8)}, {"cpu": Decimal(1), "memory": Decimal(8)})

    assert Pod("u", (one, two)).qos_class() is QosClass.GUARANTEED


def test_the_status_comes_first() -> None:
    """A class in the status is taken as it is."""
    assert Pod("u", (container("a", None, None),), QosClass.GUARANTEED).is_managed()


def test_pod_level_resources_are_not_managed() -> None:
    """A pod with pod-level resources is neither hinted nor pinned."""
    assert not Pod("u", (container("a"),), has_pod_resources=True).is_managed()


def test_pod_request_is_the_larger_of_running_and_initialising() -> None:
    """Apps and sidecars run together; an init container runs beside the sidecars before it only."""
    pod = Pod(
        "u",
        (
            container("i1", 9, kind="init"),
            container("s1", 3, kind="sidecar"),
            container("i2", 8, kind="init"),
            container("s2", 1, kind="sidecar"),
            container("a", 4),
            container("b", 2, hugepages_2Mi=6),
        ),
    )

    assert {MEMORY: 11, HUGE: 6} == pod.memory_requests()


def test_types_of_init_containers_alone_are_left_out() -> None:
    """As the kubelet does, a type that no app container wants is not part of the pod's request."""
    pod = Pod("u", (container("i", 9, kind="init", hugepages_2Mi=2), container("a", 4)))

    assert {MEMORY: 9} == pod.memory_requests()


@pytest.mark.parametrize("memory", ["1.5", "9223372036854775808", "-1"])
def test_requests_that_are_no_int64(memory: str) -> None:
    """A fraction of a byte, a negative size or one too large is told with its name."""
    with pytest.raises(NotWholeBytes, match=f"memory {memory} is not a whole number of bytes"):
        container("a", memory).memory_requests()

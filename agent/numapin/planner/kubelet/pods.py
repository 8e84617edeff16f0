"""
A pod as the kubelet's managers see it.

Owns: QoS class and requests of containers and pods. Must never: know about nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from numapin.model.container import QosClass
from numapin.model.memory import MEMORY, MemoryType

Quantities = Mapping[str, Decimal]


class NotWholeBytes(ValueError):
    """A request is no whole number of bytes in the kubelet's fast form; ``resource`` is its name."""

    def __init__(self, resource: str, quantity: Decimal) -> None:
        super().__init__(resource, quantity)
        self.resource = resource
        self.quantity = quantity

    def __str__(self) -> str:
        return f"{self.resource} {self.quantity} is not a whole number of bytes below 2^63"


@dataclass(frozen=True, slots=True)
class PodContainer:
    """
    One container of a pod spec; bytes or cores, exact.

    ``restartable`` marks a sidecar (an init container with restart policy Always).
    """

    name: str
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)
    init: bool = False
    restartable: bool = False

    @property
    def is_regular_init(self) -> bool:
        """True for an init container that ends before the next one starts."""
        return self.init and not self.restartable

    def effective_requests(self) -> Quantities:
        """Requests, a missing one taken from its limit as the API server does."""
        return {**self.limits, **self.requests}

    def memory_requests(self) -> dict[MemoryType, int]:
        """
        Bytes per memory type, explicit zeros included.

        Raises:
            NotWholeBytes: A fraction of a byte, or more than an int64.
        """
        sizes = {}
        for name, quantity in sorted(self.effective_requests().items()):
            if name == MEMORY or name.startswith("hugepages-"):
                if quantity != int(quantity) or not 0 <= quantity < 1 << 63:
                    raise NotWholeBytes(name, quantity)
                sizes[MemoryType(name)] = int(quantity)
        return sizes


@dataclass(frozen=True, slots=True)
class Pod:
    """
    A pod: init containers first, in order, then app containers.

    ``qos`` is the class in the pod's status when the API server set one. ``has_pod_resources`` marks pod-level
    resources, which the kubelet neither hints nor pins in its default configuration.
    """

    uid: str
    containers: tuple[PodContainer, ...]
    qos: QosClass | None = None
    has_pod_resources: bool = False

    def container(self, name: str) -> PodContainer | None:
        """The container of that name."""
        return next((c for c in self.containers if c.name == name), None)

    def inits(self) -> tuple[PodContainer, ...]:
        """Init containers, sidecars included, in order."""
        return tuple(c for c in self.containers if c.init)

    def qos_class(self) -> QosClass:
        """The status' class, or the one computed over app and init containers."""
        return self.qos or _computed(self.containers)

    def is_managed(self) -> bool:
        """True when the memory manager pins the pod's containers."""
        return self.qos_class() is QosClass.GUARANTEED and not self.has_pod_resources

    def memory_requests(self) -> dict[MemoryType, int]:
        """
        Bytes per memory type of the whole pod: the larger of what runs together and what initialising needs.

        Types that no app container asks for are left out, as the kubelet does.

        Raises:
            NotWholeBytes: As for a container.
        """
        initialising: dict[MemoryType, int] = {}
        sidecars: dict[MemoryType, int] = {}
        apps: dict[MemoryType, int] = {}
        for container in self.containers:
            for kind, size in container.memory_requests().items():
                if not container.init:
                    apps[kind] = apps.get(kind, 0) + size
                elif container.restartable:
                    sidecars[kind] = sidecars.get(kind, 0) + size
                else:
                    initialising[kind] = max(initialising.get(kind, 0), sidecars.get(kind, 0) + size)
        return {k: max(size + sidecars.get(k, 0), initialising.get(k, 0)) for k, size in apps.items()}


def _computed(containers: Iterable[PodContainer]) -> QosClass:
    """Guaranteed: every container limits CPU and memory, and the pod's sums of requests and limits agree."""
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    all_limited = True
    for container in containers:
        own = {name: q for name, q in container.limits.items() if name in ("cpu", "memory") and q > 0}
        all_limited &= len(own) == 2
        for name, q in own.items():
            limits[name] = limits.get(name, Decimal(0)) + q
        for name, q in container.effective_requests().items():
            if name in ("cpu", "memory") and q > 0:
                requests[name] = requests.get(name, Decimal(0)) + q
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    if all_limited and requests == limits:
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE

"""
A container's QoS class and memory request, from what was found about it.

Owns: every rule of the class and of the size, each under a stable code. Must never: read anything, or take CPU
shares, weights or OOM scores for a sign of anything.

Rule codes: ``pod-path`` (Kubernetes: the place in the cgroup tree), ``sandbox``, ``system-container``, ``limits``
(memory and CPU limited), ``limits-partial``, ``limits-none``, ``limits-disagree``, ``annotation``,
``annotation-opt-out``, ``annotation-missing``, ``standalone-never``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from numapin.model.container import (
    Classification,
    ContainerKind,
    ContainerRecord,
    Limits,
    QosClass,
    StandaloneQos,
)
from numapin.model.memory import MEMORY, MemoryType, hugepages
from numapin.model.quantity import format_bytes, format_page_size

ANNOTATION = "numapin.guaranteed"
"""OCI annotation of a container outside Kubernetes: ``true`` or ``false``."""

_POD_WORDS = {
    QosClass.GUARANTEED: "directly under kubepods",
    QosClass.BURSTABLE: "under kubepods/burstable",
    QosClass.BEST_EFFORT: "under kubepods/besteffort",
}


@dataclass(frozen=True, slots=True)
class _Verdict:
    qos: QosClass
    rule: str
    reason: str
    findings: tuple[str, ...] = ()


def classify(record: ContainerRecord, *, standalone: StandaloneQos, lxc: bool = False) -> Classification:
    """
    Class, rule and request of *record*; *standalone* and *lxc* (manage system containers too) are configuration.

    ``request`` holds bytes, only positive ones, and always ``memory``; it is empty unless the class is Guaranteed,
    the size is known and nothing is in doubt. A container somebody else pinned keeps its request.
    """
    limits, origin = known_limits(record)
    verdict = _verdict(record, limits, standalone, lxc=lxc)
    findings = [*record.findings, *verdict.findings]
    request: dict[MemoryType, int] = {}
    borrowed: frozenset[MemoryType] = frozenset()
    if verdict.qos is QosClass.GUARANTEED:
        if record.doubts:
            findings.append(f"not pinned, its facts are in doubt: {'; '.join(record.doubts)}")
        else:
            request, borrowed = _request(record, limits, findings)
            if request and origin and record.settled:
                findings.append(origin)
    return Classification(verdict.qos, verdict.rule, verdict.reason, request, tuple(findings), borrowed)


def known_limits(record: ContainerRecord) -> tuple[Limits, str]:
    """
    The limits to go by, and a sentence when some come from metadata (else empty).

    The live cgroup is the truth. What it does not say is filled from the metadata only while the runtime may not
    have written it yet, or where no memory controller could say it.
    """
    live, told = record.limits, record.oci.limits if record.oci is not None else None
    if told is None or (record.settled and record.sizes_readable):
        return live, ""
    filled = Limits(
        memory_bytes=_first(live.memory_bytes, told.memory_bytes),
        memory_reservation_bytes=_first(live.memory_reservation_bytes, told.memory_reservation_bytes),
        cpu_quota_us=_first(live.cpu_quota_us, told.cpu_quota_us),
        cpu_period_us=_first(live.cpu_period_us, told.cpu_period_us),
        cpu_shares=_first(live.cpu_shares, told.cpu_shares),
        cpus=live.cpus or told.cpus,
        hugetlb={**told.hugetlb, **live.hugetlb},
    )
    if filled == live:
        return live, ""
    if record.settled:
        return filled, "no memory controller shows its limits; they are those of its metadata"
    return filled, "its cgroup is not complete yet; limits are those of its metadata"


def _first(live: int | None, told: int | None) -> int | None:
    return told if live is None else live


def _verdict(record: ContainerRecord, limits: Limits, standalone: StandaloneQos, *, lxc: bool) -> _Verdict:
    if record.kind is ContainerKind.SANDBOX:
        return _Verdict(QosClass.UNKNOWN, "sandbox", "holds a pod's namespaces, not a workload")
    if record.kind is ContainerKind.SYSTEM and not lxc:
        return _Verdict(
            QosClass.UNKNOWN, "system-container", f"a system container ({record.runtime}) is managed only on request"
        )
    if record.pod_qos is not None:
        return _Verdict(
            record.pod_qos,
            "pod-path",
            f"the pod's cgroup {record.pod_cgroup or ''} is {_POD_WORDS.get(record.pod_qos, 'of unknown class')}",
        )
    return _standalone(record, limits, standalone)


def _standalone(record: ContainerRecord, limits: Limits, mode: StandaloneQos) -> _Verdict:
    by_limits = _by_limits(record, limits)
    below = QosClass.BEST_EFFORT if by_limits.qos is QosClass.BEST_EFFORT else QosClass.BURSTABLE
    if mode is StandaloneQos.NEVER:
        return _Verdict(
            below, "standalone-never", "outside Kubernetes nothing is Guaranteed (qos.standalone = never)"
        )
    mark = record.oci.annotations.get(ANNOTATION) if record.oci is not None else None
    findings: tuple[str, ...] = ()
    match mark:
        case "true":
            return _Verdict(QosClass.GUARANTEED, "annotation", f"annotation {ANNOTATION}=true")
        case "false":
            return _Verdict(below, "annotation-opt-out", f"annotation {ANNOTATION}=false")
        case str():
            findings = (f"annotation {ANNOTATION} is {mark[:40]!r}; write true or false",)
        case None:
            pass
    if mode is StandaloneQos.ANNOTATION:
        return _Verdict(
            below,
            "annotation-missing",
            f"outside Kubernetes only {ANNOTATION}=true makes a container Guaranteed (qos.standalone = annotation)",
            findings,
        )
    return replace(by_limits, findings=(*by_limits.findings, *findings))


def _by_limits(record: ContainerRecord, limits: Limits) -> _Verdict:
    """The rule for containers that have nothing but limits."""
    memory, soft = limits.memory_bytes, limits.memory_reservation_bytes
    cpu = limits.cpu_quota_us is not None or bool(limits.cpus)
    if memory is not None and soft in (None, memory) and cpu:
        return _Verdict(QosClass.GUARANTEED, "limits", f"memory ({format_bytes(memory)}) and CPU are limited")
    told = record.oci.limits.memory_bytes if record.oci is not None else None
    if memory is None and told is not None and record.settled:
        return _Verdict(QosClass.UNKNOWN, "limits-disagree", _lost(told), (_lost(told),))
    if memory is None and soft is None and not cpu:
        return _Verdict(QosClass.BEST_EFFORT, "limits-none", "neither memory nor CPU is limited")
    if memory is None:
        why = "its memory is not limited"
    elif soft not in (None, memory):
        why = f"its memory reservation ({format_bytes(soft or 0)}) differs from its limit ({format_bytes(memory)})"
    else:
        why = "its memory is limited, its CPU is not"
    return _Verdict(QosClass.BURSTABLE, "limits-partial", why)


def _lost(told: int) -> str:
    return f"its cgroup has no memory limit, but its metadata says {format_bytes(told)}: size unknown"


def _request(
    record: ContainerRecord, limits: Limits, findings: list[str]
) -> tuple[dict[MemoryType, int], frozenset[MemoryType]]:
    """Bytes per memory type, and which are the pod's; empty, with one finding, when the memory size is not known."""
    pod = record.pod_limits if record.pod_uid is not None else None
    told = record.oci.limits.memory_bytes if record.oci is not None else None
    memory = limits.memory_bytes
    if memory is None:
        if told is not None and record.settled:
            findings.append(_lost(told))
            return {}, frozenset()
        memory = pod.memory_bytes if pod is not None else None
    if not memory:
        findings.append("Guaranteed, but no memory limit is known: nothing reserved, not pinned")
        return {}, frozenset()
    request = {MEMORY: memory}
    shares = [] if limits.memory_bytes is not None else [MEMORY]
    borrowed = {s: n for s, n in (pod.hugetlb if pod else {}).items() if s not in limits.hugetlb and n}
    for size, count in sorted({**borrowed, **limits.hugetlb}.items()):
        if count:
            request[hugepages(size)] = count
    if borrowed:
        sizes = ", ".join(format_page_size(s) for s in sorted(borrowed))
        findings.append(
            f"its own hugepage limit ({sizes}) is not set; the pod's is taken, once for all its containers "
            "(containerd: disable_hugetlb_controller = false makes it exact)"
        )
    return request, frozenset([*shares, *map(hugepages, borrowed)])


def pod_request(record: ContainerRecord) -> dict[MemoryType, int]:
    """
    What the pod of *record* asks for as a whole, bytes per type; empty when its cgroup has no memory limit.

    The kubelet sets the pod cgroup's limits to the sums over the pod's containers.
    """
    limits = record.pod_limits
    if limits is None or not limits.memory_bytes:
        return {}
    return {MEMORY: limits.memory_bytes} | {hugepages(size): n for size, n in limits.hugetlb.items() if n}

"""OCI runtime specifications (``config.json``) as values.

Owns: their shape. Unknown keys are passed over; a known key of the wrong type makes the whole document unusable. Must
never: trust a path found in a document.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from numapin.kernel.oci_values import decode, hugetlb_limits, id_set, kept_annotations, positive_limit
from numapin.model.container import Device, Limits, OciFacts
from numapin.model.nodeset import CpuSet, NodeSet

_MAX_DEVICES = 4096
"""Each costs a look into sysfs at every decision about the container."""


class _Memory(msgspec.Struct):
    limit: int | None = None
    reservation: int | None = None


class _Cpu(msgspec.Struct):
    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    cpus: str | None = None
    mems: str | None = None


class _Hugepage(msgspec.Struct, rename={"page_size": "pageSize"}):
    page_size: str = ""
    limit: int = 0


class _Resources(msgspec.Struct, rename={"hugepages": "hugepageLimits"}):
    memory: _Memory | None = None
    cpu: _Cpu | None = None
    hugepages: list[_Hugepage] | None = None


class _Device(msgspec.Struct):
    path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0


class _Linux(msgspec.Struct, rename={"cgroups_path": "cgroupsPath", "net_devices": "netDevices"}):
    cgroups_path: str | None = None
    resources: _Resources | None = None
    devices: list[_Device] | None = None
    net_devices: dict[str, msgspec.Raw] | None = None


class _Config(msgspec.Struct):
    linux: _Linux | None = None
    annotations: dict[str, str] | None = None


def parse_config(text: str, *, source: str) -> OciFacts:
    """
    Facts of an OCI runtime specification.

    Raises:
        KernelFormatError: Not JSON, nested too deep, a known key of another type, a CPU or node list that is none.

    Source: opencontainers/runtime-spec config.md, config-linux.md.
    """
    linux = decode(text, _Config, source, "an OCI config.json")
    spec = linux.linux or _Linux()
    resources = spec.resources or _Resources()
    memory, cpu = resources.memory or _Memory(), resources.cpu or _Cpu()
    return OciFacts(
        source=source,
        limits=Limits(
            memory_bytes=positive_limit(memory.limit),
            memory_reservation_bytes=positive_limit(memory.reservation),
            cpu_quota_us=positive_limit(cpu.quota),
            cpu_period_us=positive_limit(cpu.period),
            cpu_shares=positive_limit(cpu.shares),
            cpus=id_set(CpuSet, cpu.cpus, source, text),
            hugetlb=hugetlb_limits([(h.page_size, h.limit) for h in resources.hugepages or ()]),
        ),
        mems=id_set(NodeSet, cpu.mems, source, text),
        annotations=kept_annotations(linux.annotations),
        cgroups_path=spec.cgroups_path or "",
        devices=tuple(
            Device(d.path, d.type == "b", d.major, d.minor)
            for d in (spec.devices or ())[:_MAX_DEVICES]
            if d.type in ("b", "c", "u") and d.major >= 0 and d.minor >= 0
        ),
        net_devices=tuple(islice(spec.net_devices or (), _MAX_DEVICES)),
    )

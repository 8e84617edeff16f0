"""OCI documents and runtime state files as values.

Owns: the shapes of ``config.json`` (OCI), ``state.json`` (runc), ``status`` (crun) and of two small files of
containerd and Docker. Unknown keys are passed over; a known key of the wrong type makes the whole document
unusable. Must never: trust a path found in a document, or believe a number above what the kernel can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from numapin.kernel.files import read_text
from numapin.model.container import Device, Limits, OciFacts, Runtime
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import CpuSet, NodeSet

_T = TypeVar("_T")
_Ids = TypeVar("_Ids", CpuSet, NodeSet)
_UNLIMITED_FROM = 2**62
_OURS = ("numapin.", "io.kubernetes.", "io.container.")
_MAX_ANNOTATION_CHARS = 1 << 16
_MAX_KEY_CHARS = 256
_MAX_VALUE_CHARS = 1024
_MAX_DEVICES = 4096
"""Each costs a look into sysfs at every decision about the container."""
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


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


class _RuncHugepage(msgspec.Struct):
    page_size: str = ""
    limit: int = 0


class _RuncCgroups(msgspec.Struct):
    memory: int | None = None
    memory_reservation: int | None = None
    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    cpuset_cpus: str | None = None
    cpuset_mems: str | None = None
    hugetlb_limit: list[_RuncHugepage] | None = None


class _RuncConfig(msgspec.Struct):
    cgroups: _RuncCgroups | None = None
    labels: list[str] | None = None


class _RuncState(msgspec.Struct):
    id: str
    cgroup_paths: dict[str, str]
    init_process_pid: int = 0
    init_process_start: int = 0
    config: _RuncConfig | None = None


class _CrunStatus(msgspec.Struct, rename="kebab"):
    cgroup_path: str | None = None
    scope: str | None = None
    pid: int = 0
    process_start_time: int = 0


class _TaskOptions(msgspec.Struct):
    root: str = ""


class _DockerConfig(msgspec.Struct, rename={"name": "Name"}):
    name: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeState:
    """
    What the low-level runtime wrote when it had set the container up.

    ``cgroup`` is the outermost cgroup below the cpuset mount, ``None`` when not told. ``facts`` are limits,
    annotations and foreign nodes as runc keeps them, newer than the bundle's; crun keeps none (``None``).
    """

    source: str
    runtime: Runtime
    cgroup: str | None
    init_pid: int | None
    init_start_ticks: int | None
    facts: OciFacts | None = None


def read_bundle(path: Path) -> OciFacts:
    """
    Facts of an OCI ``config.json``; *path* is the file.

    Raises:
        KernelReadError: Missing (ENOENT), a symbolic link (ELOOP), too long (EFBIG), unreadable.
        KernelFormatError: Not such a document.
    """
    return parse_config(read_text(path, follow=False), source=str(path))


def parse_config(text: str, *, source: str) -> OciFacts:
    """
    Facts of an OCI runtime specification.

    Raises:
        KernelFormatError: Not JSON, nested too deep, a known key of another type, a CPU or node list that is none.

    Source: opencontainers/runtime-spec config.md, config-linux.md.
    """
    linux = _decode(text, _Config, source, "an OCI config.json")
    spec = linux.linux or _Linux()
    resources = spec.resources or _Resources()
    memory, cpu = resources.memory or _Memory(), resources.cpu or _Cpu()
    return OciFacts(
        source=source,
        limits=Limits(
            memory_bytes=_positive(memory.limit),
            memory_reservation_bytes=_positive(memory.reservation),
            cpu_quota_us=_positive(cpu.quota),
            cpu_period_us=_positive(cpu.period),
            cpu_shares=_positive(cpu.shares),
            cpus=_set(CpuSet, cpu.cpus, source, text),
            hugetlb=_hugetlb([(h.page_size, h.limit) for h in resources.hugepages or ()]),
        ),
        mems=_set(NodeSet, cpu.mems, source, text),
        annotations=_kept(linux.annotations),
        cgroups_path=spec.cgroups_path or "",
        devices=tuple(
            Device(d.path, d.type == "b", d.major, d.minor)
            for d in (spec.devices or ())[:_MAX_DEVICES]
            if d.type in ("b", "c", "u") and d.major >= 0 and d.minor >= 0
        ),
        net_devices=tuple(islice(spec.net_devices or (), _MAX_DEVICES)),
    )


def parse_runc_state(text: str, *, source: str, mount_point: str) -> RuntimeState:
    """
    State of a container of runc.

    Raises:
        KernelFormatError: Not such a document.

    Source: runc libcontainer/container_linux.go (State), configs/cgroup_linux.go. Annotations are kept among
    ``config.labels`` as ``key=value``, beside ``bundle=``.
    """
    state = _decode(text, _RuncState, source, "a state.json of runc")
    config = state.config or _RuncConfig()
    cgroups = config.cgroups or _RuncCgroups()
    path = state.cgroup_paths.get("cpuset") or state.cgroup_paths.get("")
    labels = dict(x.split("=", 1) for x in config.labels or () if "=" in x)
    labels.pop("bundle", None)
    facts = OciFacts(
        source=source,
        limits=Limits(
            memory_bytes=_positive(cgroups.memory),
            memory_reservation_bytes=_positive(cgroups.memory_reservation),
            cpu_quota_us=_positive(cgroups.cpu_quota),
            cpu_period_us=_positive(cgroups.cpu_period),
            cpu_shares=_positive(cgroups.cpu_shares),
            cpus=_set(CpuSet, cgroups.cpuset_cpus, source, text),
            hugetlb=_hugetlb([(h.page_size, h.limit) for h in cgroups.hugetlb_limit or ()]),
        ),
        mems=_set(NodeSet, cgroups.cpuset_mems, source, text),
        annotations=_kept(labels),
    )
    return RuntimeState(
        source=source,
        runtime=Runtime.RUNC,
        cgroup=_below(path, mount_point) if path else None,
        init_pid=state.init_process_pid or None,
        init_start_ticks=state.init_process_start or None,
        facts=facts,
    )


def parse_crun_status(text: str, *, source: str) -> RuntimeState:
    """
    State of a container of crun. With a scope, the processes are in a cgroup below it: the scope is the container.

    Raises:
        KernelFormatError: Not such a document.

    Source: crun src/libcrun/status.c.
    """
    status = _decode(text, _CrunStatus, source, "a status file of crun")
    path = _clean(status.cgroup_path or "")
    if path is not None and status.scope:
        head, found, _ = (path + "/").partition(f"/{status.scope}/")
        path = f"{head}/{status.scope}" if found else path
    return RuntimeState(
        source=source,
        runtime=Runtime.CRUN,
        cgroup=path,
        init_pid=status.pid or None,
        init_start_ticks=status.process_start_time or None,
    )


def parse_task_options(text: str, *, source: str) -> str:
    """
    Where the runtime of a containerd task keeps its state (``options.json``), empty for its default.

    Raises:
        KernelFormatError: Not such a document.
    """
    return _decode(text, _TaskOptions, source, "an options.json of containerd").root


def parse_docker_name(text: str, *, source: str) -> str:
    """
    A Docker container's name, without the slash (``config.v2.json``).

    Raises:
        KernelFormatError: Not such a document.
    """
    return _decode(text, _DockerConfig, source, "a config.v2.json of Docker").name.lstrip("/")


def merge_state(config: OciFacts | None, state: RuntimeState | None) -> OciFacts | None:
    """
    One value of both documents; where both speak, runc's state is the newer.

    ``config.json`` is what was asked at creation and stays so after a resize.
    """
    newer = state.facts if state is not None else None
    base = config or newer
    if base is None:
        return None
    pid, ticks = (state.init_pid, state.init_start_ticks) if state is not None else (None, None)
    return OciFacts(
        source=base.source,
        limits=newer.limits if newer is not None else base.limits,
        mems=newer.mems if newer is not None else base.mems,
        annotations={**(newer.annotations if newer is not None else {}), **base.annotations},
        cgroups_path=base.cgroups_path,
        devices=base.devices,
        net_devices=base.net_devices,
        init_pid=pid,
        init_start_ticks=ticks,
    )


def _decode(text: str, kind: type[_T], source: str, expected: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise KernelFormatError(source, text, f"{expected} ({exc})") from exc


def _kept(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """
    What is remembered of *annotations* for as long as the container lives; those with a meaning here come first.

    They are the container's owner's to choose, megabytes of them: a long value is cut, a long key left out.
    """
    kept: dict[str, str] = {}
    left = _MAX_ANNOTATION_CHARS
    for key in sorted(annotations or {}, key=lambda k: not k.startswith(_OURS)):
        value = (annotations or {})[key][:_MAX_VALUE_CHARS]
        left -= len(key) + len(value)
        if left < 0:
            break
        if len(key) <= _MAX_KEY_CHARS:
            kept[key] = value
    return kept


def _positive(value: int | None) -> int | None:
    """A limit; ``None`` for absent, 0 and -1 (all mean "none") and for what no kernel can hold."""
    return value if value is not None and 0 < value < _UNLIMITED_FROM else None


def _set(kind: type[_Ids], text: str | None, source: str, document: str) -> _Ids | None:
    try:
        return kind.parse(text or "") or None
    except ValueError as exc:
        raise KernelFormatError(source, document, f"an OCI document ({exc})") from exc


def _hugetlb(entries: Sequence[tuple[str, int]]) -> Mapping[int, int]:
    sizes: dict[int, int] = {}
    for name, limit in entries:
        number, unit = name[:-2], _UNITS.get(name[-2:])
        if unit and number.isdecimal() and len(number) < 7 and 0 <= limit < _UNLIMITED_FROM:
            sizes[int(number) * unit] = limit
    return sizes


def _below(path: str, mount_point: str) -> str | None:
    """*path* without the mount point it must begin with."""
    inner = path.removeprefix(mount_point)
    return _clean(inner) if inner != path else None


def _clean(path: str) -> str | None:
    parts = [p for p in path.split("/") if p]
    return "/" + "/".join(parts) if parts and ".." not in parts and "." not in parts else None

"""What runtimes write about a container beside its OCI specification, as values.

Owns: the shapes of ``state.json`` (runc), ``status`` (crun) and of two small files of containerd and Docker, and what
counts where state and specification both speak. Unknown keys are passed over; a known key of the wrong type makes the
whole document unusable. Must never: trust a path found in a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from numapin.kernel.oci_values import decode, hugetlb_limits, id_set, kept_annotations, positive_limit
from numapin.model.container import Limits, OciFacts, Runtime
from numapin.model.nodeset import CpuSet, NodeSet


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


class _Stored(msgspec.Struct):
    id: str = ""
    names: list[str] | None = None


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


def parse_runc_state(text: str, *, source: str, mount_point: str) -> RuntimeState:
    """
    State of a container of runc.

    Raises:
        KernelFormatError: Not such a document.

    Source: runc libcontainer/container_linux.go (State), configs/cgroup_linux.go. Annotations are kept among
    ``config.labels`` as ``key=value``, beside ``bundle=``.
    """
    state = decode(text, _RuncState, source, "a state.json of runc")
    config = state.config or _RuncConfig()
    cgroups = config.cgroups or _RuncCgroups()
    path = state.cgroup_paths.get("cpuset") or state.cgroup_paths.get("")
    labels = dict(x.split("=", 1) for x in config.labels or () if "=" in x)
    labels.pop("bundle", None)
    facts = OciFacts(
        source=source,
        limits=Limits(
            memory_bytes=positive_limit(cgroups.memory),
            memory_reservation_bytes=positive_limit(cgroups.memory_reservation),
            cpu_quota_us=positive_limit(cgroups.cpu_quota),
            cpu_period_us=positive_limit(cgroups.cpu_period),
            cpu_shares=positive_limit(cgroups.cpu_shares),
            cpus=id_set(CpuSet, cgroups.cpuset_cpus, source, text),
            hugetlb=hugetlb_limits([(h.page_size, h.limit) for h in cgroups.hugetlb_limit or ()]),
        ),
        mems=id_set(NodeSet, cgroups.cpuset_mems, source, text),
        annotations=kept_annotations(labels),
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
    status = decode(text, _CrunStatus, source, "a status file of crun")
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
    return decode(text, _TaskOptions, source, "an options.json of containerd").root


def parse_docker_name(text: str, *, source: str) -> str:
    """
    A Docker container's name, without the slash (``config.v2.json``).

    Raises:
        KernelFormatError: Not such a document.
    """
    return decode(text, _DockerConfig, source, "a config.v2.json of Docker").name.lstrip("/")


def parse_storage_names(text: str, *, source: str) -> Mapping[str, str]:
    """
    Names by id of the containers in a ``containers.json`` of the storage library that Podman uses; the first name of
    each, which is the one given by ``--name``.

    Raises:
        KernelFormatError: Not such a document.

    Source: containers/storage, containers.go (``Container``: ``id``, ``names``); seen with Podman 5.
    """
    stored = decode(text, list[_Stored], source, "a containers.json of Podman")
    return {found.id: found.names[0] for found in stored if found.names}


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


def _below(path: str, mount_point: str) -> str | None:
    """*path* without the mount point it must begin with."""
    inner = path.removeprefix(mount_point)
    return _clean(inner) if inner != path else None


def _clean(path: str) -> str | None:
    parts = [p for p in path.split("/") if p]
    return "/" + "/".join(parts) if parts and ".." not in parts and "." not in parts else None

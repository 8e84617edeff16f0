"""What the names of cgroups mean: containers, pods, monitors. Pure text, no I/O.

Owns: every pattern of a cgroup path component. A component is matched as a whole and together with the one above
it; the path is never searched for words, since units and containers may be called anything. Must never: read a
file, or tell a class from a container's numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from numapin.model.container import QosClass, Runtime

_ID = "[0-9a-f]{64}"
_SCOPE = re.compile(rf"(cri-containerd|crio|docker|libpod|nerdctl)-({_ID})\.scope")
_PLAIN = re.compile(rf"(crio|libpod|libpod-payload)-({_ID})")
_BARE = re.compile(_ID)
_LITERAL = re.compile(rf"([A-Za-z0-9_.\\@-]*\.slice|):(cri-containerd|crio|docker|libpod|nerdctl):({_ID})")
_MONITOR = re.compile(r"(crio|libpod)-conmon-.+|lxc\.(monitor|pivot)(\..+)?|machine-qemu\\x2d.+\.scope")
_LXC = re.compile(r"lxc\.payload\.(.+)")
_NSPAWN_SCOPE = re.compile(r"machine-(.+)\.scope")
_NSPAWN_UNIT = re.compile(r"systemd-nspawn@(.+)\.service")
_POD_SLICE = re.compile(r"(?:.*-)?kubepods(?:-(burstable|besteffort))?-pod([0-9a-f_]{32,36})\.slice")
_POD_DIR = re.compile(r"pod([0-9a-f-]{32,36})")
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+.-]{0,254}")
_MAX_PATH_CHARS = 4096
"""No runtime can make a cgroup with a longer path (PATH_MAX); what a slice expands to grows with the square."""
_MAX_NAME_CHARS = 255
_SHARED = frozenset(
    {"docker", "kubepods", "burstable", "besteffort", "libpod_parent", "lxc", "lxc.payload", "machine"}
)
"""Directories in which runtimes put their containers: never a container, whatever a document says."""
_OTHER_UNITS = (".slice", ".service", ".socket", ".mount", ".swap")
"""Units of systemd that hold no container of a runtime's; its own are scopes."""
_LEVELS = {None: QosClass.GUARANTEED, "burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}
_RUNTIMES = {
    "cri-containerd": Runtime.CONTAINERD,
    "nerdctl": Runtime.CONTAINERD,
    "crio": Runtime.CRIO,
    "docker": Runtime.DOCKER,
    "libpod": Runtime.PODMAN,
    "libpod-payload": Runtime.PODMAN,
}


class Role(StrEnum):
    """What a cgroup with such a name is."""

    CONTAINER = "container"
    MAYBE = "maybe"
    """An id without a prefix: a container only when a runtime's files on disk know that id."""
    SANDBOX = "sandbox"
    """The empty directory CRI-O leaves for a sandbox it dropped."""
    SYSTEM = "system-container"
    MONITOR = "monitor"
    """conmon, an LXC monitor, a virtual machine: never a container, nothing in it is looked at."""


@dataclass(frozen=True, slots=True)
class PodPath:
    """A pod as its path says; ``cgroup`` is the pod's own cgroup, ``uid`` has dashes under both drivers."""

    uid: str
    qos: QosClass
    cgroup: str


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A recognised component; ``pod`` is set only where the component itself names its pod."""

    id: str
    runtime: Runtime
    role: Role
    pod: PodPath | None = None


def pod_at(parts: Sequence[str]) -> PodPath | None:
    """
    The pod whose own cgroup is the path *parts*, else ``None``.

    No QoS word under ``kubepods`` means Guaranteed. The uid of a static pod is 32 digits without separators.

    Source: kubelet's cgroup names, systemd form ``[root-]kubepods[-burstable]-pod<uid with _>.slice``,
    cgroupfs form ``kubepods[/burstable]/pod<uid>``.
    """
    name = parts[-1] if parts else ""
    if match := _POD_SLICE.fullmatch(name):
        return PodPath(match[2].replace("_", "-"), _LEVELS[match[1]], "/" + "/".join(parts))
    if match := _POD_DIR.fullmatch(name):
        above = parts[-2] if len(parts) > 1 else ""
        level = above if above in _LEVELS and len(parts) > 2 and parts[-3] == "kubepods" else None
        if level is not None or above == "kubepods":
            return PodPath(match[1], _LEVELS[level], "/" + "/".join(parts))
    return None


def container_at(parts: Sequence[str], pod: PodPath | None) -> ContainerName | None:
    """
    What the cgroup at path *parts* is by its name; ``None`` for one of no container.

    *pod* is the pod whose cgroup is an ancestor. Containers without any telling name (runc, crun, ctr) are found
    by their runtime's files, not here.
    """
    name = parts[-1] if parts else ""
    above = parts[-2] if len(parts) > 1 else ""
    if _MONITOR.fullmatch(name):
        return ContainerName(name, Runtime.UNKNOWN, Role.MONITOR)
    if match := _SCOPE.fullmatch(name):
        return ContainerName(match[2], _RUNTIMES[match[1]], Role.CONTAINER)
    if match := _PLAIN.fullmatch(name):
        leftover = match[1] == "crio" and pod is not None and pod.cgroup.endswith(".slice")
        return ContainerName(match[2], _RUNTIMES[match[1]], Role.SANDBOX if leftover else Role.CONTAINER)
    if match := _LITERAL.fullmatch(name):
        slice_path = expand_slice(match[1]) if _POD_SLICE.fullmatch(match[1]) else ""
        inner = pod_at(slice_path.strip("/").split("/")) if slice_path else None
        return ContainerName(match[3], _RUNTIMES[match[2]], Role.CONTAINER, inner)
    if _BARE.fullmatch(name):
        if pod is not None:
            return ContainerName(name, Runtime.CONTAINERD, Role.CONTAINER)
        if above == "docker":
            return ContainerName(name, Runtime.DOCKER, Role.CONTAINER)
        return ContainerName(name, Runtime.UNKNOWN, Role.MAYBE)
    return _system_container(name, above, depth=len(parts))


def _system_container(name: str, above: str, *, depth: int) -> ContainerName | None:
    if match := _LXC.fullmatch(name):
        return ContainerName(match[1], Runtime.LXC, Role.SYSTEM)
    if above in ("lxc", "lxc.payload") and depth == 2:
        return ContainerName(name, Runtime.LXC, Role.SYSTEM)
    match = _NSPAWN_UNIT.fullmatch(name) or (_NSPAWN_SCOPE.fullmatch(name) if above == "machine.slice" else None)
    if match:
        return ContainerName(match[1].replace("\\x2d", "-"), Runtime.NSPAWN, Role.SYSTEM)
    return None


def expand_slice(name: str) -> str:
    """
    Path of a systemd slice (``a-b.slice`` is ``/a.slice/a-b.slice``); empty for the root slice ``-.slice`` and for
    text that is no slice name, or a longer one than a unit can have.
    """
    if len(name) > _MAX_NAME_CHARS:
        return ""
    stem = name.removesuffix(".slice")
    if stem == name or stem in ("", "-") or "/" in stem:
        return ""
    if "" in stem.split("-"):
        return ""
    ends = (k for k, char in enumerate(f"{stem}-") if char == "-")
    return "".join(f"/{stem[:end]}.slice" for end in ends)


def possible_cgroups(cgroups_path: str) -> tuple[str, ...]:
    """
    Paths that ``linux.cgroupsPath`` may stand for, below whatever cgroup the runtime itself was given.

    ``slice:prefix:name`` is ``<slice>/<prefix>-<name>.scope`` to the systemd driver and a literal directory to a
    runtime that was not told to use it. Empty for no path at all, for one with ``..``, and for one that no runtime
    can make (PATH_MAX).

    Source: runc docs/systemd.md; crun names the scope ``<name>.scope`` when the prefix is empty.
    """
    if not cgroups_path or len(cgroups_path) > _MAX_PATH_CHARS or ".." in cgroups_path.split("/"):
        return ()
    words = cgroups_path.split(":")
    if len(words) != 3:
        return ("/" + cgroups_path.strip("/"),) if cgroups_path.strip("/") else ()
    slice_name, prefix, name = words
    base = expand_slice(slice_name or "system.slice")
    unit = name if name.endswith(".slice") else f"{prefix}-{name}.scope"
    paths = [f"{base}/{unit}", "/" + cgroups_path.strip("/")]
    if not prefix:
        paths.append(f"{base}/{name}.scope")
    return tuple(paths)


def may_be_claimed(cgroup: str) -> bool:
    """
    True when a document may make a container of the cgroup *cgroup*, whose name tells none.

    Never the root, PID 1's own, a directory where containers of others are, or a unit that no runtime makes.
    """
    last = cgroup.rpartition("/")[2]
    return bool(last) and last not in _SHARED and last != "init.scope" and not last.endswith(_OTHER_UNITS)


def names_cgroup(cgroups_path: str, cgroup: str) -> bool:
    """True when ``linux.cgroupsPath`` may be *cgroup*, or says nothing at all."""
    return not cgroups_path or any(cgroup == p or cgroup.endswith(p) for p in possible_cgroups(cgroups_path))


def is_safe_id(text: str) -> bool:
    """True for an id or name that can be a file name of its own: no slash, no leading dot, nothing unprintable."""
    return _SAFE_ID.fullmatch(text) is not None

"""Where the cgroup controllers are mounted.

Owns: telling v2, hybrid and v1 apart, and a whole tree from a part of one. The cpuset controller decides, not what
else is mounted: a cgroup2 mount without cpuset in its ``cgroup.controllers`` is of no use here. Must never: mount or
enable anything, or take a part of a tree for the whole: what runtimes call ``/x`` is another cgroup there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from numapin.kernel.files import list_subdirectories, read_optional, read_symlink
from numapin.model.errors import KernelReadError, NoCpusetController, PartOfCgroupTree

CONTROLLERS = ("cpuset", "memory", "cpu", "hugetlb")
_DEFAULT_MOUNT = "/sys/fs/cgroup"
_FIRST_NAMESPACE = "cgroup:[4026531835]"
"""The machine's own cgroup namespace (PROC_CGROUP_INIT_INO in include/linux/proc_ns.h)."""
_PAGE_SIZE_DIR = re.compile(r"hugepages-(\d{1,12})kB")


class CgroupVersion(StrEnum):
    """Interface of a cgroup hierarchy."""

    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class ControllerMount:
    """Where one controller is; *path* already includes the root that was given."""

    version: CgroupVersion
    path: Path


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """
    The hierarchy that carries cpuset, and where the controllers that show limits are.

    ``cpuset_mount`` includes the given root, ``mount_point`` is the same place as the machine itself names it.
    ``controllers`` holds those of `CONTROLLERS` that are mounted. ``hybrid``: v1 cpuset with a cgroup2 mount
    beside it. ``noprefix``: v1 files are named ``mems`` instead of ``cpuset.mems``. ``page_sizes`` are the
    kernel's hugepage sizes in bytes, ascending.
    """

    version: CgroupVersion
    root: Path
    cpuset_mount: Path
    mount_point: str
    controllers: Mapping[str, ControllerMount]
    hybrid: bool = False
    noprefix: bool = False
    page_sizes: tuple[int, ...] = ()

    @property
    def cpuset_prefix(self) -> str:
        """Prefix of the cpuset files' names."""
        return "" if self.noprefix else "cpuset."


class _Mount(NamedTuple):
    root: str
    point: str
    fstype: str
    options: frozenset[str]


def find_hierarchy(root: Path) -> Hierarchy:
    """
    The hierarchy in which containers' ``cpuset.mems`` live, below *root*.

    The truth is ``proc/self/mountinfo``; a recorded tree without one is read by its structure under
    ``sys/fs/cgroup``.

    Raises:
        NoCpusetController: cpuset is nowhere; says what was looked at.
        PartOfCgroupTree: It is mounted, and the mount shows one branch of the machine's tree.
        KernelReadError: A file exists and cannot be read.

    Source: Documentation/filesystems/proc.rst (3.5), Documentation/admin-guide/cgroup-v2.rst.
    """
    text = read_optional(root / "proc/self/mountinfo")
    mounts = _structure(root) if text is None else parse_mountinfo(text)
    v1: dict[str, ControllerMount] = {}
    v2: dict[str, ControllerMount] = {}
    looked, noprefix, points, parts = [], False, {}, []
    for mount in mounts:
        path = root / mount.point.lstrip("/")
        if text is not None and (part := _part(root, mount, path)):
            looked.append(f"{mount.point} shows only {part}")
            if mount.fstype == "cgroup2" or "cpuset" in mount.options:
                parts.append(looked[-1])
            continue
        if mount.fstype == "cgroup2":
            found = (read_optional(path / "cgroup.controllers") or "").split()
            looked.append(f"{mount.point} is cgroup v2 with controllers {' '.join(found) or '(none)'}")
            new, into, version = found, v2, CgroupVersion.V2
        else:
            new, into, version = sorted(mount.options), v1, CgroupVersion.V1
        for name in CONTROLLERS:
            if name in new and name not in into:
                into[name] = ControllerMount(version, path)
                if name == "cpuset":
                    points[version] = mount.point
                    noprefix |= version is CgroupVersion.V1 and "noprefix" in mount.options
    both = {**v2, **v1}
    if "cpuset" not in both and parts:
        raise PartOfCgroupTree(str(root), "; ".join(parts))
    if "cpuset" not in both:
        seen_v1 = f"v1 controllers mounted: {', '.join(sorted(v1)) or 'none'}"
        raise NoCpusetController(str(root), "; ".join([*looked, seen_v1]))
    version = both["cpuset"].version
    hybrid = version is CgroupVersion.V1 and any(m.fstype == "cgroup2" for m in mounts)
    return Hierarchy(
        version=version,
        root=root,
        cpuset_mount=both["cpuset"].path,
        mount_point=points[version],
        controllers=both,
        hybrid=hybrid,
        noprefix=noprefix,
        page_sizes=_page_sizes(root),
    )


def _part(root: Path, mount: _Mount, path: Path) -> str:
    """
    What a mount shows of its cgroup tree in words; empty when it is the whole.

    The mount table tells roots as this process's cgroup namespace sees them: the machine's own mounts have ``/..``
    and the like in a namespace further down, and one made in there has ``/``. So a file decides that is, or is not,
    in the root cgroup alone: ``cgroup.type`` on v2, ``release_agent`` on v1.

    Source: cgroup_namespaces(7), cgroup_show_path() and cgroup_base_files in kernel/cgroup/cgroup.c.
    """
    above = all(word == ".." for word in mount.root.strip("/").split("/")) and mount.root != "/"
    if mount.root != "/" and not above:
        return f"{mount.root} of a cgroup tree"
    namespaced = (read_symlink(root / "proc/self/ns/cgroup") or _FIRST_NAMESPACE) != _FIRST_NAMESPACE
    if mount.fstype == "cgroup2":
        is_root = read_optional(path / "cgroup.type") is None
    else:
        is_root = not (above or namespaced) or read_optional(path / "release_agent") is not None
    if is_root:
        return ""
    return "a branch of a cgroup tree" + (
        ", for this process has a cgroup namespace of its own" if namespaced else ""
    )


def parse_mountinfo(text: str) -> list[_Mount]:
    """Mounts of cgroup file systems in *text*, in its order; lines of another shape are left out."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if not dash or len(fields) < 6 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2", "cpuset"):
            continue
        options = frozenset(tail[2].split(",")) | ({"cpuset", "noprefix"} if tail[0] == "cpuset" else set())
        mounts.append(_Mount(_unescape(fields[3]), _unescape(fields[4]), tail[0], options))
    return mounts


def _unescape(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), word)


def _structure(root: Path) -> list[_Mount]:
    """What the directories below ``sys/fs/cgroup`` of a recorded tree stand for."""
    base = root / _DEFAULT_MOUNT.lstrip("/")
    if read_optional(base / "cgroup.controllers") is not None:
        return [_Mount("/", _DEFAULT_MOUNT, "cgroup2", frozenset())]
    try:
        names = list_subdirectories(base)
    except KernelReadError:
        return []
    mounts = []
    for name in names:
        point = f"{_DEFAULT_MOUNT}/{name}"
        if read_optional(base / name / "cgroup.controllers") is not None or name == "unified":
            mounts.append(_Mount("/", point, "cgroup2", frozenset()))
        else:
            options = set(name.split(","))
            bare = (base / name / "mems").is_file() and not (base / name / "cpuset.mems").is_file()
            if "cpuset" in options and bare:
                options.add("noprefix")
            mounts.append(_Mount("/", point, "cgroup", frozenset(options)))
    return mounts


def _page_sizes(root: Path) -> tuple[int, ...]:
    try:
        names = list_subdirectories(root / "sys/kernel/mm/hugepages")
    except KernelReadError:
        return ()
    matches = (_PAGE_SIZE_DIR.fullmatch(n) for n in names)
    return tuple(sorted(int(m[1]) * 1024 for m in matches if m))

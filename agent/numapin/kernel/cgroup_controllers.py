"""The cpuset controller on the way down to one container (cgroup v2): where it is not enabled, and enabling it.

Owns: ``cgroup.subtree_control``, whose only writer is here. Must never: write the hierarchy's root, anything beside
the way to the container, or a controller's removal.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from numapin.kernel.cgroup_directory import CgroupDirectory, path_parts
from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy
from numapin.kernel.files import read_optional
from numapin.model.errors import CgroupGone, CpusetNotEnabled, KernelError, KernelReadError

_CONTROL = "cgroup.subtree_control"
_GIVEN = "cgroup.controllers"


@dataclass(frozen=True, slots=True)
class Enabled:
    """
    What came of enabling cpuset for one container; cgroup paths, from the top down.

    ``done`` took it. ``left`` lack it still, for the reason in ``error``; both are empty where it was enabled before.
    """

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    error: KernelError | None = None


def missing_cpuset(hierarchy: Hierarchy, path: str) -> tuple[str, ...]:
    """
    Cgroups above *path* on v2 whose ``cgroup.subtree_control`` lacks cpuset, from the top down; empty on v1.

    All of them, whatever root is configured: a cgroup has no controller that the one above it does not enable.

    Raises:
        KernelReadError: Unreadable.

    Source: Documentation/admin-guide/cgroup-v2.rst, "Enabling and Disabling" and "Top-down Constraint".
    """
    if hierarchy.version is CgroupVersion.V1:
        return ()
    parts = path_parts(path)
    found = []
    for k in range(len(parts)):
        text = read_optional(hierarchy.cpuset_mount.joinpath(*parts[:k], _CONTROL))
        if text is not None and "cpuset" not in text.split():
            found.append("/" + "/".join(parts[:k]))
    return tuple(found)


def control_file(hierarchy: Hierarchy, path: str) -> str:
    """The file in which a controller is enabled for the children of *path*, as the machine names it."""
    return f"{hierarchy.mount_point}{path.rstrip('/')}/{_CONTROL}"


def enable_cpuset(container: CgroupDirectory) -> Enabled:
    """
    Write ``+cpuset`` into each ``cgroup.subtree_control`` above *container* that lacks it, from the top down.

    After each write the next cgroup on the way, and at the end *container* itself, must show cpuset among its
    ``cgroup.controllers``. The kernel gives every process below such a cgroup the CPUs of its cpuset anew: an
    affinity of its own can be lost (kernels before 6.2 do not keep it). Where the hierarchy's root lacks it nothing
    is written (EPERM). Never raises.
    """
    hierarchy, path = container.hierarchy, container.path
    done: list[str] = []
    try:
        missing = missing_cpuset(hierarchy, path)
    except KernelError as exc:
        return Enabled(error=exc)
    for above in missing:
        left = missing[len(done) :]
        if above == "/":
            return Enabled((), left, CpusetNotEnabled(control_file(hierarchy, above), errno.EPERM, of_root=True))
        try:
            with _Level(hierarchy, above) as level:
                level.enable()
            done.append(above)
            inner = path_parts(path)[: len(path_parts(above)) + 1]
            with _Level(hierarchy, "/" + "/".join(inner)) as level:
                if len(inner) == len(path_parts(path)) and level.inode != container.inode:
                    raise CgroupGone(path)
                level.check()
        except CgroupGone as exc:
            return Enabled(tuple(done), missing[len(done) :], exc)
        except KernelError as exc:
            if above in done:
                done.pop()  # taken, and without effect
            error = CpusetNotEnabled(control_file(hierarchy, above), exc.errno)
            return Enabled(tuple(done), missing[len(done) :], error)
    return Enabled(tuple(done))


class _Level(CgroupDirectory):
    """One cgroup on the way."""

    __slots__ = ()

    def enable(self) -> None:
        """Enable cpuset for the children."""
        self._write(_CONTROL, "+cpuset")

    def check(self) -> None:
        """
        See whether the write above brought cpuset here.

        Raises:
            KernelReadError: ENOENT: the kernel took the value and did not do it, or the file cannot be read.
        """
        if "cpuset" not in self._own(_GIVEN).split():
            raise KernelReadError(self._shown("cpuset.mems"), errno.ENOENT)

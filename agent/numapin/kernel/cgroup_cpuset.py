"""The cpuset controller's files in one cgroup: their typed readers and their one writer.

Owns: the formats of v1 and v2. Must never: write any file but ``cpuset.mems`` and, on v1, ``cpuset.memory_migrate``.
"""

from __future__ import annotations

import contextlib
import errno

from numapin.kernel.cgroup_directory import CgroupDirectory
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroup_subtree import (
    Earlier,
    Masks,
    Writes,
    narrower_children,
    restored_targets,
    subtree_targets,
    subtree_writes,
)
from numapin.kernel.files import list_subdirectories, read_text, write_text
from numapin.model.errors import CgroupGone, KernelError, KernelFormatError, KernelWriteError
from numapin.model.nodeset import NodeSet

_SUBTREE_ROUNDS = 3
"""How often a v1 subtree is walked again because a child cgroup appeared meanwhile."""


class Cpuset(CgroupDirectory):
    """An open cgroup as the cpuset controller sees it. See `CgroupDirectory` for the handle itself."""

    __slots__ = ()

    def read_cpuset_mems(self) -> NodeSet:
        """
        The cgroup's own ``cpuset.mems``; empty on v2 means inherited, on v1 not initialised yet.

        Raises:
            CgroupGone: Removed.
            KernelReadError: ENOENT: cpuset is not enabled for this cgroup (or it is the root of v2).
            KernelFormatError: Not a node list.
        """
        return self._nodes("mems")

    def read_cpuset_mems_effective(self) -> NodeSet:
        """
        The nodes the kernel grants (``cpuset.mems.effective``; v1 ``cpuset.effective_mems``).

        Raises: as `read_cpuset_mems`.
        """
        return self._nodes("mems.effective" if self.hierarchy.version is CgroupVersion.V2 else "effective_mems")

    def write_cpuset_mems(self, nodes: NodeSet) -> None:
        """
        Ask the kernel for *nodes*; on v2 success says nothing about what is granted: read the effective set.

        Where pages have to move this blocks until they have. The empty set is written as a newline, which the
        kernel refuses (ENOSPC) for a populated cgroup; a write of nothing at all would be taken as success.

        Raises:
            CgroupGone: Removed.
            KernelWriteError: EINVAL, ENOSPC, EACCES, EBUSY, EROFS and others, as the kernel said.
        """
        name = self.hierarchy.cpuset_prefix + "mems"
        self._write(name, str(nodes) or "\n")

    def read_memory_migrate(self) -> bool | None:
        """
        Whether the kernel moves pages with a change of ``cpuset.mems``; ``None`` on v2, which has no such switch.

        Raises: as `read_cpuset_mems`.
        """
        if self.hierarchy.version is CgroupVersion.V2:
            return None
        return self._own(self._migrate).strip() == "1"

    def write_memory_migrate(self, wanted: bool) -> bool:
        """
        On v1 make the kernel move pages with the next change of ``cpuset.mems``, or leave them; v2 always moves them.

        To be set before the first change: pages left behind by an earlier one are never moved. Returns whether it
        was another value before.

        Raises: as `write_cpuset_mems`, and KernelReadError.
        """
        if self.read_memory_migrate() in (None, wanted):
            return False
        self._write(self._migrate, str(int(wanted)))
        return True

    def read_masks_below(self) -> Masks:
        """
        On v1 the masks of all cpusets below that have fewer nodes than their parent; empty on v2.

        Keyed by the path below this cgroup (``/a``, ``/a/b``).

        Raises: as `read_cpuset_mems`.
        """
        if self.hierarchy.version is CgroupVersion.V2 or not self.children():
            return {}
        return narrower_children(self._masks())

    def write_subtree_mems(self, nodes: NodeSet, earlier: Earlier | None = None) -> tuple[bool, Masks]:
        """
        `write_cpuset_mems` for this cgroup and, on v1, for the child cpusets that would forbid it; where it has the
        value already nothing is written.

        v1 wants every child inside its parent at any time: all are widened from the top, then shrunk from the
        bottom. A child that had its parent's nodes follows it; one with fewer keeps those of them that are in
        the new set, or follows when none are. If the kernel refuses a step, what was changed is put back. With
        *earlier* the children get what they had before that write, also where this cgroup has its value already.

        Returns whether anything was written, and `read_masks_below` as it was before.

        Raises: as `write_cpuset_mems`, and KernelReadError, KernelFormatError.
        """
        own = self.read_cpuset_mems()
        if self.hierarchy.version is CgroupVersion.V2 or not nodes or not own or not self.children():
            if own != nodes:
                self.write_cpuset_mems(nodes)
            return own != nodes, {}
        for left in reversed(range(_SUBTREE_ROUNDS)):
            masks = self._masks()
            targets = restored_targets(masks, nodes, earlier) if earlier else subtree_targets(masks, nodes)
            writes = subtree_writes(masks, targets)
            try:
                self._perform(writes)
            except KernelWriteError as exc:
                widened = [(p, masks[p] | targets[p]) for p in masks]
                self._perform(widened + [(p, masks[p]) for p in reversed(list(masks))], forgiving=True)
                if exc.errno != errno.EBUSY or not left:
                    raise
            else:
                return bool(writes), narrower_children(masks)
        raise AssertionError("the last round returns or raises")

    @property
    def _migrate(self) -> str:
        return self.hierarchy.cpuset_prefix + "memory_migrate"

    def _masks(self) -> dict[str, NodeSet]:
        """
        Nodes of this cgroup and of all below it, parents first, keyed by the path below this one.

        One directory is open at a time: a container may make thousands. What is not initialised yet, and so in
        nobody's way, is left out.
        """
        name = self.hierarchy.cpuset_prefix + "mems"
        masks = {"": self.read_cpuset_mems()}
        pending = [""]
        while pending:
            path = pending.pop()
            with contextlib.suppress(CgroupGone), self._below(path) as fd:
                if path:
                    text = read_text(name, dir_fd=fd, shown=self._shown(f"{path[1:]}/{name}"), follow=False)
                    if not (nodes := self._parsed(f"{path[1:]}/{name}", text)):
                        continue
                    masks[path] = nodes
                pending += [f"{path}/{child}" for child in list_subdirectories(".", dir_fd=fd)]
        return masks

    def _perform(self, writes: Writes, *, forgiving: bool = False) -> None:
        """Do *writes* in order; children that went are passed over, and when *forgiving* every refusal."""
        name = self.hierarchy.cpuset_prefix + "mems"
        for path, nodes in writes:
            try:
                if not path:
                    self.write_cpuset_mems(nodes)
                    continue
                with self._below(path) as fd:
                    write_text(name, str(nodes), dir_fd=fd, shown=self._shown(f"{path[1:]}/{name}"))
            except CgroupGone:
                if not path and not forgiving:
                    raise
            except KernelError:
                if not forgiving:
                    raise

    def _nodes(self, name: str) -> NodeSet:
        name = self.hierarchy.cpuset_prefix + name
        return self._parsed(name, self._own(name))

    def _parsed(self, name: str, text: str) -> NodeSet:
        try:
            return NodeSet.parse(text)
        except ValueError as exc:
            raise KernelFormatError(self._shown(name), text, "a list of nodes") from exc

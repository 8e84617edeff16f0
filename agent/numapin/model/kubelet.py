"""What a kubelet beside us has promised, as its memory manager's state file tells.

Owns: how its assignments are named among ours. Must never: know how the file is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from numapin.model.memory import Block, Owner
from numapin.model.nodeset import NodeSet

NO_POLICY = "None"
"""The kubelet's word for a memory manager that places nothing. Any other word is taken for one that places."""

POD_LEVEL = "(pod)"
"""Container name of memory that the kubelet promised to a pod as a whole; no container can be called so."""

_PREFIX = "kubelet:"


class Hands(StrEnum):
    """In whose hands the containers of pods are."""

    OURS = "ours"
    """No kubelet places them: no state file, or policy None."""
    KUBELET = "kubelet"
    UNKNOWN = "unknown"
    """There is a state file that was never readable: left alone, and what their cgroups say is accounted."""


def kubelet_owner(pod_uid: str, container: str) -> Owner:
    """Owner of one of the kubelet's assignments in our books; never one of ours, whose names have no colon."""
    return Owner(_PREFIX + pod_uid, container)


@dataclass(frozen=True, slots=True)
class KubeletState:
    """
    One reading of the file.

    ``policy`` is the kubelet's word (``Static``, ``None``). ``assignments`` is what it has taken from the nodes, in
    bytes: memory of a pod as a whole contains that of its containers and stands alone then. ``placements`` are the
    nodes of each container by pod uid and container name. ``unverified`` says why the file's checksum could
    not be verified, or is empty.
    """

    policy: str
    assignments: Mapping[Owner, tuple[Block, ...]] = field(default_factory=dict)
    placements: Mapping[tuple[str, str], NodeSet] = field(default_factory=dict)
    unverified: str = ""

    @property
    def places(self) -> bool:
        """True when the kubelet decides about the nodes of its pods' containers."""
        return self.policy != NO_POLICY

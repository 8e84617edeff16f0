"""
What a host lacks or says of itself in two ways, as findings: pairs of a stable code and a sentence.

Owns: when that is worth a sentence. Must never: read the machine.
"""

from __future__ import annotations

from numapin.kernel.cgroup_mounts import Hierarchy
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_bytes
from numapin.model.topology import Topology


def memory_gap(topology: Topology, whole_bytes: int) -> list[tuple[str, str]]:
    """A finding when the nodes and the whole machine differ in memory by more than a quarter, as some guests do."""
    nodes = sum(n.memory_bytes for n in topology.nodes.values())
    if topology.synthetic or abs(nodes - whole_bytes) * 4 <= whole_bytes:
        return []
    return [
        (
            "memory-totals-differ",
            f"the nodes have {format_bytes(nodes)} together and /proc/meminfo says {format_bytes(whole_bytes)}; "
            "the nodes' own numbers are used",
        )
    ]


def unused_nodes(topology: Topology, usable: NodeSet) -> list[tuple[str, str]]:
    """A finding when there is memory on nodes without CPUs that the configuration does not name."""
    outside = topology.with_memory - usable
    if not outside:
        return []
    has, used, it = ("has", "is", "it") if len(outside) == 1 else ("have", "are", "them")
    return [
        (
            "cpu-less-nodes",
            f"{outside.named} {has} memory but no CPUs and {used} not used; name {it} in nodes.cpu_less to use {it}",
        )
    ]


def no_memory_controller(hierarchy: Hierarchy) -> list[tuple[str, str]]:
    """A finding where no cgroup of the machine can show a memory limit: some boards switch the controller off."""
    if "memory" in hierarchy.controllers:
        return []
    return [
        (
            "no-memory-controller",
            f"there is no memory controller beside cpuset in {hierarchy.mount_point}, so no cgroup shows "
            "a memory limit: sizes come from the containers' metadata, and what has none gets no nodes; boot with "
            "cgroup_enable=memory to have it",
        )
    ]

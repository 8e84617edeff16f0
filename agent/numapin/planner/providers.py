"""
Hints of the two providers beside memory: the CPUs a container is confined to, and the devices it was given.

Owns: what each of them could live with. Must never: read anything, or know how hints are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints
from numapin.model.topology import Topology

LISTED_NODES = 8
"""Up to so many nodes every subset is a hint; the number of hints doubles with each."""


def cpu_hints(cpus: CpuSet | None, topology: Topology, usable: NodeSet) -> ProviderHints | None:
    """
    What the CPUs that a container is confined to say about its memory; ``None`` when it has all CPUs.

    Its CPUs are given, so memory is local on any of their nodes: each set of these nodes is a preferred hint. With
    more than `LISTED_NODES` of them only the single nodes and the whole set are listed. Where none of the CPUs'
    nodes may hold memory there is no preference.
    """
    everything = 0
    for node in topology.nodes.values():
        everything |= node.cpus.mask
    if cpus is None or not (cpus.mask & everything) or not everything & ~cpus.mask:
        return None
    nodes = NodeSet.from_ids(i for i, n in topology.nodes.items() if n.cpus.mask & cpus.mask) & usable
    if not nodes:
        return ProviderHints("cpu", None)
    widths = range(1, len(nodes) + 1) if len(nodes) <= LISTED_NODES else (1, len(nodes))
    bits = [1 << n for n in nodes]
    sets = (NodeSet(sum(c)) for width in widths for c in combinations(bits, width))
    return ProviderHints("cpu", tuple([Hint(s, True) for s in sets]))


def device_hints(placed: Iterable[tuple[str, NodeId]], usable: NodeSet) -> tuple[ProviderHints, ...]:
    """
    One provider entry per node that devices sit on, named after the first of them, ascending by node.

    The device's node is preferred; any other set is possible but not preferred, so strict policies hold out for
    the node and ``best-effort`` does not. Devices on a node that cannot hold memory have no preference.
    """
    names: dict[NodeId, list[str]] = {}
    for name, node in placed:
        names.setdefault(node, []).append(name)
    found = []
    for node, devices in sorted(names.items()):
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        near = (Hint(NodeSet.of(node), True), Hint(None, False)) if node in usable else None
        found.append(ProviderHints(f"device {devices[0]}{more}", near))
    return tuple(found)

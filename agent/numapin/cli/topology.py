"""``numapin topology``: the machine's NUMA nodes as the kernel shows them."""

from __future__ import annotations

import argparse
import sys

from numapin.cli.text import safe
from numapin.kernel.sysfs import read_topology
from numapin.model.errors import ExitStatus
from numapin.model.quantity import format_page_size
from numapin.model.topology import NumaNode, Topology


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Print the topology below ``args.root``; in the human form its warnings go to standard error.

    Raises:
        KernelReadError, KernelFormatError: sysfs cannot be understood.
    """
    topology = read_topology(args.root)
    if args.output == "json":
        from numapin.cli.json_output import print_json

        print_json("Topology", topology_document(topology))
        return ExitStatus.OK
    from numapin.cli.render_topology import render_topology

    render_topology(topology)
    for warning in topology.warnings:
        print(f"numapin: warning: {safe(warning, limit=600)}", file=sys.stderr)
    return ExitStatus.OK


def topology_document(topology: Topology) -> dict[str, object]:
    """The body of the JSON form: sizes in bytes, pools in pages, ``distances`` null where the kernel tells none."""
    return {
        "online": str(topology.online),
        "nodes": [_node(node) for node in topology.nodes.values()],
        "synthetic": topology.synthetic,
        "warnings": list(topology.warnings),
    }


def _node(node: NumaNode) -> dict[str, object]:
    return {
        "id": node.id,
        "cpus": str(node.cpus),
        "kind": node.kind.value,
        "memory_bytes": node.memory_bytes,
        "free_bytes": node.free_bytes,
        "hugepages": {
            format_page_size(pool.size_bytes): {
                "pages": pool.nr_hugepages,
                "free": pool.free_hugepages,
                "surplus": pool.surplus_hugepages,
            }
            for pool in node.pools
        },
        "distances": None if node.distances is None else {str(to): d for to, d in node.distances.items()},
    }

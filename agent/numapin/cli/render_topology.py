"""The topology as text for people: nodes, hugepages, distances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table

from numapin.cli.table import console, grid, say
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.quantity import format_bytes, format_page_size
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology

_LONG_LIST = 24
"""Characters of a CPU list that stay on one line; a longer one may fold after each comma."""


def render_topology(topology: Topology) -> None:
    """Print the nodes, the pools that have pages, and the distance matrix."""
    out = console()
    out.print(_headline(topology))
    out.print()
    out.print(_nodes(topology))
    out.print()
    for line in _pool_lines(topology):
        out.print(line)
    out.print()
    for row in distance_lines(topology, width=out.width):
        out.print(row, soft_wrap=True)
    notes = list(_notes(topology))
    if notes:
        out.print()
    for note in notes:
        say(out, note)


def _headline(topology: Topology) -> str:
    if topology.synthetic:
        return "This kernel knows no NUMA nodes: the whole machine counts as node 0."
    count = len(topology.nodes)
    return f"{count} NUMA {'node' if count == 1 else 'nodes'} online: {topology.online}"


def _nodes(topology: Topology) -> Table:
    table = grid(">NODE", "KIND", ">MEMORY", ">FREE", ">CPUS", "CPU LIST")
    for node in topology.nodes.values():
        memory = (format_bytes(node.memory_bytes), format_bytes(node.free_bytes))
        table.add_row(str(node.id), node.kind.value, *memory, str(len(node.cpus)), format_cpus(node.cpus))
    if len(topology.nodes) > 1:
        nodes = topology.nodes.values()
        total, free = sum(n.memory_bytes for n in nodes), sum(n.free_bytes for n in nodes)
        table.add_row("all", "", format_bytes(total), format_bytes(free), str(sum(len(n.cpus) for n in nodes)), "")
    return table


def format_cpus(cpus: CpuSet) -> str:
    """
    A CPU list for people: ranges, and every n-th CPU as ``0-36:4``; long lists fold after a comma.

    ``-`` when there is none. The stride form is the one ``taskset`` reads.
    """
    ids = cpus.ids()
    if not ids:
        return "-"
    step = ids[1] - ids[0] if len(ids) > 3 else 1
    if step > 1 and ids == tuple(range(ids[0], ids[-1] + 1, step)):
        return f"{ids[0]}-{ids[-1]}:{step}"
    text = str(cpus)
    return text if len(text) <= _LONG_LIST else text.replace(",", ", ")


def _pool_lines(topology: Topology) -> Iterator[Table | str]:
    sizes = sorted({pool.size_bytes for node in topology.nodes.values() for pool in node.pools})
    names = ", ".join(format_page_size(size) for size in sizes)
    if not sizes:
        yield "No hugepage pools."
        return
    table = grid(">NODE", ">HUGEPAGES", ">TOTAL", ">PAGES", ">FREE", ">SURPLUS")
    for nodes, pool in _equal_pools(topology.nodes):
        counts = (pool.nr_hugepages, pool.free_hugepages, pool.surplus_hugepages)
        size, total = format_page_size(pool.size_bytes), format_bytes(pool.total_bytes)
        table.add_row(str(nodes), size, total, *map(str, counts))
    yield table if table.row_count else f"No hugepages on any node (sizes: {names})."


def _equal_pools(nodes: Mapping[NodeId, NumaNode]) -> list[tuple[NodeSet, HugepagePool]]:
    """Pools that have pages, ascending by size and node; nodes whose pool of a size is the same share one entry."""
    found: dict[HugepagePool, list[NodeId]] = {}
    for node in nodes.values():
        for pool in node.pools:
            if pool.nr_hugepages or pool.surplus_hugepages:
                found.setdefault(pool, []).append(node.id)
    merged = [(NodeSet.from_ids(ids), pool) for pool, ids in found.items()]
    return sorted(merged, key=lambda entry: (entry[1].size_bytes, min(entry[0])))


def _notes(topology: Topology) -> Iterator[str]:
    """What each unusual kind means for placements."""
    if topology.synthetic:
        return
    nodes = topology.nodes.values()
    ordinary = any(n.cpus and n.kind is not NodeKind.MEMORYLESS for n in nodes)
    rule = "not used unless nodes.cpu_less names it" if ordinary else "used, since no node has both CPUs and memory"
    meanings = {
        NodeKind.CPU_LESS: f"no CPUs of its own (CXL, HBM or GPU memory); {rule}",
        NodeKind.MEMORYLESS: "no memory now; nothing can be placed there",
        NodeKind.MOVABLE_ONLY: "no memory for the kernel itself; a placement needs another node beside it",
    }
    for kind, meaning in meanings.items():
        if ids := NodeSet.from_ids(n.id for n in nodes if n.kind is kind):
            yield f"{kind.value} ({ids.named}): {meaning}."
    if without := NodeSet.from_ids(n.id for n in nodes if n.kind is NodeKind.MOVABLE_ONLY and not n.cpus):
        yield f"Without CPUs too ({without.named}): {rule}."


def distance_lines(topology: Topology, *, width: int) -> Iterator[str]:
    """
    The distance matrix as lines of at most *width* columns where one value fits.

    Rows are from, columns to. A matrix too wide is cut into blocks of columns that each repeat the row's id; ``-``
    where the kernel tells nothing.
    """
    rows = {node.id: node.distances for node in topology.nodes.values()}
    if all(row is None for row in rows.values()):
        yield "Distances: the kernel tells none."
        return
    values = (value for row in rows.values() if row is not None for value in row.values())
    digits = max(len(str(max(rows))), *(len(str(value)) for value in values))
    label = max(len("DISTANCE"), len(str(max(rows))))
    cell = digits + (2 if label + 1 + len(rows) * (digits + 2) <= width else 1)
    ids = list(rows)
    per_block = max(1, (width - label - 1) // cell)
    for start in range(0, len(ids), per_block):
        columns = ids[start : start + per_block]
        if start:
            yield ""
        yield f"{'DISTANCE':>{label}} " + "".join(f"{i:>{cell}}" for i in columns)
        for i, row in rows.items():
            told = ["-" if row is None else str(row.get(to, "-")) for to in columns]
            yield f"{i:>{label}} " + "".join(f"{value:>{cell}}" for value in told)

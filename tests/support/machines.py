"""
Machines of any shape as the kernel would show them below a root directory.

``write_machine(tmp_path, even(4))`` is a plain machine of four nodes; give `Node` values for the odd ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numapin.model.nodeset import IdSet
from support.trees import write_tree

MIB = 1 << 20
GIB = 1 << 30
PAGE_2M = 2 * MIB
PAGE_1G = GIB

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Pool:
    """Pages of one size; ``free`` is all of them unless told."""

    pages: int
    free: int | None = None
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """
    One node to write.

    ``cpus`` in list format; ``memory`` and ``free`` in bytes (``free`` is all unless told); ``pools`` by page size
    in bytes, a bare number means that many free pages. ``movable`` memory is not in has_normal_memory.
    """

    id: int
    cpus: str = ""
    memory: int = GIB
    free: int | None = None
    pools: Mapping[int, Pool | int] = field(default_factory=dict)
    movable: bool = False


def even(
    count: int,
    *,
    memory: int = GIB,
    cpus_each: int = 2,
    pools: Mapping[int, Pool | int] | None = None,
    ids: Sequence[int] | None = None,
) -> list[Node]:
    """*count* equal nodes with consecutive CPUs, numbered from 0 or as *ids* says."""
    names = range(count) if ids is None else ids
    return [
        Node(i, str(IdSet.from_ids(range(k * cpus_each, (k + 1) * cpus_each))), memory, pools=pools or {})
        for k, i in enumerate(names)
    ]


def write_machine(
    root: Path,
    nodes: Sequence[Node],
    *,
    distances: Sequence[Sequence[int]] | None = None,
    with_distances: bool = True,
) -> Path:
    """
    Write *nodes* below *root* and return *root*.

    *distances* is a row per node in the order of ids (10 on the diagonal and 20 elsewhere unless told);
    ``with_distances=False`` leaves the files out. ``/proc/meminfo`` and the CPU directory fit the nodes.
    """
    nodes = sorted(nodes, key=lambda node: node.id)
    cpus = IdSet.from_ids(c for node in nodes for c in IdSet.parse(node.cpus))
    files = {
        f"{NODES}/online": _ids(n.id for n in nodes),
        f"{NODES}/possible": _ids(range(max(n.id for n in nodes) + 1)),
        f"{NODES}/has_cpu": _ids(n.id for n in nodes if n.cpus),
        f"{NODES}/has_memory": _ids(n.id for n in nodes if n.memory),
        f"{NODES}/has_normal_memory": _ids(n.id for n in nodes if n.memory and not n.movable),
        f"{CPUS}/online": f"{cpus}\n",
        "proc/meminfo": _meminfo("", sum(n.memory for n in nodes), sum(_free(n) for n in nodes)),
    }
    for k, node in enumerate(nodes):
        base = f"{NODES}/node{node.id}"
        files[f"{base}/cpulist"] = f"{node.cpus}\n"
        files[f"{base}/meminfo"] = _meminfo(f"Node {node.id} ", node.memory, _free(node))
        if with_distances:
            row = distances[k] if distances else [10 if i == k else 20 for i in range(len(nodes))]
            files[f"{base}/distance"] = " ".join(map(str, row)) + "\n"
        files |= pool_files(f"{base}/hugepages", node.pools)
    return write_tree(root, files)


def write_flat_machine(
    root: Path, *, cpus: str = "0-1", memory: int = GIB, pools: Mapping[int, Pool | int] | None = None
) -> Path:
    """Write a machine whose kernel knows nothing of NUMA, and return *root*."""
    return write_tree(
        root,
        {
            f"{CPUS}/online": f"{cpus}\n",
            "proc/meminfo": _meminfo("", memory, memory),
            **pool_files("sys/kernel/mm/hugepages", pools or {}),
        },
    )


def pool_files(base: str, pools: Mapping[int, Pool | int]) -> dict[str, str]:
    """The files of *pools* (page size in bytes → pages) below the directory *base*."""
    files: dict[str, str] = {}
    for size, value in pools.items():
        pool = Pool(value) if isinstance(value, int) else value
        path = f"{base}/hugepages-{size // 1024}kB"
        files[f"{path}/nr_hugepages"] = f"{pool.pages}\n"
        files[f"{path}/free_hugepages"] = f"{pool.pages if pool.free is None else pool.free}\n"
        files[f"{path}/surplus_hugepages"] = f"{pool.surplus}\n"
    return files


def _free(node: Node) -> int:
    return node.memory if node.free is None else node.free


def _ids(ids: Iterable[int]) -> str:
    return f"{IdSet.from_ids(ids)}\n"


def _meminfo(prefix: str, total: int, free: int) -> str:
    fields = {"MemTotal": total, "MemFree": free, "MemUsed": total - free, "Active(file)": 0, "Inactive(file)": 0}
    lines = [f"{prefix}{name + ':':<15} {value // 1024:8} kB" for name, value in fields.items()]
    return "\n".join([*lines, f"{prefix}HugePages_Total:     0", ""])

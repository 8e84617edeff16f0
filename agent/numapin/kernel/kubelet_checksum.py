"""
The checksum in the kubelet's memory manager state: FNV-1a over a printed Go value.

Owns: that text. Must never: judge what is in the file; whoever calls has looked at its shape.

Source: pkg/kubelet/checkpointmanager/checksum of Kubernetes, and texts recorded from it; FNV-1a as in RFC 9923.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_TABLE = (
    ("TotalMemSize", "total"),
    ("SystemReserved", "systemReserved"),
    ("Allocatable", "allocatable"),
    ("Reserved", "reserved"),
    ("Free", "free"),
)


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a hash."""
    value = _OFFSET
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def data_checksum(data: str) -> int:
    """Checksum of the text in ``data`` (the third format)."""
    return fnv1a(b"(string)" + data.encode())


def checksum_fits(file: Mapping[str, Any], checksum: int) -> bool:
    """
    True when *checksum* is that of a sound file of the first or second format.

    *file* is the decoded JSON object. Without pod entries its format cannot be told, so that either will do.
    """
    forms = (True,) if "podEntries" in file else (False, True)
    return any(checksum == fnv1a(_file(file, pods=form).encode()) for form in forms)


def _file(file: Mapping[str, Any], *, pods: bool) -> str:
    state = " ".join(f"{n}:<*>{_node(file['machineState'][n])}" for n in _by_number(file.get("machineState")))
    entries = _map(file.get("entries"), lambda containers: _map(containers, _blocks))
    more = ""
    if pods:
        bubbles = _map(
            file.get("podEntries"), lambda pod: f"{{MemoryBlocks:([]state.Block){_blocks(pod['memoryBlocks'])}}}"
        )
        more = f" PodEntries:(state.PodMemoryAssignments){bubbles}"
    return (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){file.get('policyName', '')} "
        f"MachineState:(state.NUMANodeMap)map[{state}] "
        f"Entries:(state.ContainerMemoryAssignments){entries}{more} Checksum:(checksum.Checksum)0}}"
    )


def _node(node: Mapping[str, Any]) -> str:
    memory = _map(
        node["memoryMap"], lambda t: "<*>{" + " ".join(f"{go}:(uint64){t[key]}" for go, key in _TABLE) + "}"
    )
    cells = node["cells"] if "cells" in node else node.get("nodes")
    return (
        f"{{NumberOfAssignments:(int){node['numberOfAssignments']} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){memory} Cells:([]int){_ids(cells)}}}"
    )


def _blocks(blocks: Iterable[Mapping[str, Any]]) -> str:
    texts = []
    for block in blocks:
        nodes, kind, size = _ids(block["numaAffinity"]), block["type"], block["size"]
        texts.append(f"{{NUMAAffinity:([]int){nodes} Type:(v1.ResourceName){kind} Size:(uint64){size}}}")
    return f"[{' '.join(texts)}]"


def _ids(ids: Any) -> str:
    return "<nil>" if ids is None else f"[{' '.join(map(str, ids))}]"


def _by_number(nodes: Mapping[str, Any] | None) -> list[str]:
    return sorted(nodes or (), key=int)


def _map(values: Mapping[str, Any] | None, show: Callable[[Any], str]) -> str:
    """A Go map as it is printed: keys sorted by their bytes."""
    pairs = sorted((values or {}).items(), key=lambda pair: pair[0].encode())
    return f"map[{' '.join(f'{key}:{show(value)}' for key, value in pairs)}]"

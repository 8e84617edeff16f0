"""
The kubelet's memory manager state as a kubelet would write it.

The checksum is worked out here a second time, from a printer of Go values that knows nothing of the product's.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cgroup_trees import GIB

STATE = "var/lib/kubelet/memory_manager_state"

Held = tuple[Sequence[int], int | float]
"""Nodes, and GiB of memory on them."""


@dataclass(frozen=True, slots=True)
class Go:
    """A Go value with its type's name, to be printed as the kubelet's hash sees it."""

    type: str
    value: Any


def show(value: Any) -> str:
    """One line: structs in braces with field names, maps sorted, types in parentheses."""
    match value:
        case Go(type=kind, value=inner):
            return f"({kind}){show(inner)}"
        case {"%struct": fields}:
            return "{" + " ".join(f"{name}:{show(inner)}" for name, inner in fields.items()) + "}"
        case {"%pointer": inner}:
            return f"<*>{show(inner)}"
        case dict():
            keys = sorted(value) if all(isinstance(k, int) for k in value) else sorted(value, key=str.encode)
            return "map[" + " ".join(f"{k}:{show(value[k])}" for k in keys) + "]"
        case list():
            return "[" + " ".join(map(show, value)) + "]"
        case _:
            return str(value)


def fnv32a(data: bytes) -> int:
    """FNV-1a, 32 bits."""
    return functools.reduce(lambda h, byte: ((h ^ byte) * 16777619) % 2**32, data, 2166136261)


def block(nodes: Sequence[int], size: int, kind: str = "memory") -> dict[str, Any]:
    """One block as it stands in the file; bytes."""
    return {"numaAffinity": list(nodes), "type": kind, "size": size}


def blocks(held: Held) -> list[dict[str, Any]]:
    """One block of memory."""
    return [block(held[0], int(held[1] * GIB))]


def document(
    entries: Mapping[str, Mapping[str, Held]] | None = None,
    *,
    pods: Mapping[str, Held] | None = None,
    policy: str = "Static",
    nodes: int = 4,
    cells: str = "cells",
) -> dict[str, Any]:
    """The file without a checksum: containers by pod uid and name, and memory of whole pods by uid."""
    found: dict[str, Any] = {"policyName": policy, "machineState": machine_state(nodes, cells)}
    if entries:
        found["entries"] = {uid: {name: blocks(h) for name, h in held.items()} for uid, held in entries.items()}
    if pods is not None:
        found["podEntries"] = {uid: {"memoryBlocks": blocks(held)} for uid, held in pods.items()}
    return found


def machine_state(nodes: int, cells: str = "cells") -> dict[str, Any]:
    """Nodes of 10 GiB of which the kubelet keeps one for the system."""
    table = {"total": 10 * GIB, "systemReserved": GIB, "allocatable": 9 * GIB, "reserved": 0, "free": 9 * GIB}
    return {str(n): {"numberOfAssignments": 0, "memoryMap": {"memory": table}, cells: [n]} for n in range(nodes)}


def checksum(file: Mapping[str, Any], *, second: bool = False) -> int:
    """What a kubelet puts into ``checksum``; *second* is its second format, which differs also without pods."""
    memory = "map[v1.ResourceName]*state.MemoryTable"
    go = {
        "total": "TotalMemSize",
        "systemReserved": "SystemReserved",
        "allocatable": "Allocatable",
        "reserved": "Reserved",
        "free": "Free",
    }

    def table(sizes: Mapping[str, int]) -> dict[str, Any]:
        return {"%pointer": {"%struct": {go[k]: Go("uint64", size) for k, size in sizes.items()}}}

    def node(state: Mapping[str, Any]) -> dict[str, Any]:
        tables = {kind: table(sizes) for kind, sizes in state["memoryMap"].items()}
        return {
            "%pointer": {
                "%struct": {
                    "NumberOfAssignments": Go("int", state["numberOfAssignments"]),
                    "MemoryMap": Go(memory, tables),
                    "Cells": Go("[]int", state["cells"]),
                }
            }
        }

    def held(found: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [
            {
                "%struct": {
                    "NUMAAffinity": Go("[]int", b["numaAffinity"]),
                    "Type": Go("v1.ResourceName", b["type"]),
                    "Size": Go("uint64", b["size"]),
                }
            }
            for b in found
        ]

    fields = {
        "PolicyName": Go("string", file["policyName"]),
        "MachineState": Go("state.NUMANodeMap", {int(n): node(s) for n, s in file["machineState"].items()}),
        "Entries": Go(
            "state.ContainerMemoryAssignments",
            {uid: {name: held(b) for name, b in pod.items()} for uid, pod in file.get("entries", {}).items()},
        ),
    }
    if second:
        fields["PodEntries"] = Go(
            "state.PodMemoryAssignments",
            {
                uid: {"%struct": {"MemoryBlocks": Go("[]state.Block", held(pod["memoryBlocks"]))}}
                for uid, pod in file.get("podEntries", {}).items()
            },
        )
    fields["Checksum"] = Go("checksum.Checksum", 0)
    return fnv32a(show(Go("*state.MemoryManagerCheckpoint", {"%struct": fields})).encode())


def text(file: Mapping[str, Any], *, second: bool | None = None) -> str:
    """The file of the first or second format with its checksum, as Go writes it."""
    second = "podEntries" in file if second is None else second
    return json.dumps({**file, "checksum": checksum(file, second=second)}, separators=(",", ":"))


def third(file: Mapping[str, Any]) -> str:
    """The file of the third format: what older kubelets read, and beside it everything as one text."""
    data = json.dumps(file, separators=(",", ":"))
    old = {k: v for k, v in file.items() if k != "podEntries"}
    return json.dumps(
        {**old, "checksum": checksum(old), "data": data, "dataChecksum": fnv32a(b"(string)" + data.encode())}
    )


def put(root: Path, content: str) -> Path:
    """Write the state as the kubelet does: a file beside it, renamed over it."""
    path = root / STATE
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(".memory_manager_state123")
    beside.write_text(content)
    os.replace(beside, path)
    return path

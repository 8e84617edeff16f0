"""
The kubelet's memory manager state (``/var/lib/kubelet/memory_manager_state``) as a value.

Owns: the shape of that file in its three formats, and its checksum. Must never: write there, follow a symbolic link,
or take a damaged file for an empty one.

Source: pkg/kubelet/cm/memorymanager/state and pkg/kubelet/checkpointmanager of Kubernetes 1.36; the third format as
its main branch has it after that release.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from numapin.kernel.files import file_stamp, open_beneath, open_directory, read_text
from numapin.kernel.kubelet_checksum import checksum_fits, data_checksum
from numapin.model.errors import KernelReadError, KubeletStateUnusable
from numapin.model.kubelet import POD_LEVEL, KubeletState, kubelet_owner
from numapin.model.memory import Block, MemoryType, Owner
from numapin.model.nodeset import MAX_ID, NodeSet
from numapin.model.quantity import MAX_BYTES

MAX_FILE_BYTES = 4 << 20
"""A kubelet with a thousand containers on eight nodes needs less than a tenth."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]
_Uint64 = Annotated[int, msgspec.Meta(ge=0)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,252}\Z")]
_Resource = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_./-]{0,62}\Z")]


class _Block(msgspec.Struct, rename="camel"):
    numa_affinity: Annotated[list[_Id], msgspec.Meta(min_length=1)]
    type: _Resource
    size: _Bytes


class _Table(msgspec.Struct, rename="camel"):
    total: _Uint64
    system_reserved: _Uint64
    allocatable: _Uint64
    reserved: _Uint64
    free: _Uint64


class _Node(msgspec.Struct, rename="camel"):
    number_of_assignments: int
    memory_map: dict[_Resource, _Table]
    cells: list[_Id] | None = None
    nodes: list[_Id] | None = None
    """What ``cells`` is called in the design text of the kubelet's memory manager and in early files."""


class _Pod(msgspec.Struct, rename="camel"):
    memory_blocks: list[_Block]


class _File(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    machine_state: dict[_Id, _Node] | None = None
    entries: dict[_Name, dict[_Name, list[_Block]]] | None = None
    pod_entries: dict[_Name, _Pod] | None = None
    checksum: _Uint64 | None = None
    data: str | None = None
    data_checksum: _Uint64 | None = None


_KNOWN_KEYS: Mapping[type[msgspec.Struct], frozenset[str]] = {
    kind: frozenset(f.encode_name for f in msgspec.structs.fields(kind)) - {"nodes", "data", "dataChecksum"}
    for kind in (_Block, _Table, _Node, _Pod, _File)
}


def read_kubelet_state(root: Path, path: Path) -> KubeletState | None:
    """
    The state in the file *path*, which is absolute on the machine below *root*; ``None`` when there is no file.

    ``cells`` and ``nodes`` are accepted, and a checksum that is absent or 0. A checksum over something that this
    reader does not know entirely is noted in ``unverified``.

    Raises:
        KubeletStateUnusable: Unreadable, too large, a symbolic link, not JSON, of another shape, wrong checksum.
    """
    shown = str(path)
    try:
        directory = _open_parent(root, path)
        try:
            text = read_text(path.name, dir_fd=directory, max_bytes=MAX_FILE_BYTES, shown=shown, follow=False)
        finally:
            os.close(directory)
    except KernelReadError as exc:
        if exc.errno == errno.ENOENT:
            return None
        raise KubeletStateUnusable(shown, _unreadable(exc)) from exc
    return parse_kubelet_state(text, shown)


def kubelet_state_stamp(root: Path, path: Path) -> tuple[int, int, int] | None:
    """Inode, size and modification time of the file; ``None`` when it is missing or cannot be looked at."""
    try:
        directory = _open_parent(root, path)
        try:
            return file_stamp(path.name, dir_fd=directory)
        finally:
            os.close(directory)
    except KernelReadError:
        return None


def _open_parent(root: Path, path: Path) -> int:
    base = open_directory(root)
    try:
        return open_beneath(base, path.parts[1:-1], shown=str(path), same_device=False)
    finally:
        os.close(base)


def _unreadable(exc: KernelReadError) -> str:
    if exc.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of its path is a symbolic link or no directory; name the real path in kubelet.state"
    if exc.errno == errno.EFBIG:
        return f"larger than {MAX_FILE_BYTES} bytes"
    return f"cannot be read: {os.strerror(exc.errno)} ({errno.errorcode.get(exc.errno, exc.errno)})"


def parse_kubelet_state(text: str, shown: str) -> KubeletState:
    """
    The state in *text*; *shown* is the file's path for errors.

    Raises:
        KubeletStateUnusable: Not JSON, of another shape, wrong checksum.
    """
    outer, raw = _decode(text, shown)
    if outer.data is None:
        return _state(outer, _verify(outer, raw, shown))
    if outer.data_checksum and outer.data_checksum != data_checksum(outer.data):
        raise KubeletStateUnusable(shown, "damaged: the checksum of its data is wrong")
    inner, _ = _decode(outer.data, shown, policy=outer.policy_name)
    return _state(inner, "")


def _decode(text: str, shown: str, *, policy: str = "") -> tuple[_File, dict[str, Any]]:
    """The checked shape and the plain object of *text*; *policy* stands where it names none."""
    if not text.strip():
        raise KubeletStateUnusable(shown, "damaged: empty")
    try:
        raw = msgspec.json.decode(text)
        file = msgspec.convert(raw, _File, str_keys=True)
    except RecursionError as exc:
        raise KubeletStateUnusable(shown, "damaged: nested too deeply") from exc
    except msgspec.ValidationError as exc:
        raise KubeletStateUnusable(shown, f"damaged: {exc}") from exc
    except (msgspec.DecodeError, ValueError) as exc:
        raise KubeletStateUnusable(shown, f"damaged: not JSON ({exc})") from exc
    file.policy_name = file.policy_name or policy
    if not file.policy_name:
        raise KubeletStateUnusable(shown, "damaged: it names no policy")
    return file, raw


def _verify(file: _File, raw: Mapping[str, Any], shown: str) -> str:
    """
    Why the checksum cannot be verified, or an empty string when it was found right or there is none.

    Raises:
        KubeletStateUnusable: It is wrong, and everything it is made over is known here.
    """
    if not file.checksum or checksum_fits(raw, file.checksum):
        return ""
    if strange := _strange(raw):
        return f"its checksum cannot be verified: this version does not know {strange}"
    raise KubeletStateUnusable(shown, "damaged: its checksum is wrong")


def _strange(raw: Mapping[str, Any]) -> str:
    """The first key, in alphabetical order, that the checksum's text has no place for; empty when there is none."""
    nodes = list((raw.get("machineState") or {}).values())
    tables = [t for node in nodes for t in node["memoryMap"].values()]
    pods = list((raw.get("podEntries") or {}).values())
    blocks = [b for containers in (raw.get("entries") or {}).values() for held in containers.values() for b in held]
    blocks += [b for pod in pods for b in pod["memoryBlocks"]]
    levels = ((_File, [raw]), (_Node, nodes), (_Table, tables), (_Pod, pods), (_Block, blocks))
    found = {key for kind, objects in levels for o in objects for key in o.keys() - _KNOWN_KEYS[kind]}
    return repr(min(found)[:40]) if found else ""


def _state(file: _File, unverified: str) -> KubeletState:
    assignments: dict[Owner, tuple[Block, ...]] = {}
    placements: dict[tuple[str, str], NodeSet] = {}
    bubbles = file.pod_entries or {}
    for uid, pod in bubbles.items():
        assignments[kubelet_owner(uid, POD_LEVEL)] = _blocks(pod.memory_blocks)
    for uid, containers in (file.entries or {}).items():
        for name, held in containers.items():
            blocks = _blocks(held)
            placements[uid, name] = NodeSet.from_ids(n for b in blocks for n in b.affinity)
            if uid not in bubbles:  # else it is a part of what the pod was given
                assignments[kubelet_owner(uid, name)] = blocks
    return KubeletState(file.policy_name, assignments, placements, unverified)


def _blocks(blocks: Iterable[_Block]) -> tuple[Block, ...]:
    return tuple(Block(NodeSet.from_ids(b.numa_affinity), MemoryType(b.type), b.size) for b in blocks)

"""The text of a checkpoint.

Owns: the JSON layout, its checksum, and the conversion from and to the model. Must never: touch a disk.

The file is one JSON object, one line per top-level key and per node, pod, container and refusal, so that ``jq`` reads
it and ``grep`` finds a container in it. ``machineState`` and ``entries`` have the kubelet's field names. The last
key is ``checksum``: ``sha256:`` and the hex SHA-256 of the whole file with that value left empty. By hand::

    sed 's/^"checksum":"sha256:[0-9a-f]*"$/"checksum":""/' state.json | sha256sum

JSON strings hold no raw line ends, so that line exists once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from numapin import API_VERSION
from numapin.model.checkpoint import CHECKPOINT_VERSION, Checkpoint, PinRecord, RefusalRecord, Restored
from numapin.model.errors import CheckpointCorrupt, CheckpointWrongVersion
from numapin.model.memory import Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner
from numapin.model.nodeset import NodeId, NodeSet
from numapin.state import layout
from numapin.state.path_text import has_surrogates, path_from_text, path_text

KIND = "Checkpoint"
_BLANK = b'"checksum":""\n}\n'
_SEALED = re.compile(rb'\n"checksum":"sha256:([0-9a-f]{64})"\n\}\n\Z')

_T = TypeVar("_T")
_V = TypeVar("_V")
_R = TypeVar("_R", PinRecord, RefusalRecord, Restored)


class CheckpointEncoder:
    """
    Encodes one checkpoint after the other and keeps the text of records it has seen.

    Records and assignments are frozen, so the same object has the same text: a save after one new container among
    500 encodes one. What is not in the latest checkpoint is forgotten.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}
        self._kept: dict[int, tuple[object, bytes]] = {}

    def encode(self, checkpoint: Checkpoint) -> bytes:
        """Text of *checkpoint*, checksum included; equal values give equal bytes in any insertion order."""
        nodes = checkpoint.books.node_map.nodes
        head = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "version": checkpoint.version,
            "policyName": checkpoint.policy,
            "bootId": checkpoint.boot_id,
            "savedNs": checkpoint.saved_ns,
        }
        parts = [b"{\n"]
        for key, value in head.items():
            parts += (_json(key), b":", _json(value), b",\n")
        _section(parts, "machineState", [(_json(str(n)), _json(_node_state(nodes[n]))) for n in sorted(nodes)])
        _section(parts, "entries", self._entries(checkpoint.books.assignments))
        _section(parts, "containers", self._records(checkpoint.containers, layout.pin))
        _section(parts, "refusals", self._records(checkpoint.refusals, layout.refusal))
        if checkpoint.restored:
            _section(parts, "restored", self._records(checkpoint.restored, layout.restored))
        if checkpoint.handed_over:
            _section(parts, "handedOver", self._records(checkpoint.handed_over, layout.pin))
        if checkpoint.cpuset_enabled:
            parts += (b'"cpusetEnabled":', _json([path_text(p) for p in checkpoint.cpuset_enabled]), b",\n")
        self._known, self._kept = self._kept, {}
        body = b"".join(parts)  # once: each further copy of 700 KiB costs as much as its checksum
        digest = hashlib.sha256(body)
        digest.update(_BLANK)
        return b"".join((body, b'"checksum":"sha256:', digest.hexdigest().encode(), b'"\n}\n'))

    def _records(self, records: Mapping[str, _R], convert: Callable[[_R], object]) -> list[tuple[bytes, bytes]]:
        """Key and text of each record, by cgroup."""
        return [(_json(path_text(cgroup)), self._text(records[cgroup], convert)) for cgroup in sorted(records)]

    def _entries(self, assignments: Mapping[Owner, tuple[Block, ...]]) -> list[tuple[bytes, bytes]]:
        """Key and text of each pod."""
        pods: dict[str, list[bytes]] = {}
        for owner in sorted(assignments):
            text = _json(owner.container) + b":" + self._text(assignments[owner], _blocks)
            pods.setdefault(owner.pod, []).append(text)
        return [(_json(pod), b"{" + b",".join(texts) + b"}") for pod, texts in pods.items()]

    def _text(self, value: _T, convert: Callable[[_T], object]) -> bytes:
        known = self._known.get(id(value))
        if known is None or known[0] is not value:
            known = (value, _json(convert(value)))
        self._kept[id(value)] = known  # the value too: its id is only its own while it lives
        return known[1]


def encode(checkpoint: Checkpoint) -> bytes:
    """Text of one checkpoint; see `CheckpointEncoder.encode`."""
    return CheckpointEncoder().encode(checkpoint)


def decode(data: bytes, path: str | Path) -> Checkpoint:
    """
    Checkpoint from its text; nodes ascending, records by cgroup. *path* is for errors only.

    Raises:
        CheckpointCorrupt: Cut short, wrong checksum, not JSON, or a key with a value that cannot be; it names
            the key.
        CheckpointWrongVersion: Whole, but of another schema version.
    """
    shown = str(path)
    sealed = _SEALED.search(data[-256:])
    if sealed is None:
        raise CheckpointCorrupt(
            shown, "checksum: the line with it is not at the end; the file was cut short, or is no checkpoint"
        )
    start = len(data) - (len(sealed[0]) - 1)
    digest = hashlib.sha256(data[:start])
    digest.update(_BLANK)
    if digest.hexdigest() != sealed[1].decode():
        raise CheckpointCorrupt(
            shown, f"checksum: the file says {sealed[1].decode()[:12]}…, its content gives {digest.hexdigest()[:12]}…"
        )
    try:
        header = msgspec.json.decode(data, type=layout.Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise CheckpointCorrupt(shown, f"not a checkpoint: {exc}") from exc
    if header.kind != KIND:
        raise CheckpointCorrupt(shown, f"kind: expected {KIND}, found {header.kind[:60]!r}")
    if header.version != CHECKPOINT_VERSION:
        raise CheckpointWrongVersion(
            shown,
            f"version: this program reads {CHECKPOINT_VERSION}, the file has {header.version}"
            + ("; it was written by a newer numapin" if header.version > CHECKPOINT_VERSION else ""),
        )
    try:
        document = msgspec.json.decode(data, type=layout.Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise CheckpointCorrupt(shown, str(exc)) from exc
    return _checkpoint(document, shown)


def _checkpoint(document: layout.Document, shown: str) -> Checkpoint:
    nodes = {
        NodeId(n): _at(shown, f"machineState.{n}", _read_node_state, document.machine_state[n])
        for n in sorted(document.machine_state)
    }
    assignments = {
        Owner(pod, container): _at(shown, f"entries.{pod}.{container}", _read_blocks, blocks)
        for pod, entry in document.entries.items()
        for container, blocks in entry.items()
    }
    return Checkpoint(
        policy=document.policy_name,
        boot_id=document.boot_id,
        saved_ns=document.saved_ns,
        books=Books(NodeMap(nodes), assignments),
        containers=_read_records(shown, "containers", document.containers, layout.read_pin),
        refusals=_read_records(shown, "refusals", document.refusals, layout.read_refusal),
        version=document.version,
        cpuset_enabled=tuple(_at(shown, "cpusetEnabled", path_from_text, p) for p in document.cpuset_enabled),
        restored=_read_records(shown, "restored", document.restored, layout.read_restored),
        handed_over=_read_records(shown, "handedOver", document.handed_over, layout.read_pin),
    )


def _read_records(shown: str, key: str, found: Mapping[str, _T], convert: Callable[[str, _T], _R]) -> dict[str, _R]:
    """Records by cgroup."""
    records: dict[str, _R] = {}
    for text, value in found.items():
        try:
            cgroup = path_from_text(text)
            records[cgroup] = convert(cgroup, value)
        except ValueError as exc:
            raise CheckpointCorrupt(shown, f"{key}.{text}: {exc}") from exc
    return records


def _at(shown: str, key: str, convert: Callable[[_T], _V], value: _T) -> _V:
    """Convert *value*; a value that cannot be becomes an error that names *key*."""
    try:
        return convert(value)
    except ValueError as exc:
        raise CheckpointCorrupt(shown, f"{key}: {exc}") from exc


def _section(parts: list[bytes], key: str, lines: list[tuple[bytes, bytes]]) -> None:
    """Append one object of the file, a member per line, and the comma after it."""
    parts.append(b'"%s":{' % key.encode())
    before = b"\n"
    for name, value in lines:
        parts += (before, name, b":", value)
        before = b",\n"
    parts.append(b"\n},\n" if lines else b"},\n")


def _node_state(state: NodeState) -> layout.Node:
    tables = {
        t: layout.Table(m.total, m.system_reserved, m.allocatable, m.reserved, m.free)
        for t, m in sorted(state.memory_map.items())
    }
    return layout.Node(state.number_of_assignments, tables, state.cells.ids())


def _read_node_state(node: layout.Node) -> NodeState:
    tables = {
        MemoryType(t): MemoryTable(m.total, m.system_reserved, m.allocatable, m.reserved, m.free)
        for t, m in node.memory_map.items()
    }
    return NodeState(tables, node.number_of_assignments, _nodes_from_ids(node.cells))


def _blocks(blocks: tuple[Block, ...]) -> list[layout.BlockOnDisk]:
    return [layout.BlockOnDisk(b.affinity.ids(), b.type, b.size_bytes) for b in blocks]


def _read_blocks(blocks: list[layout.BlockOnDisk]) -> tuple[Block, ...]:
    return tuple(Block(_nodes_from_ids(b.numa_affinity), MemoryType(b.type), b.size) for b in blocks)


@lru_cache(maxsize=4096)
def _nodes_from_ids(ids: tuple[int, ...]) -> NodeSet:
    return NodeSet.from_ids(ids)


_encoder = msgspec.json.Encoder(enc_hook=layout.plain)


def _json(value: object) -> bytes:
    """
    JSON of *value*.

    Names of files may hold bytes that are not UTF-8; Python shows them as lone surrogates, which JSON cannot
    carry. Cgroup paths are kept exactly (see `path_text`), anything else gets ``?`` in their place.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=layout.plain)))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if has_surrogates(value) else value
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(v) for v in value]
    return value

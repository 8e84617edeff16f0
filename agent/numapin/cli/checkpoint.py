"""``numapin checkpoint show|verify``: the saved state, and whether it can be believed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from numapin.cli.checkpoint_file import read_named
from numapin.cli.columns import Cells, Column, fit, lines
from numapin.cli.text import output_width, safe, wrapped
from numapin.model.checkpoint import Checkpoint, record_problems
from numapin.model.errors import CheckpointError, ExitStatus
from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_available, format_bytes
from numapin.state.codec import decode

DEFAULT_FILE = Path("/var/lib/numapin/state.json")


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Print or check one checkpoint file; never changes it.

    ``verify`` answers FAILURE with a sentence for each thing that is wrong.

    Raises:
        CheckpointError: ``show``: the file is missing, unreadable or damaged.
        NotPermitted: This user may not read it.
    """
    path = Path(args.file or DEFAULT_FILE)
    if args.action == "show":
        return _show(path, as_json=args.output == "json")
    return _verify(path, as_json=args.output == "json")


def _show(path: Path, *, as_json: bool) -> ExitStatus:
    data = read_named(path)
    checkpoint = decode(data, path)
    if as_json:
        sys.stdout.write(data.decode())  # the document itself: its checksum covers these very bytes
        return ExitStatus.OK
    for line in describe(checkpoint, path, output_width()):
        print(line)
    return ExitStatus.OK


def _verify(path: Path, *, as_json: bool) -> ExitStatus:
    problems: tuple[str, ...]
    try:
        checkpoint = decode(read_named(path), path)
    except CheckpointError as exc:
        problems = (exc.detail,)
    else:
        problems = inconsistencies(checkpoint)
    if as_json:
        from numapin.cli.json_output import print_json

        print_json("CheckpointVerification", {"file": str(path), "ok": not problems, "problems": list(problems)})
    elif problems:
        for problem in problems:
            print(wrapped(f"{path}: {safe(problem, limit=2000)}", output_width(), rest="  "))
    else:
        count = len(checkpoint.containers)
        print(f"{path}: OK, {count} container{'s' * (count != 1)} on {len(checkpoint.books.node_map.nodes)} nodes")
    return ExitStatus.FAILURE if problems else ExitStatus.OK


def inconsistencies(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Each rule between books and records that does not hold, each promise that does not fit, a sentence each."""
    from numapin.planner.accounting import check, misfits

    short = (f"entries[{owner}]: {sentence}" for owner, sentence in misfits(checkpoint.books).items())
    return (*check(checkpoint.books), *record_problems(checkpoint), *short)


_NODES = (
    Column("NODE"),
    Column("TYPE"),
    Column("TOTAL", goes=3),
    Column("SYSTEM", goes=2),
    Column("ALLOCATABLE", goes=5),
    Column("RESERVED"),
    Column("FREE"),
    Column("BLOCKS", goes=1),
    Column("GROUP", goes=4),
)
_PINS = (
    Column("CONTAINER"),
    Column("NODES"),
    Column("PHASE"),
    Column("RESERVED"),
    Column("RUNTIME", goes=2),
    Column("CGROUP", goes=1),
)


def describe(checkpoint: Checkpoint, path: Path, width: int) -> Iterator[str]:
    """
    The checkpoint for people: what it is, the NodeMap, who has what, who was refused; lines of *width* where words
    allow it.
    """
    saved = datetime.fromtimestamp(checkpoint.saved_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    head = f"{path}: saved {saved}, policy {safe(checkpoint.policy)}, boot {safe(checkpoint.boot_id) or 'unknown'}"
    yield wrapped(head, width, rest="  ")
    yield ""
    nodes = list(_nodes(checkpoint))
    yield from lines(fit(_NODES, nodes, width), nodes)
    yield ""
    if checkpoint.containers:
        pins = list(_pins(checkpoint))
        shown = fit(_PINS, pins, width)
        head, *rows = lines(shown, pins)
        yield head
        beside = any(column.name == "CGROUP" for column, _ in shown)
        for line, pin in zip(rows, pins, strict=True):
            yield line
            if not beside:
                yield f"    {pin['CGROUP']}"
    else:
        yield "no containers"
    for cgroup, record in sorted(checkpoint.refusals.items()):
        said = wrapped(f"{record.code}: {safe(record.message, limit=400)}", width, first="    ", rest="    ")
        yield "\n" + wrapped(f"refused: {safe(record.name)} ({safe(cgroup)})", width, rest="    ")
        yield said


def _nodes(checkpoint: Checkpoint) -> Iterator[Cells]:
    for node, state in checkpoint.books.node_map.nodes.items():
        group = str(state.cells) if len(state.cells) > 1 else "-"
        for memory_type in sorted(state.memory_map, key=_memory_first):
            table = state.memory_map[memory_type]
            yield {
                "NODE": str(node),
                "TYPE": memory_type,
                "TOTAL": format_bytes(table.total),
                "SYSTEM": format_bytes(table.system_reserved),
                "ALLOCATABLE": format_available(table.allocatable),
                "RESERVED": format_bytes(table.reserved),
                "FREE": format_available(table.free),
                "BLOCKS": str(state.number_of_assignments) if memory_type == MEMORY else "",
                "GROUP": group,
            }


def _pins(checkpoint: Checkpoint) -> Iterator[Cells]:
    for cgroup, record in sorted(checkpoint.containers.items()):
        blocks = checkpoint.books.assignments.get(record.owner, ())
        sums: dict[tuple[NodeSet, MemoryType], int] = {}
        for block in blocks:
            key = (block.affinity, block.type)
            sums[key] = sums.get(key, 0) + block.size_bytes
        parts: list[str] = []
        for (nodes, kind), size in sorted(sums.items(), key=lambda item: _memory_first(item[0][1])):
            beside = "" if nodes == record.nodes else f" on {nodes}"
            parts.append(format_bytes(size) + ("" if kind == MEMORY else f" {kind}") + beside)
        yield {
            "CONTAINER": safe(record.name or record.container_id[:12], limit=40),
            "NODES": str(record.nodes) or "-",
            "PHASE": record.phase.value + (" (ended)" if record.ended_ns is not None else ""),
            "RESERVED": ", ".join(parts) or "-",
            "RUNTIME": record.runtime.value,
            "CGROUP": safe(cgroup),
        }


def _memory_first(memory_type: MemoryType) -> tuple[bool, str]:
    return memory_type != MEMORY, memory_type

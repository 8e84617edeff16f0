"""``numapin checkpoint show|verify``: the saved state, and whether it can be believed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from numapin.cli.checkpoint_file import read_named
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
    for line in describe(checkpoint, path):
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


def describe(checkpoint: Checkpoint, path: Path) -> Iterator[str]:
    """The checkpoint for people: what it is, the NodeMap, who has what, who was refused."""
    saved = datetime.fromtimestamp(checkpoint.saved_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    yield f"{path}: saved {saved}, policy {safe(checkpoint.policy)}, boot {safe(checkpoint.boot_id) or 'unknown'}"
    yield ""
    yield from _columns(
        ("NODE", "TYPE", "TOTAL", "SYSTEM", "ALLOCATABLE", "RESERVED", "FREE", "BLOCKS", "GROUP"), _nodes(checkpoint)
    )
    yield ""
    if checkpoint.containers:
        yield from _columns(("CONTAINER", "NODES", "PHASE", "RESERVED", "RUNTIME", "CGROUP"), _pins(checkpoint))
    else:
        yield "no containers"
    for cgroup, record in sorted(checkpoint.refusals.items()):
        said = wrapped(f"{record.code}: {safe(record.message, limit=400)}", output_width(), first="    ", rest="    ")
        yield f"\nrefused: {safe(record.name)} ({safe(cgroup)})\n{said}"


def _nodes(checkpoint: Checkpoint) -> Iterator[tuple[str, ...]]:
    for node, state in checkpoint.books.node_map.nodes.items():
        group = str(state.cells) if len(state.cells) > 1 else "-"
        for memory_type in sorted(state.memory_map, key=_memory_first):
            table = state.memory_map[memory_type]
            total, system, reserved = map(format_bytes, (table.total, table.system_reserved, table.reserved))
            sizes = (total, system, format_available(table.allocatable), reserved, format_available(table.free))
            blocks = str(state.number_of_assignments) if memory_type == MEMORY else ""
            yield (str(node), memory_type, *sizes, blocks, group)


def _pins(checkpoint: Checkpoint) -> Iterator[tuple[str, ...]]:
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
        phase = record.phase.value + (" (ended)" if record.ended_ns is not None else "")
        yield (
            safe(record.name or record.container_id[:12], limit=40),
            str(record.nodes) or "-",
            phase,
            ", ".join(parts) or "-",
            record.runtime.value,
            safe(cgroup),
        )


def _memory_first(memory_type: MemoryType) -> tuple[bool, str]:
    return memory_type != MEMORY, memory_type


def _columns(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Left-aligned columns, as wide as their widest cell."""
    table = [tuple(head), *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

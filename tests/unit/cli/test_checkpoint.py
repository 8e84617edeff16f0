"""``numapin checkpoint show|verify`` as a user sees it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numapin.cli.checkpoint import run
from numapin.model.checkpoint import CHECKPOINT_VERSION, Checkpoint, Phase
from numapin.model.errors import (
    CheckpointCorrupt,
    CheckpointUnreadable,
    CheckpointWrongVersion,
    ExitStatus,
    NotPermitted,
)
from numapin.model.memory import MEMORY, Block, Books, Owner, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.accounting import reserve
from numapin.state.codec import encode
from support.checkpoints import GIB, WALL_NS, pin, sample
from support.privilege import public_directory, unprivileged


def arguments(action: str, file: Path | None, output: str = "table") -> argparse.Namespace:
    """The parsed command line."""
    return argparse.Namespace(action=action, file=file, output=output)


def written(directory: Path, checkpoint: Checkpoint) -> Path:
    """This checkpoint in a file."""
    path = directory / "state.json"
    path.write_bytes(encode(checkpoint))
    return path


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People see when it was saved, the NodeMap, every container with its nodes, and the refusals."""
    path = written(tmp_path, sample())
    assert run(arguments("show", path)) == ExitStatus.OK
    lines = capsys.readouterr().out.splitlines()

    assert lines[:7] == [
        f"{path}: saved 2026-01-01 00:00:00 UTC, policy restricted, boot 7d4d7a5e-8c0d-4a53-9d0e-0a7c6f0a9b11",
        "",
        "NODE  TYPE           TOTAL   SYSTEM  ALLOCATABLE  RESERVED  FREE   BLOCKS  GROUP",
        "0     memory         10 GiB  0       10 GiB       1 GiB     9 GiB  1       -",
        "0     hugepages-2Mi  1 GiB   0       1 GiB        0         1 GiB          -",
        "1     memory         10 GiB  0       10 GiB       1 GiB     9 GiB  1       -",
        "1     hugepages-2Mi  1 GiB   0       1 GiB        0         1 GiB          -",
    ]
    assert f"db-1       1      verified  1 GiB     docker   {pin(1).cgroup}" in lines
    assert lines[-2].startswith("refused: huge (/system.slice/docker-ffff")
    assert lines[-1] == "    no-room: needs 15 GiB; node 0 has 9 GiB free, node 1 10 GiB"


def test_a_refusal_folds(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal a refusal's sentence folds between words, below its head."""
    monkeypatch.setenv("COLUMNS", "50")
    run(arguments("show", written(tmp_path, sample())))

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "    no-room: needs 15 GiB; node 0 has 9 GiB free,",
        "    node 1 10 GiB",
    ]


@pytest.mark.parametrize(
    ("width", "head"), [(60, "NODE  TYPE           ALLOCATABLE  RESERVED  FREE   GROUP"), (80, "")]
)
def test_show_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, head: str
) -> None:
    """Columns go, and a cgroup stands below its container, before a line gets too wide; paths stay whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    run(arguments("show", written(tmp_path, sample())))
    lines = capsys.readouterr().out.splitlines()

    assert f"    {pin(1).cgroup}" in lines
    assert head in lines
    assert [] == [line for line in lines if len(line) > width and " " in line.strip()]


def test_show_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group is named at its nodes, and memory types that lie elsewhere than the pin say where."""
    checkpoint = sample(containers=0)
    record = replace(pin(5), nodes=NodeSet.of(0, 1), ended_ns=WALL_NS)
    blocks = (Block(NodeSet.of(0, 1), MEMORY, 15 * GIB), Block(NodeSet.of(0), hugepages(2 << 20), GIB))
    books = reserve(checkpoint.books, record.owner, blocks)
    run(arguments("show", written(tmp_path, replace(checkpoint, books=books, containers={record.cgroup: record}))))
    shown = capsys.readouterr().out

    assert "0-1\n" in shown
    assert "0-1    verified (ended)  15 GiB, 1 GiB hugepages-2Mi on 0" in shown


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in names and paths are shown as question marks, on one line."""
    evil = "a\x1b[2J\nrefused: b"
    record = replace(pin(5), name=evil, cgroup="/" + evil, phase=Phase.FOREIGN)
    checkpoint = replace(sample(containers=0), containers={record.cgroup: record}, policy=evil, refusals={})
    run(arguments("show", written(tmp_path, checkpoint)))
    shown = capsys.readouterr().out

    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("refused")]


def test_show_nothing_managed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint without containers says so."""
    run(arguments("show", written(tmp_path, replace(sample(containers=0), refusals={}))))

    assert capsys.readouterr().out.splitlines()[-1] == "no containers"


def test_show_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON output is the document itself, byte for byte."""
    path = written(tmp_path, sample())
    assert run(arguments("show", path, "json")) == ExitStatus.OK

    assert path.read_text() == capsys.readouterr().out


def test_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound checkpoint is OK."""
    path = written(tmp_path, sample(containers=1))
    assert run(arguments("verify", path)) == ExitStatus.OK

    assert capsys.readouterr().out == f"{path}: OK, 1 container on 2 nodes\n"


def test_verify_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON tells the verdict and every problem."""
    path = written(tmp_path, sample())
    run(arguments("verify", path, "json"))
    sound = json.loads(capsys.readouterr().out)
    path.write_bytes(b"{}")
    status = run(arguments("verify", path, "json"))
    damaged = json.loads(capsys.readouterr().out)

    assert (sound["kind"], sound["ok"], sound["problems"]) == ("CheckpointVerification", True, [])
    assert (damaged["ok"], len(damaged["problems"]), status) == (False, 1, ExitStatus.FAILURE)


def _lost(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, containers={})


def _arithmetic(checkpoint: Checkpoint) -> Checkpoint:
    nodes = dict(checkpoint.books.node_map.nodes)
    state = nodes[NodeId(0)]
    table = replace(state.memory_map[MEMORY], free=5)
    nodes[NodeId(0)] = replace(state, memory_map={**state.memory_map, MEMORY: table})
    return replace(
        checkpoint, books=replace(checkpoint.books, node_map=replace(checkpoint.books.node_map, nodes=nodes))
    )


def _unknown_node(checkpoint: Checkpoint) -> Checkpoint:
    owner = Owner("pod", "main")
    assignments = {**checkpoint.books.assignments, owner: (Block(NodeSet.of(9), MEMORY, GIB),)}
    return replace(checkpoint, books=Books(checkpoint.books.node_map, assignments))


@pytest.mark.parametrize(
    ("change", "part"),
    [(_lost, "no container has it"), (_arithmetic, "node 0"), (_unknown_node, "node 9")],
)
def test_verify_contradictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Checkpoint], Checkpoint], part: str
) -> None:
    """A whole file whose books or records contradict each other fails with sentences that name what."""
    path = written(tmp_path, change(sample()))
    status = run(arguments("verify", path))
    shown = capsys.readouterr().out

    assert status == ExitStatus.FAILURE
    assert part in shown
    assert all(line.startswith(f"{path}: ") for line in shown.splitlines())


def test_a_promise_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound file whose machine shrank below what is promised fails too, and names whose promise it is."""
    found = sample()
    nodes = found.books.node_map.nodes
    small = {
        n: replace(
            s, memory_map={k: replace(t, total=0, allocatable=0, free=-t.reserved) for k, t in s.memory_map.items()}
        )
        for n, s in nodes.items()
    }
    shrunk = replace(found, books=replace(found.books, node_map=replace(found.books.node_map, nodes=small)))

    status = run(arguments("verify", written(tmp_path, shrunk)))

    assert status == ExitStatus.FAILURE
    owner = next(iter(found.books.assignments))
    assert f"entries[{owner}]: node" in (shown := capsys.readouterr().out)
    assert "can promise 0" in shown


def test_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file is an error for show, and the finding of verify."""
    path = written(tmp_path, sample())
    path.write_bytes(path.read_bytes().replace(b"db-0", b"db-9"))
    with pytest.raises(CheckpointCorrupt, match="checksum"):
        run(arguments("show", path))
    status = run(arguments("verify", path))

    assert status == ExitStatus.FAILURE
    assert f"{path}: checksum: the file says " in capsys.readouterr().out


def test_other_version(tmp_path: Path) -> None:
    """A file of another version is told as such."""
    path = written(tmp_path, replace(sample(), version=CHECKPOINT_VERSION + 1))
    with pytest.raises(CheckpointWrongVersion):
        run(arguments("show", path))


def test_missing(tmp_path: Path) -> None:
    """A missing file is told with its path; verify does not take it for sound."""
    path = tmp_path / "state.json"
    with pytest.raises(CheckpointUnreadable, match="no such file"):
        run(arguments("show", path))
    assert run(arguments("verify", path)) == ExitStatus.FAILURE


def test_symbolic_link(tmp_path: Path) -> None:
    """A symbolic link is not followed."""
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path, sample()))
    with pytest.raises(CheckpointUnreadable, match="symbolic link"):
        run(arguments("show", link))


def test_not_permitted() -> None:
    """A user without rights is told to use sudo."""
    with public_directory() as directory:
        path = written(directory, sample())
        path.chmod(0)
        with unprivileged(), pytest.raises(NotPermitted, match="sudo"):
            run(arguments("show", path))

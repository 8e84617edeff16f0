"""The planner's kubelet against the recorded answers of the real one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from support.vectors import OURS, Json, out_of_scope, read_vectors, run

ALL = [vector for path in OURS for vector in read_vectors(path)]
IN_SCOPE = [vector for vector in ALL if not out_of_scope(vector)]
RUNNER = Path(__file__).parent / "run.py"


@pytest.mark.parametrize("vector", IN_SCOPE, ids=[vector["id"] for vector in IN_SCOPE])
def test_agrees_with_the_kubelet(vector: Json) -> None:
    """Replaying the scenario gives the kubelet's answers at every step."""
    difference = run(vector)

    assert difference is None, str(difference)


def test_none_is_left_out_by_accident() -> None:
    """All recorded vectors are there, and the number in scope is the known one."""
    assert (len(ALL), len(IN_SCOPE)) == (699, 578)


def test_every_tag_out_of_scope_is_explained() -> None:
    """Each tag that takes a vector out of scope has its line in the README."""
    text = (Path(__file__).parent / "README.md").read_text()
    tags = {reason for vector in ALL if (reason := out_of_scope(vector))}
    unexplained = {tag for tag in tags if f"`{tag}`" not in text and f"`{tag.split(':')[0]}:*`" not in text}

    assert set() == unexplained


@pytest.mark.parametrize(
    "step",
    [{"op": "checkpoint"}, {"op": "write_checkpoint", "content": "{"}, {"op": "restart", "nodes": []}],
    ids=lambda step: str(step["op"]),
)
def test_steps_that_are_not_ours(step: Json) -> None:
    """A vector without any tag is out of scope where a step is about the kubelet's file or another machine."""
    scenario = {"steps": [{"op": "gc"}, step]}

    assert out_of_scope({"tags": [], "scenario": scenario})
    assert out_of_scope({"tags": [], "scenario": {"steps": [], "memory_policy": "None"}})
    assert not out_of_scope({"tags": [], "scenario": {"steps": [{"op": "gc"}, {"op": "restart", "readmit": True}]}})


def test_what_is_allocatable() -> None:
    """It is compared in every vector that asks for it on a kubelet that started, and a difference is told."""
    asking = [
        vector
        for vector in ALL
        if vector["expected"]["start"]["ok"] and any("blocks" in step for step in vector["expected"].get("steps", ()))
    ]
    for vector in asking:
        assert run(vector) is None, vector["id"]
    assert len(asking) > 5
    changed = json.loads(json.dumps(asking[0]))
    next(step for step in changed["expected"]["steps"] if "blocks" in step)["blocks"].pop()

    assert str(run(changed)).startswith("step 2 allocatable: blocks: ")


def _large(nodes: int, kinds: list[str]) -> Json:
    """One pod on an empty machine of equal nodes: every set of them takes it, and one node is preferred."""
    size, pool = 1 << 30, 8 << 30
    pages = {str(page): pool // page for page in (2 << 20, 1 << 30)[: len(kinds) - 1]}
    machine = {"memory_bytes": pool * len(kinds), "hugepages": pages}
    table = {"total": pool, "systemReserved": 0, "allocatable": pool, "reserved": 0, "free": pool}
    tables = {**dict.fromkeys(kinds, table), "memory": {**table, "total": pool * len(kinds)}}
    start = {"numberOfAssignments": 0, "memoryMap": tables}
    sets = [",".join(map(str, s)) for count in range(1, nodes + 1) for s in combinations(range(nodes), count)]
    listed = [text if "," in text else f"{text}!" for text in sets]
    state = {
        "assignments": {"p": {"c": {kind: {"nodes": [0], "size": size} for kind in kinds}}},
        "machine_state": {
            str(n): {
                "assignments": 0 if n else len(kinds),
                "cells": [n],
                "reserved": dict.fromkeys(kinds, 0 if n else size),
                "free": dict.fromkeys(kinds, pool if n else pool - size),
            }
            for n in range(nodes)
        },
    }
    limits = {"cpu": 1, **dict.fromkeys(kinds, size)}
    return {
        "id": "large",
        "tags": [],
        "scenario": {
            "nodes": [{**machine, "id": n} for n in range(nodes)],
            "reserved": [],
            "topology": {"policy": "restricted", "options": {"max-allowable-numa-nodes": "64"}},
            "steps": [{"op": "admit", "pod": "p", "uid": "p", "containers": [{"name": "c", "limits": limits}]}],
        },
        "expected": {
            "start": {"ok": True, "machine_state": {str(n): {**start, "cells": [n]} for n in range(nodes)}},
            "steps": [
                {
                    "admitted": True,
                    "qos": "Guaranteed",
                    "hints": [{"container": "c", "hints": dict.fromkeys(kinds, listed)}],
                    "affinity": {"c": {"nodes": [0], "preferred": True}},
                    "cpuset_mems": {"c": "0"},
                    "state": state,
                }
            ],
        },
    }


@pytest.mark.parametrize(("nodes", "kinds"), [(10, 3), (11, 2), (17, 1)])
def test_many_nodes_are_replayed(nodes: int, kinds: int) -> None:
    """Hints are listed for the comparison also on machines where the answer does without."""
    difference = run(_large(nodes, ["memory", "hugepages-2Mi", "hugepages-1Gi"][:kinds]))

    assert difference is None, str(difference)


def _changed(vector: Json) -> Json:
    """The vector with the first admission's verdict turned round."""
    copy: Json = json.loads(json.dumps(vector))
    for step in copy["expected"]["steps"]:
        if step["op"] == "admit":
            step["admitted"] = not step["admitted"]
            break
    return copy


def _runner(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # the interpreter of this test run
        [sys.executable, str(RUNNER), *map(str, files)], capture_output=True, text=True, check=False, timeout=120
    )


def test_runner_reports_a_disagreement(tmp_path: Path) -> None:
    """A vector that says otherwise is named on its line, and the exit status is 1."""
    vector = next(v for v in IN_SCOPE if any(s["op"] == "admit" for s in v["scenario"]["steps"]))
    file = tmp_path / "changed.jsonl"
    file.write_text(json.dumps(vector) + "\n" + json.dumps(_changed(vector)) + "\n")

    done = _runner(file)

    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{vector['id']}: step 1 admit: admitted: expected ")
    assert last == "1 agree, 1 differ, 0 out of scope"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), ("", bytes)])
def test_runner_reads_compressed_files(tmp_path: Path, suffix: str, pack: type[bytes]) -> None:
    """Plain and compressed files are read by their suffix; a vector out of scope is only counted."""
    skipped = next(v for v in ALL if out_of_scope(v))
    file = tmp_path / f"some.jsonl{suffix}"
    file.write_bytes(pack(f"{json.dumps(IN_SCOPE[0])}\n{json.dumps(skipped)}\n".encode()))

    done = _runner(file)

    assert (done.returncode, done.stdout) == (0, "1 agree, 0 differ, 1 out of scope\n")


def test_runner_names_a_file_it_cannot_read(tmp_path: Path) -> None:
    """A missing file or one that is not JSON is named, with exit status 2 and no traceback."""
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{\n")

    for file in (tmp_path / "missing.jsonl", broken):
        done = _runner(file)

        assert done.returncode == 2
        assert done.stderr.startswith(f"{file}: cannot be read: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.jsonl.gz", gzip.compress(b"{}\n" * 100, mtime=0)[:-20]),
        ("cut.jsonl.xz", lzma.compress(b"{}\n" * 100)[:-20]),
        ("odd.jsonl.xz", b"nothing of that kind"),
        ("list.jsonl", b"[]\n"),
        ("null.jsonl", b"null\n"),
        ("tags.jsonl", b'{"tags": null}\n'),
    ],
)
def test_runner_takes_nothing_for_a_difference(tmp_path: Path, name: str, data: bytes) -> None:
    """A file that is cut short, or holds something else, cannot be read; that is another status than "differs"."""
    file = tmp_path / name
    file.write_bytes(data)
    done = _runner(file)

    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}: cannot be read: ")
    assert "Traceback" not in done.stderr

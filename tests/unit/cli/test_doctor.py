"""``numapin doctor`` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numapin.cli.main import main
from numapin.model.errors import ExitStatus
from support.cgroup_trees import CgroupTree
from support.machines import GIB, even, write_machine


def test_a_good_host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each thing, the sum at the end, exit 0; no line is wider than the terminal, but paths are whole."""
    monkeypatch.setenv("COLUMNS", "100")
    CgroupTree(write_machine(tmp_path, even(2, memory=10 * GIB)), nodes="0-1")
    status = main(["doctor", "--root", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()

    assert status == ExitStatus.OK
    assert "ok       nodes          online: 0-1; used: 0-1; 19 GiB can be promised" in lines
    assert lines[-1] == "Everything that numapin needs is here."
    assert [] == [line for line in lines if len(line) > 100 and str(tmp_path) not in line]


def test_a_pipe_does_not_fold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal each thing is one line, as in every other verb."""
    monkeypatch.delenv("COLUMNS", raising=False)
    CgroupTree(write_machine(tmp_path, even(2, memory=10 * GIB)), nodes="0-1")
    main(["doctor", "--root", str(tmp_path)])

    assert not any(line.startswith(" ") for line in capsys.readouterr().out.splitlines())


def test_a_host_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems make exit 1, and are the same in JSON."""
    status = main(["doctor", "--root", str(tmp_path)])
    said = capsys.readouterr().out
    again = main(["doctor", "--root", str(tmp_path), "-o", "json"])
    document = json.loads(capsys.readouterr().out)

    assert (status, again, document["ok"]) == (ExitStatus.FAILURE, ExitStatus.FAILURE, False)
    assert "PROBLEM  cgroups" in said
    assert said.endswith("2 problems: numapin cannot do its work, or part of it, until mended.\n")
    assert ["problem"] * 2 == [c["verdict"] for c in document["checks"] if c["name"] in ("nodes", "cgroups")]

"""``numapin containers``: from the daemon, and from a look at a tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.main import main
from numapin.kernel.cgroup_mounts import CgroupVersion
from support.answers import answering
from support.cgroup_trees import GIB, CgroupTree
from support.daemon import Host, cid, docker
from support.golden import DATA
from support.trees import write_tree


def test_a_running_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its list is printed in either form."""
    document = json.loads((DATA / "containers-v1.json").read_text())
    path = tmp_path / "api.sock"
    with answering(path, document) as asked:
        assert main(["containers", "-o", "json", "--socket", str(path)]) == 0
        assert json.loads(capsys.readouterr().out) == document
        assert main(["containers", "--socket", str(path)]) == 0

    assert asked == ["containers", "containers"]
    assert "shop/web-0/db" in capsys.readouterr().out


def test_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3 and a sentence that says how to start it."""
    assert main(["containers", "--socket", str(tmp_path / "none.sock")]) == 3
    assert "start it with: " in capsys.readouterr().err


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_look_at_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str], version: CgroupVersion) -> None:
    """With ``--root`` each container has class, rule and request, and nothing is decided or written."""
    host = Host(tmp_path, version=version)
    host.guaranteed(docker(1), 2)
    host.container(docker(2))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}

    assert main(["containers", "-o", "json", "--root", str(tmp_path)]) == 0
    rows: Any = json.loads(capsys.readouterr().out)["containers"]
    assert [(r["id"], r["qos"], r["rule"], r["state"]) for r in rows] == [
        (cid(1), "Guaranteed", "limits", "not-decided"),
        (cid(2), "BestEffort", "limits-none", "not-decided"),
    ]
    assert rows[0]["request"] == {"memory": 2 * GIB}
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}


def test_what_is_inside_a_container(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has a row with the state nested, and a sentence that names the container around it."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 2)
    host.guaranteed(f"{docker(1)}/docker/{'b' * 64}", 1)
    assert main(["containers", "--root", str(tmp_path)]) == 0
    told = capsys.readouterr().out

    assert [line.split()[-1] for line in told.splitlines() if line.startswith("bbbbbbbbbbbb")] == ["nested"]
    assert f"  bbbbbbbbbbbb: nested: runs inside ({cid(1)[:12]})" in " ".join(told.split("\n"))


def test_an_empty_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No container is a sentence, not an empty table."""
    CgroupTree(tmp_path)

    assert main(["containers", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No containers found.\n"


def test_no_cpuset_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tree without cpuset is told with what was looked at and what to do."""
    write_tree(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"})

    assert main(["containers", "--root", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "no cpuset controller under" in error
    assert "is cgroup v2 with controllers cpu memory" in error
    assert "systemd.unified_cgroup_hierarchy=1" in error


def test_a_wrong_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration below the root decides about classes; a wrong one is exit 6 with file and key."""
    CgroupTree(tmp_path)
    write_tree(tmp_path, {"etc/numapin/numapin.toml": "[qos]\nstandalone = 'maybe'\n"})

    assert main(["containers", "--root", str(tmp_path)]) == 6
    assert "numapin.toml: qos.standalone: " in capsys.readouterr().err

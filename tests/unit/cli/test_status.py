"""``numapin status``: from the daemon, from the checkpoint, and what it exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from numapin.cli.main import main
from support.answers import answering
from support.cgroup_trees import GIB
from support.daemon import Host, cid, docker
from support.golden import DATA
from support.machines import even

HEAVY = ("rich", "structlog", "psutil", "pyroute2", "inotify_simple", "jeepney")
RUNNING = json.loads((DATA / "status-v1.json").read_text()) | {"version": "9.9.9"}


def stopped_host(root: Path) -> Host:
    """A daemon ran here: one pinned container, one refused."""
    host = Host(root, nodes=even(2, memory=10 * GIB))
    host.guaranteed(docker(1), 8)
    host.guaranteed(docker(2), 25)
    host.start()
    host.stop()
    return host


def test_a_running_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its document is printed as it is with ``-o json`` and as tables without, exit 0."""
    path = tmp_path / "api.sock"
    with answering(path, RUNNING) as asked:
        assert main(["status", "-o", "json", "--socket", str(path)]) == 0
        assert json.loads(capsys.readouterr().out) == RUNNING
        assert main(["status", "--socket", str(path)]) == 0

    assert asked == ["status", "status"]
    assert "numapin 9.9.9 | policy restricted" in capsys.readouterr().out


def test_the_daemon_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkpoint is shown, said to be one, with exit 3; JSON too."""
    host = stopped_host(tmp_path)
    args = ["status", "--socket", str(tmp_path / "none.sock"), "--state", str(host.file.path)]

    assert main(args) == 3
    text = capsys.readouterr().out
    assert text.startswith("numapin is NOT RUNNING: no numapin daemon answers on ")
    assert "start it with: " in text
    assert f"What follows is the checkpoint {host.file.path}, saved" in text
    assert cid(2)[:12] in text
    assert main([*args, "-o", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["running"], document["checkpoint"]["found"]) == (False, True)
    assert [c["state"] for c in document["containers"]] == ["pinned", "refused"]


def test_down_without_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both facts are told, exit 3, and nothing is made on disk."""
    state = tmp_path / "state" / "state.json"
    args = ["status", "--socket", str(tmp_path / "none.sock"), "--state", str(state)]

    assert main(args) == 3
    assert f"There is no checkpoint {state} either." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "rubbish", "{}", "[" * 100_000])
def test_down_with_a_damaged_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Still exit 3, with the file and what is wrong with it; nothing is renamed by a look."""
    state = tmp_path / "state.json"
    state.write_text(text)
    args = ["status", "--socket", str(tmp_path / "none.sock"), "--state", str(state)]

    assert main(args) == 3
    out = capsys.readouterr().out
    assert f"Its checkpoint cannot be shown: checkpoint {state}: " in out
    assert "Traceback" not in out
    assert main([*args, "-o", "json"]) == 3
    assert str(state) in json.loads(capsys.readouterr().out)["checkpoint"]["error"]
    assert state.read_text() == text


def test_what_it_imports(tmp_path: Path) -> None:
    """The JSON form without a daemon needs none of the heavy libraries but msgspec."""
    host = stopped_host(tmp_path)
    code = (
        "import sys\nfrom numapin.cli.main import main\nmain(sys.argv[1:])\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    args = ["status", "-o", "json", "--socket", str(tmp_path / "none.sock"), "--state", str(host.file.path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, cwd=DATA.parents[1] / "agent"
    )

    assert done.stderr == "[]\n"

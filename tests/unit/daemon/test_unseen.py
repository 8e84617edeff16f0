"""What a user without root is told by a look at a machine whose runtimes' directories are closed to him."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.main import main
from numapin.daemon.doctor import Verdict, examine
from numapin.daemon.survey import found_containers
from numapin.daemon.unseen import closed_places, closed_sentence
from support.daemon import Host, docker
from support.privilege import public_directory, unprivileged
from support.trees import write_tree

DOCKER_TASKS = "/run/docker/containerd/daemon/io.containerd.runtime.v2.task"
STATE = "var/lib/numapin"


@pytest.fixture
def closed() -> Iterator[Path]:
    """A machine with one Guaranteed container, a checkpoint, and directories that only their owner may enter."""
    with public_directory() as root:
        host = Host(root)
        host.guaranteed(docker(1), 2)
        host.start()
        host.stop()
        write_tree(root, {f"{DOCKER_TASKS.lstrip('/')}/moby/x": "", "var/lib/docker/containers/x/y": ""})
        for path in ("run/docker/containerd", "var/lib/docker", STATE):
            (root / path).chmod(0o700)
        yield root


def test_the_closed_directories_are_named(closed: Path) -> None:
    """Those that exist and are closed, as the machine names them, and none to whoever owns them."""
    with unprivileged():
        found = closed_places(closed)

    assert found == (DOCKER_TASKS, "/var/lib/docker/containers")
    assert (closed_places(closed), closed_sentence(())) == ((), "")


def test_doctor_says_that_it_needs_root(closed: Path) -> None:
    """Closed directories and a closed checkpoint are notes, no errors, and no problems of the host."""
    with unprivileged():
        checks = examine(closed)
    notes = [c.sentence for c in checks if c.verdict is Verdict.NOTE]

    assert any(f"without root this cannot look into {DOCKER_TASKS}" in said for said in notes)
    assert f"{closed / STATE}/state.json cannot be read without root: run this with sudo" in notes
    assert {"runtimes", "checkpoint"}.isdisjoint(c.name for c in checks if c.verdict is Verdict.PROBLEM)


def test_containers_says_what_it_could_not_see(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line below the table, a list in JSON, and neither with root."""
    main(["containers", "--root", str(closed)])  # imports what is printed with, which a test's user may not read
    assert "without root" not in capsys.readouterr().out
    with unprivileged():
        status = main(["containers", "--root", str(closed)])
        document: Any = found_containers(closed)

    assert (status, document["unreadable"]) == (0, [DOCKER_TASKS, "/var/lib/docker/containers"])
    assert f"! without root this cannot look into {DOCKER_TASKS}, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["doctor", "--root", "ROOT"], {0, 1}),
        (["topology", "--root", "ROOT"], {0}),
        (["plan", "--root", "ROOT", "--memory", "1Gi"], {0}),
        (["status", "--socket", "ROOT/none.sock", "--state", f"ROOT/{STATE}/state.json"], {3}),
        (["checkpoint", "show", f"ROOT/{STATE}/state.json"], {4}),
        (["checkpoint", "verify", f"ROOT/{STATE}/state.json"], {4}),
        (["plan", "--checkpoint", f"ROOT/{STATE}/state.json", "--memory", "1Gi"], {4}),
        (["explain", "x", "--socket", "ROOT/none.sock", "--state", f"ROOT/{STATE}/state.json"], {3}),
    ],
)
def test_no_verb_fails_for_want_of_root(
    closed: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: set[int]
) -> None:
    """Each ends with its own exit status and a sentence; an internal error is no answer."""
    argv = [word.replace("ROOT", str(closed)) for word in words]
    main(argv)
    capsys.readouterr()
    with unprivileged():
        found = main(argv)
    said = capsys.readouterr()

    assert found in status, said.err
    assert "internal error" not in said.err
    assert "Traceback" not in said.err


def test_the_document_of_a_look_is_whole(tmp_path: Path) -> None:
    """Where nothing is closed the list is there and empty."""
    Host(tmp_path).guaranteed(docker(1), 1)

    assert json.loads(json.dumps(found_containers(tmp_path)))["unreadable"] == []

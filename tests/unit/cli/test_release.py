"""``numapin release``: who may, what is waited for, what is printed, and what it exits with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.main import main
from numapin.daemon.api import Peer
from numapin.model.errors import RequestFailed
from numapin.state.lock import state_lock
from support.answers import answering
from support.api import serving
from support.daemon import BOOT, Host, docker

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="releasing is for root")


def row(**changes: Any) -> dict[str, Any]:
    """One released container."""
    return {
        "id": "a" * 64,
        "name": "db",
        "cgroup": "/system.slice/docker-a.scope",
        "state": "released",
        "mems": "0-3",
        "pending": False,
        "problem": None,
        "message": "",
    } | changes


def document(*rows: dict[str, Any], everything: bool = True) -> dict[str, Any]:
    """A daemon's answer."""
    return {
        "apiVersion": "numapin/v1",
        "kind": "Release",
        "source": {"from": "daemon"},
        "all": everything,
        "pending": sum(r["pending"] for r in rows),
        "containers": list(rows),
    }


def test_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each container has its line, then the sum, then what follows from it; exit 0."""
    path = tmp_path / "api.sock"
    with answering(path, document(row(), row(name="gone", mems=None, message="it has ended"))):
        assert main(["release", "--all", "--socket", str(path)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "db (/system.slice/docker-a.scope): released, cpuset.mems is 0-3",
        "gone (/system.slice/docker-a.scope): released, its cgroup is gone; it has ended",
        "2 released",
        "Nothing is pinned any more until the daemon is started again.",
    ]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon's document as it is."""
    path = tmp_path / "api.sock"
    with answering(path, document(row())):
        assert main(["release", "--all", "-o", "json", "--socket", str(path)]) == 0

    assert document(row()) == json.loads(capsys.readouterr().out)


def test_a_problem_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could not be restored is named with its reason; exit 1."""
    path = tmp_path / "api.sock"
    with answering(path, document(row(), row(name="bad\x1b", problem="cannot write", state="pinned"))):
        assert main(["release", "--all", "--socket", str(path)]) == 1

    out = capsys.readouterr().out
    assert "bad? (/system.slice/docker-a.scope): NOT released: cannot write\n" in out
    assert "1 released, 1 not released\n" in out


def test_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While something is pending it asks for a report, of the very container that was meant, until all is done."""
    asked: list[Mapping[str, object]] = []

    def daemon(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        assert (verb, peer.is_root) == ("release", True)
        asked.append(params)
        return document(row(pending=len(asked) < 3), everything=False)

    path = tmp_path / "api.sock"
    with serving(path, daemon):
        assert main(["release", "db", "--socket", str(path)]) == 0

    again = {"container": "/system.slice/docker-a.scope", "report": True}
    assert [{"container": "db"}, again, again] == asked
    assert capsys.readouterr().out.endswith(
        "1 released\nIt is decided again when it or the daemon is started again.\n"
    )


def test_what_it_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A report has those of earlier releases too, which are not counted again; one that ended on the way is told as it
    is.
    """
    ends, stays, old = "/docker/a", "/docker/b", "/docker/c"

    def daemon(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        if "report" in params:
            return document(row(cgroup=stays), row(cgroup=old))
        return document(row(cgroup=ends, pending=True), row(cgroup=stays, pending=True))

    path = tmp_path / "api.sock"
    with serving(path, daemon):
        assert main(["release", "--all", "--socket", str(path)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"db ({stays}): released, cpuset.mems is 0-3",
        f"db ({ends}): released, its cgroup is gone; it has ended",
        "2 released",
        "Nothing is pinned any more until the daemon is started again.",
    ]


@pytest.mark.parametrize("again", [False, True])
def test_one_that_ends_or_comes_again_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    """While it is put back it ends, which is a release; or it is started again, and is not called released."""

    def daemon(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        if "report" not in params:
            return document(row(pending=True), everything=False)
        if again:
            return document(row(state="pinned", mems="0"), everything=False)
        raise RequestFailed("unknown-container", "no container is known")

    path = tmp_path / "api.sock"
    with serving(path, daemon):
        assert main(["release", "db", "--socket", str(path)]) == 0

    out = capsys.readouterr().out.splitlines()
    where = "db (/system.slice/docker-a.scope)"
    if again:
        assert out[:2] == [
            f"{where}: was started again meanwhile, and is decided anew: pinned",
            "0 released, 1 started again meanwhile",
        ]
    else:
        assert out == [f"{where}: released, its cgroup is gone; it has ended", "1 released"]


def test_the_daemon_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sentence and its exit status are passed on."""

    def daemon(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        raise RequestFailed("nothing-to-release", "db has no promise of numapin's")

    path = tmp_path / "api.sock"
    with serving(path, daemon):
        assert main(["release", "db", "--socket", str(path)]) == 1

    assert capsys.readouterr().err == "numapin: db has no promise of numapin's\n"


@pytest.mark.parametrize("words", [[], ["db", "--all"]])
def test_one_or_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither and both are usage errors."""
    assert main(["release", *words]) == 2
    assert capsys.readouterr().err


def test_one_needs_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the daemon down a single container is not released: the next start would pin it again; exit 3."""
    assert main(["release", "db", "--socket", str(tmp_path / "api.sock")]) == 3
    assert "start it with: " in capsys.readouterr().err


def test_all_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkpoint is enough; the output says that it was, and exit is 0."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 15, effective="0-1")
    host.start()
    host.stop()
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    where = ["--root", str(tmp_path), "--state", str(host.file.path), "--socket", str(tmp_path / "run/api.sock")]

    assert main(["release", "--all", *where]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("no numapin daemon answers on ")
    assert out[1:] == [
        f"Releasing from the checkpoint {host.file.path}.",
        f"{'0' * 63}1 ({path}): released, cpuset.mems is 0-3",
        "1 released",
    ]
    assert host.mems(path) == "0-3"
    assert main(["release", "--all", *where]) == 0
    assert "0 released" in capsys.readouterr().out


def test_nothing_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No daemon and no checkpoint: there is nothing of ours, which is said, exit 0."""
    state = tmp_path / "state.json"
    socket = tmp_path / "run/api.sock"

    assert main(["release", "--all", "--state", str(state), "--socket", str(socket), "--root", str(tmp_path)]) == 0
    assert f"Releasing from the checkpoint {state}, and there is none.\n0 released\n" in capsys.readouterr().out


def configured(root: Path, text: str) -> None:
    """The configuration of the machine below *root*."""
    (root / "etc/numapin").mkdir(parents=True)
    (root / "etc/numapin/numapin.toml").write_text(text)


def test_the_configured_socket_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that was given another socket is found without being told, and no checkpoint is touched beside it."""
    configured(tmp_path, 'socket = "/run/other/api.sock"\n')
    (tmp_path / "run/other").mkdir(parents=True)
    with answering(tmp_path / "run/other/api.sock", document(row())):
        assert main(["release", "--all", "--root", str(tmp_path)]) == 0

    assert "db (/system.slice/docker-a.scope): released" in capsys.readouterr().out


def test_a_named_socket_is_the_only_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--socket`` is believed, also where it names the usual place: no other daemon is asked instead."""
    configured(tmp_path, 'socket = "/run/other/api.sock"\n')
    (tmp_path / "run/other").mkdir(parents=True)
    usual = str(tmp_path / "run/numapin/api.sock")
    with answering(tmp_path / "run/other/api.sock", document(row())):
        assert main(["release", "db", "--root", str(tmp_path), "--socket", usual]) == 3
        assert usual in capsys.readouterr().err
        assert main(["release", "db", "--root", str(tmp_path)]) == 0


def test_below_a_root_this_machine_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--root`` socket and checkpoint are those below it, in the state directory that is configured there."""
    configured(tmp_path, 'state_dir = "/srv/numapin"\n')
    assert main(["release", "--all", "--root", str(tmp_path), "-o", "json"]) == 0
    source = json.loads(capsys.readouterr().out)["source"]

    assert source["path"] == str(tmp_path / "srv/numapin/state.json")
    assert str(tmp_path / "run/numapin/api.sock") in source["why"]
    assert source["found"] is False


def test_a_checkpoint_that_is_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a living daemon whose socket nobody knows, release says who holds the state and changes nothing."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 4)
    host.start()
    host.stop()
    before = host.file.path.read_bytes()
    with state_lock(host.file.path.parent):
        assert main(["release", "--all", "--root", str(tmp_path), "--state", str(host.file.path)]) == 1

    assert "numapin is already running" in capsys.readouterr().err
    assert host.file.path.read_bytes() == before
    assert host.mems(docker(1)) == "0"

"""``numapin explain`` from the command line: the daemon, the checkpoint, codes, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from numapin.cli.codes import CODES
from numapin.cli.main import main
from numapin.cli.render_explain import SHOWN_NODES, render_explanation
from numapin.daemon.api import Peer
from numapin.daemon.explain import Known, decision_part, explain_document
from numapin.daemon.status import container_row
from numapin.model.errors import ExitStatus
from numapin.model.memory import MEMORY, Owner
from numapin.model.plan import Request, Rules
from numapin.planner.placement import place
from support.api import serving
from support.daemon import Host
from support.explained import situations
from support.strategies import empty_books


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The machine of the manual's examples."""
    host = situations(tmp_path_factory.mktemp("host"))
    yield host
    host.stop()


@pytest.fixture
def socket(host: Host, tmp_path: Path) -> Iterator[str]:
    """A daemon that answers for it."""

    def handler(verb: str, params: Mapping[str, object], peer: Peer) -> object:
        assert verb == "explain"
        rows = [container_row(view) for view in host.agent.views.values()]
        known = Known(rows, host.agent.ledger.pins, host.agent.ledger.refusals)
        return explain_document(known, params.get("container"), {"from": "daemon"})

    with serving(tmp_path / "api.sock", handler):
        yield str(tmp_path / "api.sock")


def test_from_the_daemon(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences for people, the document as JSON, exit 0."""
    assert main(["explain", "reports", "--socket", socket]) == 0
    assert "The kubelet would say UnexpectedAdmissionError; numapin's code is no-room." in capsys.readouterr().out
    assert main(["explain", "reports", "--socket", socket, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["refusal"]["code"]) == ("Explanation", "no-room")


def test_exit_codes(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is exit 1, several are exit 2 and a list."""
    assert main(["explain", "nobody", "--socket", socket]) == ExitStatus.FAILURE
    assert main(["explain", "6", "--socket", socket]) == ExitStatus.USAGE
    assert "'6' means 3 containers" in capsys.readouterr().err
    assert main(["explain", "--socket", socket]) == ExitStatus.USAGE


def test_from_the_checkpoint(host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the daemon down it says so, exit 3; so is somebody it does not know."""
    down = ["--socket", str(tmp_path / "no.sock"), "--state", str(host.file.path)]

    assert main(["explain", "orders-db", *down]) == ExitStatus.NOT_RUNNING
    out = capsys.readouterr().out
    assert out.startswith("numapin is NOT RUNNING: no numapin daemon answers")
    assert "Node 0 was chosen: among sets of as few nodes" in out
    assert main(["explain", "web", *down]) == ExitStatus.NOT_RUNNING
    assert "holds only those with a promise or a refusal" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "says"), [(None, "there is no checkpoint"), ("{}", "checksum")])
def test_nobody_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, says: str) -> None:
    """Without a daemon and a checkpoint to believe both are told, exit 3."""
    state = tmp_path / "state.json"
    if text is not None:
        state.write_text(text)
    status = main(["explain", "web", "--socket", str(tmp_path / "no.sock"), "--state", str(state)])
    said = capsys.readouterr().err

    assert status == ExitStatus.NOT_RUNNING
    assert "no numapin daemon answers" in said
    assert says in said


def test_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A code is explained without any daemon, for people and as JSON."""
    nowhere = ["--socket", "/nonexistent/api.sock"]

    assert main(["explain", "no-room", *nowhere]) == 0
    assert capsys.readouterr().out == f"no-room: {CODES['no-room']}\n"
    assert main(["explain", "no-room", "-o", "json", *nowhere]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == CODES["no-room"]


def test_many_nodes_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """On 64 nodes the table has the chosen ones and those with most to offer, and says how many are left out."""
    books = empty_books({n: {MEMORY: 100 + n} for n in range(64)})
    answer = place(books, Request(Owner("p", "c"), {MEMORY: 6_000}), Rules())
    row = {"id": "c", "name": "c", "cgroup": "/c", "runtime": "runc", "qos": "Guaranteed", "state": "pinned",
           "request": {}, "nodes": [], "message": ""}  # fmt: skip
    render_explanation(
        {"source": {"from": "daemon"}, "container": row, "sentences": [], "remedies": [],
         "decision": decision_part(answer.explanation)}
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()

    assert lines[-1] == f"  and {64 - SHOWN_NODES} more nodes (-o json has them all)"
    assert len([line for line in lines if " memory " in line]) == SHOWN_NODES


def test_a_mistyped_code(host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is nearly a code is answered with the code; what is far from any is not."""
    down = ["--socket", str(tmp_path / "no.sock"), "--state", str(host.file.path)]
    main(["explain", "no-romm", *down])
    near = capsys.readouterr().err
    main(["explain", "webshop", *down])

    assert near.strip().endswith("; did you mean the code no-room?")
    assert "did you mean" not in capsys.readouterr().err

"""Tables of status and containers: golden at two widths, and names that try to break them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from numapin.cli.render_status import NOT_IN_A_CHECKPOINT, render_containers, render_status
from numapin.daemon.undo import ONE_RELEASED
from numapin.model.age import format_age
from support.golden import DATA, golden

HOSTILE = "[bold red]x[/] \x1b[2J\x1b]0;title\x07\r\n\u202etxet\u2028 :skull: {0} %s " + "A" * 300


def status() -> Any:
    """The golden status of a daemon that runs."""
    return json.loads((DATA / "status-v1.json").read_text()) | {"version": "9.9.9"}


def containers() -> Any:
    """The golden list."""
    return json.loads((DATA / "containers-v1.json").read_text())


def stopped() -> Any:
    """What `offline_status` makes of a checkpoint of the same host."""
    document = status()
    keep = ("apiVersion", "kind", "nodes", "groups", "containers", "policy", "boot_id")
    state = {"path": "/var/lib/numapin/state.json", "error": None, "found": True}
    more = {"running": False, "why": "no numapin daemon answers", "findings": [], "saved_seconds_ago": 4000}
    document["nodes"] = [node | {"available_bytes": None} for node in document["nodes"]]
    return {k: document[k] for k in keep} | more | {"checkpoint": state}


def shown(render: Callable[[Any], None], document: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed, without blanks at line ends."""
    render(document)
    return "".join(line.rstrip() + "\n" for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize(
    ("name", "render", "document"),
    [
        ("status", render_status, status),
        ("stopped", render_status, stopped),
        ("containers", render_containers, containers),
    ],
)
def test_tables(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    name: str,
    render: Callable[[Any], None],
    document: Callable[[], Any],
) -> None:
    """The whole output at each width is the golden one, and no line is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(width))

    text = shown(render, document(), capsys)

    assert golden(f"render/{name}-{width}.txt", text) == text
    assert [] == [line for line in text.splitlines() if len(line) > width and " " in line.strip()]


@pytest.mark.parametrize("width", [60, 80, 100, 115])
def test_no_word_breaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """With sizes as long as they get, heads, sizes and kinds stay whole: columns go, and no line is too wide."""
    monkeypatch.setenv("COLUMNS", str(width))
    document = status()
    size, name = (1007 << 20) + 1, "customer-database-primary"
    for node in document["nodes"][:4]:
        for memory in node["memory_map"].values():
            memory.update(dict.fromkeys(("total", "system_reserved", "allocatable", "reserved"), size), free=-size)
    document["containers"][1] |= {"name": name, "request": {"memory": size}}

    text = shown(render_status, document, capsys)
    lines = text.splitlines()
    (head,) = [line.split() for line in lines if line.startswith("NODE")]

    assert {"NODE", "MEMORY", "TYPE", "ALLOCATABLE", "RESERVED", "FREE", "USE"} - set(head) <= {"ALLOCATABLE"}
    assert text.count("hugepages-2Mi") == 5
    assert text.count("-1007 MiB") == 8
    assert (name in text, "GROUP" in head, "SYSTEM" in head) == (width >= 80, width >= 80, width >= 100)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("field", ["id", "name", "pod_name", "message", "cgroup", "runtime", "rule", "state"])
def test_hostile_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, field: str
) -> None:
    """Escapes, markup, line ends, direction marks and very long names of a container steer nothing."""
    monkeypatch.setenv("COLUMNS", str(width))
    for render, document in ((render_status, status()), (render_containers, containers())):
        for row in document["containers"]:
            row[field] = HOSTILE

        text = shown(render, document, capsys)

        assert not any(c in text for c in "\x1b\x07\r\u202e\u2028")
        assert all(c.isprintable() or c == "\n" for c in text)
        assert [] == [line for line in text.splitlines() if len(line) > width and " " in line.strip()]


def test_sentences_fold_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal every sentence folds, a path in it stays whole, and what follows is indented below its head."""
    monkeypatch.setenv("COLUMNS", "40")
    path = "/sys/fs/cgroup/" + "x" * 60
    document = status()
    document["containers"] = [document["containers"][0] | {"message": f"somebody else writes {path} again and again"}]
    document["findings"] = [{"code": "out-of-reach", "message": f"{path} cannot be written"}]

    lines = shown(render_status, document, capsys).splitlines()

    assert lines.count(f"    {path}") == 1
    assert lines[-3:] == ["! out-of-reach:", f"  {path}", "  cannot be written"]


def test_a_released_one_is_said_to_be_that_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The state and the message do not both say it."""
    row = status()["containers"][0] | {"state": "released", "message": ONE_RELEASED}

    for render in (render_status, render_containers):
        text = shown(render, status() | {"containers": [row]}, capsys)

        assert "released: it is decided again when it or the daemon is started again" in text
        assert "by hand" not in text


def test_hostile_findings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences that quote a container's metadata, names of what is held and errors are tamed too."""
    monkeypatch.setenv("COLUMNS", "120")
    document = status()
    document["findings"] = [{"code": "x", "message": HOSTILE}]
    document["held"][0]["name"] = HOSTILE
    down = stopped()
    down["why"] = HOSTILE
    down["checkpoint"] = {"path": HOSTILE, "error": HOSTILE, "found": False}
    rows = containers()
    rows["containers"][0]["findings"] = [HOSTILE]

    text = "".join(
        shown(render, found, capsys)
        for render, found in ((render_status, document), (render_status, down), (render_containers, rows))
    )

    assert all(c.isprintable() or c == "\n" for c in text)


def test_nothing_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal the numbers fold at worst; each is there once the blanks are taken out."""
    monkeypatch.setenv("COLUMNS", "80")

    text = shown(render_status, status(), capsys)

    for word in ("9 GiB", "1 GiB", "15 GiB", "REFUSED", "pinned-by-others", "1-2"):
        assert word in text


def test_a_terminal_without_unicode(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Output to a file carries no colour and no cursor codes at any width."""
    monkeypatch.delenv("COLUMNS", raising=False)

    text = shown(render_status, status(), capsys)

    assert "\x1b" not in text
    assert "numapin 9.9.9 | policy restricted, container scope | cgroup v2 | up 1 h 2 min" in text


def test_no_containers(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty host says so in a sentence."""
    document = status() | {"containers": [], "held": [], "groups": [], "counts": {"Guaranteed": 0}}

    assert "No Guaranteed container." in shown(render_status, document, capsys)
    assert shown(render_containers, {"containers": []}, capsys) == "No containers found.\n"


def test_a_node_that_lost_its_memory(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised from it stays in sight, a group's member too; one without memory and promises has no row."""
    monkeypatch.setenv("COLUMNS", "140")
    nothing = {"total": 0, "system_reserved": 0, "allocatable": 0, "reserved": 0, "free": 0}
    one = {"kind": "memoryless", "used": True, "cells": [7], "assignments": 1}
    alone = one | {"id": 7, "memory_map": {"memory": nothing | {"reserved": 2 << 30, "free": -2 << 30}}}
    member = one | {"id": 8, "cells": [3, 8], "memory_map": {"memory": nothing, "hugepages-2Mi": nothing}}
    empty = one | {"id": 9, "cells": [9], "assignments": 0, "memory_map": {"memory": nothing}}

    text = shown(render_status, status() | {"nodes": [alone, member, empty]}, capsys)

    rows = [line.split() for line in text.splitlines() if line[:1] in "789" and line]
    assert rows == [
        ["7", "memory", "0", "0", "0", "2", "GiB", "-2", "GiB", "lost"],
        ["8", "memory", "0", "0", "0", "0", "0", "lost", "3,8"],
    ]


def test_a_dry_run_and_no_pass_yet(capsys: pytest.CaptureFixture[str]) -> None:
    """Both are said at the top."""
    text = shown(render_status, status() | {"dry_run": True, "last_full_pass_seconds_ago": None}, capsys)

    assert "DRY RUN" in text
    assert "no full pass yet" in text


def test_what_a_checkpoint_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a daemon it is said that released containers are missing and names may be old; with one it is not."""
    assert NOT_IN_A_CHECKPOINT in shown(render_status, stopped(), capsys)
    assert NOT_IN_A_CHECKPOINT not in shown(render_status, status(), capsys)


def test_since_the_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened stands below the summary, folded and tamed; a daemon that says nothing of it has no such line."""
    monkeypatch.setenv("COLUMNS", "60")
    document = status()
    document["since_start"]["promises"] = {"taken_over": 2, "waiting": 0, "given_back": [HOSTILE]}

    lines = shown(render_status, document, capsys).splitlines()

    assert lines[4].startswith("Since the start (1 h 2 min ago): 2 promises taken over, 1")
    assert all(line.isprintable() for line in lines)
    del document["since_start"]
    assert "Since the start" not in shown(render_status, document, capsys)


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    """Without daemon and checkpoint there are two sentences; with a damaged one its error."""
    document = stopped()
    document["checkpoint"] = {"path": "/s.json", "error": None, "found": False}
    damaged = copy.deepcopy(document)
    damaged["checkpoint"]["error"] = "checkpoint /s.json: not JSON"

    assert "There is no checkpoint /s.json either." in shown(render_status, document, capsys)
    assert "Its checkpoint cannot be shown: checkpoint /s.json: not JSON" in shown(render_status, damaged, capsys)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (11520, "3 h 12 min")],
)
def test_ages(seconds: int, text: str) -> None:
    """Two units at most."""
    assert format_age(seconds) == text

"""``explain``: which container is meant, what is said in each situation, and the same from the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.explain import Known, decision_part, explain_document, find_container, offline_explanation
from numapin.model.errors import CheckpointCorrupt, ExitStatus, RequestFailed
from support.checker import verdict, without_verdict
from support.daemon import Host, cid, cri
from support.explained import IN_POD, MANUAL, NAMES, examples, explained, manual_part, parts, situations
from support.fakes import FakeClock

DAEMON = {"from": "daemon"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The machine of the manual's examples."""
    host = situations(tmp_path_factory.mktemp("host"))
    yield host
    host.stop()


def row(number: int, name: str, **more: Any) -> dict[str, Any]:
    """A container as the daemon lists it."""
    cgroup = f"/system.slice/docker-{cid(number)}.scope"
    return {"id": cid(number), "name": name, "cgroup": cgroup, "pod_name": None, "pod_uid": None, **more}


# ---- what is said ------------------------------------------------------------------------------------------------


def test_the_manual_shows_what_is_said(tmp_path: Path) -> None:
    """The ten examples in numapin(8) are what the code says today (python -m support.explained writes them)."""
    said = examples(tmp_path)
    _, within, _ = parts(MANUAL.read_text())

    assert len(said) == 10
    assert within == manual_part(said)


def test_each_situation_has_its_state(host: Host) -> None:
    """The examples show each state that a daemon gives for long."""
    states = {name: explained(host, name)["container"]["state"] for name in (*NAMES, IN_POD)}

    assert states == {
        "orders-db": "pinned",
        "search-index": "pinned",
        "reports": "refused",
        "packets": "refused",
        "analytics": "deferred",
        "cache": "failed",
        "legacy": "pinned-by-others",
        "scratch": "unpinned",
        "web": "not-managed",
        "web-0/api": "not-managed",
    }


def test_keys_are_stable(host: Host) -> None:
    """The document has the same keys whatever became of the container, and is plain JSON."""
    for name in NAMES:
        document = explained(host, name)
        told = json.loads(json.dumps(document))

        assert told == document
        assert set(document) == {
            "apiVersion", "kind", "source", "container", "sentences", "remedies", "refusal", "decision",
        }  # fmt: skip


def test_what_the_agent_decided_can_be_checked(host: Host) -> None:
    """The records of real decisions give their verdicts to the independent checker."""
    for name in ("orders-db", "search-index", "reports", "packets", "analytics"):
        decision = json.loads(json.dumps(explained(host, name)["decision"]))

        assert decision["chosen"] == verdict(without_verdict(decision)), name


def test_an_ended_container_of_a_living_pod(tmp_path: Path) -> None:
    """What waits for the pod's next container is explained although the container is gone."""
    host = Host(tmp_path)
    host.guaranteed(cri(1), 2)
    host.start()
    host.wait_for_writes()
    host.remove(cri(1))
    host.agent.on_removed([cri(1)])
    document = explained(host, cri(1))
    host.stop()

    assert document["container"]["state"] == "ended"
    assert document["sentences"][0] == "Ended; its memory on node 0 waits for the next container of its pod."
    assert document["decision"]["chosen"] == [0]


# ---- which container ---------------------------------------------------------------------------------------------

ROWS = [
    row(0xA1 << 248, "db"),
    row(0xA2 << 248, "web"),
    row(0xB1 << 248, "api", pod_name="shop/web-0", pod_uid="uid-1"),
    row(0xB2 << 248, "api", pod_name="shop/web-1", pod_uid="uid-2"),
    row(0xC1 << 248, "a1"),
]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (ROWS[0]["id"], 0),
        ("a10", 0),
        ("db", 0),
        ("a1", 4),  # the name, although an id begins so too
        ("shop/web-0/api", 2),
        ("web-1/api", 3),
        ("uid-1/api", 2),
        (ROWS[1]["cgroup"], 1),
        ("/sys/fs/cgroup" + ROWS[1]["cgroup"] + "/", 1),
        ("  db ", 0),
    ],
)
def test_ways_to_say_which(wanted: str, index: int) -> None:
    """A cgroup, an id, a name in a pod, a name, and the beginning of an id find their container."""
    assert ROWS[index] == find_container(ROWS, wanted, DAEMON)


@pytest.mark.parametrize(("wanted", "count"), [("api", 2), ("a", 2), ("b", 2)])
def test_ambiguous(wanted: str, count: int) -> None:
    """Several matches are listed with id, name and cgroup, and that is a usage error."""
    with pytest.raises(RequestFailed) as raised:
        find_container(ROWS, wanted, DAEMON)

    head, *lines = str(raised.value).splitlines()
    assert (raised.value.code, raised.value.exit_status) == ("ambiguous", ExitStatus.USAGE)
    assert head == f"'{wanted}' means {count} containers; say which by its id or cgroup:"
    assert len(lines) == count
    assert all(line.split()[-1].startswith("/system.slice/docker-") for line in lines)


def test_a_long_list_is_cut() -> None:
    """A hundred matches do not fill the terminal."""
    with pytest.raises(RequestFailed) as raised:
        find_container([row(n, "x") for n in range(1, 101)], "x", DAEMON)

    assert str(raised.value).splitlines()[-1] == "  and 80 more"


def test_unknown() -> None:
    """Nobody of that name is exit 1 and says where to look, on one line whatever was typed."""
    with pytest.raises(RequestFailed) as raised:
        find_container(ROWS, "no\nbody\x1b[2J", DAEMON)

    assert (raised.value.code, raised.value.exit_status) == ("unknown-container", ExitStatus.FAILURE)
    assert str(raised.value) == (
        "no container 'no?body?[2J' is known; numapin containers lists them all with their ids, and numapin explain "
        "CODE takes a code"
    )


@pytest.mark.parametrize("wanted", [None, 3, "", "  ", ["db"]])
def test_no_text(wanted: object) -> None:
    """A request that names nothing is a usage error."""
    with pytest.raises(RequestFailed) as raised:
        explain_document(Known(ROWS), wanted, DAEMON)

    assert raised.value.exit_status == ExitStatus.USAGE


# ---- without a daemon ----------------------------------------------------------------------------------------------


def test_from_the_checkpoint(host: Host) -> None:
    """With the daemon down the saved records say the same, and where it comes from."""
    for name in ("orders-db", "search-index", "reports", "packets", "analytics", "legacy"):
        live = explained(host, name)
        saved: dict[str, Any] = offline_explanation(host.file.path, "nobody answers", FakeClock(), name)

        assert live["decision"] == saved["decision"]
        assert live["refusal"] == saved["refusal"]
        assert live["container"]["state"] == saved["container"]["state"]
        assert saved["source"] == {
            "from": "checkpoint", "path": str(host.file.path), "why": "nobody answers", "saved_seconds_ago": 0,
        }  # fmt: skip


def test_not_in_the_checkpoint(host: Host, tmp_path: Path) -> None:
    """A container without promise or refusal is not in it, and without a file nothing is known."""
    with pytest.raises(RequestFailed, match="holds only those with a promise or a refusal \\(nobody answers\\)"):
        offline_explanation(host.file.path, "nobody answers", FakeClock(), "web")
    with pytest.raises(RequestFailed, match="nobody answers, and there is no checkpoint"):
        offline_explanation(tmp_path / "state.json", "nobody answers", FakeClock(), "web")


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    """What cannot be believed is not explained from."""
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(CheckpointCorrupt):
        offline_explanation(tmp_path / "state.json", "nobody answers", FakeClock(), "web")


def test_the_record_survives_the_file(host: Host) -> None:
    """Everything that the verdict depends on is in the checkpoint: the records are equal before and after."""
    saved = host.saved()
    ledger = host.agent.ledger

    assert ledger.refusals == saved.refusals
    for cgroup, pin in ledger.pins.items():
        before, after = pin.explanation, saved.containers[cgroup].explanation

        assert (before is None) is (after is None)
        if before is not None and after is not None:
            assert decision_part(before) == decision_part(after)

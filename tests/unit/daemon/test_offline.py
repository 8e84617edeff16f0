"""The status without a daemon: what the checkpoint says, and what is said when it says nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from numapin.daemon.offline import offline_status
from numapin.daemon.status import container_row
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import CHECKPOINT_VERSION
from numapin.state.codec import encode
from support.cgroup_trees import GIB
from support.daemon import Host, cid, docker
from support.machines import even


def document(path: Path, clock: Clock) -> Any:
    """The document, to be looked into."""
    return offline_status(path, "no daemon answers", clock)


def served(root: Path) -> Host:
    """A host whose daemon stopped: a pinned, a refused and somebody else's container."""
    host = Host(root, nodes=even(3, memory=10 * GIB))
    host.guaranteed(docker(1), 8)
    host.guaranteed(docker(2), 12)
    host.guaranteed(docker(3), 5, mems="1,2", effective="1-2")
    host.start()
    host.stop()
    return host


def test_what_was_saved(tmp_path: Path) -> None:
    """Nodes, groups, containers with states and requests as last saved, and how old that is."""
    host = served(tmp_path)
    host.clock.advance(seconds=90)

    found = document(host.file.path, host.clock)

    assert (found["running"], found["why"]) == (False, "no daemon answers")
    assert found["saved_seconds_ago"] == 90
    assert [(r["id"], r["state"], r["nodes"]) for r in found["containers"]] == [
        (cid(1), "pinned", [0]),
        (cid(2), "refused", []),
        (cid(3), "pinned-by-others", [1, 2]),
    ]
    assert [r["runtime"] for r in found["containers"]] == ["docker"] * 3
    assert [n["memory_map"]["memory"]["reserved"] for n in found["nodes"]] == [8 * GIB, 5 * GIB, 0]
    assert found["findings"] == []


def test_bytes_of_several_blocks_are_one_request(tmp_path: Path) -> None:
    """A foreign pin over two nodes has a block on each; its request is their sum."""
    host = Host(tmp_path, nodes=even(3, memory=10 * GIB))
    host.guaranteed(docker(3), 15, mems="0-1")
    host.start()
    host.stop()

    (row,) = document(host.file.path, host.clock)["containers"]

    assert row["request"] == {"memory": 15 * GIB}


def test_no_checkpoint(tmp_path: Path) -> None:
    """Without a file, or without its directory, nothing is claimed and nothing is created."""
    host = Host(tmp_path)

    found = document(host.file.path, host.clock)

    assert found["checkpoint"] == {"path": str(host.file.path), "error": None, "found": False}
    assert (found["nodes"], found["containers"]) == ([], [])
    assert not host.file.path.parent.exists()


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    """Both generations damaged: the error is told with the path, and the files stay where they are."""
    host = served(tmp_path)
    for path in (host.file.path, host.file.previous_path):
        path.write_text("rubbish")

    found = document(host.file.path, host.clock)

    assert found["checkpoint"]["found"] is False
    assert str(host.file.path) in found["checkpoint"]["error"]
    assert len(found["findings"]) == 2
    assert host.file.path.read_text() == "rubbish"


def test_the_generation_before(tmp_path: Path) -> None:
    """With only the newest damaged, the one before is shown and the damage is a finding."""
    host = served(tmp_path)
    host.file.path.write_text("rubbish")

    found = document(host.file.path, host.clock)

    assert found["checkpoint"]["found"] is True
    assert [f["code"] for f in found["findings"]] == ["checkpoint-damaged"]
    assert len(found["containers"]) == 3


def test_a_checkpoint_of_a_newer_version(tmp_path: Path) -> None:
    """What a newer numapin wrote is said to be that, not called damaged (B082)."""
    host = served(tmp_path)
    host.file.path.write_bytes(encode(replace(host.saved(), version=CHECKPOINT_VERSION + 1)))

    found = document(host.file.path, host.clock)

    (finding,) = found["findings"]
    assert finding["code"] == "checkpoint-version"
    assert "it was written by a newer numapin" in finding["message"]


def test_an_unreadable_checkpoint(tmp_path: Path) -> None:
    """What cannot be read is an error in the document, not a traceback."""
    host = Host(tmp_path)
    host.file.path.mkdir(parents=True)

    found = document(host.file.path, host.clock)

    assert found["checkpoint"]["found"] is False
    assert "cannot be read" in found["checkpoint"]["error"]


def test_a_clock_that_went_back(tmp_path: Path) -> None:
    """A checkpoint from the future is zero seconds old."""
    host = served(tmp_path)
    host.clock.set_wall(0)

    assert document(host.file.path, host.clock)["saved_seconds_ago"] == 0


def test_ended_containers(tmp_path: Path) -> None:
    """A record that waits for its pod's next container is shown as ended."""
    host = served(tmp_path)
    saved = host.saved()
    pin = replace(saved.containers[docker(1)], ended_ns=1)
    host.file.save(replace(saved, containers={**saved.containers, docker(1): pin}))

    assert document(host.file.path, host.clock)["containers"][0]["state"] == "ended"


def test_rows_have_the_keys_of_a_daemons_rows(tmp_path: Path) -> None:
    """Whoever reads a row's key needs not ask whether the daemon runs."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    host.guaranteed(docker(1), 4)
    host.guaranteed(docker(2), 8)
    host.start()
    host.agent.flush()
    rows = [container_row(view) for view in host.agent.views.values()]
    found = document(host.file.path, host.clock)["containers"]

    assert ["pinned", "refused"] == [row["state"] for row in found]
    assert [list(row) for row in rows] == [list(row) for row in found]

"""What the daemon gives to ``plan`` when it would promise nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.plan_answer import plan_document
from numapin.model.errors import CheckpointUnreadable, CheckpointUnwritable, RequestFailed
from support.daemon import Host, docker


def test_books_that_were_never_read_are_no_basis(tmp_path: Path) -> None:
    """While the checkpoint cannot be read, the answer is why, and not an empty machine."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 4)
    host.start()
    host.agent.ledger.hold(CheckpointUnreadable("/state.json", "Permission denied"))

    with pytest.raises(RequestFailed, match="nobody knows what is promised") as raised:
        plan_document(host.agent, wall_ns=0)
    assert raised.value.code == "checkpoint-unreadable"


def test_a_disk_that_is_full_is_noted(tmp_path: Path) -> None:
    """While nothing can be saved, the answer says that nothing would be promised now, and why."""
    host = Host(tmp_path)
    host.start()
    sound = plan_document(host.agent, wall_ns=0)["note"]
    host.agent.ledger.save_error = CheckpointUnwritable("/state.json", "No space left on device")

    assert sound == ""
    assert "No space left on device" in str(plan_document(host.agent, wall_ns=0)["note"])

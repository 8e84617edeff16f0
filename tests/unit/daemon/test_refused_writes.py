"""One container whose write the kernel refuses, beside others: they are served whatever the errno."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.daemon.pinning import INLINE_BYTES, Outcome
from numapin.model.errors import KernelWriteError
from support.daemon import Host, docker
from support.waiting import readable

BAD, GOOD, LATER = docker(1), docker(2), docker(3)
ERRNOS = ("EINVAL", "ENOSPC", "EACCES", "EBUSY", "EROFS", "EPERM", "EIO")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Four empty nodes of 10 GiB."""
    host = Host(tmp_path)
    yield host
    host.stop()


def large(host: Host, path: str, gib: float) -> None:
    """A container with so much memory in use that a thread writes its nodes; the kernel grants what is asked."""
    host.guaranteed(path, gib)
    host.holds(path, {0: 2 * INLINE_BYTES})
    host.obedient(path)


def refuse(host: Host, name: str) -> None:
    """Take what the threads did, as the loop would, and for the bad container as if the kernel had refused it."""
    while host.writer.busy:
        assert readable(host.writer, timeout_s=60)
        outcomes = host.writer.collect()
        for i, outcome in enumerate(outcomes):
            if outcome.path == BAD and outcome.error is None:
                host.put(BAD, {"cpuset.mems": "\n"})
                error = KernelWriteError(f"{BAD}/cpuset.mems", getattr(errno, name), str(outcome.nodes))
                outcomes[i] = Outcome(BAD, outcome.inode, outcome.nodes, None, error, True, 1)
        host.agent.on_outcomes(outcomes)


@pytest.mark.parametrize("name", ERRNOS)
def test_the_others_are_pinned(host: Host, name: str) -> None:
    """The refused one has errno, path and no promise; those decided with it and after it have their nodes."""
    large(host, BAD, 4)
    large(host, GOOD, 3)
    host.start()
    refuse(host, name)
    large(host, LATER, 2)
    host.agent.on_created([LATER])
    refuse(host, name)
    host.agent.flush()

    assert host.states() == {BAD: "failed", GOOD: "pinned", LATER: "pinned"}
    assert (host.mems(GOOD), host.mems(LATER)) == ("0", "0")
    assert (host.reserved(), set(host.saved().containers)) == ({0: 5}, {GOOD, LATER})
    message = host.view(BAD).message
    assert (f"({name})" in message, f"{BAD}/cpuset.mems" in message) == (True, True)
    assert host.watched.mems == {GOOD, LATER}
    host.sound()


@pytest.mark.parametrize("name", ERRNOS)
def test_it_is_tried_again(host: Host, name: str) -> None:
    """The next full pass asks the kernel once more; when it takes the value all of them are pinned."""
    large(host, BAD, 4)
    large(host, GOOD, 3)
    host.start()
    refuse(host, name)
    host.agent.full_pass()
    refuse(host, name)
    assert host.states() == {BAD: "failed", GOOD: "pinned"}
    host.agent.full_pass()
    host.wait_for_writes()

    assert host.states() == {BAD: "pinned", GOOD: "pinned"}
    assert host.reserved() == {0: 7}
    host.sound()

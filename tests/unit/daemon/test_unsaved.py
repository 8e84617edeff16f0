"""Decisions while the checkpoint cannot be saved, and promises that grow: found by random walks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numapin.daemon.tracked import RECHECK_NS, Youngsters
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Phase
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.machines import even


@contextmanager
def no_directory(host: Host) -> Iterator[None]:
    """The state directory's place is taken by a file, so nothing can be saved."""
    directory = host.file.path.parent
    aside = directory.with_name("aside")
    if directory.exists():
        directory.rename(aside)
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("")
    yield
    directory.unlink()
    if aside.exists():
        aside.rename(directory)


def test_a_grown_promise_stays_verified(tmp_path: Path) -> None:
    """After a resize that fits, and one that does not, the container is pinned and its pin is still repaired."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB))
    host.start()
    path = host.obedient(host.guaranteed(docker(1), 1))
    host.agent.on_created([path])
    host.put(path, {"memory.max": f"{2 * GIB}\n"})
    host.agent.full_pass()

    assert host.agent.ledger.pins[path].phase is Phase.VERIFIED

    host.put(path, {"memory.max": f"{25 * GIB}\n"})
    host.agent.full_pass()

    assert host.agent.views[path].state.value == "pinned"

    host.put(path, {"cpuset.mems": "1\n"})
    host.agent.on_mems_written([path])

    assert host.agent.views[path].repairs == 1


def test_what_could_not_be_saved_is_decided_again(tmp_path: Path) -> None:
    """A container that needs no write is not called pinned without a promise on disk, and gets one afterwards."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB), version=CgroupVersion.V1)
    host.start()
    with no_directory(host):
        path = host.guaranteed(docker(1), 8, mems="0")
        host.agent.on_created([path])

        assert host.agent.views[path].state.value == "failed"
        assert not host.agent.views[path].nodes
    host.agent.flush()
    host.agent.full_pass()
    other = host.guaranteed(docker(2), 8, mems="0")
    host.agent.on_created([other])

    assert host.agent.views[path].state.value == "pinned"
    assert host.agent.views[other].state.value == "refused"


def test_released_memory_wakes_the_refused_at_once(tmp_path: Path) -> None:
    """A smaller limit makes room, and who was refused need not wait for the slow pass."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB))
    host.start()
    first, second = host.obedient(host.guaranteed(docker(1), 8)), host.obedient(host.guaranteed(docker(2), 8))
    host.agent.on_created([first])
    host.agent.on_created([second])

    assert host.agent.views[second].state.value == "refused"

    host.put(first, {"memory.max": f"{GIB}\n"})
    host.agent.on_state([first])

    assert host.agent.views[second].state.value == "pinned"


@pytest.mark.parametrize("extra", [0, 1, 1_000])
def test_looks_end(extra: int) -> None:
    """After its last look a young container is not due again, also when it is added once more."""
    young = Youngsters()
    young.add("/c", 0)
    looks = [young.take_due(at) for at in RECHECK_NS]
    young.add("/c", 0)

    assert looks == [["/c"]] * len(RECHECK_NS)
    assert young.take_due(RECHECK_NS[-1] + extra) == []
    assert young.next_ns() is None

"""Writes: only when needed, small ones at once, large ones in threads, none on another's descriptor."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.daemon.pinning import INLINE_BYTES, WORKERS, Outcome, WriteJob, Writer, perform
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import Cgroup, open_cgroup
from numapin.model.errors import CgroupGone, KernelFormatError, KernelWriteError
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import CgroupTree
from support.fakes import FakeClock

LARGE = INLINE_BYTES + 1


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    """A v2 tree with one container that will be granted node 0."""
    made = CgroupTree(tmp_path)
    made.add("/c", effective="0")
    return made


@pytest.fixture
def cgroup(tree: CgroupTree) -> Iterator[Cgroup]:
    """The container's cgroup."""
    with open_cgroup(tree.hierarchy(), "/c") as found:
        yield found


@pytest.fixture
def writer() -> Writer:
    """A writer with a clock that stands still."""
    return Writer(FakeClock())


def job(cgroup: Cgroup, nodes: NodeSet, *, migrate: bool = False) -> WriteJob:
    """Ask for these nodes."""
    return WriteJob(cgroup, nodes, migrate)


def outcomes(writer: Writer) -> list[Outcome]:
    """Everything that the threads bring; a minute at most for each."""
    found: list[Outcome] = []
    with selectors.DefaultSelector() as selector:
        selector.register(writer, selectors.EVENT_READ)
        while writer.busy:
            assert selector.select(60)
            found += writer.collect()
    return found


def test_written_and_granted(tree: CgroupTree, cgroup: Cgroup) -> None:
    """The outcome has what was asked, what stands and what is granted."""
    outcome = perform(job(cgroup, NodeSet.of(0)), FakeClock())

    assert (outcome.path, outcome.inode) == ("/c", cgroup.inode)
    assert (outcome.error, outcome.wrote) == (None, True)
    assert outcome.verification is not None
    assert outcome.verification.ok
    assert (tree.cpuset / "c/cpuset.mems").read_text().strip() == "0"


def test_equal_sets_in_other_text_are_not_written(tree: CgroupTree, cgroup: Cgroup) -> None:
    """``0,1`` and ``0-1`` are the same: no write."""
    (tree.cpuset / "c/cpuset.mems").write_text("0,1\n")
    (tree.cpuset / "c/cpuset.mems.effective").write_text("0-1\n")

    outcome = perform(job(cgroup, NodeSet.of(0, 1)), FakeClock())

    assert outcome.wrote is False
    assert outcome.verification is not None
    assert outcome.verification.ok
    assert (tree.cpuset / "c/cpuset.mems").read_text() == "0,1\n"


def test_what_nobody_knows_may_be_much(cgroup: Cgroup, writer: Writer) -> None:
    """Where no memory controller tells what a cgroup holds, the write is a thread's: the loop waits for no pages."""
    assert writer.submit(job(cgroup, NodeSet.of(0)), None) is None
    assert [outcome.wrote for outcome in outcomes(writer)] == [True]


def test_granted_something_else(cgroup: Cgroup) -> None:
    """Success of the write is not success: the effective set decides."""
    outcome = perform(job(cgroup, NodeSet.of(1)), FakeClock())

    assert outcome.error is None
    assert outcome.verification is not None
    assert not outcome.verification.ok
    assert outcome.verification.effective == NodeSet.of(0)


def test_errors_are_part_of_the_outcome(tree: CgroupTree, cgroup: Cgroup) -> None:
    """A file that is garbled or takes no write gives its error with the path; nothing is raised."""
    (tree.cpuset / "c/cpuset.mems").write_text("rubbish\n")
    garbled = perform(job(cgroup, NodeSet.of(0)), FakeClock())
    assert isinstance(garbled.error, KernelFormatError)
    assert garbled.error.path.endswith("/c/cpuset.mems")

    (tree.cpuset / "c/cpuset.mems").unlink()
    (tree.cpuset / "c/cpuset.mems").symlink_to("/dev/full")
    refused = perform(job(cgroup, NodeSet.of(0)), FakeClock())
    assert refused.error is not None
    assert refused.verification is None


def test_a_cgroup_that_went(tree: CgroupTree, cgroup: Cgroup) -> None:
    """It is gone, also when another one has its name by now: that one is not written."""
    (tree.cpuset / "c").rename(tree.cpuset / "moved")
    for file in (tree.cpuset / "moved").iterdir():
        file.unlink()
    (tree.cpuset / "moved").rmdir()
    tree.add("/c")

    outcome = perform(job(cgroup, NodeSet.of(0)), FakeClock())

    assert isinstance(outcome.error, CgroupGone)
    assert (tree.cpuset / "c/cpuset.mems").read_text() == "\n"


def test_v1_migration_is_asked_for_first(tmp_path: Path) -> None:
    """``cpuset.memory_migrate`` is set only where pages shall move, and only with a write."""
    tree = CgroupTree(tmp_path, CgroupVersion.V1)
    for name in ("/a", "/b"):
        tree.add(name, effective="0")
        (tree.cpuset / name[1:] / "cpuset.mems").write_text("\n")
    for name, migrate in (("/a", True), ("/b", False)):
        with open_cgroup(tree.hierarchy(), name) as cgroup:
            perform(job(cgroup, NodeSet.of(0), migrate=migrate), FakeClock())

    assert (tree.cpuset / "a/cpuset.memory_migrate").read_text().strip() == "1"
    assert (tree.cpuset / "b/cpuset.memory_migrate").read_text().strip() == "0"


def test_small_at_once_large_in_a_thread(writer: Writer, cgroup: Cgroup) -> None:
    """Up to the bound the outcome is there at once; above it the descriptor tells."""
    assert writer.submit(job(cgroup, NodeSet.of(0)), INLINE_BYTES) is not None
    assert writer.busy == 0

    assert writer.submit(job(cgroup, NodeSet.of(0)), LARGE) is None
    assert writer.busy == 1
    (outcome,) = outcomes(writer)
    assert outcome.verification is not None
    assert outcome.verification.ok


def test_nothing_to_collect(writer: Writer) -> None:
    """Without a finished thread there is nothing, and no waiting."""
    assert writer.collect() == []


def test_the_newest_job_of_a_cgroup_wins(writer: Writer, tree: CgroupTree, cgroup: Cgroup) -> None:
    """Of several jobs for one cgroup the last one's value stands, and its outcome is the last told."""
    for node in (0, 1, 2, 3, 0):
        writer.submit(job(cgroup, NodeSet.of(node)), LARGE)

    found = outcomes(writer)

    assert found[-1].nodes == NodeSet.of(0)
    assert len(found) <= 2
    assert (tree.cpuset / "c/cpuset.mems").read_text().strip() == "0"


def test_many_cgroups(writer: Writer, tree: CgroupTree) -> None:
    """More jobs than threads are all done, each once."""
    names = [f"/many/{k}" for k in range(5 * WORKERS)]
    for name in names:
        tree.add(name, effective="0")
        with open_cgroup(tree.hierarchy(), name) as cgroup:
            writer.submit(job(cgroup, NodeSet.of(0)), LARGE)

    found = outcomes(writer)

    assert sorted(o.path for o in found) == sorted(names)
    assert all(o.verification is not None and o.verification.ok for o in found)


def test_a_handle_closed_meanwhile(writer: Writer, tree: CgroupTree) -> None:
    """The container's view may close its directory while the job waits; the thread has one of its own."""
    tree.add("/d", effective="0")
    cgroup = open_cgroup(tree.hierarchy(), "/d")
    writer.submit(job(cgroup, NodeSet.of(0)), LARGE)
    cgroup.close()

    (outcome,) = outcomes(writer)

    assert outcome.error is None
    assert (tree.cpuset / "d/cpuset.mems").read_text().strip() == "0"


def test_write_errors_say_what_to_do() -> None:
    """The sentence has value, path, the kernel's word and a remedy."""
    error = KernelWriteError("/sys/fs/cgroup/x/cpuset.mems", 30, "0")

    expected = (
        "cannot write '0' to /sys/fs/cgroup/x/cpuset.mems: Read-only file system (EROFS); "
        "the cgroup file system is mounted read-only; mount it read-write for numapin"
    )
    assert expected == str(error)

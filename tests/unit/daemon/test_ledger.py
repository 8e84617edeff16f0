"""Promises and their way to the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.ledger import Ledger
from numapin.model.checkpoint import Phase
from numapin.model.errors import CheckpointUnwritable
from numapin.model.memory import MEMORY, Block, Books
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import check, reserve
from numapin.state.checkpoint import CheckpointFile
from support.checkpoints import pin, refusal, sample
from support.fakes import FakeClock

EMPTY = sample(containers=0).books


def ledger(path: Path | None, books: Books = EMPTY) -> Ledger:
    """A ledger that saves to *path*."""
    file = None if path is None else CheckpointFile(path)
    return Ledger(file, policy="restricted", boot_id="boot", clock=FakeClock(), books=books)


def promise(made: Ledger, number: int, *, cgroup: str = "") -> str:
    """Promise one unit to container *number*; returns its cgroup."""
    record = pin(number)
    record = replace(record, cgroup=cgroup or record.cgroup)
    made.books = reserve(made.books, record.owner, (Block(NodeSet.of(0), MEMORY, 1 << 30),))
    made.set_pin(record)
    return record.cgroup


def test_what_is_saved_is_what_stands(tmp_path: Path) -> None:
    """The file has books, records, refusals, policy, boot and time; afterwards nothing is dirty."""
    made = ledger(tmp_path / "state.json")
    path = promise(made, 1)
    made.refuse("/huge", refusal())
    assert made.dirty

    made.save()

    found = CheckpointFile(tmp_path / "state.json").peek().checkpoint
    assert found == made.snapshot()
    assert found is not None
    assert (list(found.containers), list(found.refusals), found.policy) == ([path], ["/huge"], "restricted")
    assert (made.dirty, made.saves, made.save_error) == (False, 1, None)


def test_undo_goes_back_to_the_mark() -> None:
    """Books, records and refusals are as they were, also what was dropped and what was already unsaved."""
    made = ledger(None)
    kept = promise(made, 1)
    made.refuse("/huge", refusal())
    before, mark = made.snapshot(), made.mark()

    promise(made, 2)
    made.drop(kept)
    made.drop("/huge")
    made.undo(mark)

    assert before == made.snapshot()
    assert made.dirty


def test_a_failed_save_is_remembered_until_one_works(tmp_path: Path) -> None:
    """The error stands with its path, the books stay, and the next good save clears it."""
    made = ledger(tmp_path / "state.json")
    promise(made, 1)
    obstacle = tmp_path / "state.json.new"
    obstacle.mkdir()
    with pytest.raises(CheckpointUnwritable):
        made.save()

    assert str(tmp_path / "state.json") in str(made.save_error)
    assert made.dirty
    obstacle.rmdir()
    made.save()
    assert made.save_error is None


def test_a_dry_run_saves_nothing() -> None:
    """Without a file a save is only the end of being dirty."""
    made = ledger(None)
    promise(made, 1)

    made.save()

    assert (made.saves, made.dirty) == (0, False)


def test_what_changes_nothing_is_not_dirty() -> None:
    """Setting the same record, refusal or policy again, and dropping what is not there, need no save."""
    made = ledger(None)
    path = promise(made, 1)
    made.refuse("/huge", refusal())
    made.save()

    made.set_pin(made.pins[path])
    made.update_pin(path, phase=Phase.VERIFIED)
    made.update_pin("/not-there", phase=Phase.VERIFIED)
    made.refuse("/huge", refusal())
    made.set_policy("restricted")
    made.forget("/not-there")
    assert made.drop("/not-there") is False
    assert made.drop_orphans() == []

    assert made.dirty is False


def test_a_record_ends_a_refusal() -> None:
    """A container that is promised something is refused no more."""
    made = ledger(None)
    path = pin(1).cgroup
    made.refuse(path, refusal())

    promise(made, 1)

    assert made.refusals == {}


def test_dropping_gives_back_once() -> None:
    """Memory of an owner with two records is given back with the second."""
    made = ledger(None)
    first = promise(made, 1)
    second = promise(made, 1, cgroup="/successor")

    assert made.drop(first) is False
    assert made.books.assignments != {}
    assert made.drop(second) is True
    assert made.books.assignments == {}
    assert check(made.books) == ()


def test_forgetting_keeps_the_memory_for_its_owner() -> None:
    """A forgotten record's memory waits; nobody claiming it, it is an orphan and given back."""
    made = ledger(None)
    path = promise(made, 1)

    made.forget(path)

    assert (made.pins, len(made.books.assignments)) == ({}, 1)
    assert made.drop_orphans() == [pin(1).owner]
    assert made.books.assignments == {}


def test_who_holds_what() -> None:
    """A holder is a living record with memory, other than the one asked about."""
    made = ledger(None)
    path, owner = promise(made, 1), pin(1).owner

    assert made.holder(owner) == made.pins[path]
    assert made.holder(owner, besides=path) is None
    made.update_pin(path, ended_ns=5)
    assert made.holder(owner) is None


def test_what_waits_for_a_pod() -> None:
    """Owners of ended records of the pod, without those that a living record still has."""
    made = ledger(None)
    for number, ended in ((1, 5), (2, None), (3, 5)):
        path = promise(made, number)
        made.update_pin(path, pod_uid="pod", ended_ns=ended)

    assert made.ended_of_pod("pod", pin(9).owner) == (pin(1).owner, pin(3).owner)
    assert made.ended_of_pod("pod", pin(3).owner) == (pin(1).owner,)
    assert made.ended_of_pod("other", pin(9).owner) == ()

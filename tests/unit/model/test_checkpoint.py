"""Rules between the books and the records of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from numapin.model.checkpoint import RESERVING, Checkpoint, Phase, PinRecord, record_problems
from numapin.model.memory import MEMORY, Block, Books, Owner
from numapin.model.nodeset import NodeSet
from support.checkpoints import GIB, pin, refusal, sample


def with_record(record: PinRecord, cgroup: str | None = None) -> Checkpoint:
    """The sample with its first container replaced."""
    checkpoint = sample()
    return replace(checkpoint, containers={**checkpoint.containers, cgroup or record.cgroup: record})


def with_assignment(owner: Owner, *blocks: Block) -> Checkpoint:
    """The sample with one more assignment."""
    checkpoint = sample()
    books = Books(checkpoint.books.node_map, {**checkpoint.books.assignments, owner: blocks})
    return replace(checkpoint, books=books)


def test_sound() -> None:
    """Records and books that agree have no problems."""
    assert record_problems(sample()) == ()


@pytest.mark.parametrize("phase", sorted(RESERVING))
def test_promise_without_a_reservation(phase: Phase) -> None:
    """A container in a reserving phase whose memory is not in the books is named with its cgroup."""
    lost = replace(pin(7), phase=phase)

    assert record_problems(with_record(lost)) == (
        f"containers[{lost.cgroup}]: {phase}, but nothing is reserved for {lost.owner}",
    )


@pytest.mark.parametrize("phase", sorted(set(Phase) - RESERVING))
def test_no_reservation_needed(phase: Phase) -> None:
    """A failed or foreign pin needs nothing in the books."""
    assert record_problems(with_record(replace(pin(7), phase=phase))) == ()


def test_reservation_without_a_container() -> None:
    """An assignment that no container has is a leak and is named."""
    owner = Owner("gone", "main")

    assert record_problems(with_assignment(owner, Block(NodeSet.of(0), MEMORY, GIB))) == (
        "entries[gone/main]: memory is reserved, but no container has it",
    )


def test_pinned_elsewhere() -> None:
    """A container pinned to nodes other than those that hold its memory is named with both."""
    found = record_problems(with_record(replace(pin(0), nodes=NodeSet.of(1))))

    assert len(found) == 1
    assert "pinned to node 1, but memory is reserved on 0" in found[0]


def test_wider_pin() -> None:
    """A pin may hold more nodes than the memory (a node with normal memory beside a movable one)."""
    assert record_problems(with_record(replace(pin(0), nodes=NodeSet.of(0, 1)))) == ()


def test_record_under_another_cgroup() -> None:
    """A record kept under a cgroup that is not its own is named."""
    record = replace(pin(0), cgroup="/other")
    cgroup = pin(0).cgroup

    assert record_problems(with_record(record, cgroup)) == (f"containers[{cgroup}]: its own cgroup is /other",)


def test_pinned_and_refused() -> None:
    """A container cannot be placed and refused at once."""
    checkpoint = sample()
    cgroup = pin(0).cgroup

    assert record_problems(replace(checkpoint, refusals={cgroup: refusal()})) == (
        f"containers[{cgroup}]: also among the refusals",
    )

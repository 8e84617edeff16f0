"""When a container whose limits may not be there yet is looked at again."""

from __future__ import annotations

from numapin.daemon.tracked import RECHECK_NS, Youngsters

MS = 1_000_000


def test_looks_come_at_their_times() -> None:
    """Counted from when it was first seen, a last time after four seconds, and never again."""
    young = Youngsters()
    young.add("/a", 5)
    times = []

    while (due := young.next_ns()) is not None:
        assert young.take_due(due - 1) == []
        assert young.take_due(due) == ["/a"]
        times.append(due - 5)

    assert tuple(times) == RECHECK_NS


def test_a_known_one_keeps_its_turn() -> None:
    """Seeing it again does not start from the beginning."""
    young = Youngsters()
    young.add("/a", 0)
    young.take_due(RECHECK_NS[0])

    young.add("/a", RECHECK_NS[0])

    assert young.next_ns() == RECHECK_NS[1]


def test_the_next_of_several() -> None:
    """The earliest decides; a dropped one is not looked at."""
    young = Youngsters()
    young.add("/late", 50 * MS)
    young.add("/early", 0)

    assert young.next_ns() == RECHECK_NS[0]
    young.drop("/early")
    young.drop("/never-there")
    assert young.next_ns() == 50 * MS + RECHECK_NS[0]
    assert young.take_due(60 * MS) == []


def test_late_looks_are_one() -> None:
    """After a long sleep of the loop each container is looked at once, not once per missed time."""
    young = Youngsters()
    young.add("/a", 0)

    assert young.take_due(10 * RECHECK_NS[-1]) == ["/a"]

"""The clock port and its stand-in."""

from __future__ import annotations

import pytest

from numapin.kernel.clock import Clock, SystemClock
from support.fakes import FakeClock


def test_the_system_clocks_do_not_go_back() -> None:
    """Two readings of the monotonic clock are in order, and wall time is later than this file."""
    clock: Clock = SystemClock()
    first = clock.monotonic_ns()

    assert first <= clock.monotonic_ns()
    assert clock.wall_ns() > 1_700_000_000_000_000_000


def test_the_fake_clock_moves_only_when_told() -> None:
    """Time passes on both clocks by what a test asks for, and setting the wall leaves the other alone."""
    fake = FakeClock(monotonic_ns=5, wall_ns=100)
    clock: Clock = fake

    fake.advance(seconds=1, ns=1)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (1_000_000_006, 1_000_000_101)

    fake.set_wall(7)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (1_000_000_006, 7)

    with pytest.raises(ValueError, match="does not go back"):
        fake.advance(ns=-1)

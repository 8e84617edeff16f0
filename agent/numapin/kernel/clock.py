"""
The only place that reads a clock.

Owns: wall and monotonic time. Must never: sleep; whoever needs to wait gets a descriptor in the loop.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks, both in nanoseconds; passed in wherever time matters, so a test chooses it."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back, stands still while the machine sleeps."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 in UTC; may jump when the clock is set."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

"""Stand-ins for ports that a test must control."""

from __future__ import annotations


class FakeClock:
    """
    A `numapin.kernel.clock.Clock` that moves only when told.

    Wall time starts at 2026-01-01T00:00:00Z; `advance` moves both clocks, `set_wall` only the wall.
    """

    def __init__(self, *, monotonic_ns: int = 1_000_000_000, wall_ns: int = 1_767_225_600_000_000_000) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds as set."""
        return self._monotonic_ns

    def wall_ns(self) -> int:
        """Nanoseconds as set."""
        return self._wall_ns

    def advance(self, *, seconds: float = 0, ns: int = 0) -> None:
        """Let time pass on both clocks."""
        step = round(seconds * 1_000_000_000) + ns
        if step < 0:
            raise ValueError("time does not go back; use set_wall for a changed clock")
        self._monotonic_ns += step
        self._wall_ns += step

    def set_wall(self, wall_ns: int) -> None:
        """Set the wall clock, as an admin or NTP does."""
        self._wall_ns = wall_ns

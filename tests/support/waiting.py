"""Waiting for descriptors, whatever their numbers: select(2) ends at 1,023."""

from __future__ import annotations

import selectors
from typing import Protocol


class HasFileno(Protocol):
    """Something with a descriptor."""

    def fileno(self) -> int: ...


def readable(*sources: HasFileno | int, timeout_s: float) -> list[HasFileno | int]:
    """Those of *sources* that can be read within *timeout_s* seconds; empty when none can."""
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ, source)
        return [key.data for key, _ in selector.select(timeout_s)]

"""Progress lines with the seconds since the start, on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Prints ``[ 12.3 s] what``; *stream* of ``None`` means standard error."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._started = time.monotonic()

    def elapsed_s(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._started

    def __call__(self, what: str) -> None:
        stream = sys.stderr if self._stream is None else self._stream
        print(f"[{self.elapsed_s():6.1f} s] {what}", file=stream, flush=True)

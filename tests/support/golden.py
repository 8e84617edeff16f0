"""Golden files below tests/data: compared as text, written only with NUMAPIN_WRITE_GOLDEN=1 and reviewed as text."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def golden(name: str, text: str) -> str:
    """The content of the golden file, after writing *text* into it when that was asked for."""
    path = DATA / name
    if os.environ.get("NUMAPIN_WRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path.read_text()

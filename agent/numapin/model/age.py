"""How long ago something was, for people. Owns: the words. Must never: look at a clock."""

from __future__ import annotations


def format_age(seconds: int) -> str:
    """Seconds as the two largest units (``3 h 12 min``)."""
    for size, unit, small, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // small
            return f"{seconds // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{seconds} s"

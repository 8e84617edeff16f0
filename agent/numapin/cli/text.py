"""
Text that is fit for a terminal.

Owns: taming of names that come from containers, how wide output is and where a sentence folds, and the bar. Must
never: import rich; errors are printed from here too.
"""

from __future__ import annotations

import os
import sys

PLAIN_WIDTH = 10_000
"""Columns when nobody says: output to a file or a pipe, without COLUMNS. Nothing folds then."""

_SECOND_COLUMN = "\0"
"""Stands behind a character of two columns while lines are measured; no text that is shown has one."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def safe(text: str, *, limit: int = 200) -> str:
    """
    *text* on one line, with every character that could steer a terminal or a table shown as ``?``.

    That is control and escape characters, line and paragraph separators, invisible and direction-changing ones.
    Longer than *limit* characters ends in ``…``. Markup needs no escape: `table.console` interprets none.
    """
    shown = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return shown if len(text) <= limit else shown[: limit - 1] + "…"


def safe_lines(text: str) -> str:
    """Like `safe` for each line of a message of several, without a limit."""
    return "\n".join(safe(line, limit=max(1, len(line))) for line in text.split("\n"))


def output_width() -> int:
    """Columns of standard output: COLUMNS, else the terminal's, else PLAIN_WIDTH."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdecimal() and 0 < int(said) <= PLAIN_WIDTH:
        return int(said)
    return os.get_terminal_size(sys.stdout.fileno()).columns or 80 if sys.stdout.isatty() else PLAIN_WIDTH


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """
    *text* in lines of *width* columns between words; *first* begins the first line, *rest* the others.

    A word stays whole, however long it is: a path or an id is there to be copied.
    """
    from textwrap import fill  # an error that is not wrapped does without

    if not text.isascii():
        from unicodedata import east_asian_width

        text = "".join(c + _SECOND_COLUMN if east_asian_width(c) in "WF" else c for c in text)
    lines = fill(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace(_SECOND_COLUMN, "")


def bar(fraction: float, width: int = 20, *, ascii_only: bool = False) -> str:
    """
    A bar of *width* columns, *fraction* of it filled; below 0 counts as 0 and above 1 as 1.

    Anything above 0 shows at least its thinnest mark, and only the whole fills the last column, so a nearly empty
    or nearly full node is never shown as empty or full.
    """
    if width <= 0:
        return ""
    steps = 1 if ascii_only else 8
    whole = width * steps
    filled = round(min(1.0, max(0.0, fraction)) * whole)
    if fraction > 0:
        filled = max(1, filled)
    if fraction < 1:
        filled = min(whole - 1, filled)
    full, part = divmod(filled, steps)
    if ascii_only:
        return ("#" * full).ljust(width, ".")
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)

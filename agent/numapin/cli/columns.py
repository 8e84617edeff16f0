"""
Which columns of a table a terminal has room for, and how wide each is.

Owns: what goes first where there is no room for all. Must never: import rich, or cut a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

GAP = 2
"""Blanks between two columns."""
LEAST = 12
"""No column that folds gets narrower, unless all it holds is."""


@dataclass(frozen=True, slots=True)
class Column:
    """
    A column by its *name*; *right* aligns numbers. ``folds``: a cell may fold between words, and a word longer than
    this many columns (a name) inside; 0: never. ``goes``: who goes first where there is no room, 0: nobody does.
    """

    name: str
    right: bool = False
    folds: int = 0
    goes: int = 0


Cells = Mapping[str, str]
"""A row: the cell of each column by its name."""


def fit(
    columns: Sequence[Column], rows: Sequence[Cells], width: int, *, measure: Callable[[str], int] = len
) -> list[tuple[Column, int]]:
    """
    The columns that stay, with the width of each, so that all are at most *width* together where that can be.

    Columns that may go do so before any word breaks. *measure* is how many terminal columns a text takes.
    """
    natural = {c.name: max(map(measure, _cells(c, rows))) for c in columns}
    least = {c.name: min(natural[c.name], _longest_word(c, rows, measure)) for c in columns}
    kept = list(columns)
    while _total([least[c.name] for c in kept]) > width and any(c.goes for c in kept):
        kept.remove(min((c for c in kept if c.goes), key=lambda c: c.goes))
    widths = {c.name: least[c.name] for c in kept}
    room = width - _total(list(widths.values()))
    for column in kept:
        if not column.folds:
            continue
        if room > 0:
            more = min(room, natural[column.name] - widths[column.name])
        else:
            more = -min(-room, max(0, widths[column.name] - LEAST))
        widths[column.name] += more
        room -= more
    return [(c, widths[c.name]) for c in kept]


def lines(columns: Sequence[tuple[Column, int]], rows: Sequence[Cells]) -> list[str]:
    """The table as plain text, everything left-aligned and nothing folded, with its head first."""
    head = {c.name: c.name for c, _ in columns}
    gap = " " * GAP
    return [gap.join(row[c.name].ljust(width) for c, width in columns).rstrip() for row in (head, *rows)]


def _cells(column: Column, rows: Sequence[Cells]) -> list[str]:
    return [column.name, *(row[column.name] for row in rows)]


def _longest_word(column: Column, rows: Sequence[Cells], measure: Callable[[str], int]) -> int:
    """What the column needs at least; of a word that may break no more than it says."""
    if not column.folds:
        return max(map(measure, _cells(column, rows)))
    return min(column.folds, max(measure(word) for cell in _cells(column, rows) for word in cell.split() or [""]))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)

"""
Tables for people.

Owns: how a console, a table and a sentence look, and what they never do: no markup, emoji codes or highlighting is
read out of text, so a name can neither colour nor break anything once `text.safe` has taken its control characters.
Must never: be imported on the JSON path, since rich is (about 40 ms).

A verb's module imports its ``render_…`` module when it has something to render, and that one imports this::

    out = console()
    table = grid("NODE", ">MEMORY", "CPUS")
    table.add_row("0", format_bytes(size), safe(name))
    out.print(table)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from numapin.cli.columns import Cells, Column, fit
from numapin.cli.text import output_width, safe, wrapped


def console() -> Console:
    """
    Standard output for text and tables; plain text unless a terminal, no colour under NO_COLOR.

    ``width`` is `text.output_width`.
    """
    return _Console(width=output_width(), markup=False, emoji=False, highlight=False)


class _Console(Console):
    """One that leaves a reader who went away to `cli.main`, where rich would end the process with another status."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does; where no terminal reads it, without the blanks that fill a table's last column."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        text = "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))
        try:
            self.file.write(text)
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Raises: BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def say(out: Console, text: str, *, first: str = "", rest: str = "", limit: int = 2000) -> None:
    """
    One sentence, made safe and wrapped as `text.wrapped` does; rich itself would break a long path.

    Of more than *limit* characters the end is cut.
    """
    out.print(wrapped(safe(text, limit=limit), out.width, first=first, rest=rest), soft_wrap=True)


def fitted(columns: Sequence[Column], rows: Sequence[Cells], width: int) -> Table:
    """A table of those *columns* that fit into *width* (`columns.fit`), with all *rows*."""
    table = grid()
    kept = fit(columns, rows, width, measure=cell_len)
    for column, size in kept:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.name, justify=justify, overflow="fold", width=size)
    for row in rows:
        table.add_row(*[row[column.name] for column, _ in kept])
    return table


def grid(*columns: str) -> Table:
    """
    An empty table without lines; a column whose name starts with ``>`` is aligned to the right (numbers).

    A cell too wide for the terminal folds and is never cut.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    return table

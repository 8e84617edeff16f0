"""Which columns fit, and how wide they are."""

from __future__ import annotations

import pytest

from numapin.cli.columns import Column, fit, lines

COLUMNS = (Column("ID"), Column("NAME", folds=20), Column("SIZE", goes=2), Column("KIND", goes=1))
ROWS = [{"ID": "1", "NAME": "two words", "SIZE": "100 MiB", "KIND": "memory"}]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (10_000, {"ID": 2, "NAME": 9, "SIZE": 7, "KIND": 6}),
        (30, {"ID": 2, "NAME": 9, "SIZE": 7, "KIND": 6}),
        (26, {"ID": 2, "NAME": 5, "SIZE": 7, "KIND": 6}),
        (25, {"ID": 2, "NAME": 9, "SIZE": 7}),
        (16, {"ID": 2, "NAME": 9}),
        (5, {"ID": 2, "NAME": 5}),
    ],
)
def test_what_stays(width: int, expected: dict[str, int]) -> None:
    """A cell folds between words first, then columns go in their order, and what is left keeps its words whole."""
    assert {column.name: size for column, size in fit(COLUMNS, ROWS, width)} == expected


def name_width(name: str, width: int) -> int:
    """How wide the column of such a name is in a terminal of *width*."""
    return {c.name: size for c, size in fit(COLUMNS, [ROWS[0] | {"NAME": name}], width)}["NAME"]


def test_a_long_name_breaks_last() -> None:
    """A word longer than its column may hold takes what is left over, and breaks only where nothing else can go."""
    assert [name_width("n" * 40, width) for width in (100, 45, 18, 10)] == [40, 24, 14, 12]


def test_plain_lines() -> None:
    """The head and each row, without blanks at line ends."""
    assert lines(fit(COLUMNS[:3], ROWS, 80), ROWS) == ["ID  NAME       SIZE", "1   two words  100 MiB"]

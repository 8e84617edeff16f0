"""Untrusted names and the bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.cli.text import bar, safe, safe_lines, wrapped


@given(st.text())
def test_safe_text_is_printable_and_on_one_line(text: str) -> None:
    """Whatever a container calls itself, what is shown has no control, invisible or line-breaking character."""
    shown = safe(text)

    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-1", "web-1"),
        ("größe 數", "größe 數"),
        ("\x1b[2J\x1b]0;owned\x07", "?[2J?]0;owned?"),
        ("a\nb\r\tc", "a?b??c"),
        ("abc\u202egnp.exe\u200b\ufeff\u2028", "abc?gnp.exe???"),
        ("\udcff", "?"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_only_what_steers_a_terminal_is_replaced(text: str, shown: str) -> None:
    """Escapes, line ends, direction marks and surrogates become ``?``; letters of any script and brackets stay."""
    assert shown == safe(text)


def test_long_text_is_cut_visibly() -> None:
    """Text beyond the limit ends in an ellipsis and has exactly the limit's length."""
    assert safe("x" * 9, limit=8) == "x" * 7 + "…"
    assert safe("x" * 8, limit=8) == "x" * 8


def test_messages_keep_their_lines() -> None:
    """A message of several lines stays so; only what is inside a line is replaced."""
    assert safe_lines("two problems:\n  a\x1b\n\n  b") == "two problems:\n  a?\n\n  b"


@given(st.floats(allow_nan=False), st.integers(1, 60), st.booleans())
def test_a_bar_has_its_width_and_is_honest(fraction: float, width: int, ascii_only: bool) -> None:
    """A bar is always as wide as asked, empty only at nothing and full only at everything."""
    shown = bar(fraction, width, ascii_only=ascii_only)
    empty, full = ("." * width, "#" * width) if ascii_only else (" " * width, "█" * width)

    assert len(shown) == width
    assert (fraction >= 1) == (shown == full) or (width == 1 and ascii_only)
    assert (fraction <= 0) == (shown == empty) or (width == 1 and ascii_only)


def test_bars_as_they_look() -> None:
    """Eighths of a column in Unicode, whole columns in ASCII, nothing at width 0."""
    assert bar(0.5, 4) == "██  "
    assert bar(0.53125, 4) == "██▏ "
    assert bar(0.5, 4, ascii_only=True) == "##.."
    assert bar(0.001, 4) == "▏   "
    assert bar(0.999, 4) == "███▉"
    assert bar(0.5, 0) == ""


def test_wide_characters_count_twice() -> None:
    """A line with characters of two columns is no wider than asked, and nothing of it is lost."""
    assert wrapped("容器容器 容器 abc", 13, first="  ", rest="    ") == "  容器容器\n    容器 abc"

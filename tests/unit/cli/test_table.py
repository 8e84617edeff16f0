"""The look of tables, and that names cannot break them."""

from __future__ import annotations

import pytest

from numapin.cli.table import console, grid


def test_columns_line_up_and_numbers_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    """A name with ``>`` aligns its column to the right, every other one to the left, without lines or colours."""
    table = grid("NODE", ">FREE")
    table.add_row("0", "5")
    table.add_row("10", "1234567")

    console().print(table)

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["NODE     FREE", "0           5", "10    1234567"]


def test_no_line_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe what fills the last column is left out."""
    table = grid("NODE", "LIST")
    table.add_row("0", "0-1")
    table.add_row("10", "a longer one")

    console().print(table)

    assert capsys.readouterr().out == "NODE  LIST\n0     0-1\n10    a longer one\n"


def test_markup_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets, emoji codes and links in a name are shown as they are, in cells and in text."""
    name = "[bold]x[/bold] [/] :smile: [link=http://h]l[/link]"
    table = grid("NAME")
    table.add_row(name)

    console().print(table)
    console().print(name)

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == ["NAME", name, name]


def test_nothing_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal a cell folds; no character is lost to an ellipsis."""
    monkeypatch.setenv("COLUMNS", "20")
    table = grid("NAME", ">SIZE")
    table.add_row("abcdefghijklmnopqrstuvwxyz", "12345")

    console().print(table)

    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 20
    assert "".join(line[:13].strip() for line in out.splitlines()[1:]) == "abcdefghijklmnopqrstuvwxyz"


def test_a_pipe_does_not_fold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and without COLUMNS a long row stays on its line, for grep."""
    monkeypatch.delenv("COLUMNS", raising=False)
    table = grid("NAME", "LIST")
    table.add_row("x", "0, 1, " * 100)

    console().print(table)

    assert len(capsys.readouterr().out.splitlines()) == 2

"""The table of the bug log's entries: complete, and every test in it is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "tests/bug-log.md").read_text()
ROW = re.compile(r"^\| (B\d{3}) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`:]+\.py)::(\w+)`")
NUMBERS = (
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43,
    44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79, 80, 82, 83, 85,
    86, 88, 89, 91, 92, 94, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110, 112, 113, 115, 116, 118, 119, 121,
    122, 124, 125, 127, 128, 130, 131, 133, 134, 136, 137,
)  # fmt: skip
IDS = [f"B{number:03}" for number in NUMBERS]


@cache
def functions(path: str) -> frozenset[str]:
    """Names of the functions at the top of a test module; none when it is not there."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))


def test_every_entry_has_a_row() -> None:
    """One row for each of the 92 entries, in order, and no other."""
    assert len(IDS) == 92
    assert [entry for entry, _, _ in ROW.findall(TABLE)] == IDS


@pytest.mark.parametrize("row", ROW.findall(TABLE), ids=lambda row: row[0])
def test_every_test_of_a_row_is_there(row: tuple[str, str, str]) -> None:
    """An entry names at least one test, and each is a function of the module it names."""
    named = TEST.findall(row[2])

    assert named
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []

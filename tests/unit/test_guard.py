"""The guard that keeps unit tests off the real machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest


class _Guard(Protocol):
    touched: list[str]


@pytest.mark.parametrize(
    "touch",
    [
        lambda: Path("/proc/self/stat").read_text(),
        lambda: os.open("/sys/devices/system/node/online", os.O_RDONLY),
        lambda: os.listdir("/sys/../proc"),
        lambda: os.scandir(b"/sys"),
    ],
)
def test_the_real_machine_is_out_of_reach(guard: _Guard, touch: Callable[[], object]) -> None:
    """Opening or listing anything below /sys or /proc fails inside a unit test, however it is spelled."""
    with pytest.raises(pytest.fail.Exception, match="of the real machine"):
        touch()
    guard.touched.clear()


def test_a_tree_of_the_same_names_is_in_reach(tmp_path: Path) -> None:
    """A sys or proc directory below the test's own root may be read."""
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "file").write_text("text")

    assert (tmp_path / "sys" / "file").read_text() == "text"

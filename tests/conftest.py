"""
What every test run shares: unit tests never touch the machine they run on, and the end says where the time went.

An audit hook sees each ``open``, ``listdir`` and ``scandir`` of this process, also those done through ``os``. Tests
below ``tests/unit`` that reach into the real ``/sys`` or ``/proc`` fail with the path; everything else may.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("numapin", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("numapin")

UNIT = Path(__file__).parent / "unit"
SLOW_SHOWN = 12
FORBIDDEN = ("/sys/", "/proc/")
EVENTS = frozenset({"open", "os.listdir", "os.scandir"})


class Guard:
    """Off until a unit test runs; remembers the paths even when the code under test swallowed the failure."""

    def __init__(self) -> None:
        self.active = False
        self.touched: list[str] = []

    def see(self, event: str, args: tuple[object, ...]) -> None:
        """The audit hook."""
        if not self.active or event not in EVENTS or not args:
            return
        if not isinstance(args[0], str | bytes):  # a descriptor: it was opened before
            return
        path = os.path.normpath(os.fsdecode(args[0])) + "/"
        if path.startswith(FORBIDDEN):
            self.touched.append(path.rstrip("/"))
            raise pytest.fail.Exception(f"a unit test opened {path.rstrip('/')} of the real machine")


_guard = Guard()
sys.addaudithook(_guard.see)


@pytest.fixture(autouse=True)
def _no_real_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Switch the guard on for tests below tests/unit."""
    _guard.touched.clear()
    _guard.active = request.path.is_relative_to(UNIT)
    yield
    _guard.active = False
    if _guard.touched:
        pytest.fail(f"a unit test touched the real machine: {', '.join(sorted(set(_guard.touched)))}")


@pytest.fixture
def guard() -> Guard:
    """The guard itself, for the test that tries it."""
    return _guard


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time went: seconds below each folder of tests/, and the longest files and tests."""
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for outcome in ("", "passed", "failed", "error", "skipped"):  # "" are setups and teardowns that went well
        for report in terminalreporter.stats.get(outcome, []):
            folders[report.nodeid.split("/")[1]] += report.duration
            files[report.nodeid.partition("::")[0]] += report.duration
            tests[report.nodeid] += report.duration
    told = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in folders.most_common())
    terminalreporter.write_line(f"where the time went: {told}")
    for nodeid, seconds in (*files.most_common(SLOW_SHOWN), *tests.most_common(SLOW_SHOWN)):
        terminalreporter.write_line(f"  {seconds:.0f} s {nodeid}")

"""
The closing lines of a test run: figures measured in the guest, how many tests ran there, where the time went.

Everything is read from the reports, which look the same whether one process ran the tests or several workers did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

OUTCOMES: Final = ("passed", "failed", "error", "skipped")
SLOW_SHOWN: Final = 12
FIGURE: Final = "figure"
"""``record_property`` under this name puts a line among the figures."""

AGAIN: Final = "again"
"""The property of a test that ran a second time because the emulated kernel itself had died."""


def tell(terminal: pytest.TerminalReporter) -> None:
    """Write them; the guest's only when a test of the guest was run."""
    figures = [text for report in _reports(terminal) if report.when == "call" for text in _properties(report, FIGURE)]
    if figures:
        terminal.write_sep("-", "measured in the guest")
    for figure in figures:
        terminal.write_line(figure)
    _tell_guest(terminal)
    _tell_times(terminal)


def _tell_guest(terminal: pytest.TerminalReporter) -> None:
    counts = dict.fromkeys(OUTCOMES, 0)
    for outcome in OUTCOMES:
        for report in _reports(terminal, outcome):
            if "vm" in report.keywords and (report.when == "call" or outcome in ("error", "skipped")):
                counts[outcome] += 1
    for nodeid in dict.fromkeys(text for report in _reports(terminal) for text in _properties(report, AGAIN)):
        terminal.write_line(f"run again, the guest's kernel had panicked: {nodeid}")
    if sum(counts.values()):
        terminal.write_line("tests in the guest: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))


def _tell_times(terminal: pytest.TerminalReporter) -> None:
    """Seconds below each folder of tests/, and the longest files and tests; those of all workers added up."""
    folders: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, float] = defaultdict(float)
    for report in _reports(terminal, "", *OUTCOMES):  # "" are setups and teardowns that went well
        folders[report.nodeid.split("/")[1]] += report.duration
        files[report.nodeid.partition("::")[0]] += report.duration
        tests[report.nodeid] += report.duration
    if not folders:
        return
    told = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in _longest(folders))
    terminal.write_line(f"where the time went: {told}")
    for nodeid, seconds in (*_longest(files), *_longest(tests)):
        terminal.write_line(f"  {seconds:.0f} s {nodeid}")


def _longest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda entry: -entry[1])[:SLOW_SHOWN]


def _reports(terminal: pytest.TerminalReporter, *outcomes: str) -> Iterator[pytest.TestReport]:
    """Reports of tests, and of setups and teardowns that went wrong; with *outcomes*, of these."""
    for outcome in outcomes or OUTCOMES:
        for report in terminal.stats.get(outcome, []):
            if isinstance(report, pytest.TestReport):  # collecting can fail too
                yield report


def _properties(report: pytest.TestReport, wanted: str) -> list[str]:
    return [str(value) for name, value in report.user_properties if name == wanted]

"""
What every test run shares: unit tests never touch the machine they run on, two workers share it well, and the end
says where the time went.

An audit hook sees each ``open``, ``listdir`` and ``scandir`` of this process, also those done through ``os``. Tests
below ``tests/unit`` that reach into the real ``/sys`` or ``/proc`` fail with the path; everything else may.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from support import closing, two_workers

settings.register_profile("numapin", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("numapin")

if two_workers.in_worker():
    two_workers.forget_terminal()

UNIT = Path(__file__).parent / "unit"
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
    """Say what was measured in the guest, how many tests ran there, and where the time went."""
    closing.tell(terminalreporter)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """With workers, tests are dealt as `two_workers` says."""
    return two_workers.dealer(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a worker the order is the one to be dealt in; alone it stays the one asked for."""
    if two_workers.in_worker():
        two_workers.arrange(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """In a worker a test has the priority it is due."""
    if two_workers.in_worker():
        two_workers.give_way(item)
    return (yield)

"""
Two pytest workers on one machine (``pytest -n 2``): which tests stay together, who starts first, who goes first.

Tests that measure times, and those that share this machine's cgroups, are one chain in one worker, started first and
at ordinary priority. All others are dealt file by file, at a priority so low that they take what the chain leaves
free: two emulated guests beside each other need more than two cores now and then.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

CHAIN: Final = (
    "tests/vm/agent/test_first_instruction.py",
    "tests/vm/agent/test_drift_guest.py",
    "tests/vm/agent/test_migration.py",
    "tests/vm/agent/test_node_lost.py",
    "tests/vm/agent/test_hotplug.py",
    "tests/host/",
)
"""What is timed or shares the machine's cgroups, by the beginning of its path; in this order."""

LONG_IN_GUEST: Final = ("tests/vm/agent/test_plan_agrees.py", "tests/vm/agent/test_runtimes.py")
"""Minutes each: begun early, so that short ones are left for the end."""

GUEST: Final = "tests/vm/"
NICE: Final = 10


class Dealer(LoadScopeScheduling):  # type: ignore[misc] # xdist ships no types
    """Deals whole files, and the chain as one."""

    def _split_scope(self, nodeid: str) -> str:
        return "chain" if _is_chain(nodeid) else nodeid.partition("::")[0]


def dealer(config: pytest.Config, log: Producer) -> Dealer:
    """What deals the tests out to the workers, in the order in which they stand."""
    config.option.loadscopereorder = False
    return Dealer(config, log)


def in_worker() -> bool:
    """Whether this process is one of several workers."""
    return "PYTEST_XDIST_WORKER" in os.environ


def forget_terminal() -> None:
    """No width of a terminal is told on to this process's tests: workers are started with one."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def arrange(items: list[pytest.Item]) -> None:
    """The chain stands first, then what needs no guest, then the guest's tests, long ones first."""
    items.sort(key=lambda item: _rank(item.nodeid))


def give_way(item: pytest.Item) -> None:
    """
    This process, and what it starts from now on, has the priority that *item* is due.

    Only root can take a low priority back, so without it all stay equal.
    """
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0 if _is_chain(item.nodeid) else NICE)


def _is_chain(nodeid: str) -> bool:
    return nodeid.startswith(CHAIN)


def _rank(nodeid: str) -> tuple[int, int]:
    for group, starts in enumerate((CHAIN, (), LONG_IN_GUEST, (GUEST,))):
        for place, start in enumerate(starts):
            if nodeid.startswith(start):
                return group, place
    return 1, 0

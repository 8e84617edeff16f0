"""
Fixtures for tests in the multi-NUMA guest.

``machine`` is the one guest of the session (with workers: of the worker); ``guest`` is the same one,
taken back to a snapshot before each test. A module whose tests start from another snapshot than ``base`` overrides
``snapshot``, after a session fixture that depends on ``machine`` has saved it::

    @pytest.fixture(scope="session")
    def installed(machine: Guest) -> str:
        ...
        machine.save("installed")
        return "installed"

    @pytest.fixture
    def snapshot(installed: str) -> str:
        return installed
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from support.closing import AGAIN
from support.guest.errors import GuestError
from support.guest.image import ensure_image
from support.guest.machine import BASE, Guest

HERE = Path(__file__).parent


def must_run() -> bool:
    """Whether a guest that cannot be had is a failure: ``REQUIRE_VM=1`` or ``CI=true``."""
    return os.environ.get("REQUIRE_VM") == "1" or os.environ.get("CI") == "true"


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Iterator[Guest]:
    """The guest of this session; its image is built first where there is none."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():  # the progress of a build is to be seen
            guest = ensure_image().start()
    except (GuestError, OSError, subprocess.CalledProcessError) as exc:
        if must_run():
            raise
        pytest.skip(f"no test guest: {exc}")
    with guest:
        yield guest


@pytest.fixture
def snapshot() -> str:
    """The name of the snapshot that a test starts from."""
    return BASE


@pytest.fixture
def guest(machine: Guest, snapshot: str) -> Guest:
    """The session's guest, as it was when the snapshot was made."""
    machine.load(snapshot)
    return machine


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder is marked ``vm``."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vm)


DEATH = "GuestDied"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """
    Run a guest's test once more when the guest's kernel panicked under it, and say so at the end.

    Seen in some runs, always in the scheduler and before any work of ours; the next `load` starts a new guest anyway.
    Any other failure stands, and so does a second death.
    """
    if HERE not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(r.failed and DEATH in r.longreprtext for r in reports):
        item.session._setupstate.teardown_exact(None)  # shared fixtures too: what the dead guest had is made anew
        item.user_properties[:] = [(AGAIN, item.nodeid)]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True

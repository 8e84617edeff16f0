"""
numapin in the guest: installed from its package once per session, running in the snapshot each test starts from.

Figures that tests measure (``record_property("figure", …)``) stand in the closing lines of the run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.guest.machine import Guest
from support.installed import Installation, Numapin, build_package
from support.workloads import Workloads

SNAPSHOT = "installed"


@pytest.fixture(scope="session")
def installed(machine: Guest, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The package is installed, the service enabled and answering; kept as a snapshot."""
    package = build_package(Path(tmp_path_factory.mktemp("package")))
    machine.load()
    numapin = Numapin(machine)
    properties = ("ActiveState", "UnitFileState", "LoadState")
    numapin.install(package)
    before = numapin.unit(*properties)
    machine.run("systemctl enable --now numapin", timeout_s=120)
    numapin.wait("an answer", lambda status: status["running"])
    after = numapin.unit(*properties)
    machine.save(SNAPSHOT)
    return Installation(before, after)


@pytest.fixture
def snapshot(installed: Installation) -> str:
    """Tests start with the service running and no container."""
    return SNAPSHOT


@pytest.fixture
def numapin(guest: Guest) -> Numapin:
    """The service."""
    return Numapin(guest)


@pytest.fixture
def workloads(guest: Guest) -> Workloads:
    """Starts containers."""
    return Workloads(guest)

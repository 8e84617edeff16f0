"""A private part of this machine's real cpuset hierarchy, gone again after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy, find_hierarchy
from numapin.model.errors import NoCpusetController
from support.real_cgroups import ROOT, RealTree
from support.running import Containers, Numapin


@pytest.fixture(scope="session")
def hierarchy() -> Hierarchy:
    """This machine's own hierarchy."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes cgroups")
    try:
        return find_hierarchy(ROOT)
    except NoCpusetController as exc:
        pytest.skip(f"this machine has no cpuset controller: {exc.detail}")


@pytest.fixture
def tree(hierarchy: Hierarchy) -> Iterator[RealTree]:
    """A private parent cgroup, removed afterwards whatever happened."""
    real = RealTree(hierarchy)
    real.clear()
    try:
        real.make()
        yield real
    finally:
        real.clear()


@pytest.fixture
def docker(hierarchy: Hierarchy) -> Iterator[Containers]:
    """A private parent for containers, removed afterwards whatever happened."""
    if hierarchy.version is not CgroupVersion.V1 or not {"memory", "cpu"} <= hierarchy.controllers.keys():
        pytest.skip("needs cpuset, memory and cpu on cgroup v1; cgroup v2 is tried in the guest")
    containers = Containers(hierarchy)
    containers.close()
    try:
        containers.open()
        yield containers
    finally:
        containers.close()


@pytest.fixture
def numapin(tmp_path: Path) -> Iterator[Numapin]:
    """A daemon that is not started yet."""
    daemon = Numapin(tmp_path)
    try:
        yield daemon
    finally:
        daemon.kill()

"""A private part of this machine's real cpuset hierarchy, gone again after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from numapin.kernel.cgroup_mounts import Hierarchy, find_hierarchy
from numapin.model.errors import NoCpusetController
from support.real_cgroups import ROOT, RealTree


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

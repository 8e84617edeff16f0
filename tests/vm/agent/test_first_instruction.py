"""
How early a pin comes: what a container's first act sees of its own nodes.

The share that is pinned by then is a figure, not a promise (an agent beside the runtime races with it); that every
container is pinned in the end is one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.installed import Numapin, reserved
from support.workloads import CONTAINERD, CRUN, DOCKER, MIB, PODMAN, RUNC, Box, Driver, Workloads, guaranteed

COUNT = 50
STREAMS = 2
LIMIT_MIB = 32
ALL = "0-3"


@pytest.mark.parametrize("driver", [DOCKER, PODMAN, CONTAINERD, RUNC, CRUN], ids=lambda driver: driver.runtime)
def test_fifty(
    numapin: Numapin, workloads: Workloads, driver: Driver, record_property: Callable[[str, object], None]
) -> None:
    """Of 50 containers started two at a time all are pinned, and each saw all nodes or its own at first."""
    names = [f"{driver.runtime}{k}" for k in range(COUNT)]
    workloads.start(*((driver, Box(name, guaranteed(LIMIT_MIB))) for name in names), at_once=STREAMS, streams=STREAMS)
    status = numapin.wait("all to be pinned", lambda s: s["summary"].startswith(f"{COUNT} pinned, 0 "), timeout_s=120)
    seen = workloads.holding()
    early = sum(one.early for one in seen.values())
    record_property("figure", f"{driver.runtime}: {early} of {COUNT} were pinned before their first instruction")

    assert COUNT == len(seen)
    assert {"0", "1", "2", "3"} >= {one.effective for one in seen.values()}
    assert [] == [one for one in seen.values() if one.allowed != one.effective]
    assert [] == [one for one in seen.values() if one.first not in (one.effective, ALL)]
    assert [] == [one for one in seen.values() if one.stray(int(one.effective))]
    on_nodes = {n: sum(one.effective == str(n) for one in seen.values()) for n in range(4)}
    assert {n: count * LIMIT_MIB * MIB for n, count in on_nodes.items()} == reserved(status)

"""A short churn of containers on this machine's real cgroups; ``make soak`` does it for ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import Hierarchy
from soak.churn import QUEUE, churn, is_v1

pytestmark = pytest.mark.host
SEED = 20_260_101
SECONDS = 15


def test_churn(hierarchy: Hierarchy, tmp_path: Path) -> None:
    """
    Forty containers come, run, change and go under a daemon that is killed, stopped and drowned in events: after each
    round the books are the sum of what is there, each pin stands in the kernel, and nothing has grown.
    """
    if not is_v1(hierarchy):
        pytest.skip("needs cpuset, memory and cpu on cgroup v1; cgroup v2 is tried in the guest")
    limit = QUEUE.read_text()

    figures = churn(hierarchy, tmp_path, size=40, seconds=SECONDS, seed=SEED, quiet=SECONDS // 3)

    assert figures.checks == figures.rounds > 3
    assert figures.kills > 0
    assert figures.processes > figures.ended_by_themselves > 0
    assert figures.nested > 0
    assert figures.reclassed > 0
    assert figures.overflows > 0
    assert limit == QUEUE.read_text()

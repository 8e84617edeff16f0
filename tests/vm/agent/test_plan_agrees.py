"""``numapin plan`` and what then really happens, over random sequences of arrivals and removals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import support.plan_sequences
from support.guest.machine import Guest
from support.installed import Numapin

PROGRAM = Path(support.plan_sequences.__file__)
LENGTH = 5
"""Containers that come in one sequence."""


@pytest.mark.parametrize(
    ("policy", "first", "count"),
    [("restricted", 100, 25), ("best-effort", 200, 13), ("single-numa-node", 300, 6), ("none", 400, 6)],
)
def test_fifty_sequences(
    guest: Guest,
    numapin: Numapin,
    policy: str,
    first: int,
    count: int,
    record_property: Callable[[str, object], None],
) -> None:
    """In 50 random sequences over the policies the plan for each next container is what the kernel then grants it."""
    numapin.configure(f'policy = "{policy}"\n')
    numapin.reload(lambda status: status["policy"] == policy)
    guest.push(PROGRAM, "/root/plan_sequences.py")

    done = guest.run(f"python3 /root/plan_sequences.py {first} {count} {LENGTH}", timeout_s=600)
    seen = json.loads(done.stdout.splitlines()[-1])
    record_property(
        "figure",
        f"plan, {policy}: {seen['steps']} arrivals in {count} sequences agree, {seen['refusals']} of them refusals, "
        f"{seen['groups']} groups; {seen['seconds']} s",
    )

    assert [] == seen["differences"]
    assert count * LENGTH == seen["steps"]
    assert seen["by_command"] > 0
    assert seen["refusals"] > 0
    assert seen["groups"] > 0 or policy == "single-numa-node"
    assert 0 == sum(numapin.status()["counts"].values())

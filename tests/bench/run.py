"""
``make bench``: the figures of the design, measured here and now, each beside its floor or its limit.

Arguments choose sections: grant, burst, idle, restart, status, planner. Timings on a busy machine are noisy; compare
the ratios within one run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import footprint, grant, planner
from bench.harness import Unsuitable

Section = Callable[[], int]
"""Prints its figures; 1 when one of its limits is not held, else 0."""

SECTIONS: Mapping[str, Section] = {
    "grant": grant.single,
    "burst": grant.burst,
    "idle": footprint.idle,
    "restart": footprint.restart,
    "status": footprint.status,
    "planner": planner.main,
}


def main(chosen: list[str], sections: Mapping[str, Section] = SECTIONS) -> int:
    """
    Run the chosen sections, or all.

    Returns 1 when one could not be measured or does not hold its limit, 2 for an unknown name.
    """
    unknown = [name for name in chosen if name not in sections]
    if unknown:
        print(f"no section {unknown[0]!r}; choose from: {', '.join(sections)}", file=sys.stderr)
        return 2
    failed = False
    for name in chosen or list(sections):
        try:
            failed |= sections[name]() != 0
        except (Unsuitable, TimeoutError) as exc:
            print(f"{name}: not measured: {exc}", file=sys.stderr)
            failed = True
        print(flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

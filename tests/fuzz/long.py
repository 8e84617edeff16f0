"""
The fuzzing tests again and again, each time with other examples and more of them: ``fuzz/long.py --minutes 10``.

What fails is printed by Hypothesis with the input, which it also keeps in ``.hypothesis`` for the next plain run.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = 150
"""Of each property in one turn; a turn takes a minute, and some on a machine with much other work."""


def main() -> int:
    """Turns until the time is over; the exit status is that of the first turn that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    args = parser.parse_args()
    environment = os.environ | {"NUMAPIN_FUZZ_EXAMPLES": str(args.examples)}
    end, turns = time.monotonic() + args.minutes * 60, 0
    while turns == 0 or time.monotonic() < end:
        seed = random.SystemRandom().randrange(1 << 32)
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", str(HERE)]
        status = subprocess.run(command, env=environment, cwd=HERE.parents[1], check=False).returncode
        if status:
            print(f"fuzz: FAILED in turn {turns + 1} with seed {seed}", file=sys.stderr)
            return status
        turns += 1
    print(f"fuzz: {turns} turns of {args.examples} examples for each property, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())

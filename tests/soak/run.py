"""
``make soak``: the fuzzing tests for some minutes, then the churn for as many; both, whatever the first one finds.

Their own lines are shown as they come, and what each says about itself again at the end. Exit status 1 when either
failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
PARTS = {"fuzz": TESTS / "fuzz/long.py", "churn": TESTS / "soak/churn.py"}


def run(name: str, arguments: list[str]) -> tuple[int, list[str]]:
    """Run one part; its exit status, and the lines that begin with its name."""
    said = []
    command = [sys.executable, str(PARTS[name]), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(f"{name}: "):
                said.append(line)
    return process.returncode, said


def main() -> int:
    """Run both parts and close with their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each part")
    args = parser.parse_args()
    began, failed, figures = time.monotonic(), [], []
    for name in PARTS:
        status, said = run(name, [f"--minutes={args.minutes}"])
        figures += said
        if status:
            failed.append(name)
    print("".join(figures), end="")
    verdict = f"FAILED: {' and '.join(failed)}" if failed else "nothing found"
    print(f"soak: {verdict}, after {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

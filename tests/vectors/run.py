"""
Compare the planner with the kubelet's recorded answers.

    python tests/vectors/run.py [FILE…]

Each FILE is .jsonl, plain or compressed (.xz, .gz, .bz2); without one the vectors of this repository are used. Prints
one line per disagreement and a summary; exit status 1 when anything differs, 2 when a file cannot be read.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
for source in (ROOT / "agent", ROOT / "tests"):
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))

from support.vectors import OURS, Json, out_of_scope, read_vectors, run  # noqa: E402  the paths above come first


def main(arguments: list[str]) -> int:
    """Run the files and print; the exit status."""
    agree = differ = skipped = 0
    for path in [Path(a) for a in arguments] or list(OURS):
        try:
            for vector in read_vectors(path):
                if out_of_scope(vector):
                    skipped += 1
                elif (difference := _replay(vector)) is None:
                    agree += 1
                else:
                    differ += 1
                    print(f"{vector['id']}: {difference}")
        except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, AttributeError) as exc:
            print(f"{path}: cannot be read: {exc}", file=sys.stderr)
            return 2
    print(f"{agree} agree, {differ} differ, {skipped} out of scope")
    return 1 if differ else 0


def _replay(vector: Json) -> object:
    """The first difference, or why the vector could not be replayed: one such vector must not hide the others."""
    try:
        return run(vector)
    except Exception as exc:  # noqa: BLE001 - whatever a vector does to us is a disagreement about it
        return f"cannot be replayed: {type(exc).__name__}: {exc}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

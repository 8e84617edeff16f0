"""
The test guest for people: ``python -m support.guest build | boot-time | shell | run CMD``.

Exit status: that of CMD for ``run``; 1 when the guest or its image failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from support.guest import console
from support.guest.errors import GuestError
from support.guest.image import ensure_image


def build() -> int:
    """Build the image where there is none; print its folder."""
    print(ensure_image().directory)
    return 0


def boot_time() -> int:
    """Print how long a cold boot, a start from the snapshot, a load and a command take."""
    image = ensure_image()
    started = time.monotonic()
    with image.start(snapshot=None) as guest:
        guest.run("systemctl is-system-running --wait", timeout_s=300, check=False)
        print(f"cold boot      {time.monotonic() - started:8.1f} s")
    started = time.monotonic()
    with image.start() as guest:
        print(f"snapshot start {time.monotonic() - started:8.1f} s")
        for what, act in (("save", guest.save), ("load", guest.load)):
            started = time.monotonic()
            act("timed")
            print(f"snapshot {what}  {time.monotonic() - started:8.1f} s")
        started = time.monotonic()
        for _ in range(20):
            guest.run("true")
        print(f"command        {(time.monotonic() - started) / 20 * 1000:8.1f} ms")
    return 0


def shell() -> int:
    """Put the terminal on the console of a fresh guest."""
    with ensure_image().start() as guest:
        guest.run(console.size_command(), check=False)
        print(f"root on the test guest; {console.LEAVE_KEY_NAME} ends it", file=sys.stderr)
        console.attach(guest.console_socket)
    print("\nthe guest is gone", file=sys.stderr)
    return 0


def run(command: str) -> int:
    """Run one command in a fresh guest."""
    with ensure_image().start() as guest:
        completed = guest.run(command, check=False, timeout_s=600)
    sys.stdout.write(completed.stdout)
    sys.stderr.write(completed.stderr)
    return completed.status if completed.status >= 0 else 128 - completed.status


PLAIN: Mapping[str, Callable[[], int]] = {"build": build, "boot-time": boot_time, "shell": shell}


def main(arguments: Sequence[str]) -> int:
    """Carry out one verb; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m support.guest")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, act in PLAIN.items():
        verbs.add_parser(name, help=act.__doc__)
    verbs.add_parser("run", help=run.__doc__).add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "run":
            return run(" ".join(given.command))
        return PLAIN[given.verb]()
    except GuestError as exc:
        print(exc, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

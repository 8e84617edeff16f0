"""``numapin run``: the daemon in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from numapin.daemon.service import Service
from numapin.daemon.suitability import WITHOUT_CPUSET, WITHOUT_ROOT
from numapin.model.errors import ExitStatus, NoCpusetController, NotPermitted


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Serve until SIGTERM or SIGINT.

    What this host is not made for is told first: in plain words on a terminal, else in the log like all that follows.

    Raises:
        NotPermitted: Not root on a real machine.
        NoCpusetController: As `Service.run`, with a note about what works without.
    """
    root: Path = args.root
    if root == Path("/") and os.geteuid() != 0:
        raise NotPermitted(
            "numapin run must be root: it writes cpuset.mems of other users' containers and reads their metadata.\n"
            + WITHOUT_ROOT
        )
    service = Service(root, args.config, dry_run=args.dry_run)
    try:
        return service.run(_say if sys.stderr.isatty() else None)
    except NoCpusetController as exc:
        exc.add_note(WITHOUT_CPUSET)
        raise


def _say(sentence: str) -> None:
    print(f"numapin: {sentence}", file=sys.stderr, flush=True)

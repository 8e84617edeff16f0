"""``numapin run``: the daemon in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from numapin.daemon.service import Service
from numapin.model.errors import ExitStatus, NotPermitted


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Serve until SIGTERM or SIGINT.

    Raises:
        NotPermitted: Not root on a real machine.
    """
    root: Path = args.root
    if root == Path("/") and os.geteuid() != 0:
        raise NotPermitted(
            "numapin run must be root: it writes cpuset.mems of other users' containers and reads their metadata.\n"
            "Without root these work: numapin topology, numapin check-config, numapin status (group numapin)"
        )
    service = Service(root, args.config, dry_run=args.dry_run)
    if sys.stderr.isatty():
        for line in service.suitability():
            print(f"numapin: {line}", file=sys.stderr)
    return service.run()

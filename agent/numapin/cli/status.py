"""``numapin status``: books, groups and Guaranteed containers, from the daemon or from its checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from numapin.cli.client import ask
from numapin.model.errors import ExitStatus, NotRunning


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Show what the daemon says; with the daemon down show the checkpoint, say so, and return NOT_RUNNING.

    Raises:
        NotPermitted: Neither root nor in the group ``numapin``.
    """
    status = ExitStatus.OK
    try:
        document = ask(args, "status")
    except NotRunning as exc:
        from numapin.cli.configured import state_of
        from numapin.cli.starting import not_running
        from numapin.daemon.offline import offline_status
        from numapin.kernel.clock import SystemClock

        document = offline_status(state_of(args), not_running(exc), SystemClock())
        status = ExitStatus.NOT_RUNNING
    show(document, args.output)
    return status


def show(document: Mapping[str, object], output: str) -> None:
    """Print a status document in the chosen form."""
    if output == "json":
        print(json.dumps(document, sort_keys=True, indent=2))
        return
    from numapin.cli.render_status import render_status

    render_status(document)

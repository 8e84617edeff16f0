"""``numapin containers``: every container found, its class with the rule that gave it, its request and its nodes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from numapin.cli.client import ask
from numapin.model.errors import ExitStatus


def run(args: argparse.Namespace) -> ExitStatus:
    """
    List what the daemon tracks, or with ``--root`` what a look at the cgroup tree finds.

    Raises:
        NotRunning, NotPermitted: As the API socket says.
        NoCpusetController, KernelError, ConfigError: With ``--root``, when the tree cannot be read.
    """
    if args.root is not None:
        from numapin.daemon.survey import found_containers

        document = found_containers(args.root)
    else:
        document = ask(args, "containers")
    if args.output == "json":
        print(json.dumps(document, sort_keys=True, indent=2))
    else:
        from numapin.cli.render_status import render_containers

        render_containers(document)
        _say_unreadable(document)
    return ExitStatus.OK


def _say_unreadable(document: Mapping[str, object]) -> None:
    """One line where a look without root could not see everything."""
    closed = document.get("unreadable")
    if isinstance(closed, list) and closed:
        from numapin.cli.table import console, say
        from numapin.daemon.unseen import closed_sentence

        say(console(), f"! {closed_sentence(tuple(map(str, closed)))}", rest="  ")

"""``numapin explain ID`` and ``numapin explain CODE``: why a container is where it is, or what a code means."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from numapin.cli.client import ask
from numapin.cli.codes import CODES
from numapin.model.errors import CheckpointError, ExitStatus, NotRunning, RequestFailed


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Say why, from the daemon or, with the daemon down, from its checkpoint (NOT_RUNNING then).

    A code is never looked for among the containers: one of that name is found by its id or its cgroup.

    Raises:
        NotPermitted: Neither root nor in the group ``numapin``.
        RequestFailed: No container is meant (exit 1, with the daemon down 3), or several (exit 2).
        RequestFailed: The daemon is down, and its checkpoint is missing or cannot be believed (exit 3).
    """
    if args.what in CODES:
        show_code(args.what, args.output)
        return ExitStatus.OK
    try:
        document, status = _document(args)
    except RequestFailed as exc:
        if exc.code != "unknown-container" or not (code := _similar_code(args.what)):
            raise
        raise RequestFailed(exc.code, f"{exc}; did you mean the code {code}?", exc.exit_status) from exc
    show(document, args.output)
    return status


def _document(args: argparse.Namespace) -> tuple[Mapping[str, object], ExitStatus]:
    """The explanation from the daemon, or from its checkpoint with NOT_RUNNING."""
    try:
        return ask(args, "explain", {"container": args.what}), ExitStatus.OK
    except NotRunning as exc:
        from numapin.cli.configured import state_of
        from numapin.cli.starting import not_running
        from numapin.daemon.explain import offline_explanation
        from numapin.kernel.clock import SystemClock

        state, why = state_of(args), not_running(exc)
        try:
            document = offline_explanation(state, why, SystemClock(), args.what)
        except CheckpointError as damaged:
            raise RequestFailed(damaged.code, f"{why}; and {damaged}", ExitStatus.NOT_RUNNING) from damaged
        except RequestFailed as unknown:
            if unknown.code != "unknown-container":
                raise
            raise RequestFailed(unknown.code, str(unknown), ExitStatus.NOT_RUNNING) from unknown
        return document, ExitStatus.NOT_RUNNING


def _similar_code(text: str) -> str:
    """The code that a mistyped *text* may mean; empty where it looks like none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(text, CODES, n=1, cutoff=0.8)), "")


def show(document: Mapping[str, object], output: str) -> None:
    """Print an explanation in the chosen form."""
    if output == "json":
        import json

        print(json.dumps(document, sort_keys=True, indent=2))
        return
    from numapin.cli.render_explain import render_explanation

    render_explanation(document)


def show_code(code: str, output: str) -> None:
    """Print what a code means in the chosen form."""
    if output == "json":
        from numapin.cli.json_output import print_json

        print_json("Code", {"code": code, "text": CODES[code]})
        return
    from numapin.cli.table import console, say

    say(console(), f"{code}: {CODES[code]}")

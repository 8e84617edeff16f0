"""``numapin doctor``: whether this host has what numapin needs, and what to do where it has not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from numapin.cli.client import ask
from numapin.cli.starting import how_to_start
from numapin.cli.text import output_width, safe, wrapped
from numapin.daemon.doctor import Check, Verdict, examine
from numapin.model.errors import ExitStatus, NoAnswer, NotPermitted, NotRunning, RequestFailed

_INDENT = 24


def run(args: argparse.Namespace) -> ExitStatus:
    """Look at everything, print a line each, and return FAILURE when one of them is a problem."""
    checks = examine(args.root, args.config)
    if args.root == Path("/"):
        checks += _service(args, checks)
    worst = Verdict.PROBLEM in (c.verdict for c in checks)
    if args.output == "json":
        from numapin.cli.json_output import print_json

        rows = [{"name": c.name, "verdict": c.verdict.value, "message": c.sentence} for c in checks]
        print_json("Doctor", {"ok": not worst, "checks": rows})
    else:
        for check in checks:
            print(_line(check))
        print(f"\n{_sum_up(checks)}")
    return ExitStatus.FAILURE if worst else ExitStatus.OK


def _service(args: argparse.Namespace, checks: Sequence[Check]) -> list[Check]:
    """What the daemon says of itself; one that does not run is no problem before it was enabled."""
    try:
        status = ask(args, "status")
    except NotPermitted as exc:
        return [Check("service", Verdict.NOTE, f"not asked: {exc}")]
    except NotRunning:
        return [Check("service", Verdict.NOTE, f"does not run; {_how(checks)}")]
    except (NoAnswer, RequestFailed) as exc:
        return [Check("service", Verdict.PROBLEM, str(exc))]
    findings = status.get("findings")
    rows = findings if isinstance(findings, list) else []
    said = [Check("service", Verdict.NOTE, str(row.get("message"))) for row in rows if isinstance(row, dict)]
    return [Check("service", Verdict.OK, f"runs: {status.get('summary')}"), *said]


def _how(checks: Sequence[Check]) -> str:
    """What starts the daemon here, after what keeps it from starting."""
    start = how_to_start(at_boot=True)
    if any(c.name == "configuration" and c.verdict is Verdict.PROBLEM for c in checks):
        return f"with this configuration it cannot start: mend the problems named above first, then: {start}"
    return f"start it with: {start}"


def _line(check: Check) -> str:
    mark = {Verdict.OK: "ok", Verdict.NOTE: "note", Verdict.PROBLEM: "PROBLEM"}[check.verdict]
    head = f"{mark:<9}{check.name:<{_INDENT - 9}}"
    return wrapped(safe(check.sentence, limit=2000), output_width(), first=head, rest=" " * _INDENT)


def _sum_up(checks: Sequence[Check]) -> str:
    problems = sum(c.verdict is Verdict.PROBLEM for c in checks)
    if not problems:
        return "Everything that numapin needs is here."
    return f"{problems} problem{'s' * (problems > 1)}: numapin cannot do its work, or part of it, until mended."

"""``numapin release ID|--all``: pins are taken back and the cgroups get what stood there before."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numapin.cli.client import ask
from numapin.cli.text import output_width, safe, wrapped
from numapin.model.errors import ExitStatus, NotPermitted, NotRunning, RequestFailed

POLL_S = 0.2
PATIENCE_S = 90.0
"""How long to wait for the kernel, which may be moving a container's pages, and for systemd."""


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Release one container or all and wait until the cgroups are as before; FAILURE when one of them is not.

    With the daemon down, ``--all`` works from its checkpoint and says so. One container needs the daemon: the next
    start would pin it again.

    Raises:
        NotPermitted: Not root.
        NotRunning: One container was named, and no daemon answers.
        RequestFailed: No such container, or it has nothing to release.
    """
    if os.geteuid() != 0:
        raise NotPermitted("numapin release changes something and is for root only; run it with sudo")
    document: Mapping[str, Any]
    try:
        document = _by_daemon(args)
    except NotRunning as exc:
        if not args.all:
            detail = f"{exc.detail}; one container needs it, release --all works without"
            raise NotRunning(exc.socket, detail) from exc
        document = _from_checkpoint(args, str(exc))
    if args.output == "json":
        import json

        print(json.dumps(document, sort_keys=True, indent=2))
    else:
        _show(document)
    done = not document["pending"] and not any(row["problem"] for row in document["containers"])
    return ExitStatus.OK if done else ExitStatus.FAILURE


def _by_daemon(args: argparse.Namespace) -> Mapping[str, Any]:
    wanted: dict[str, object] = {"all": True} if args.all else {"container": args.container}
    document: Mapping[str, Any] = ask(args, "release", wanted)
    meant = {row["cgroup"] for row in document["containers"]}
    if not args.all and document["containers"]:
        wanted = {"container": document["containers"][0]["cgroup"]}
    waiting = threading.Event()
    for _ in range(round(PATIENCE_S / POLL_S)):
        if not document["pending"]:
            break
        waiting.wait(POLL_S)
        try:
            report: Mapping[str, Any] = ask(args, "release", wanted | {"report": True})
        except RequestFailed as exc:
            if exc.code != "unknown-container":
                raise
            report = {**document, "containers": []}  # the only one that was meant has ended
        # a report has every released one, those of an earlier release too
        rows = [row for row in report["containers"] if row["cgroup"] in meant]
        gone = meant - {row["cgroup"] for row in rows}
        rows += [_ended_meanwhile(row) for row in document["containers"] if row["cgroup"] in gone]
        document = {**report, "containers": rows, "pending": sum(bool(row["pending"]) for row in rows)}
    return document


def _ended_meanwhile(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A container that was being put back and is not there any more."""
    if not row["pending"]:
        return row
    return {**row, "mems": None, "pending": False, "problem": None, "message": "it has ended"}


def _from_checkpoint(args: argparse.Namespace, why: str) -> Mapping[str, Any]:
    from numapin.cli.configured import state_of
    from numapin.daemon.release import release_offline
    from numapin.kernel.clock import SystemClock

    lock = Path(args.socket).with_name("lock")
    return release_offline(Path(args.root), state_of(args), lock, why=why, clock=SystemClock())


def _show(document: Mapping[str, Any]) -> None:
    source, rows = document["source"], document["containers"]
    if source["from"] == "checkpoint":
        found = "" if source["found"] else ", and there is none"
        _say(safe(source["why"], limit=400))
        _say(f"Releasing from the checkpoint {safe(source['path'])}{found}.")
        if source.get("earlier_boot"):
            _say("It was saved before this machine was started: nothing of it stands in a cgroup any more.")
        for reason in source["damaged"]:
            _say(f"The generation before it was taken: {safe(reason, limit=400)}.")
    for row in rows:
        _say(_sentence(row))
    print(_sum(rows, pending=document["pending"]))
    for path in document.get("cpuset_left_enabled", ()):
        file = safe(f"/sys/fs/cgroup{path}/cgroup.subtree_control", limit=400)
        _say(f"numapin enabled cpuset in {file}; it stays enabled, for others may depend on it by now.")
    if document["all"] and source["from"] == "daemon":
        print("Nothing is pinned any more until the daemon is started again.")
    elif source["from"] == "daemon" and any(row["mems"] is not None and not row["problem"] for row in rows):
        print("It is decided again when it or the daemon is started again.")


def _say(text: str) -> None:
    print(wrapped(text, output_width(), rest="  "))


def _sentence(row: Mapping[str, Any]) -> str:
    name = f"{safe(row['name'])} ({safe(row['cgroup'], limit=300)})"
    if row["problem"]:
        return f"{name}: NOT released: {safe(row['problem'], limit=400)}"
    if row["pending"]:
        return f"{name}: still being put back"
    if _started_again(row):
        return f"{name}: was started again meanwhile, and is decided anew: {safe(row['state'])}"
    mems = f"cpuset.mems is {row['mems'] or 'empty'}" if row["mems"] is not None else "its cgroup is gone"
    return f"{name}: released, {mems}" + (f"; {safe(row['message'], limit=400)}" if row["message"] else "")


def _started_again(row: Mapping[str, Any]) -> bool:
    """True for another container of the same cgroup, which came while the first one was put back."""
    return not row["problem"] and not row["pending"] and row["state"] != "released"


def _sum(rows: Sequence[Mapping[str, Any]], *, pending: int) -> str:
    failed = sum(bool(row["problem"]) for row in rows)
    again = sum(_started_again(row) for row in rows)
    words = [f"{len(rows) - failed - pending - again} released"]
    words += [f"{again} started again meanwhile"] if again else []
    words += [f"{failed} not released"] if failed else []
    words += [f"{pending} still pending: run this again"] if pending else []
    return ", ".join(words)

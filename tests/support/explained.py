"""
Ten containers in ten situations on one machine of plain files, and what ``numapin explain`` says about each.

The manual page shows this text: ``python -m support.explained`` (with ``tests`` and ``agent`` on the path) writes it
into ``packaging/man/numapin.8`` anew, and a test compares.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from numapin.cli.render_explain import render_explanation
from numapin.daemon.explain import Known, explain_document
from numapin.daemon.status import container_row
from numapin.planner.accounting import misfits
from support.cgroup_trees import BURSTABLE_SLICE, cri, oci, write_files
from support.daemon import Host
from support.machines import GIB, MIB, PAGE_2M, Pool, even

MANUAL = Path(__file__).parents[2] / "packaging/man/numapin.8"
BEGIN = '.\\" Written by tests/support/explained.py, from here'
END = '.\\" to here.'
WIDTH = 73

NAMES = (
    "orders-db",
    "search-index",
    "reports",
    "packets",
    "analytics",
    "cache",
    "legacy",
    "scratch",
    "web",
)
"""The Docker containers, in the order of the manual page."""
IN_POD = "web-0/api"


def situations(root: Path) -> Host:
    """The machine with all ten decided: four nodes of 10 GiB, 2 GiB of them in pages of 2 MiB."""
    pools = {PAGE_2M: Pool(1024, free=512)}
    host = Host(root, nodes=even(4, memory=10 * GIB, pools=pools))
    host.start()
    _arrive(host, _docker(host, "legacy", 2, effective="3", mems="3"))
    _arrive(host, _docker(host, "orders-db", 4, effective="0"))
    _arrive(host, _docker(host, "search-index", 12, effective="1-2"))
    _arrive(host, _docker(host, "reports", 7.5))  # more than any single node has left
    _arrive(host, _docker(host, "packets", 1, hugetlb={"2MB": 3 * GIB // 2}))  # more pages than the kernel has free
    _arrive(host, _docker(host, "cache", 1, effective="0-3"))  # the kernel grants something else than asked
    _arrive(host, _docker(host, "web", 0.25, quota=None))
    _arrive(host, _docker(host, "scratch", 0, annotations={"numapin.guaranteed": "true"}))  # of what size?
    analytics = _docker(host, "analytics", 3)
    _crowd(host, analytics)
    _arrive(host, analytics)
    pod = _identity(IN_POD)
    host.tree.task("k8s.io", pod, oci(annotations=cri("api", pod="web-0")))
    _arrive(host, host.container(f"{BURSTABLE_SLICE}/cri-containerd-{pod}.scope", memory=256 * MIB))
    return host


def _docker(
    host: Host,
    name: str,
    gib: float,
    *,
    quota: int | None = 50_000,
    effective: str = "0-3",
    annotations: dict[str, str] | None = None,
    **options: Any,
) -> str:
    """A Docker container with its metadata."""
    container_id = _identity(name)
    directory = host.root / "var/lib/docker/containers" / container_id
    write_files(directory, {"config.v2.json": json.dumps({"Name": f"/{name}"})})
    memory = int(gib * GIB) or None
    document = oci(memory=memory, quota=quota, mems=options.get("mems", ""), annotations=annotations)
    host.tree.task("moby", container_id, document)
    path = f"/system.slice/docker-{container_id}.scope"
    return host.container(path, memory=memory, quota=quota, effective=effective, **options)


def _identity(name: str) -> str:
    return sha256(name.encode()).hexdigest()


def _arrive(host: Host, path: str) -> None:
    host.agent.on_created([path])
    host.wait_for_writes()


def _crowd(host: Host, path: str) -> None:
    """The container's pages are on node 1, and no other node has room for them now."""
    host.holds(path, {0: 0, 1: 2 * GIB, 2: 0, 3: 0})
    for node in (0, 3):
        meminfo = host.root / f"sys/devices/system/node/node{node}/meminfo"
        text = meminfo.read_text()
        free = next(line for line in text.splitlines() if "MemFree:" in line)
        meminfo.write_text(text.replace(free, free.replace(free.split()[-2], "409600")))


def explained(host: Host, name: str) -> Mapping[str, Any]:
    """The document about one of them, as the daemon answers it."""
    rows = [container_row(view) for view in host.agent.views.values()]
    ledger, retry = host.agent.ledger, host.agent.machine.config.retry_refused
    known = Known(rows, ledger.pins, ledger.refusals, (), misfits(ledger.books), retry)
    return explain_document(known, name, {"from": "daemon"})


def rendered(document: Mapping[str, Any]) -> str:
    """The human form, as wide as the manual page."""
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(out):
            render_explanation(document)
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def examples(root: Path) -> dict[str, str]:
    """What is said about each, by what was asked for."""
    host = situations(root)
    try:
        return {name: rendered(explained(host, name)) for name in (*NAMES, IN_POD)}
    finally:
        host.stop()


def manual_part(said: Mapping[str, str]) -> str:
    """The examples in the manual page's language."""
    lines = [BEGIN]
    for name, text in said.items():
        body = [f"$ numapin explain {name}", *text.splitlines()]
        lines += [".Bd -literal", *map(_escaped, body), ".Ed"]
    return "\n".join([*lines, END]) + "\n"


def _escaped(line: str) -> str:
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def parts(manual: str) -> tuple[str, str, str]:
    """The manual page before, within and after the examples, the marks with the middle."""
    before, mark, rest = manual.partition(BEGIN)
    within, end, after = rest.partition(END + "\n")
    return before, mark + within + end, after


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        text = manual_part(examples(Path(directory)))
    before, _, after = parts(MANUAL.read_text())
    MANUAL.write_text(before + text + after)

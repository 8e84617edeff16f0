"""Agents on machines that mean harm: what they write, log and show."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from numapin.cli.render_explain import render_explanation
from numapin.cli.render_status import render_containers, render_status
from numapin.daemon.config_keys import LogFormat
from numapin.daemon.explain import Known, explain_document
from numapin.daemon.logs import set_up_logging
from numapin.daemon.offline import offline_status
from numapin.daemon.outcome import unsaid
from numapin.daemon.status import About, container_row, containers_document, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from support.daemon import Host, docker
from support.hostile import fuzz_trees
from support.hostile_trees import Hostile, build, snapshot

FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where files are made in memory; these machines are hundreds of files each."""


def run(found: Hostile) -> None:
    """A start, another look, a restart from the checkpoint, a look at each container, and an orderly end."""
    host = found.host
    host.start()
    host.wait_for_writes()
    host.agent.full_pass()
    for path in found.containers:
        host.agent.on_created([path])
        host.agent.on_state([path])
    host.wait_for_writes()
    host.restart()
    host.wait_for_writes()
    host.sound()


def about(found: Hostile) -> About:
    """Facts of a process for the status, with what could not be read."""
    discovery = found.host.tree.discovery()
    discovery.scan()
    return About(
        pid=1,
        started_wall_ns=0,
        started_monotonic_ns=0,
        cgroup_version=found.host.tree.version.value,
        boot_id="b",
        checkpoint="/var/lib/numapin/state.json",
        process=dict,
        findings=lambda: [("unreadable", sentence) for sentence in discovery.problems],
    )


def shown(render: Callable[[Any], None], document: Any, columns: str = "") -> str:
    """What a command prints, *columns* wide."""
    text = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = columns
    try:
        with redirect_stdout(text):
            render(document)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return text.getvalue()


@fuzz_trees
@given(data=st.data())
def test_nothing_is_written_outside_a_containers_own_cgroup(data: st.DataObject) -> None:
    """Whatever documents and links say, only the nodes of containers change, and nobody else's file."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        found = data.draw(machines(Path(folder)))
        run(found)

        assert found.changed() - found.allowed() == set()


@fuzz_trees
@given(data=st.data())
def test_no_log_line_is_forged_and_no_table_broken(data: st.DataObject) -> None:
    """Each event is one line, each container one row, each sentence one line, no wider than a word makes it."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        found = data.draw(machines(Path(folder)))
        run(found)

        for form in (LogFormat.JSON, LogFormat.CONSOLE):
            lines = logged(found, form, Path(folder) / form.value)
            assert len(found.host.log.lines) == len(lines)
            assert all(line.isprintable() for line in lines)
            if form is LogFormat.JSON:
                assert found.host.log.events() == [json.loads(line)["event"] for line in lines]
        agent = found.host.agent
        containers = json.loads(json.dumps(containers_document(agent)))
        status = json.loads(json.dumps(status_document(agent, about(found), now_ns=10**9, wall_ns=10**18)))
        offline = offline_status(found.host.file.path, "test", found.host.clock)
        wide = shown(render_containers, containers)
        everything = [wide, *(shown(render_status, d, c) for d in (status, offline) for c in ("", "60"))]
        for view in agent.views.values():
            known = Known([container_row(view)], agent.ledger.pins, agent.ledger.refusals)
            document = explain_document(known, view.record.cgroup, {"from": "daemon"})
            everything.append(shown(render_explanation, json.loads(json.dumps(document))))
        rows = containers["containers"]
        said = sum(bool(r["message"]) for r in rows if r["state"] != "not-managed")
        said += sum(len(unsaid(r)) for r in rows if r["state"] not in QUIET)
        assert len(wide.splitlines()) == 1 + len(rows) + said
        assert all(line.isprintable() for text in everything for line in text.split("\n"))
        folded = shown(render_status, status, "60").split("\n")
        assert all(cell_len(line) <= 60 or len(line.split()) == 1 for line in folded)  # a path stays whole


def test_what_an_honest_container_changes(tmp_path: Path) -> None:
    """The measure itself: of a whole machine one file changes, the container's own ``cpuset.mems``."""
    found = Hostile(Host(tmp_path))
    path = found.host.guaranteed(docker(1), effective="0")
    found.containers.append(path)
    (tmp_path / "var/lib").mkdir(parents=True)
    found.before = snapshot(tmp_path)

    run(found)

    assert found.changed() == {f"sys/fs/cgroup{path}/cpuset.mems"}


QUIET = ("pinned", "not-managed")


def logged(found: Hostile, form: LogFormat, path: Path) -> list[str]:
    """The lines that the daemon's log has in this form."""
    with path.open("wb") as file:
        log = set_up_logging(form=form, fd=file.fileno(), environ={})
        for _, event, facts in found.host.log.lines:
            log.info(event, **facts)
    return path.read_text().split("\n")[:-1]


@st.composite
def machines(draw: st.DrawFn, folder: Path) -> Hostile:
    """A machine in *folder*."""
    return build(folder / "machine", draw, draw(st.sampled_from(CgroupVersion)))

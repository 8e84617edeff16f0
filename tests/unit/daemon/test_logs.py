"""Log lines as a reader of standard error sees them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.config_keys import LogFormat, LogLevel
from numapin.daemon.logs import Log, get_logger, set_up_logging
from numapin.model.nodeset import NodeSet


@dataclass
class Output:
    """A file that logs go to."""

    path: Path
    fd: int

    def stream(self) -> str:
        """This file as journald would name it."""
        found = os.fstat(self.fd)
        return f"{found.st_dev}:{found.st_ino}"

    def log(
        self, form: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO, *, journal: str | None = None
    ) -> Log:
        """Logging set up to this file; *journal* is the environment's JOURNAL_STREAM."""
        environ = {} if journal is None else {"JOURNAL_STREAM": journal}
        return set_up_logging(level, form, fd=self.fd, environ=environ)

    def take(self) -> str:
        """What came since the last call."""
        text = self.path.read_text()
        os.ftruncate(self.fd, 0)
        return text

    def event(self) -> dict[str, Any]:
        """The only line, as JSON."""
        found: dict[str, Any] = json.loads(self.take())
        return found


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Output]:
    """An open file."""
    path = tmp_path_factory.mktemp("logs") / "stderr"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield Output(path, fd)
    os.close(fd)


def test_json_line(output: Output) -> None:
    """A line is one JSON object: time in UTC, level, event, then the facts."""
    output.log().info("container_placed", container_id="abc", mems=NodeSet.of(0, 1), size_bytes=5, ok=True, none=None)
    event = output.event()

    assert list(event) == ["timestamp", "level", "event", "container_id", "mems", "size_bytes", "ok", "none"]
    assert {k: v for k, v in event.items() if k != "timestamp"} == {
        "level": "info", "event": "container_placed", "container_id": "abc", "mems": "0-1", "size_bytes": 5,
        "ok": True, "none": None,
    }  # fmt: skip
    assert event["timestamp"].endswith("Z")


def test_levels(output: Output) -> None:
    """Lines below the level are not written, and every level has its method."""
    log = output.log(level=LogLevel.WARNING)
    for method in (log.debug, log.info, log.warning, log.error, log.critical):
        method("x")

    assert [json.loads(line)["level"] for line in output.take().splitlines()] == ["warning", "error", "critical"]


def test_level_changes_for_logs_given_out_before(output: Output) -> None:
    """A reload changes the level of a log that a part of the daemon already holds."""
    held = output.log(level=LogLevel.ERROR)
    held.info("before")
    output.log(level=LogLevel.DEBUG)
    held.debug("after")

    assert output.event()["event"] == "after"


def test_bound_facts(output: Output) -> None:
    """Facts bound to a log are on each of its lines."""
    output.log()
    get_logger(cgroup="/a").bind(node=1).warning("x", node=2)
    event = output.event()

    assert (event["cgroup"], event["node"]) == ("/a", 2)


def test_trace(output: Output) -> None:
    """An exception is one value of a JSON line, and lines behind a bar on the console."""
    for form in (LogFormat.JSON, LogFormat.CONSOLE):
        log = output.log(form)
        try:
            raise RuntimeError("first\nsecond")
        except RuntimeError:
            log.exception("step_failed")
        if form is LogFormat.JSON:
            assert "RuntimeError: first\nsecond" in output.event()["exception"]
        else:
            first, *rest = output.take().splitlines()
            assert first.endswith("error    step_failed")
            assert rest[-2:] == ["    | RuntimeError: first", "    | second"]
            assert all(line.startswith("    | ") for line in rest)


_values = st.recursive(
    st.text(alphabet=st.characters(), max_size=30) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(value=_values, journal=st.booleans(), form=st.sampled_from([LogFormat.JSON, LogFormat.CONSOLE]))
def test_no_value_forges_a_line(output: Output, value: object, journal: bool, form: LogFormat) -> None:
    """Whatever a value holds, it makes one line, without control characters or line separators."""
    output.log(form, journal=output.stream() if journal else None).info("seen", name=value)
    text = output.take()

    assert text.startswith("<6>") is journal
    assert len(text.splitlines()) == 1
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if form is LogFormat.JSON:
        assert json.loads(text.removeprefix("<6>"))["event"] == "seen"


@pytest.mark.parametrize(
    ("method", "priority"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3), ("critical", 2)]
)
def test_priorities(output: Output, method: str, priority: int) -> None:
    """On journald's stream each line begins with its syslog priority, also those of a trace."""
    log = output.log(LogFormat.CONSOLE, LogLevel.DEBUG, journal=output.stream())
    getattr(log, method)("x", exc_info=ValueError("a\nb"))

    assert all(line.startswith(f"<{priority}>") for line in output.take().splitlines())


def test_another_stream(output: Output) -> None:
    """A JOURNAL_STREAM that is not ours (standard error was redirected) changes nothing."""
    output.log(journal="1:2").info("x")

    assert output.take().startswith("{")


def test_auto_format(output: Output) -> None:
    """JSON goes to a file, text to a terminal."""
    output.log(LogFormat.AUTO).info("x")
    assert output.take().startswith("{")
    leader, terminal = os.openpty()
    set_up_logging(LogLevel.INFO, LogFormat.AUTO, fd=terminal, environ={}).info("placed", mems="0-1", name="a b")
    line = os.read(leader, 4096).decode()
    os.close(leader)
    os.close(terminal)

    assert line[12:] == ' info     placed  mems=0-1  name="a b"\r\n'


def test_long_values_are_cut(output: Output) -> None:
    """A value longer than 2,000 characters is cut, so that journald does not split the line."""
    output.log().info("x", name="y" * 100_000)

    assert output.event()["name"] == "y" * 2000 + "…"


def test_nobody_reads(output: Output) -> None:
    """A closed pipe or a full disk loses lines and raises nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    set_up_logging(fd=writer, form=LogFormat.JSON, environ={}).error("x")
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    full = os.open("/dev/full", os.O_WRONLY)
    set_up_logging(fd=full, form=LogFormat.JSON, environ={}).error("x")
    with pytest.raises(OSError) as caught:
        os.write(full, b"x")
    os.close(full)

    assert caught.value.errno == errno.ENOSPC


def test_rich_is_not_loaded() -> None:
    """Importing the daemon's logging loads structlog but not rich, which stays importable."""
    code = (
        "import sys, numapin.daemon.logs\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] == 'rich']\n"
        "import rich.table\n"
        "print('structlog' in sys.modules, loaded)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "True []\n"

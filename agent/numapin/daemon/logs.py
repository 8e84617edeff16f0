"""Logging, set up once: structlog to standard error.

Owns: the shape of a log line. Must never: let a value forge a line, fail the daemon because nobody reads, or load
rich (structlog does when it finds it, which costs the daemon 5 MiB).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Protocol, cast

from numapin.daemon.config_keys import LogFormat, LogLevel


def _import_structlog() -> Any:
    """structlog without rich: a ``None`` among the loaded modules makes ``import rich`` fail, as if not installed."""
    hidden = [name for name in ("rich",) if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = cast(Any, None)
    try:
        import structlog
    finally:
        for name in hidden:
            del sys.modules[name]
    return structlog


structlog = _import_structlog()

_MAX_VALUE_CHARS = 2_000
"""journald cuts lines at 48 KiB and would show the rest as a line of its own."""

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""syslog(3) levels, which journald takes from a ``<n>`` before the line."""

_LEVELS = {LogLevel.DEBUG: 10, LogLevel.INFO: 20, LogLevel.WARNING: 30, LogLevel.ERROR: 40}

Event = MutableMapping[str, Any]


class Log(Protocol):
    """
    What the daemon's parts are given to log with: a constant snake_case event and facts as keywords.

    ``bind`` gives a log that adds the same facts to every line. ``exception`` adds the trace of the one in flight.
    """

    def bind(self, **facts: object) -> Log: ...

    def debug(self, event: str, **facts: object) -> None: ...

    def info(self, event: str, **facts: object) -> None: ...

    def warning(self, event: str, **facts: object) -> None: ...

    def error(self, event: str, **facts: object) -> None: ...

    def critical(self, event: str, **facts: object) -> None: ...

    def exception(self, event: str, **facts: object) -> None: ...


def set_up_logging(
    level: LogLevel = LogLevel.INFO,
    form: LogFormat = LogFormat.AUTO,
    *,
    fd: int = 2,
    environ: Mapping[str, str] | None = None,
) -> Log:
    """
    Log to *fd* from now on. A reload may call it again: logs given out before follow, those made by ``bind`` do not.

    JSON, one object per line with ``timestamp`` (UTC), ``level``, ``event``; or, on a terminal or when asked for,
    text. When *fd* is journald's stream (``JOURNAL_STREAM`` in *environ*, default ``os.environ``) each line begins
    with its priority.

    Source: systemd.exec(5) for ``JOURNAL_STREAM``, sd-daemon(3) for the priorities.
    """
    journal = _is_journal(fd, os.environ if environ is None else environ)
    console = form is LogFormat.CONSOLE or (form is LogFormat.AUTO and os.isatty(fd))
    render = _console_line if console else _json_line
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_trace,
            _Renderer(render, journal=journal),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        context_class=dict,
        logger_factory=lambda *_: _Lines(fd),
        cache_logger_on_first_use=False,
    )
    return get_logger()


def get_logger(**facts: object) -> Log:
    """A log that adds *facts* to each of its lines; before `set_up_logging` it must not be used."""
    return cast(Log, structlog.get_logger(**facts))


class _Lines:
    """Writes each line with one ``write(2)``; a closed pipe or a full disk loses the line, not the daemon."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def msg(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass

    debug = info = warning = error = critical = msg


class _Renderer:
    def __init__(self, render: Callable[[Event], str], *, journal: bool) -> None:
        self._render = render
        self._journal = journal

    def __call__(self, logger: object, method: str, event: Event) -> str:
        line = self._render(event)
        if not self._journal:
            return line + "\n"
        prefix = f"<{_PRIORITY.get(str(event.get('level')), 6)}>"
        return "".join(f"{prefix}{part}\n" for part in line.split("\n"))


def _is_journal(fd: int, environ: Mapping[str, str]) -> bool:
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _add_trace(logger: object, method: str, event: Event) -> Event:
    """Turn ``exc_info`` into the text of the trace."""
    exc = event.pop("exc_info", None)
    if exc is True:
        exc = sys.exc_info()[1]
    if isinstance(exc, BaseException):
        event["exception"] = "".join(traceback.format_exception(exc)).rstrip()
    return event


def _json_line(event: Event) -> str:
    """Pure ASCII: no control character or line separator of a value reaches the reader's terminal."""
    order = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return json.dumps({str(k): _plain(v) for k, v in (order | dict(event)).items()}, ensure_ascii=True)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_cut(str(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return _cut(str(value))


def _console_line(event: Event) -> str:
    """Local time, level, event, then ``key=value``; a trace on lines of its own, each behind a bar."""
    left = dict(event)
    stamp = datetime.fromisoformat(str(left.pop("timestamp"))).astimezone().strftime("%H:%M:%S.%f")[:-3]
    level, name, trace = left.pop("level"), left.pop("event"), left.pop("exception", None)
    facts = "".join(f"  {_safe(str(k))}={_quoted(v)}" for k, v in left.items())
    line = f"{stamp} {level:<8} {_safe(str(name))}{facts}"
    if trace is not None:
        line += "".join(f"\n    | {_safe(part)}" for part in str(trace).split("\n"))
    return line


def _quoted(value: object) -> str:
    text = _cut(str(value))
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _safe(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in _cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "…"

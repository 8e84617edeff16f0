"""
From the command line to an exit status.

Owns: exit codes, what an error looks like, and ``sys.exit``. Must never: let a traceback be the answer to bad
input, or import a verb that was not asked for.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from numapin.cli.parser import VERBS, Verb, build_parser
from numapin.cli.text import safe_lines
from numapin.model.errors import ExitStatus, NotRunning, NumapinError

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as a shell reports it."""
EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of our output went away, as in ``numapin topology | head -1``."""


def entry() -> None:
    """Console script ``numapin``."""
    if sys.stdout is None:  # closed by the caller, as some daemons' children are started
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that is not UTF-8 gets \\u2026 instead of a traceback
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str], verbs: Mapping[str, Verb] = VERBS) -> int:
    """
    Run one command and return its exit status; every error becomes a message on standard error.

    With ``NUMAPIN_DEBUG=1`` in the environment an unexpected error also shows its trace.
    """
    try:
        status = _dispatch(argv, verbs)
        sys.stdout.flush()
    except NotRunning as exc:
        from numapin.cli.starting import not_running

        _complain(not_running(exc))
        return exc.exit_status
    except NumapinError as exc:
        _complain("\n".join([str(exc), *getattr(exc, "__notes__", ())]))
        return exc.exit_status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return EXIT_BROKEN_PIPE
    except Exception as exc:  # noqa: BLE001 - the last place before the user
        return _unexpected(exc)
    return status


def _dispatch(argv: Sequence[str], verbs: Mapping[str, Verb]) -> int:
    only = argv[0] if argv and argv[0] in verbs else None
    parser = build_parser(verbs, only=only, words=argv)
    try:
        if bare := next((w for w in argv if w.startswith("-") and len(w) > 2 and w.endswith(("=--", "o--"))), None):
            parser.error(f"argument {bare[:-2].rstrip('=')}: -- is no value")  # argparse would take it for none
        args = parser.parse_args(argv)
    except SystemExit as exc:  # argparse has printed help, version or usage
        return exc.code if isinstance(exc.code, int) else ExitStatus.OK
    if args.verb is None:
        parser.print_help(sys.stderr)
        return ExitStatus.USAGE
    status: ExitStatus = importlib.import_module(verbs[args.verb].module).run(args)
    return status


def _complain(sentence: str) -> None:
    try:
        print(f"numapin: {safe_lines(sentence)}", file=sys.stderr, flush=True)
    except OSError:  # nobody listens; the exit status still tells
        pass


def _unexpected(exc: Exception) -> int:
    if isinstance(exc, OSError) and exc.filename is None and exc.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        _forget_output()
        _complain(f"cannot write the output: {os.strerror(exc.errno)}")
        return ExitStatus.FAILURE
    _complain(
        f"internal error, please report: {type(exc).__name__}: {exc}"
        + ("" if _debugging() else " (NUMAPIN_DEBUG=1 shows where)")
    )
    if _debugging():
        import traceback  # costs 5 ms that no other run needs

        traceback.print_exception(exc)
    return ExitStatus.FAILURE


def _debugging() -> bool:
    return os.environ.get("NUMAPIN_DEBUG") == "1"


def _forget_output() -> None:
    """Point standard output to nowhere, so that the interpreter's last flush does not fail again."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a real file, as under a test
        pass

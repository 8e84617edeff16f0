"""
The command line as argparse sees it: every verb, its options, and the module that runs it.

Owns: names, options and help. Must never: import a verb's module; `main` does so for the chosen verb only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from numapin import __version__

DEFAULT_SOCKET = Path("/run/numapin/api.sock")
DEFAULT_STATE = Path("/var/lib/numapin/state.json")
DEFAULT_CONFIG = Path("/etc/numapin/numapin.toml")

_EXITS = "exit codes: 0 ok, 1 failure, 2 usage, 3 not running, 4 no permission, 5 does not fit, 6 configuration wrong"


@dataclass(frozen=True, slots=True)
class Verb:
    """
    One verb of ``numapin``.

    *module* has ``run(args: argparse.Namespace) -> ExitStatus``; *configure* adds the verb's options.
    """

    module: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]


def _run(parser: argparse.ArgumentParser) -> None:
    _root(parser)
    _config(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="decide and report everything, write nothing to any cgroup"
    )


def _status(parser: argparse.ArgumentParser) -> None:
    _output(parser)
    _socket(parser)
    parser.add_argument(
        "--state",
        type=Path,
        default=DEFAULT_STATE,
        metavar="FILE",
        help="checkpoint to show when no daemon answers (default: %(default)s)",
    )


def _topology(parser: argparse.ArgumentParser) -> None:
    _output(parser)
    _root(parser)


def _containers(parser: argparse.ArgumentParser) -> None:
    _output(parser)
    _socket(parser)
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="look at the cgroup tree below DIR directly, without a daemon (/ for this machine)",
    )


def _checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "verify"), help="print the file, or check that it can be believed")
    parser.add_argument(
        "file", nargs="?", type=Path, default=DEFAULT_STATE, metavar="FILE", help="(default: %(default)s)"
    )
    _output(parser)


def _check_config(parser: argparse.ArgumentParser) -> None:
    _config(parser)
    _output(parser)


VERBS: Mapping[str, Verb] = {
    "run": Verb("numapin.cli.run", "run the daemon in the foreground", _run),
    "status": Verb("numapin.cli.status", "show the books, the groups and every Guaranteed container", _status),
    "topology": Verb("numapin.cli.topology", "show this machine's NUMA nodes", _topology),
    "containers": Verb("numapin.cli.containers", "list the containers found, with class and placement", _containers),
    "checkpoint": Verb("numapin.cli.checkpoint", "show or verify the saved state", _checkpoint),
    "check-config": Verb("numapin.cli.check_config", "read the configuration and name every problem", _check_config),
}
"""Every verb, in the order of the help."""


def build_parser(verbs: Mapping[str, Verb] = VERBS) -> argparse.ArgumentParser:
    """
    The parser of the whole command line.

    ``verb`` in its namespace is ``None`` when none was given; it exits by itself (SystemExit) on ``--help``,
    ``--version`` (0) and usage errors (2).
    """
    parser = argparse.ArgumentParser(
        prog="numapin",
        description="NUMA memory for containers: who is promised what, on which node, and why.",
        epilog=_EXITS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"numapin {__version__}")
    choice = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, verb in verbs.items():
        sub = choice.add_parser(name, help=verb.help, description=_sentence(verb.help), allow_abbrev=False)
        verb.configure(sub)
    return parser


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="read every path below DIR: a recorded or made-up machine (default: %(default)s)",
    )


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"configuration file; conf.d beside it is read too (default: {DEFAULT_CONFIG}, which may be missing)",
    )


def _socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket",
        type=Path,
        default=DEFAULT_SOCKET,
        metavar="PATH",
        help="the daemon's API socket (default: %(default)s)",
    )


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="tables for people, or JSON with bytes as integers (default: %(default)s)",
    )

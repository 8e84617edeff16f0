"""
The command line as argparse sees it: every verb, its options, and the module that runs it.

Owns: names, options and help. Must never: import a verb's module; `main` does so for the chosen verb only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence

from numapin import __version__
from numapin.cli.options import DEFAULT_CONFIG, DEFAULT_SOCKET, DEFAULT_STATE, add_output, add_socket, path

__all__ = ["DEFAULT_CONFIG", "DEFAULT_SOCKET", "DEFAULT_STATE", "VERBS", "Verb", "build_parser"]

_EXITS = "exit codes: 0 ok, 1 failure, 2 usage, 3 not running, 4 no permission, 5 does not fit, 6 configuration wrong"


class Verb:
    """
    One verb of ``numapin``; a plain class, since ``dataclasses`` would be a fifth of a start.

    *module* has ``run(args: argparse.Namespace) -> ExitStatus``; *configure* adds the verb's options, and *extend*
    those whose names depend on the words given.
    """

    __slots__ = ("configure", "extend", "help", "module")

    def __init__(
        self,
        module: str,
        help: str,
        configure: Callable[[argparse.ArgumentParser], None],
        extend: Callable[[argparse.ArgumentParser, Sequence[str]], None] | None = None,
    ) -> None:
        self.module = module
        self.help = help
        self.configure = configure
        self.extend = extend


def _run(parser: argparse.ArgumentParser) -> None:
    _root(parser)
    _config(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="decide and report everything, write nothing to any cgroup"
    )


def _status(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    add_socket(parser)
    parser.add_argument(
        "--state",
        type=path,
        metavar="FILE",
        help=f"checkpoint to show when no daemon answers (default: {DEFAULT_STATE})",
    )


def _topology(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    _root(parser)


def _containers(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    add_socket(parser)
    parser.add_argument(
        "--root",
        type=path,
        metavar="DIR",
        help="look at the cgroup tree below DIR directly, without a daemon (/ for this machine)",
    )


def _release(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "container", nargs="?", metavar="ID", help="a container by id, name, pod/name or cgroup; decided again later"
    )
    which.add_argument(
        "--all", action="store_true", help="every container, and pin no other until the daemon is started again"
    )
    add_output(parser)
    add_socket(parser)
    parser.add_argument(
        "--state",
        type=path,
        metavar="FILE",
        help=f"checkpoint that --all works from when no daemon answers (default: {DEFAULT_STATE})",
    )
    _root(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="ID",
        help="a container's id or the beginning of it, its name, POD/NAME or its cgroup; or a code, as no-room",
    )
    add_output(parser)
    add_socket(parser)
    parser.add_argument(
        "--state",
        type=path,
        metavar="FILE",
        help=f"checkpoint to look in when no daemon answers (default: {DEFAULT_STATE})",
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    from numapin.cli.plan_options import configure

    configure(parser)


def _more_pages(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from numapin.cli.plan_options import add_page_sizes

    add_page_sizes(parser, words)


def _checkpoint(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (("show", "print the file"), ("verify", "check that the file can be believed")):
        sub = actions.add_parser(
            name, help=text, description=_sentence(text), allow_abbrev=False, formatter_class=_Help
        )
        sub.add_argument(
            "file", nargs="?", type=path, default=DEFAULT_STATE, metavar="FILE", help="(default: %(default)s)"
        )
        add_output(sub)


def _check_config(parser: argparse.ArgumentParser) -> None:
    _config(parser)
    add_output(parser)
    parser.add_argument("file", nargs="*", type=_named_by_option, help=argparse.SUPPRESS)
    parser.add_argument("--root", nargs="?", const="", dest="no_root", type=_no_root, help=argparse.SUPPRESS)


def _named_by_option(text: str) -> str:
    """Never a value: a file without its option is told how to be named."""
    raise argparse.ArgumentTypeError(f"name the configuration file with --config: --config {text}")


def _no_root(text: str) -> str:
    """Never a value: other verbs have the option, and who tries it here is told what to do instead."""
    raise argparse.ArgumentTypeError(
        "check-config has none, it tries the configuration on this machine; --config FILE names another file, and "
        f"numapin doctor --root {text or 'DIR'} looks at a recorded machine with the configuration below it"
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    add_socket(parser)
    _root(parser)
    _config(parser)


class _Help(argparse.HelpFormatter):
    """
    argparse's help as wide as the terminal, found without ``shutil``.

    One is made for each option of each start, and ``shutil`` with its archive formats would be a sixth of it.
    """

    def __init__(self, prog: str) -> None:
        said = os.environ.get("COLUMNS", "")
        columns = int(said) if said.isascii() and said.isdecimal() and len(said) < 6 else 0
        if not columns:
            try:
                columns = os.get_terminal_size(1).columns
            except OSError:  # not a terminal
                columns = 0
        super().__init__(prog, width=max(20, (columns or 80) - 2))


class _VerbParser(argparse.ArgumentParser):
    """A verb's parser, which complains with the verb's usage of words that are too many, not with the command's."""

    def parse_known_args(  # type: ignore[override] # typing, for overloads, would be a tenth of a start
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does, with nothing left unknown."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


VERBS: Mapping[str, Verb] = {
    "run": Verb("numapin.cli.run", "run the daemon in the foreground", _run),
    "status": Verb("numapin.cli.status", "show the books, the groups and every Guaranteed container", _status),
    "topology": Verb("numapin.cli.topology", "show this machine's NUMA nodes", _topology),
    "containers": Verb("numapin.cli.containers", "list the containers found, with class and placement", _containers),
    "release": Verb("numapin.cli.release", "take pins back and restore what stood in the cgroups before", _release),
    "explain": Verb("numapin.cli.explain", "say why a container is where it is, or what a code means", _explain),
    "plan": Verb(
        "numapin.cli.plan", "say what would happen to a container or a pod, changing nothing", _plan, _more_pages
    ),
    "checkpoint": Verb("numapin.cli.checkpoint", "show or verify the saved state", _checkpoint),
    "doctor": Verb(
        "numapin.cli.doctor", "look whether this host has what numapin needs, and say what to do", _doctor
    ),
    "check-config": Verb("numapin.cli.check_config", "read the configuration and name every problem", _check_config),
}
"""Every verb, in the order of the help."""


def build_parser(
    verbs: Mapping[str, Verb] = VERBS, *, only: str | None = None, words: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """
    The parser of the whole command line.

    ``verb`` in its namespace is ``None`` when none was given; it exits by itself (SystemExit) on ``--help``,
    ``--version`` (0) and usage errors (2). With *only*, the options of the other verbs are left out: nobody asked.
    *words* are what is to be parsed, for options whose names are not all known beforehand.
    """
    parser = argparse.ArgumentParser(
        prog="numapin",
        description="NUMA memory for containers: who is promised what, on which node, and why.",
        epilog=_EXITS,
        allow_abbrev=False,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"numapin {__version__}")
    choice = parser.add_subparsers(
        dest="verb", metavar="VERB", title="verbs", prog="numapin", parser_class=_VerbParser
    )
    for name, verb in verbs.items():
        if only not in (None, name):
            continue
        sub = choice.add_parser(
            name, help=verb.help, description=_sentence(verb.help), allow_abbrev=False, formatter_class=_Help
        )
        verb.configure(sub)
        if verb.extend is not None:
            verb.extend(sub, words)
    return parser


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        type=path,
        default="/",
        metavar="DIR",
        help="read every path below DIR: a recorded or made-up machine (default: %(default)s)",
    )


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=path,
        metavar="FILE",
        help=f"configuration file; conf.d beside it is read too (default: {DEFAULT_CONFIG}, which may be missing)",
    )

"""
Options and values that several verbs have.

Owns: their names, defaults and help. Must never: import more than argparse; ``status`` starts with this.
"""

from __future__ import annotations

import argparse

DEFAULT_SOCKET = "/run/numapin/api.sock"
DEFAULT_STATE = "/var/lib/numapin/state.json"
DEFAULT_CONFIG = "/etc/numapin/numapin.toml"


def path(text: str) -> object:
    """A ``pathlib.Path``, imported only where a path is really given: ``status`` has none and starts in 25 ms."""
    from pathlib import Path

    return Path(text)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """``--socket``."""
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help=f"the daemon's API socket (default: {DEFAULT_SOCKET}, then the one that is configured)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """``-o`` and ``--output``."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="tables for people, or JSON with bytes as integers (default: %(default)s)",
    )

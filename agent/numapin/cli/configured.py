"""
Where the configuration puts the daemon's socket and its checkpoint, for commands that were told neither.

Owns: that an option wins, then the configuration, then the default. Must never: be imported while a daemon answers on
the usual socket (reading the configuration takes longer than the question), or complain about the configuration.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from numapin.cli.options import DEFAULT_STATE
from numapin.daemon.config import Config, load_config, under
from numapin.model.errors import ConfigError


def configured_socket(args: argparse.Namespace) -> str:
    """The socket that the configuration names for the machine below ``--root``; without one the usual."""
    return str(under(_root(args), _config(args).socket))


def state_of(args: argparse.Namespace) -> Path:
    """The checkpoint: as asked for, else in the configured state directory of the machine below ``--root``."""
    if args.state:
        return Path(args.state)
    return under(_root(args), _config(args).state_dir) / Path(DEFAULT_STATE).name


def _root(args: argparse.Namespace) -> Path:
    return Path(getattr(args, "root", None) or "/")


def _config(args: argparse.Namespace) -> Config:
    try:
        return load_config(_root(args), getattr(args, "config", None))
    except ConfigError:
        return Config()  # the daemon does not start with it either; check-config says what is wrong

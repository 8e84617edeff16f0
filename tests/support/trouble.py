"""A verb that ends in the way its argument says; what `cli.main` makes of it is the test."""

from __future__ import annotations

import argparse
import errno

from numapin.model.errors import ConfigError, ExitStatus, KernelReadError, NotPermitted, NotRunning


def run(args: argparse.Namespace) -> ExitStatus:
    """End as ``args.what`` says."""
    match args.what:
        case "read":
            raise KernelReadError("/sys/x\x1b[2J", errno.EACCES)
        case "config":
            raise ConfigError((("/etc/a.toml", "policy", "unknown"), ("/etc/b.toml", "", "not TOML")))
        case "not-running":
            raise NotRunning("/run/s", "no socket")
        case "permission":
            raise NotPermitted("needs root")
        case "interrupt":
            raise KeyboardInterrupt
        case "bug":
            raise RuntimeError("a bug")
        case "fits-not":
            return ExitStatus.DOES_NOT_FIT
        case _:
            return ExitStatus.OK

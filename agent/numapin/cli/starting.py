"""
How the daemon is started on this host, for messages that say that it does not run.

Owns: the one advice that fits: the package's unit, or a clone. Must never: be imported before something failed.
"""

from __future__ import annotations

from pathlib import Path

from numapin.model.errors import NotRunning

_UNITS = (
    "etc/systemd/system/numapin.service",
    "lib/systemd/system/numapin.service",
    "usr/lib/systemd/system/numapin.service",
)
_SYSTEMD_RUNS = "run/systemd/system"


def how_to_start(root: Path = Path("/"), *, at_boot: bool = False) -> str:
    """
    The command that starts the daemon on the host below *root*; with *at_boot* also at each boot, where that is one.

    Without the package's unit this is taken for a clone.
    """
    if not any((root / unit).is_file() for unit in _UNITS):
        return "make run (in the clone, as root)"
    if not (root / _SYSTEMD_RUNS).is_dir():
        return "numapin run (as root; there is no systemd here)"
    return "systemctl enable --now numapin" if at_boot else "systemctl start numapin"


def not_running(exc: NotRunning) -> str:
    """The error's sentence with what starts the daemon here."""
    return f"{exc}; start it with: {how_to_start()}"

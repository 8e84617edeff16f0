"""Where the host's apt gets Debian from, so that the image is built wherever apt works."""

from __future__ import annotations

import subprocess
from typing import Final

DEFAULT_MIRROR: Final = "http://deb.debian.org/debian"

INDEX_FORMAT: Final = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
CARRIED_OPTIONS: Final = ("Acquire::http::", "Acquire::https::", "Acquire::ftp::", "Acquire::Retries")


def parse_mirror(text: str) -> str:
    """
    The first Debian main archive in a listing by ``INDEX_FORMAT``, else the default mirror.

    Origin and label must both be Debian's: security archives have another label.
    """
    for line in text.splitlines():
        origin, label, component, uri = line.split("|", 3)
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return uri.rstrip("/")
    return DEFAULT_MIRROR


def parse_options(text: str) -> list[str]:
    """The lines of ``apt-config dump`` that say how packages are fetched: proxies, certificates."""
    return [line for line in text.splitlines() if line.startswith(CARRIED_OPTIONS) and not line.endswith(' "";')]


def host_mirror() -> str:
    """The archive that this host's apt is configured for; the default where it has no lists."""
    return parse_mirror(_output("apt-get", "indextargets", "--format", INDEX_FORMAT))


def host_options() -> list[str]:
    """This host's apt options for fetching, each a complete line of an apt.conf."""
    return parse_options(_output("apt-config", "dump"))


def _output(*command: str) -> str:
    """What *command* prints; empty when it fails, for then the defaults are to be tried."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""

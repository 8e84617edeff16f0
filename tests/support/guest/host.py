"""
Host tools of the test guest: finds them, and installs them where that is ours to do.

Installs only as root on Debian and its children, only with apt, only what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from support.guest.errors import HostNotReady
from support.guest.progress import Progress

SEARCH_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
"""Where tools are looked for: mke2fs lies outside an ordinary user's path."""


class Tool(StrEnum):
    """A program that the guest needs on the host, by its name."""

    QEMU = "qemu-system-x86_64"
    QEMU_IMG = "qemu-img"
    MMDEBSTRAP = "mmdebstrap"
    MKE2FS = "mke2fs"
    SETPRIV = "setpriv"
    UNSHARE = "unshare"


PACKAGES: Final[Mapping[Tool, str]] = {
    Tool.QEMU: "qemu-system-x86",
    Tool.QEMU_IMG: "qemu-utils",
    Tool.MMDEBSTRAP: "mmdebstrap",
    Tool.MKE2FS: "e2fsprogs",
    Tool.SETPRIV: "util-linux",
    Tool.UNSHARE: "util-linux",
}
"""Debian package that holds each tool."""

TO_RUN: Final = (Tool.QEMU, Tool.SETPRIV)
"""What starting a guest from a finished image takes."""

TO_BUILD: Final = tuple(Tool)
"""What building the image takes."""


def find(tool: Tool) -> str | None:
    """Absolute path of *tool*; ``None`` when it is not installed."""
    return shutil.which(tool, path=SEARCH_PATH)


def require(tool: Tool) -> str:
    """
    Absolute path of *tool*.

    Raises:
        HostNotReady: It is not installed.
    """
    path = find(tool)
    if path is None:
        raise HostNotReady(tool, f"install the package {PACKAGES[tool]}")
    return path


def missing_packages(tools: Iterable[Tool], *, suite: str | None = None) -> list[str]:
    """
    Debian packages that would bring the missing *tools*, sorted, empty when all are there.

    With *suite*, also the archive keyring when it does not know that suite yet.
    """
    packages = {PACKAGES[tool] for tool in tools if find(tool) is None}
    if suite is not None and not any(Path("/usr/share/keyrings").glob(f"debian-archive-{suite}-*")):
        packages.add("debian-archive-keyring")
    return sorted(packages)


def ensure(tools: Iterable[Tool], *, suite: str | None = None, progress: Progress | None = None) -> None:
    """
    Every tool is installed after the call.

    *suite* is a Debian suite whose signatures must be verifiable, ``None`` for no such wish.

    Raises:
        HostNotReady: Something is missing and cannot be installed from here; names the packages.
    """
    tools = tuple(tools)
    packages = missing_packages(tools, suite=suite)
    if not packages:
        return
    names = " ".join(packages)
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise HostNotReady(names, f"as root on Debian: apt-get install {names}")
    say = progress or Progress()
    say(f"installing on this host: {names}")
    _apt_get("update")
    _apt_get("install", "--yes", "--no-install-recommends", *packages)
    left = missing_packages(tools, suite=suite)
    if left:
        raise HostNotReady(" ".join(left), "apt-get installed it, yet it is not there")


def _apt_get(*words: str) -> None:
    """Run apt-get without questions; wait for another apt at most two minutes."""
    command = ["apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=120", *words]
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HostNotReady(" ".join(command), f"it failed:\n{done.stdout[-2000:]}")

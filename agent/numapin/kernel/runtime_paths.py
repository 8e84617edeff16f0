"""Where this machine's runtimes keep their files.

Owns: the usual directories of containerd, Docker, CRI-O, Podman, runc, crun and nerdctl, and which of them the
configuration of Docker and Podman puts elsewhere. Must never: fail over a file that cannot be believed, or ask a
runtime.
"""

from __future__ import annotations

import errno
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from numapin.kernel.oci_values import decode
from numapin.kernel.runtime_documents import Documents
from numapin.model.errors import KernelError, KernelFormatError, KernelReadError

_T = TypeVar("_T")
_K3S = "/run/k3s/containerd"
_RUNROOT, _GRAPHROOT = "/run/containers/storage", "/var/lib/containers/storage"
_DOCKER = "/var/lib/docker"
_DRIVER = "overlay"
_DRIVER_NAME = re.compile(r"[a-z0-9]{1,32}")
_MAX_PATH_CHARS, _MAX_NAME_BYTES = 1024, 255
_MAX_CHARS = 64 << 10
_MAX_LINE_CHARS = 8 << 10
"""tomllib takes time and memory by the square of a dotted key's parts."""


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """
    Directories to look in, in order, as the machine names them.

    ``tasks``: containerd's ``<namespace>/<id>`` with the bundle. ``task_states``: the same shape with the runtime's
    state. ``states``: ``<id>`` of runc or crun used directly, by CRI-O or Podman. ``storage``: ``<id>/userdata`` of
    CRI-O and Podman. ``docker``: Docker's ``<id>/config.v2.json``. ``nerdctl``: ``<8 hexadecimal
    digits>/containers/<namespace>/<id>``, the digits telling which containerd.
    """

    tasks: tuple[str, ...] = (
        "/run/containerd/io.containerd.runtime.v2.task",
        "/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
        f"{_K3S}/io.containerd.runtime.v2.task",
    )
    task_states: tuple[str, ...] = ("/run/containerd/runc", "/run/docker/runtime-runc", f"{_K3S}/runc")
    states: tuple[str, ...] = ("/run/runc", "/run/crun")
    storage: tuple[str, ...] = (f"{_RUNROOT}/{_DRIVER}-containers", f"{_GRAPHROOT}/{_DRIVER}-containers")
    docker: str = f"{_DOCKER}/containers"
    nerdctl: str = "/var/lib/nerdctl"


@dataclass(frozen=True, slots=True)
class Storage:
    """What a ``storage.conf`` says; a ``driver``'s name begins that of the directories with containers."""

    runroot: str = _RUNROOT
    graphroot: str = _GRAPHROOT
    driver: str = _DRIVER

    @property
    def containers(self) -> tuple[str, str]:
        """The directories that hold one directory for each container: while it runs, and while it is kept."""
        return f"{self.runroot}/{self.driver}-containers", f"{self.graphroot}/{self.driver}-containers"


class _Daemon(msgspec.Struct, rename="kebab"):
    data_root: str = ""


class _StorageTable(msgspec.Struct):
    runroot: str = ""
    graphroot: str = ""
    driver: str = ""


class _StorageConf(msgspec.Struct):
    storage: _StorageTable = msgspec.field(default_factory=_StorageTable)


def parse_data_root(text: str, *, source: str) -> str:
    """
    Docker's data directory as its ``daemon.json`` names it, else the usual one; an empty file says nothing.

    Raises:
        KernelFormatError: Not such a document, or the directory is no plain absolute path.

    Source: moby daemon/config/config.go (getConflictFreeConfiguration).
    """
    content = text.removeprefix("\ufeff")
    daemon = decode(content, _Daemon, source, "a daemon.json of Docker") if content.strip() else _Daemon()
    return _plain(daemon.data_root, source, "data-root") or _DOCKER


def parse_storage_conf(text: str, *, source: str) -> Storage:
    """
    What a ``storage.conf`` says, with the usual values for what it leaves out or empty.

    Raises:
        KernelFormatError: Not TOML, too long (64 KiB, 8 KiB a line), of another shape, or a directory is no plain
            absolute path.

    Source: containers/storage types/options.go (ReloadConfigurationFile).
    """
    expected = "a storage.conf of Podman"
    if len(text) > _MAX_CHARS or max(map(len, text.split("\n"))) > _MAX_LINE_CHARS:
        raise KernelFormatError(source, text, f"{expected} (too long)")
    try:
        table = msgspec.convert(tomllib.loads(text), _StorageConf).storage
    except (ValueError, msgspec.MsgspecError, RecursionError) as exc:
        raise KernelFormatError(source, text, f"{expected} ({exc})") from exc
    driver = "overlay" if table.driver == "overlay2" else table.driver
    if driver and not _DRIVER_NAME.fullmatch(driver):
        raise KernelFormatError(source, driver, f"{expected} with the name of a storage driver")
    return Storage(
        _plain(table.runroot, source, "runroot") or _RUNROOT,
        _plain(table.graphroot, source, "graphroot") or _GRAPHROOT,
        driver or _DRIVER,
    )


def read_runtime_paths(root: Path) -> tuple[RuntimePaths, tuple[str, ...]]:
    """
    Where the runtimes of the machine below *root* keep their files, and sentences about files that say where and
    cannot be believed: the usual directories are looked at instead. Never raises.

    ``/etc/containers/storage.conf`` stands for the whole of the one in ``/usr/share``, as it does for Podman.
    """
    documents, problems = Documents(root), list[str]()
    docker = _read(documents, "/etc/docker", "daemon.json", parse_data_root, problems)
    paths = replace(RuntimePaths(), docker=f"{docker}/containers") if docker is not None else RuntimePaths()
    for directory in ("/etc/containers", "/usr/share/containers"):
        known = len(problems)
        storage = _read(documents, directory, "storage.conf", parse_storage_conf, problems)
        if storage is not None:
            return replace(paths, storage=storage.containers), tuple(problems)
        if len(problems) > known:
            break
    return paths, tuple(problems)


# inside


def _read(documents: Documents, base: str, file: str, parse: Callable[..., _T], problems: list[str]) -> _T | None:
    """The parsed file, ``None`` where there is none or it cannot be believed, which becomes one of *problems*."""
    try:
        return documents.load(base, (), file, lambda text, source: parse(text, source=source))
    except KernelError as exc:
        is_link = isinstance(exc, KernelReadError) and exc.errno == errno.ELOOP
        said = f"{base}/{file} is a symbolic link, which is not followed" if is_link else str(exc)
        problems.append(f"{said}; the usual directories are looked at instead")
        return None


def _plain(path: str, source: str, key: str) -> str:
    """
    *path* without doubled slashes; empty when it is.

    Raises:
        KernelFormatError: Not absolute, the root itself, with ``..``, longer than a path can be, or unprintable.
    """
    if not path:
        return ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if (
        not path.startswith("/")
        or not parts
        or ".." in parts
        or not path.isprintable()
        or "\ufffd" in path  # it was not UTF-8
        or len(path) > _MAX_PATH_CHARS
        or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts)
    ):
        raise KernelFormatError(source, path, f"a plain absolute path as {key}")
    return "/" + "/".join(parts)

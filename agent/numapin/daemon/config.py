"""Configuration: TOML files to one frozen value.

Owns: files, their order, and telling every problem at once with file and key. Must never: guess what a wrong
value meant, or import more than the standard library (``status`` reads it too).
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numapin.daemon.config_keys import (
    KEYS,
    TABLES,
    LogFormat,
    LogLevel,
    parse_size,
    read_node_id,
    read_node_type,
)
from numapin.model.container import StandaloneQos
from numapin.model.errors import ConfigError
from numapin.model.memory import MEMORY, MemoryType
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.topology import NumaNode, Topology

CONFIG_FILE = Path("/etc/numapin/numapin.toml")
_MAX_FILE_BYTES = 1 << 20
_MAX_LINE_BYTES = 8 << 10
"""tomllib takes time and memory by the square of a dotted key's parts; a list of 1,024 nodes takes 6 KiB."""
_MOST_HINTS = 20
"""Each is a comparison with every key; a file of nothing but wrong keys would take a minute."""

Problem = tuple[str, str, str]
"""File, dotted key (empty: the file as a whole), sentence."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """
    What each node keeps for the system.

    ``fraction_ppm``: millionths of a node's memory, but at least ``minimum_bytes``. ``nodes``: bytes by node and
    memory type where the administrator gave them; they stand instead of the fraction.
    """

    fraction_ppm: int = 50_000
    minimum_bytes: int = 64 << 20
    nodes: Mapping[NodeId, Mapping[MemoryType, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """
    Everything that can be configured, with the defaults of a machine without a file.

    Times are nanoseconds. ``state_dir``, ``socket`` and ``kubelet_state`` are absolute paths of the machine
    described (`under`).
    ``cgroup_root`` is a cgroup below the hierarchy's root: only what is below it is a container.
    ``sources`` is the file each key that was set came from; it does not count in comparisons.
    """

    policy: TopologyPolicy = TopologyPolicy.RESTRICTED
    scope: Scope = Scope.CONTAINER
    prefer_closest: bool = False
    retry_refused: bool = True
    release_grace_ns: int = 30_000_000_000
    full_pass_interval_ns: int = 120_000_000_000
    state_dir: Path = Path("/var/lib/numapin")
    socket: Path = Path("/run/numapin/api.sock")
    qos_standalone: StandaloneQos = StandaloneQos.LIMITS
    qos_system_containers: bool = False
    reserved: Reserved = field(default_factory=Reserved)
    cpu_less_nodes: NodeSet = field(default_factory=NodeSet)
    cgroup_root: str = "/"
    v1_memory_migrate: bool = True
    enable_cpuset: bool = False
    provider_cpus: bool = True
    provider_devices: bool = True
    kubelet_follow: bool = True
    kubelet_state: Path = Path("/var/lib/kubelet/memory_manager_state")
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)


AT_START = ("state_dir", "socket", "cgroup_root", "v1_memory_migrate")
"""Fields of `Config` that a running daemon cannot change; `keep_until_restart`."""


def keep_until_restart(old: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """*new* with what only a restart takes up as it was in *old*, and the keys that wait for one."""
    waiting = [name for name in AT_START if getattr(old, name) != getattr(new, name)]
    keys = tuple(key for key, spec in KEYS.items() if spec.field in waiting)
    return replace(new, **{name: getattr(old, name) for name in waiting}), keys


def under(root: Path, path: Path) -> Path:
    """*path*, which is absolute on the machine described, below *root*."""
    return root / path.relative_to("/")


def load_config(root: Path, file: Path | None = None) -> Config:
    """
    Configuration of the machine under *root*: ``numapin.toml``, then each ``conf.d/*.toml`` by name; a later
    value wins, tables are merged key by key, lists are replaced. A missing file is no problem, a link to none is.

    With *file* (taken as given, not below *root*) it must exist, and the ``conf.d`` beside it is read after it.

    Raises:
        ConfigError: Every problem of every file.
    """
    config, problems = read_config(root, file)
    if problems:
        raise ConfigError(problems)
    return config


def read_config(root: Path, file: Path | None = None) -> tuple[Config, tuple[Problem, ...]]:
    """As `load_config`: what the files say as far as it can be believed, and every problem."""
    reading = _Reading()
    main = under(root, CONFIG_FILE) if file is None else file
    _read_file(main, reading, required=file is not None)
    for path in _drop_ins(main.parent / "conf.d", reading.problems):
        _read_file(path, reading, required=False)
    reserved = replace(Reserved(nodes=reading.nodes), **reading.reserved)
    config = replace(Config(), **reading.values, reserved=reserved, sources=reading.sources)
    return config, tuple(reading.problems)


def reserved_bytes(
    config: Config, topology: Topology, usable: NodeSet | None = None
) -> dict[NodeId, dict[MemoryType, int]]:
    """
    Bytes kept for the system, by node and memory type.

    *usable* nodes (``None``: all that have memory) get the fraction, at most what they have beside their hugepage
    pools. What the administrator named stands as it is, also for nodes and sizes that are not there: whoever builds
    the books knows whether it fits.
    """
    found: dict[NodeId, dict[MemoryType, int]] = {}
    for node_id in topology.with_memory if usable is None else usable:
        found[node_id] = {MEMORY: _default_bytes(config.reserved, topology.nodes[node_id])}
    for node_id, sizes in config.reserved.nodes.items():
        named = {t: size for t, size in sizes.items() if size or node_id in found}
        if named:
            found[node_id] = {**found.get(node_id, {}), **named}
    return dict(sorted(found.items()))


def _default_bytes(reserved: Reserved, node: NumaNode) -> int:
    wanted = max(reserved.minimum_bytes, node.memory_bytes * reserved.fraction_ppm // 1_000_000)
    pools = sum(p.total_bytes for p in node.pools)
    return min(wanted, max(0, node.memory_bytes - pools))


@dataclass(slots=True)
class _Reading:
    """Values by field, collected over the files."""

    values: dict[str, Any] = field(default_factory=dict)
    reserved: dict[str, Any] = field(default_factory=dict)
    nodes: dict[NodeId, dict[MemoryType, int]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def _drop_ins(directory: Path, problems: list[Problem]) -> list[Path]:
    try:
        return sorted(p for p in directory.iterdir() if p.suffix == ".toml" and not p.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        if directory.is_symlink():
            problems.append((str(directory), "", "is a symbolic link to a directory that is not there"))
        return []
    except OSError as exc:
        problems.append((str(directory), "", f"cannot be read: {_reason(exc)}"))
        return []


class _NotText(Exception):
    """Why a file is not even tried as TOML."""


def _read_file(path: Path, reading: _Reading, *, required: bool) -> None:
    shown = str(path)
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise _NotText("it is no regular file")
            data = stream.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise _NotText(f"it is larger than {_MAX_FILE_BYTES} bytes")
        if max(map(len, data.split(b"\n"))) > _MAX_LINE_BYTES:
            raise _NotText(f"a line is longer than {_MAX_LINE_BYTES} bytes")
        table = tomllib.loads(data.decode())
    except FileNotFoundError:
        if path.is_symlink():  # somebody wants something of it to count
            reading.problems.append((shown, "", "is a symbolic link to a file that is not there"))
        elif required:
            reading.problems.append((shown, "", "there is no such file"))
    except OSError as exc:
        reading.problems.append((shown, "", f"cannot be read: {_reason(exc)}"))
    except _NotText as exc:
        reading.problems.append((shown, "", f"not read: {exc}"))
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        reading.problems.append((shown, "", f"not UTF-8 text (at line {line})"))
    except RecursionError:
        reading.problems.append((shown, "", "not TOML: nested too deeply"))
    except ValueError as exc:
        reading.problems.append((shown, "", f"not TOML: {exc}"))
    else:
        _take_table(shown, "", table, reading)


def _take_table(file: str, prefix: str, table: Mapping[str, object], reading: _Reading) -> None:
    for name, value in table.items():
        key = prefix + name
        if key in KEYS:
            _take_key(file, key, value, reading)
        elif key == "reserved.node" and isinstance(value, dict):
            _take_nodes(file, value, reading)
        elif key in TABLES and isinstance(value, dict):
            _take_table(file, key + ".", value, reading)
        elif key in TABLES or key == "reserved.node":
            example = "[reserved.node.0]" if key == "reserved.node" else f"[{key}]"
            reading.problems.append((file, key, f"must be a table, written as {example}"))
        else:
            hint = _similar(key) if len(reading.problems) < _MOST_HINTS else ""
            reading.problems.append((file, _one_line(key), "unknown key" + hint))


def _take_key(file: str, key: str, value: object, reading: _Reading) -> None:
    try:
        read = KEYS[key].read(value)
    except ValueError as exc:
        reading.problems.append((file, key, str(exc)))
        return
    section, _, name = KEYS[key].field.rpartition(".")
    (reading.reserved if section else reading.values)[name] = read
    reading.sources[key] = file


def _take_nodes(file: str, table: Mapping[str, object], reading: _Reading) -> None:
    """The tables ``[reserved.node.N]``."""
    for word, sizes in table.items():
        key = f"reserved.node.{_one_line(word)}"
        try:
            node = read_node_id(word)
            if not isinstance(sizes, dict):
                raise ValueError("must be a table, written as [reserved.node.0]")
        except ValueError as exc:
            reading.problems.append((file, key, str(exc)))
            continue
        for name, value in sizes.items():
            try:
                memory_type = read_node_type(name)
                size = parse_size(value)
            except ValueError as exc:
                reading.problems.append((file, f"{key}.{_one_line(name)}", str(exc)))
                continue
            reading.nodes.setdefault(node, {})[memory_type] = size
            reading.sources[f"reserved.node.{node}.{memory_type}"] = file


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _similar(key: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, [*KEYS, "reserved.node"], n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _one_line(key: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in key)[:80]


def _reason(exc: OSError) -> str:
    code = exc.errno or 0
    return f"{os.strerror(code)} ({errno.errorcode.get(code, str(code))})"

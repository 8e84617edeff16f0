"""Every configuration key: its field in `Config`, and how its TOML value becomes ours.

Owns: the sentences about one wrong value. Must never: open a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from numapin.model.container import StandaloneQos
from numapin.model.memory import MEMORY, MemoryType, hugepages
from numapin.model.nodeset import MAX_ID, NodeId, NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.quantity import MAX_BYTES, format_page_size, parse_bytes, parse_page_size, parse_quantity

_MAX_SOCKET_BYTES = 107
"""sun_path of unix(7) without its final NUL."""

_UNITS_NS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000}
_DURATION = re.compile(r"(?:\d{1,9}(?:ms|h|m|s))+")
_PART = re.compile(r"(\d+)(ms|h|m|s)")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%")

_E = TypeVar("_E", bound=StrEnum)


class LogLevel(StrEnum):
    """The least important line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """``auto`` is for people on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Key:
    """
    One key. ``field`` is the field of `Config` (of its ``reserved`` where it begins with ``reserved.``).

    ``read`` makes our value from TOML's or raises ValueError with a sentence; ``show`` makes TOML's text of ours.
    """

    field: str
    read: Callable[[object], object]
    show: Callable[[object], str]


def parse_duration(value: object) -> int:
    """
    Nanoseconds from ``500ms``, ``30s``, ``1m30s``, ``2h``; ``0s`` is allowed.

    Raises:
        ValueError: Anything else; a bare number too, for it has no unit.
    """
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f'{_shown(value)} is not a duration; write for example "30s", "2m" or "500ms"')
    return sum(int(number) * _UNITS_NS[unit] for number, unit in _PART.findall(value))


def format_duration(duration_ns: int) -> str:
    """Shortest text that `parse_duration` reads back to the same whole milliseconds."""
    parts = []
    for unit, size_ns in _UNITS_NS.items():
        count, duration_ns = divmod(duration_ns, size_ns)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(value: object) -> int:
    """
    Bytes, zero allowed, from a quantity (``64Mi``) or a TOML integer.

    Raises:
        ValueError: Not a size, negative, a fraction of a byte, above 2^63-1.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= MAX_BYTES:
            return value
        raise ValueError(f"size {value} is not in 0-{MAX_BYTES}")
    if not isinstance(value, str):
        raise ValueError(f'{_shown(value)} is not a size; write for example "1Gi", "64Mi" or a number of bytes')
    return 0 if parse_quantity(value) == 0 else parse_bytes(value)


def read_node_type(word: str) -> MemoryType:
    """
    Memory type from a key below ``[reserved.node.N]``; page sizes are brought to Kubernetes' form.

    Raises:
        ValueError: Neither ``memory`` nor ``hugepages-`` with a power of two.
    """
    if word == MEMORY:
        return MEMORY
    if not word.startswith("hugepages-"):
        raise ValueError('unknown memory type; it is "memory", or "hugepages-" and a page size, as in hugepages-2Mi')
    return hugepages(parse_page_size(word.removeprefix("hugepages-")))


def read_node_id(word: str) -> NodeId:
    """
    Node id from the key below ``[reserved.node]``.

    Raises:
        ValueError: Not a number of a node.
    """
    if not (word.isascii() and word.isdecimal()) or len(word) > 6 or int(word) > MAX_ID:
        raise ValueError(f"{word[:40]!r} is not a node number")
    return NodeId(int(word))


def toml_text(text: str) -> str:
    """*text* as a TOML basic string."""
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def _shown(value: object) -> str:
    """A TOML value in an error: short, on one line."""
    words = {dict: "a table", list: "a list", bool: str(value).lower()}
    return words.get(type(value)) or repr(value)[:60]


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_shown(value)}")
    return value


def _word(kind: type[_E]) -> Callable[[object], _E]:
    def read(value: object) -> _E:
        for member in kind:
            if member.value == value:
                return member
        words = [f'"{m.value}"' for m in kind]
        raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}, not {_shown(value)}")

    return read


_MAX_NAME_BYTES = 255


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value or ".." in value.split("/"):
        raise ValueError(f'must be an absolute path without "..", not {_shown(value)}')
    if max(len(name.encode("utf-8", "surrogatepass")) for name in value.split("/")) > _MAX_NAME_BYTES:
        raise ValueError(f"has a name of more than {_MAX_NAME_BYTES} bytes, which no file can have")
    return Path(value)


def _socket(value: object) -> Path:
    path = _path(value)
    if len(str(path).encode()) > _MAX_SOCKET_BYTES:
        raise ValueError(f"is longer than the {_MAX_SOCKET_BYTES} bytes the kernel takes for a socket")
    if path.name in ("", "lock"):
        raise ValueError("must name a file that is not called lock: the daemon's lock stands beside its socket")
    return path


def _cgroup(value: object) -> str:
    path = str(_path(value))
    if path.startswith("/sys/fs/cgroup"):
        raise ValueError(
            f"begins at the root of the cgroup hierarchy, as in /proc/PID/cgroup: without /sys/fs/cgroup, "
            f"not {_shown(value)}"
        )
    return "/" + path.strip("/")


def _interval(value: object) -> int:
    duration_ns = parse_duration(value)
    if duration_ns < _UNITS_NS["s"]:
        raise ValueError(f'{_shown(value)} is too short; at least "1s"')
    return duration_ns


def _percent(value: object) -> int:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or Decimal(match[1]) > 100:
        raise ValueError(f'{_shown(value)} is not a part of a node\'s memory; write for example "5%" or "0%"')
    return int(Decimal(match[1]) * 10_000)


def _node_list(value: object) -> NodeSet:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of node numbers, as in [4, 5], not {_shown(value)}")
    for element in value:
        if type(element) is not int:
            raise ValueError(f"must be a list of node numbers, as in [4, 5]; {_shown(element)} is none")
    return NodeSet.from_ids(value)


def _show_bool(value: object) -> str:
    return str(value).lower()


def _show_text(value: object) -> str:
    return toml_text(str(value))


def _show_duration(value: object) -> str:
    assert isinstance(value, int)
    return toml_text(format_duration(value))


def _show_percent(value: object) -> str:
    assert isinstance(value, int)
    return toml_text(f"{(Decimal(value) / 10_000).normalize():f}%")


def show_size(value: object) -> str:
    """Bytes as TOML text, exact (``"64Mi"``)."""
    assert isinstance(value, int)
    return toml_text(format_page_size(value))


def _show_nodes(value: object) -> str:
    assert isinstance(value, NodeSet)
    return str(list(value.ids()))


KEYS: Mapping[str, Key] = {
    "policy": Key("policy", _word(TopologyPolicy), _show_text),
    "scope": Key("scope", _word(Scope), _show_text),
    "prefer_closest": Key("prefer_closest", _bool, _show_bool),
    "retry_refused": Key("retry_refused", _bool, _show_bool),
    "release_grace": Key("release_grace_ns", parse_duration, _show_duration),
    "full_pass_interval": Key("full_pass_interval_ns", _interval, _show_duration),
    "state_dir": Key("state_dir", _path, _show_text),
    "socket": Key("socket", _socket, _show_text),
    "qos.standalone": Key("qos_standalone", _word(StandaloneQos), _show_text),
    "qos.system_containers": Key("qos_system_containers", _bool, _show_bool),
    "reserved.fraction": Key("reserved.fraction_ppm", _percent, _show_percent),
    "reserved.minimum": Key("reserved.minimum_bytes", parse_size, show_size),
    "nodes.cpu_less": Key("cpu_less_nodes", _node_list, _show_nodes),
    "cgroup.root": Key("cgroup_root", _cgroup, _show_text),
    "cgroup.v1_memory_migrate": Key("v1_memory_migrate", _bool, _show_bool),
    "cgroup.enable_cpuset": Key("enable_cpuset", _bool, _show_bool),
    "providers.cpus": Key("provider_cpus", _bool, _show_bool),
    "providers.devices": Key("provider_devices", _bool, _show_bool),
    "kubelet.follow": Key("kubelet_follow", _bool, _show_bool),
    "kubelet.state": Key("kubelet_state", _path, _show_text),
    "log.level": Key("log_level", _word(LogLevel), _show_text),
    "log.format": Key("log_format", _word(LogFormat), _show_text),
}
"""Every key but the tables ``[reserved.node.N]``, in the order of the documentation."""

TABLES = frozenset(key.partition(".")[0] for key in KEYS if "." in key)

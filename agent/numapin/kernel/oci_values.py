"""What documents of runtimes have in common: limits, sets of ids, annotations.

Owns: the bounds on what is believed and remembered of a document. Must never: believe a number above what the kernel
can hold, or know a document's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import CpuSet, NodeSet

_T = TypeVar("_T")
_Ids = TypeVar("_Ids", CpuSet, NodeSet)
_UNLIMITED_FROM = 2**62
_OURS = ("numapin.", "io.kubernetes.", "io.container.")
_MAX_ANNOTATION_CHARS = 1 << 16
_MAX_KEY_CHARS = 256
_MAX_VALUE_CHARS = 1024
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def decode(text: str, kind: type[_T], source: str, expected: str) -> _T:
    """
    The JSON document *text* of the file *source* in the shape *kind*; *expected* says in words what it should be.

    Raises:
        KernelFormatError: Not JSON, nested too deep, or of another shape.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise KernelFormatError(source, text, f"{expected} ({exc})") from exc


def kept_annotations(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """
    What is remembered of *annotations* for as long as the container lives; those with a meaning here come first.

    They are the container's owner's to choose, megabytes of them: a long value is cut, a long key left out.
    """
    kept: dict[str, str] = {}
    left = _MAX_ANNOTATION_CHARS
    for key in sorted(annotations or {}, key=lambda k: not k.startswith(_OURS)):
        value = (annotations or {})[key][:_MAX_VALUE_CHARS]
        left -= len(key) + len(value)
        if left < 0:
            break
        if len(key) <= _MAX_KEY_CHARS:
            kept[key] = value
    return kept


def positive_limit(value: int | None) -> int | None:
    """A limit; ``None`` for absent, 0 and -1 (all mean "none") and for what no kernel can hold."""
    return value if value is not None and 0 < value < _UNLIMITED_FROM else None


def id_set(kind: type[_Ids], text: str | None, source: str, document: str) -> _Ids | None:
    """
    The CPUs or nodes of *text* in list format, ``None`` for absent and empty; *document* is what *source* holds.

    Raises:
        KernelFormatError: It is no such list.
    """
    try:
        return kind.parse(text or "") or None
    except ValueError as exc:
        raise KernelFormatError(source, document, f"an OCI document ({exc})") from exc


def hugetlb_limits(entries: Sequence[tuple[str, int]]) -> Mapping[int, int]:
    """Bytes by page size in bytes, from pairs such as ``("2MB", bytes)``; entries that mean nothing are left out."""
    sizes: dict[int, int] = {}
    for name, limit in entries:
        number, unit = name[:-2], _UNITS.get(name[-2:])
        if unit and number.isdecimal() and len(number) < 7 and 0 <= limit < _UNLIMITED_FROM:
            sizes[int(number) * unit] = limit
    return sizes

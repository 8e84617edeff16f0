"""Byte sizes as people and Kubernetes write them.

Owns: parsing of quantities (``1.5Gi``, ``2G``, ``1e3``) and IEC printing. Must never: round silently, or say that
more can be had than there is.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal

MAX_BYTES = 2**63 - 1

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
}  # fmt: skip
_UNITS = tuple((f"{unit}B", factor) for unit, factor in reversed(_BINARY.items()))
_EXACT = Context(prec=128)
"""The default's 28 digits would round: a text may have 80, and a unit adds 20."""
_QUANTITY = re.compile(
    r"([+-]?)(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]))?", re.ASCII
)
_ALMOST = re.compile(r"(\d{1,40}(?:\.\d{1,40})?) ?([kKmMgGtTpPeE])([iI]?)([bB]?)", re.ASCII)
"""A size in another spelling: ``64MB``, ``12Gb``, ``2g``, ``1 GiB``."""


class NotAQuantity(ValueError):
    """*text* is no quantity; the message says so for a size, with the spelling that may have been meant."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        like = _ALMOST.fullmatch(self.text)
        if like is None:
            return f"{self.text[:60]!r} is not a size; write for example 15Gi, 512Mi, 2G or plain bytes"
        number, unit, of_1024, byte = like.groups()
        binary = f"{number}{unit.upper()}i"
        decimal = f"{number}{'k' if unit in 'kK' else unit.upper()}"
        # small letters and a lone b are how Docker and Podman write units of 1024
        meant = f"{decimal}, or {binary} for units of 1024" if byte == "B" and not of_1024 else binary
        return f"{self.text[:60]!r} is not a size; write {meant}"


def parse_quantity(text: str) -> Decimal:
    """
    Exact value of a Kubernetes quantity; negative values are possible.

    Raises:
        NotAQuantity: A `ValueError`; the message repeats the text.

    Source: the grammar in Kubernetes' apimachinery documentation of ``resource.Quantity``.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise NotAQuantity(text)
    sign, digits, exponent, suffix = match.groups()
    value = Decimal(digits)
    if exponent:
        value = value.scaleb(int(exponent[1:]), _EXACT)
    elif suffix:
        value = _EXACT.multiply(value, _BINARY.get(suffix) or _DECIMAL[suffix])
    return value.copy_negate() if sign == "-" else value


def parse_bytes(text: str) -> int:
    """
    Positive whole number of bytes from a quantity.

    Raises:
        ValueError: Not a quantity, zero, negative, a fraction of a byte, or above 2^63-1.
    """
    value = parse_quantity(text)
    if value <= 0:
        raise ValueError(f"size {text!r} must be above zero")
    if value != value.to_integral_value():
        raise ValueError(f"size {text!r} is not a whole number of bytes")
    if value > MAX_BYTES:
        raise ValueError(f"size {text!r} is above {MAX_BYTES} bytes")
    return int(value)


def parse_page_size(text: str) -> int:
    """
    Bytes of one hugepage from what follows ``hugepages-`` (``2Mi``, ``1Gi``, ``64Ki``).

    Raises:
        ValueError: Not a size, no power of two, or below 4 KiB.
    """
    size = parse_bytes(text)
    if size < 4096 or size & (size - 1):
        raise ValueError(f"{text[:60]!r} is no page size; write a power of two such as 2Mi or 1Gi")
    return size


def format_bytes(size_bytes: int) -> str:
    """Short IEC text for people (``1.5 GiB``, ``512 MiB``, ``0``); rounded to three figures, never to be parsed."""
    if size_bytes < 0:
        return "-" + format_bytes(-size_bytes)
    value, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    k = 0
    while value >= 1023.5 and k < len(units) - 1:
        value /= 1024
        k += 1
    if size_bytes == 0:
        return "0"
    number = f"{value:.0f}" if value >= 100 or k == 0 else f"{value:.3g}"
    return f"{number} {units[k]}"


def format_available(size_bytes: int) -> str:
    """
    `format_bytes` for what can be had (free, allocatable), rounded down as in `at_most`.

    So a table names the same figure as the sentence that says what would fit, and that figure does fit.
    """
    return at_most(size_bytes).replace("bytes", "B") if size_bytes > 0 else format_bytes(size_bytes)


def at_most(size_bytes: int) -> str:
    """IEC text of three figures, rounded down, so that what it says does fit."""
    return _rounded(size_bytes, up=False)


def at_most_bytes(size_bytes: int) -> int:
    """The bytes that `at_most` speaks of, rounded down to whole ones; the text of these may be smaller again."""
    scaled, scale, factor = _scaled(size_bytes, up=False)
    return scaled * factor // scale


def at_least(size_bytes: int) -> str:
    """IEC text of three figures, rounded up, so that what it says is enough."""
    return _rounded(size_bytes, up=True)


def _rounded(size_bytes: int, *, up: bool) -> str:
    scaled, scale, factor = _scaled(size_bytes, up=up)
    unit = next((unit for unit, size in _UNITS if size == factor), "bytes")
    return f"{scaled / scale:g} {unit}" if factor > 1 else f"{size_bytes} {unit}"


def _scaled(size_bytes: int, *, up: bool) -> tuple[int, int, int]:
    """Three figures of it as a whole number, how many of these make one unit, and the unit's bytes."""
    for _, factor in _UNITS:
        if size_bytes >= factor:
            scale = 100 if size_bytes < 10 * factor else 10 if size_bytes < 100 * factor else 1
            return (size_bytes * scale + (factor - 1) * up) // factor, scale, factor
    return size_bytes, 1, 1


def format_page_size(size_bytes: int) -> str:
    """Page size in the shortest binary unit, exact (2097152 → ``2Mi``); bytes when no unit divides it."""
    for suffix, factor in reversed(_BINARY.items()):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)

"""
Names and paths in JSON: the kernel's may hold bytes that are not UTF-8, which Python shows as lone surrogates and
JSON cannot carry. Must never: lose a byte of a path.
"""

from __future__ import annotations

_BYTES_PREFIX = "bytes:"


def has_surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def path_text(path: str) -> str:
    """A cgroup path as a JSON key: itself, or ``bytes:`` and hex when it is not UTF-8 (paths begin with ``/``)."""
    if path.isascii() and not path.startswith(_BYTES_PREFIX):
        return path
    if has_surrogates(path) or path.startswith(_BYTES_PREFIX):
        return _BYTES_PREFIX + path.encode("utf-8", "surrogatepass").hex()
    return path


def path_from_text(text: str) -> str:
    if not text.startswith(_BYTES_PREFIX):
        return text
    return bytes.fromhex(text.removeprefix(_BYTES_PREFIX)).decode("utf-8", "surrogatepass")

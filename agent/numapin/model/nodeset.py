"""Sets of small integer ids in the kernel's list format (``0-3,8``).

Owns: the only parser and printer of that format. Must never: read a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType, Self

NodeId = NewType("NodeId", int)

MAX_ID = 65_535
"""Largest id accepted: far above the kernel's 1,024 nodes and 8,192 CPUs, small enough not to eat memory."""

_MAX_CHARS = 1 << 19
"""Every second id up to MAX_ID takes 186 KiB; repeated ranges would keep the parser busy for seconds."""


@dataclass(frozen=True, slots=True, order=True)
class IdSet:
    """
    A set of ids, kept as the bits of one integer; bit n is id n, without an upper limit.

    Ordering compares the integers, which is the kubelet's "numerically smaller mask".
    """

    mask: int = 0

    @classmethod
    def of(cls, *ids: int) -> Self:
        """Set of the given ids. Raises: ValueError when an id is negative or above MAX_ID."""
        return cls.from_ids(ids)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> Self:
        """Set of *ids*. Raises: ValueError when an id is negative or above MAX_ID."""
        mask = 0
        for i in ids:
            if not 0 <= i <= MAX_ID:
                raise ValueError(f"id {i} is not in 0-{MAX_ID}")
            mask |= 1 << i
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Parse the kernel's list format; empty text is the empty set.

        Blanks, trailing commas, a final NUL byte (old recordings) are tolerated; overlapping ranges merge.

        Raises:
            ValueError: Not a list of ids: letters, a reversed or open range, an id above MAX_ID, a text far longer
                than any such list.

        Source: lib/bitmap-str.c, bitmap_parselist(); grouped ranges (``0-7:2/4``) are never printed
        by the kernel and are refused.
        """
        if len(text) > _MAX_CHARS:
            raise ValueError(f"an id list of {len(text)} characters")
        mask = 0
        for part in text.strip().strip("\0").strip().split(","):
            word = part.strip()
            if not word:
                continue
            first, dash, last = word.partition("-")
            lo = _id(first, text)
            hi = _id(last, text) if dash else lo
            if hi < lo:
                raise ValueError(f"reversed range in id list {text.strip()!r}")
            mask |= (1 << (hi + 1)) - (1 << lo)
        return cls(mask)

    def __str__(self) -> str:
        """Kernel list format, ascending, ranges joined (``0-1,3``); the empty set is the empty string."""
        return _text(self.mask)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __iter__(self) -> Iterator[NodeId]:
        """Ids in ascending order."""
        mask = self.mask
        while mask:
            low = mask & -mask
            yield NodeId(low.bit_length() - 1)
            mask ^= low

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, node: int) -> bool:
        return node >= 0 and bool(self.mask >> node & 1)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.mask & other.mask)

    def __or__(self, other: Self) -> Self:
        return type(self)(self.mask | other.mask)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.mask & ~other.mask)

    def issubset(self, other: Self) -> bool:
        """True when every id is in *other*."""
        return not self.mask & ~other.mask

    def ids(self) -> tuple[int, ...]:
        """Ids in ascending order as plain integers."""
        return tuple(self)


class NodeSet(IdSet):
    """A set of NUMA node ids."""

    __slots__ = ()

    @property
    def named(self) -> str:
        """For sentences: ``node 3``, ``nodes 0-1``, or ``no node``."""
        return f"node{'s' * (len(self) > 1)} {self}" if self else "no node"


class CpuSet(IdSet):
    """A set of CPU numbers."""

    __slots__ = ()


def _id(word: str, text: str) -> int:
    word = word.strip()
    if not (word.isascii() and word.isdecimal()) or len(word) > 9 or int(word) > MAX_ID:
        raise ValueError(f"{word!r} is not an id, in id list {text.strip()[:80]!r}")
    return int(word)


@lru_cache(maxsize=4096)
def _text(mask: int) -> str:
    parts: list[str] = []
    ids = IdSet(mask).ids()
    start = 0
    for k in range(1, len(ids) + 1):
        if k == len(ids) or ids[k] != ids[k - 1] + 1:
            lo, hi = ids[start], ids[k - 1]
            parts.append(str(lo) if lo == hi else f"{lo}-{hi}")
            start = k
    return ",".join(parts)

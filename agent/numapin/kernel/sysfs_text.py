"""
Text of the kernel's node files to values.

Owns: the formats of meminfo, cpumap, distance and count files. Must never: read a file.
"""

from __future__ import annotations

import re
from functools import cache

from numapin.model.nodeset import MAX_ID, CpuSet, NodeId, NodeSet

_CPUMAP = re.compile(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{8})*")
_COUNT = re.compile(r"[0-9]{1,18}")
_MEM_LINE = r"^(?:Node[ \t]+[0-9]+[ \t]+)?{}:[ \t]*([0-9]{{1,15}})[ \t]*kB[ \t]*$"


def clean(text: str) -> str:
    """*text* without surrounding blanks and the NUL byte that old recordings end with."""
    return text.strip().strip("\0").strip()


def parse_meminfo(text: str, name: str) -> int | None:
    """
    Bytes of the field *name* (``MemTotal``), or ``None`` when no well-formed line has it.

    Unknown and truncated lines are ignored, and so is a field without the unit kB.

    Source: drivers/base/node.c, node_read_meminfo(); fs/proc/meminfo.c.
    """
    found = _field(name).search(clean(text))
    return int(found[1]) * 1024 if found else None


@cache
def _field(name: str) -> re.Pattern[str]:
    return re.compile(_MEM_LINE.format(re.escape(name)), re.MULTILINE)


def meminfo_line(text: str, name: str) -> str:
    """The line that mentions *name*, else the first one: what an error shows."""
    lines = clean(text).splitlines()
    return next((line for line in lines if name in line), lines[0] if lines else "")


def parse_cpumap(text: str) -> CpuSet:
    """
    CPUs of a bit mask in groups of 32 bits, highest first (``00000001,0000000f`` is 0-3,32).

    Raises:
        ValueError: Not such a mask, or a CPU above the largest id.

    Source: lib/bitmap.c, bitmap_print_to_pagebuf().
    """
    word = clean(text)
    if not _CPUMAP.fullmatch(word):
        raise ValueError(f"{word[:80]!r} is not a CPU mask")
    mask = int(word.replace(",", ""), 16)
    if mask.bit_length() > MAX_ID + 1:
        raise ValueError(f"CPU {mask.bit_length() - 1} is above {MAX_ID}")
    return CpuSet(mask)


def parse_distances(text: str, online: NodeSet) -> dict[NodeId, int]:
    """
    Distance to each online node, keyed by id; unitless, 10 is local.

    The k-th value belongs to the k-th *online* node, whatever its id.

    Raises:
        ValueError: Not one number for each online node.

    Source: drivers/base/node.c, node_read_distance().
    """
    words = clean(text).split()
    if len(words) != len(online) or not all(_COUNT.fullmatch(word) for word in words):
        raise ValueError(f"expected {len(online)} numbers, found {clean(text)[:60]!r}")
    return dict(zip(online, map(int, words), strict=True))


def parse_count(text: str) -> int:
    """A number of pages. Raises: ValueError when it is not a plain number."""
    word = clean(text)
    if not _COUNT.fullmatch(word):
        raise ValueError(f"{word[:80]!r} is not a number of pages")
    return int(word)

"""
The verdict of a decision again, from nothing but its record as JSON: ``numapin explain -o json``, key ``decision``.

It shares no line with numapin and imports nothing of it: sets of nodes are bit masks, every set is listed, and the
rules are those of the manual: the fewest nodes; one node outside any group, one whole group, or several unused ones;
what is free in the books and in the kernel; the policy; the other providers' hints. Good for up to about ten nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

VERDICTS = ("admitted", "chosen", "preferred", "candidates", "would_fit", "width")
"""Keys of a record that say how it ended; `without_verdict` takes them out."""

UNREACHABLE = 255


def without_verdict(record: dict[str, Any]) -> dict[str, Any]:
    """The record without anything that tells its end."""
    facts = {key: value for key, value in record.items() if key not in VERDICTS}
    facts["nodes"] = [{k: v for k, v in node.items() if k != "verdict"} for node in record["nodes"]]
    return facts


def verdict(facts: dict[str, Any]) -> list[int] | None:
    """Ids of the nodes that must have been chosen, ascending; ``None`` when the request had to be refused."""
    if facts["tie_break"] == "already-assigned":
        return [node["id"] for node in facts["nodes"] if node["own"]]
    mask = _Machine(facts).answer()
    return None if mask is None else [n for n in range(mask.bit_length()) if mask >> n & 1]


class _Machine:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.sizes: dict[str, int] = facts["sizes"]
        self.policy: str = facts["policy"]
        self.nodes = {n["id"]: n for n in facts["nodes"] if n["exclusion"] not in ("not-allowed", "memoryless")}
        self.everything = sum(1 << n for n in self.nodes)
        merges = self.policy in ("restricted", "best-effort")
        self.distances: dict[str, dict[str, int]] = facts["distances"] if merges else {}
        self.lists = [_masks(provider["hints"]) for provider in facts["hints"]]

    def answer(self) -> int | None:
        big_enough = [mask for mask in self._sets() if self._holds_when_empty(mask)]
        free = [mask for mask in big_enough if self._takes(mask)]
        if not free:
            return None
        fewest = min(mask.bit_count() for mask in big_enough)
        if self.policy == "none":
            return self._best(free)
        memory = [(mask, mask.bit_count() == fewest) for mask in free]
        merged, agreed = self._merge([*self.lists, memory])
        if agreed:
            return merged
        if self.policy != "best-effort":
            return None
        if merged is None:
            return self._best(free)
        if merged in free:
            return merged
        self.distances = {}  # the Memory Manager widens a set without asking the Topology Manager
        return self._best([mask for mask in free if not merged & ~mask])

    def _sets(self) -> Iterator[int]:
        """Every non-empty set of nodes, as the submasks of all of them."""
        mask = self.everything
        while mask:
            yield mask
            mask = (mask - 1) & self.everything

    def _in(self, mask: int) -> list[dict[str, Any]]:
        return [node for n, node in self.nodes.items() if mask >> n & 1]

    def _holds_when_empty(self, mask: int) -> bool:
        nodes = self._in(mask)
        return any(bool(node["normal"]) for node in nodes) and all(
            sum(node["allocatable"].get(kind, 0) for node in nodes) >= size for kind, size in self.sizes.items()
        )

    def _takes(self, mask: int) -> bool:
        nodes = self._in(mask)
        tied = any(len(node["cells"]) > 1 for node in nodes)
        if tied and any(sum(1 << n for n in node["cells"]) != mask for node in nodes):
            return False
        if not tied and len(nodes) > 1 and any(node["assignments"] for node in nodes):
            return False
        return all(self._offer(nodes, kind, tied=tied) >= size for kind, size in self.sizes.items())

    @staticmethod
    def _offer(nodes: list[dict[str, Any]], kind: str, *, tied: bool) -> int:
        """Inside a group only sums mean something, so the kernel's limit counts for the sum there."""
        if tied:
            books: int = sum(node["free"].get(kind, 0) for node in nodes)
            kernel: int = sum(node["kernel_free"].get(kind, node["allocatable"].get(kind, 0)) for node in nodes)
            return min(books, kernel)
        return sum(
            min(free, node["kernel_free"].get(kind, free)) for node in nodes for free in [node["free"].get(kind, 0)]
        )

    def _best(self, masks: list[int]) -> int:
        best: int = min(masks, key=lambda mask: (mask.bit_count(), self._order(mask)))
        return best

    def _order(self, mask: int) -> tuple[int, int, int, int, int]:
        """Among sets of one size: closest, own nodes, resident bytes, ended containers' nodes, lowest ids."""
        nodes = self._in(mask)
        apart = 0
        if self.distances:
            rows = [self.distances.get(str(node["id"]), {}) for node in nodes]
            apart = sum(row.get(str(node["id"]), UNREACHABLE) for row in rows for node in nodes)
        own, resident, ended = (sum(node[key] for node in nodes) for key in ("own", "resident_bytes", "ended"))
        return apart, -own, -resident, -ended, mask

    def _merge(self, lists: list[list[tuple[int, bool]]]) -> tuple[int | None, bool]:
        """One hint of each list, intersected: the best agreement, else the best compromise."""
        if self.policy == "single-numa-node":
            lists = [[h for h in hints if h[1] and (h[0] < 0 or h[0].bit_count() == 1)] for hints in lists]
        agreements: set[int] = set()
        compromises: set[int] = set()
        for combination in product(*lists):
            sets = {mask for mask, _ in combination if mask >= 0}
            merged = self.everything
            for mask in sets:
                merged &= mask
            if merged:
                everyone = all(preferred for _, preferred in combination) and len(sets) <= 1
                (agreements if everyone else compromises).add(merged)
        if agreements:
            return self._best(list(agreements)), True
        if not compromises:
            return None, False
        smallest = [min((m.bit_count() for m, _ in hints if m >= 0), default=0) for hints in lists]
        wanted = max(smallest)

        def liking(mask: int) -> tuple[int, int]:
            size = mask.bit_count()
            return (0, 0) if size == wanted else (1, -size) if size < wanted else (2, size)

        return min(compromises, key=lambda mask: (liking(mask), self._order(mask))), False


def _masks(hints: list[dict[str, Any]] | None) -> list[tuple[int, bool]]:
    """Mask and preference of each hint; -1 is any node. No list is no preference, an empty one suits nothing."""
    if hints is None:
        return [(-1, True)]
    found = [(-1 if h["nodes"] is None else sum(1 << n for n in h["nodes"]), h["preferred"]) for h in hints]
    return found or [(-1, False)]

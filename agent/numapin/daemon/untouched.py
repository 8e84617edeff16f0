"""
Huge pages that are promised and not in use yet: the kernel counts them among the free, and they are not to be had.

Owns: how many there are on which nodes. Must never: open a cgroup itself, or count a page twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from numapin.daemon.ledger import Ledger
from numapin.model.checkpoint import PinRecord
from numapin.model.memory import MEMORY, MemoryType, Owner, of_pod
from numapin.model.nodeset import NodeId, NodeSet
from numapin.planner.kernel_free import Ceilings, spend

PerNode = Mapping[NodeId, int]
Used = Callable[[PinRecord, MemoryType], PerNode | None]
"""Bytes of one kind of huge pages that a container uses, per node; ``None`` where nobody knows."""


class Untouched:
    """
    What the containers in *ledger* were promised and do not use yet, by one reading of *used* for each.

    Made anew for each batch of decisions: what containers use is read once in it.
    """

    def __init__(self, ledger: Ledger, used: Used) -> None:
        self._ledger = ledger
        self._read = used
        self._known: dict[tuple[str, MemoryType], PerNode | None] = {}

    def leave(self, free: Ceilings, besides: Iterable[Owner] = ()) -> Ceilings:
        """
        *free* (bytes per node and type, as the kernel has them) without what is promised to others than *besides*.

        Where nobody knows what a container uses (no hugetlb controller, a kernel before 5.17) it is taken to use all.
        """
        kinds = {kind for found in free.values() for kind in found if kind != MEMORY}
        return spend(free, self._promised(kinds, frozenset(besides)))

    def shared(self, pod: str, kinds: Iterable[MemoryType]) -> Ceilings:
        """Bytes of *kinds* that containers of *pod* use without having any of their own; all, where nobody knows."""
        found: dict[NodeId, dict[MemoryType, int]] = {}
        for kind in kinds:
            pins = [p for p in self._pins(pod) if p.owner in of_pod(pod) or not self._sizes(p.owner, kind)]
            used = [self._used(pin, kind) for pin in pins]
            if None in used:
                used = [self._sizes(owner, kind) for owner in of_pod(pod)]
            for per_node in used:
                for node, size in (per_node or {}).items():
                    of_node = found.setdefault(node, {})
                    of_node[kind] = of_node.get(kind, 0) + size
        return found

    def _promised(self, kinds: set[MemoryType], apart: frozenset[Owner]) -> Iterable[tuple[NodeSet, MemoryType, int]]:
        sizes: dict[tuple[str, NodeSet, MemoryType], int] = {}
        for owner, blocks in self._ledger.books.assignments.items():
            # of what another memory manager's containers use nobody here keeps a record
            for block in blocks if owner not in apart and owner not in self._ledger.neighbour else ():
                if block.type in kinds:
                    key = owner.pod, block.affinity, block.type
                    sizes[key] = sizes.get(key, 0) + block.size_bytes
        for (pod, nodes, kind), size in sorted(sizes.items(), key=lambda item: (item[0][0], item[0][1].ids())):
            share = not apart.intersection(of_pod(pod))  # else what they use of it is no other promise's
            pins = [p for p in self._pins(pod) if p.owner not in apart and (share or self._sizes(p.owner, kind))]
            used = [self._used(pin, kind) for pin in pins]
            if None not in used:
                there = sum(n for found in used for node, n in (found or {}).items() if node in nodes)
                if size > there:
                    yield nodes, kind, size - there

    def _sizes(self, owner: Owner, kind: MemoryType) -> PerNode:
        """What an owner holds of one type; of a group's sum it does not matter where it is put."""
        blocks = self._ledger.books.assignments.get(owner, ())
        return {min(b.affinity): b.size_bytes for b in blocks if b.type == kind and b.affinity}

    def _pins(self, pod: str) -> list[PinRecord]:
        return [p for p in self._ledger.pins.values() if p.owner.pod == pod and p.ended_ns is None]

    def _used(self, pin: PinRecord, kind: MemoryType) -> PerNode | None:
        key = (pin.cgroup, kind)
        if key not in self._known:
            self._known[key] = self._read(pin, kind)
        return self._known[key]

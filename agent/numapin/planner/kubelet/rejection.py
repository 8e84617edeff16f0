"""
A kubelet's rejection of a pod: what its answer depended on, what exactly was rejected, and how it found the nodes.

Owns: which bytes a rejection is about. Must never: propose anything; that is `planner.kubelet.remedies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from numapin.model.memory import Books, MemoryType
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Exclusion, Explanation, NodeView, Scope, TopologyPolicy
from numapin.planner.kubelet.merge import Distances
from numapin.planner.kubelet.node import Kubelet
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer

Sizes = Mapping[MemoryType, int]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a kubelet's answer depends on; *most_nodes* is its ``max-allowable-numa-nodes``."""

    books: Books
    pod: Pod
    policy: TopologyPolicy
    scope: Scope
    distances: Distances | None
    most_nodes: int

    def kubelet(self) -> Kubelet:
        """
        A kubelet that finds the books in place.

        Raises:
            TooManyNodes: It would not start.
        """
        return Kubelet.over(self.books, self.policy, self.scope, self.distances, most_nodes=self.most_nodes)

    @property
    def asks_whole_pod(self) -> bool:
        """True when the topology manager asks once, for all containers together."""
        return self.scope is Scope.POD and self.policy is not TopologyPolicy.NONE


@dataclass(frozen=True, slots=True)
class Rejected:
    """
    What a kubelet said no to: *asker* ``None`` is the pod as a whole, *sizes* are its bytes by type.

    *kubelet* is as it was left by the rejection, with what the containers before were given; for the whole pod it is
    as it was before.
    """

    situation: Situation
    kubelet: Kubelet
    asker: PodContainer | None
    sizes: Sizes

    def available(self, mask: int, kind: MemoryType) -> int:
        """Bytes free on these nodes, with what the pod's ended init containers leave to be used again there."""
        static = self.kubelet.static
        return self.kubelet.ledger.total(mask, kind)[1] + static.again(self.situation.pod, mask, kind)


def rejected(situation: Situation, kubelet: Kubelet, asker: PodContainer | None) -> Rejected | None:
    """The rejection with its sizes; ``None`` where there are none to speak of."""
    try:
        sizes = (asker or situation.pod).memory_requests()
    except NotWholeBytes:
        return None
    sizes = {kind: size for kind, size in sizes.items() if size}
    return Rejected(situation, kubelet if asker else situation.kubelet(), asker, sizes) if sizes else None


def record(said: Rejected) -> Explanation:
    """The nodes as the kubelet found them for what it rejected; free counts what may be used again."""
    views = []
    for n, node in said.kubelet.ledger.nodes.items():
        tables = {k: t for k in said.sizes if (t := node.tables.get(k)) is not None}
        whole = {k: t.allocatable for k, t in tables.items()}
        # what a group leaves to be used again is shown on its lowest node: inside a group only sums count
        ties = [1 << n] + (
            [node.cells] if node.cells.bit_count() > 1 and next(iter(NodeSet(node.cells))) == n else []
        )
        again = {k: sum(said.kubelet.static.again(said.situation.pod, m, k) for m in ties) for k in tables}
        have = {k: t.free + again[k] for k, t in tables.items()}
        why: Exclusion | None = None
        if any(not tables[k].total if k in tables else True for k in said.sizes):
            holds_any = any(t.total for t in node.tables.values())
            why = Exclusion.TYPE_MISSING if holds_any else Exclusion.MEMORYLESS
        elif node.cells.bit_count() > 1:
            why = Exclusion.IN_GROUP
        elif any(whole[k] < size for k, size in said.sizes.items()):
            why = Exclusion.HOLDS_SINGLE if node.count else Exclusion.TOO_SMALL
        elif any(have[k] < size for k, size in said.sizes.items()):
            why = Exclusion.NOT_ENOUGH_FREE
        views.append(NodeView(n, whole, have, NodeSet(node.cells or 1 << n), node.count, why))
    width = said.kubelet.static.sets(said.situation.pod, said.sizes).width()
    return Explanation(said.situation.policy, dict(sorted(said.sizes.items())), tuple(views), width)

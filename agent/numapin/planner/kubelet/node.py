"""
One node's kubelet: admission of whole pods, their life, and a restart on an unchanged machine.

Owns: which pods are active, the affinities the topology manager stored, and when stale memory is swept. Must never:
read a clock or a file; the same calls give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from numapin.model.memory import Books, NodeMap
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Hint, ProviderHints, Scope, TopologyPolicy
from numapin.planner.kubelet.bounds import KUBELET_NODES, LISTED_SETS, Budget, TooManyNodes, Unanswered
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.merge import Distances, admits
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.kubelet.sets import Hints, Sets
from numapin.planner.kubelet.static import AllocationError, StaticPolicy
from numapin.planner.kubelet.topology import answer

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"

OtherHints = Mapping[str, Sequence[ProviderHints]]
"""Other providers' hints, asked before memory, by container name; ``POD`` for pod scope."""
POD = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """Memory's hints as the topology manager got them; ``container`` empty means the whole pod."""

    container: str
    hints: Hints | None


@dataclass(frozen=True, slots=True)
class Admission:
    """
    The kubelet's answer for one pod.

    ``reason`` is empty when admitted; ``detail`` is our sentence. ``asked`` is empty unless hints are written down.
    ``affinity`` is what the topology manager stored per container, ``mems`` the nodes of each container that has
    blocks.
    """

    uid: str
    admitted: bool
    reason: str = ""
    detail: str = ""
    asked: tuple[Asked, ...] = ()
    affinity: Mapping[str, Hint] = field(default_factory=dict)
    mems: Mapping[str, NodeSet] = field(default_factory=dict)


class StartFailed(Exception):
    """The kubelet would not start: its stored state does not match the machine."""


class Kubelet:
    """
    A kubelet with the Static policy, from an empty *node_map*.

    *distances* are given when ``prefer-closest-numa-nodes`` is on; *most_nodes* is ``max-allowable-numa-nodes``.
    ``most_sets`` bounds what one pod's answer may cost. With ``writes_hints`` every hint is listed in the answers,
    however many there are.

    Raises:
        TooManyNodes: The kubelet would not start; from `admit`, its answer takes too long to work out.
    """

    def __init__(
        self,
        node_map: NodeMap,
        policy: TopologyPolicy,
        scope: Scope,
        distances: Distances | None = None,
        *,
        most_nodes: int = KUBELET_NODES,
    ) -> None:
        count = len(node_map.nodes)
        if policy is not TopologyPolicy.NONE and count > most_nodes:
            raise TooManyNodes(count, most_nodes, Unanswered.NOT_STARTED)
        self.policy = policy
        self.scope = scope
        self.distances = distances
        self.empty = node_map
        self.static = StaticPolicy(Ledger(node_map))
        self.active: dict[str, Pod] = {}
        self._started: set[tuple[str, str]] = set()
        self._stored: dict[str, dict[str, Hint]] = {}
        self._kept: frozenset[str] = frozenset()
        self._sweeping = True
        self.most_sets = LISTED_SETS
        self.writes_hints = False

    @classmethod
    def over(
        cls,
        books: Books,
        policy: TopologyPolicy,
        scope: Scope,
        distances: Distances | None = None,
        *,
        most_nodes: int = KUBELET_NODES,
    ) -> Kubelet:
        """A kubelet that finds the assignments of *books* in place and keeps them."""
        kubelet = cls(books.node_map, policy, scope, distances, most_nodes=most_nodes)
        kubelet.static = StaticPolicy(Ledger.of(books))
        kubelet._kept = frozenset(owner.pod for owner in books.assignments)
        return kubelet

    @property
    def ledger(self) -> Ledger:
        """The machine state and the assignments."""
        return self.static.ledger

    @property
    def nodes(self) -> NodeSet:
        """All nodes."""
        return NodeSet.from_ids(self.ledger.nodes)

    def admit(self, pod: Pod, others: OtherHints | None = None) -> Admission:
        """
        Admit *pod*, or not; what a refused pod got before its refusal stays until the next `sweep`.

        Raises:
            TooManyNodes: The answer takes too long to work out.
        """
        self.static.budget = Budget(self.most_sets)
        if pod.qos is None:
            pod = replace(pod, qos=pod.qos_class())  # it is asked for each container, and looks at all of them
        before = self.active.get(pod.uid)
        self.active[pod.uid] = pod
        answer = self._admit(pod, others or {})
        if not answer.admitted:
            self.active.pop(pod.uid, None)
            if before is not None and self._sweeping:
                self.active[pod.uid] = before
        return answer

    def _admit(self, pod: Pod, others: OtherHints) -> Admission:
        asked: list[Asked] = []
        affinity: dict[str, Hint] = {}
        reason = detail = ""
        shared: Hint | None = None
        if self.scope is Scope.POD and self.policy is not TopologyPolicy.NONE:
            own = self._of_pod(pod)
            shared = self._ask(asked, POD, own, others.get(POD, ()))
            if not admits(self.policy, shared):
                reason, detail = TOPOLOGY_AFFINITY_ERROR, _no_locality(shared, own)
        for container in () if reason else pod.containers:
            if self.policy is not TopologyPolicy.NONE:
                own = None if shared else self._of_container(pod, container)
                best = shared or self._ask(asked, container.name, own, others.get(container.name, ()))
                if not admits(self.policy, best):
                    reason, detail = TOPOLOGY_AFFINITY_ERROR, f"{container.name}: {_no_locality(best, own)}"
                    break
                affinity[container.name] = best
                self._stored.setdefault(pod.uid, {})[container.name] = best
            try:
                self.sweep_if_allowed()
                self.static.allocate(pod, container, affinity.get(container.name, Hint(None, False)))
            except AllocationError as exc:
                reason, detail = UNEXPECTED_ADMISSION_ERROR, f"{container.name}: {exc}"
                break
        return Admission(
            pod.uid, not reason, reason, detail, tuple(asked), dict(self._stored.get(pod.uid, {})), self.mems(pod)
        )

    def _ask(self, asked: list[Asked], name: str, own: Sets | Hints | None, others: Sequence[ProviderHints]) -> Hint:
        if self.writes_hints:
            asked.append(Asked(name, _hints(own)))
        return answer(own, others, self.nodes, self.policy, self.distances)

    def _of_container(self, pod: Pod, container: PodContainer) -> Sets | Hints | None:
        self.sweep_if_allowed()
        return self.static.of_container(pod, container)

    def _of_pod(self, pod: Pod) -> Sets | Hints | None:
        self.sweep_if_allowed()
        return self.static.of_pod(pod)

    def container_hints(self, pod: Pod, container: PodContainer) -> Hints | None:
        """Memory's hints for one container, after a sweep: all of them, which are many on many nodes."""
        return _hints(self._of_container(pod, container))

    def pod_hints(self, pod: Pod) -> Hints | None:
        """Memory's hints for the whole pod, in the same way."""
        return _hints(self._of_pod(pod))

    def mems(self, pod: Pod) -> dict[str, NodeSet]:
        """``cpuset.mems`` of each container of *pod* that was given blocks; empty for one that asked for none."""
        found = {}
        held = self.ledger.entries.get(pod.uid, {})
        for container in pod.containers:
            if container.name in held:
                nodes = NodeSet()
                for block in held[container.name]:
                    nodes |= block.affinity
                found[container.name] = nodes
        return found

    def start(self, uid: str, container: str) -> None:
        """A container starts: the memory of every regular init container before it is free again."""
        pod = self.active.get(uid)
        if pod is None or pod.container(container) is None:
            return
        self._started.add((uid, container))
        for earlier in pod.inits():
            if earlier.name == container:
                break
            if earlier.is_regular_init:
                self.ledger.remove(uid, earlier.name)

    def remove_container(self, uid: str, container: str) -> None:
        """A container that had started is removed; of others nothing is known by their container id."""
        if (uid, container) in self._started:
            self._started.discard((uid, container))
            self.ledger.remove(uid, container)

    def end(self, uid: str) -> None:
        """The pod is no longer active."""
        self.active.pop(uid, None)
        self.sweep()

    def sweep(self) -> None:
        """Remove everything whose pod is not active or does not have that container."""
        for owner in list(self.ledger.owners()):
            if owner.pod in self._kept:
                continue
            pod = self.active.get(owner.pod)
            if pod is None or pod.container(owner.container) is None:
                self.ledger.remove(owner.pod, owner.container)

    def sweep_if_allowed(self) -> None:
        """The sweep that every question begins with, except while a restart re-admits the pods."""
        if self._sweeping:
            self.sweep()

    def restart(self) -> None:
        """
        The process restarts; re-admission of the active pods is `readmit`.

        ``policy``, ``scope``, ``distances`` and ``empty`` may be set before: the process reads its configuration
        and the machine anew.

        Raises:
            StartFailed: The stored state is not what its entries give on this machine.
        """
        self.static = StaticPolicy(started(self.ledger, self.empty))
        self._stored = {}

    def readmit(self) -> Iterator[Admission]:
        """
        All active pods go through admission again, in order; nothing is swept before the last one.

        Containers of admitted pods that run already are then seen to have started, which frees what their finished
        init containers were given a second time.
        """
        pods, self.active = self.active, {}
        self._sweeping = False
        for pod in pods.values():
            yield self.admit(pod)
        self._sweeping = True
        for uid, name in [(pod.uid, c.name) for pod in pods.values() for c in pod.containers]:
            if (uid, name) in self._started:
                self.start(uid, name)


def started(stored: Ledger, empty: NodeMap) -> Ledger:
    """
    The ledger a process goes on with: *stored*, or a fresh one where nothing was stored.

    Raises:
        StartFailed: Entries without a machine state, entries on nodes or types that are absent, or a machine state
            that differs from what the entries give on *empty*.
    """
    if not stored.nodes:
        if stored.entries:
            raise StartFailed("there are assignments but no machine state")
        return Ledger(empty)
    for owner in stored.owners():
        for block in stored.blocks(*owner):
            for node in block.affinity:
                if node not in stored.nodes or block.type not in stored.nodes[node].tables:
                    raise StartFailed(f"{owner} uses {block.type} of node {node}, which is not there")
    if not stored.rebuilt_on(empty).same_machine(stored):
        raise StartFailed("the stored machine state differs from the one its entries give")
    return stored


def _hints(own: Sets | Hints | None) -> Hints | None:
    return own.hints() if isinstance(own, Sets) else own


def _no_locality(best: Hint, own: Sets | Hints | None) -> str:
    nodes, said = best.affinity, "no set of nodes is one that every resource prefers"
    if nodes is None or not isinstance(own, Sets) or not own.fits(nodes.mask):
        return said
    return f"{said}; {nodes.named} {'has' if len(nodes) == 1 else 'have'} room"

"""
What would make a kubelet admit a pod that it rejected: each thing is done to the pod or the books, and asked again.

Owns: which changes are tried, and in what order. Must never: say a change that the kubelet's answer does not confirm
for the whole pod; whatever arithmetic proposes, `Trial.admits` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from numapin.model.memory import MEMORY, MemoryType, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.quantity import at_least, at_most
from numapin.planner.kubelet.bounds import TooManyNodes
from numapin.planner.kubelet.node import Admission, Kubelet
from numapin.planner.kubelet.pods import NotWholeBytes, Pod, PodContainer
from numapin.planner.kubelet.rejection import Rejected, Situation, Sizes
from numapin.planner.ways import Way

ASKED_SETS = 1 << 20
"""Sets of nodes that all the trials together may look at: a second or two."""
SETS_PER_NODE = 16
"""What one container costs for each node, in sets, where none are listed."""
ASKED_PODS = 600
"""Trials at most."""
FREED = 8
"""Places of which it is tried how much would have to become free there, those that lack least first."""
EMPTIED = 16
"""Places that are tried empty, those with least on them first."""
SHRUNK = 4
"""Containers of which a smaller limit is tried."""
LONGEST_NAME = 63
_LENIENT = (
    TopologyPolicy.SINGLE_NUMA_NODE,
    TopologyPolicy.RESTRICTED,
    TopologyPolicy.BEST_EFFORT,
    TopologyPolicy.NONE,
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}


@dataclass(slots=True)
class Trial:
    """Asks again with something changed, until the bounds are reached; then nothing is admitted any more."""

    situation: Situation
    sets: int = ASKED_SETS
    pods: int = ASKED_PODS
    last: Admission | None = None

    def admits(
        self,
        *,
        pod: Pod | None = None,
        policy: TopologyPolicy | None = None,
        scope: Scope | None = None,
        more: tuple[int, Sizes] = (0, {}),
        without: Collection[Owner] = (),
    ) -> bool:
        """
        True when the pod is admitted with the other *pod*, policy or scope, with *more* bytes free on the nodes of a
        mask (taken from what is promised there), or when the owners *without* were gone. `last` is the answer.
        """
        now = self.situation
        case = replace(now, pod=pod or now.pod, policy=policy or now.policy, scope=scope or now.scope)
        cost = SETS_PER_NODE * len(now.books.node_map.nodes) * len(case.pod.containers)
        if self.pods <= 0 or self.sets < cost:
            return False
        self.pods -= 1
        kubelet = None
        try:
            kubelet = case.kubelet()
            kubelet.most_sets = self.sets
            for owner in without:
                kubelet.ledger.remove(*owner)
            free(kubelet, *more)
            self.last = kubelet.admit(case.pod)
        except TooManyNodes:
            return False
        finally:
            # sets that had to be listed count too, and how many they were is known only afterwards
            self.sets -= cost + (0 if kubelet is None else kubelet.static.budget.spent)
        return self.last.admitted


def free(kubelet: Kubelet, mask: int, sizes: Sizes) -> None:
    """Give back so many bytes of what is promised on the nodes of *mask*, from the lowest id upward."""
    for kind, size in sizes.items():
        left = size
        for n in NodeSet(mask):
            table = kubelet.ledger.nodes[n].tables.get(kind)
            if table is not None:
                part = max(0, min(left, table.reserved))
                table.reserved -= part
                table.free += part
                left -= part


def remedies(said: Rejected) -> tuple[str, ...]:
    """What would make the kubelet admit the whole pod, a clause each, every one confirmed by its answer."""
    trial = Trial(said.situation)
    ledger = said.kubelet.ledger
    absent = [
        f"add {kind} to a node (write the pool's nr_hugepages)"
        for kind in said.sizes
        if kind != MEMORY and not any(n.tables[kind].allocatable for n in ledger.nodes.values() if kind in n.tables)
    ]
    if absent:
        return tuple(absent)  # nothing else would do without it
    more = list(_more_free(said, trial))
    found = [*more, *_laxer(said, trial), *_smaller(said, trial)]
    if not more:
        found += _emptied(said, trial)
    return tuple(found)


def _places(kubelet: Kubelet) -> list[int]:
    """Nodes in no group, and groups, each once."""
    masks = dict.fromkeys(n.cells if n.cells.bit_count() > 1 else 1 << i for i, n in kubelet.ledger.nodes.items())
    return [mask for mask in masks if not mask & ~kubelet.nodes.mask]


def _more_free(said: Rejected, trial: Trial) -> Iterator[str]:
    """The place where least must become free, if that is all it takes."""
    before = said.situation.kubelet()
    ways: list[Way] = []
    places: list[tuple[bool, int, int, dict[MemoryType, int], dict[MemoryType, int]]] = []
    for mask in _places(before):
        tables = [before.ledger.nodes[n].tables for n in NodeSet(mask)]
        most = {k: sum(t[k].reserved for t in tables if k in t) for k in said.sizes}
        lacks = {k: max(0, size - said.available(mask, k)) for k, size in said.sizes.items()}
        if any(most.values()):
            places.append((any(lacks[k] > most[k] for k in lacks), sum(lacks.values()), mask, lacks, most))
    for _, _, mask, lacks, most in sorted(places, key=lambda p: p[:3])[:FREED]:
        if any(lacks.values()) and all(lacks[k] <= most[k] for k in lacks) and trial.admits(more=(mask, lacks)):
            upper = lacks
        elif trial.admits(more=(mask, most)):
            upper = most
        else:
            continue
        for kind in upper:
            upper = {**upper, kind: _least(trial, mask, upper, kind)}
        least = {k: v for k, v in upper.items() if v}
        told = {k: min(most[k], _bytes(at_least(v), up=True)) for k, v in least.items()}
        if told and (told == least or trial.admits(more=(mask, told))):
            ways.append(Way(NodeSet(mask), least))
    best = min(ways, key=lambda w: (sum(w.lacks.values()), len(w.nodes), w.nodes), default=None)
    if best is not None:
        yield f"with {best.more} {best.place} it would be admitted"


def _least(trial: Trial, mask: int, upper: dict[MemoryType, int], kind: MemoryType) -> int:
    """The least of one type that is enough beside the others; *upper* is known to be."""
    low, high = 0, upper[kind]
    if high and not trial.admits(more=(mask, {**upper, kind: high - 1})):
        return high
    while low < high:
        middle = (low + high) // 2
        if trial.admits(more=(mask, {**upper, kind: middle})):
            high = middle
        else:
            low = middle + 1
    return high


def _laxer(said: Rejected, trial: Trial) -> Iterator[str]:
    """The strictest laxer policy that takes it, and container scope."""
    now = said.situation
    for policy in _LENIENT[_LENIENT.index(now.policy) + 1 :]:
        if trial.admits(policy=policy):
            yield f"the policy {policy.value} would admit it now{_where(said, trial)}"
            break
    if now.asks_whole_pod and trial.admits(scope=Scope.CONTAINER):
        yield f"the topology manager scope container would admit it now{_where(said, trial)}"


def _smaller(said: Rejected, trial: Trial) -> Iterator[str]:
    """The largest smaller memory limit of the container that was rejected, or of one where it was all of them."""
    pod = said.situation.pod
    askers = [said.asker] if said.asker is not None else sorted(pod.containers, key=_memory, reverse=True)[:SHRUNK]
    for container in askers:
        size = _memory(container)
        if size < 2:
            continue
        best = _largest(said, trial, container, size)
        told = _bytes(at_most(best), up=False)
        if not told or not trial.admits(pod=_with_memory(pod, container, told)):
            continue
        whose = f" for {_short(container.name)}" if len(pod.containers) > 1 else ""
        where = _where(said, trial, named=True)
        yield f"with a memory limit of {at_most(best)}{whose} it would be admitted now{where}"
        return


def _largest(said: Rejected, trial: Trial, container: PodContainer, size: int) -> int:
    """The largest limit below *size* that is found to be admitted; 0 for none."""
    pod, others = said.situation.pod, said.sizes[MEMORY] - size if MEMORY in said.sizes else 0
    fits = {said.available(mask, MEMORY) - others for mask in _places(said.kubelet)}
    for limit in sorted((f for f in fits if 0 < f < size), reverse=True)[:SHRUNK]:
        if trial.admits(pod=_with_memory(pod, container, limit)):
            if limit + 1 == size or not trial.admits(pod=_with_memory(pod, container, limit + 1)):
                return limit
            break
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if trial.admits(pod=_with_memory(pod, container, middle)):
            low = middle
        else:
            high = middle
    return low


def _emptied(said: Rejected, trial: Trial) -> Iterator[str]:
    """The place with least on it that would take the pod when empty, else all of them."""
    books = said.situation.books
    sizes = {owner: sum(b.size_bytes for b in blocks) for owner, blocks in books.assignments.items()}
    held: list[tuple[int, int, list[Owner]]] = []
    for mask in _places(said.situation.kubelet()):
        owners = [o for o, blocks in books.assignments.items() if any(b.affinity.mask & mask for b in blocks)]
        if owners:
            held.append((sum(sizes[o] for o in owners), mask, owners))
    for _, mask, owners in sorted(held, key=lambda h: h[:2])[:EMPTIED]:
        if trial.admits(without=owners):
            nodes = NodeSet(mask)
            name = nodes.named if len(nodes) == 1 else f"group {nodes}"
            yield f"with {name} empty it would be admitted"
            return
    if books.assignments and trial.admits(without=tuple(books.assignments)):
        yield "with all nodes empty it would be admitted"


def _where(said: Rejected, trial: Trial, *, named: bool = False) -> str:
    """On which nodes what was rejected would then be; *named* where the sentence says already what that is."""
    if trial.last is None:
        return ""
    mems = trial.last.mems
    nodes = NodeSet()
    for name, where in mems.items():
        if said.asker is None or name == said.asker.name:
            nodes |= where
    if not nodes:
        return ""
    if named or said.asker is None or len(said.situation.pod.containers) == 1:
        return f", on {nodes.named}"
    return f", with {_short(said.asker.name)} on {nodes.named}"


def _memory(container: PodContainer) -> int:
    try:
        return container.memory_requests().get(MEMORY, 0)
    except NotWholeBytes:
        return 0


def _with_memory(pod: Pod, container: PodContainer, size: int) -> Pod:
    def changed(had: Mapping[str, Decimal]) -> dict[str, Decimal]:
        return {k: Decimal(size) if k == MEMORY else v for k, v in had.items()}

    smaller = replace(container, requests=changed(container.requests), limits=changed(container.limits))
    return replace(pod, containers=tuple(smaller if c is container else c for c in pod.containers))


def _bytes(text: str, *, up: bool) -> int:
    """The bytes that a rounded text says, a fraction to the safe side."""
    number, unit = text.split()
    exact = Decimal(number) * _UNITS[unit]
    return int(exact) + (up and exact != int(exact))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"

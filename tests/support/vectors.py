"""The kubelet's recorded answers: reading them, replaying them on our kubelet, and telling where we differ."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from numapin.model.container import QosClass
from numapin.model.memory import MEMORY, Block, MemoryTable, MemoryType, NodeMap, NodeState
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Hint, ProviderHints, Scope, TopologyPolicy
from numapin.model.quantity import parse_quantity
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from numapin.planner.accounting import ReservationError, build_node_map
from numapin.planner.kubelet.ledger import Ledger
from numapin.planner.kubelet.merge import admits, merge
from numapin.planner.kubelet.node import POD, Admission, Kubelet, StartFailed, started
from numapin.planner.kubelet.pods import Pod, PodContainer
from numapin.planner.kubelet.sets import Hints, Sets
from numapin.planner.kubelet.static import AllocationError, StaticPolicy

Json = Any
HERE = Path(__file__).resolve().parent.parent / "vectors"
OURS = (HERE / "visible.jsonl.xz", HERE / "upstream.jsonl.xz")

OUT_OF_SCOPE = ("restart:", "config:", "upstream-bug:")
IN_SCOPE = frozenset({"restart:plain"})
"""A restart on an unchanged machine with an unchanged configuration: the same assignments, the same pins."""
OUT_OF_SCOPE_TAGS = frozenset({"config", "gate", "pod-level-resources", "checkpoint", "upstream-panic"})
OUT_OF_SCOPE_OPS = frozenset({"checkpoint", "write_checkpoint", "delete_checkpoint", "policy_allocate_pod"})
"""The kubelet's own file, and pods allocated as a whole (alpha)."""
OTHER_MACHINE = ("nodes", "reserved", "memory_policy")
"""A restart with one of these is on another machine or with another configuration."""
OPENERS: Mapping[str, Callable[..., IO[str]]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}


def read_vectors(path: Path) -> Iterator[Json]:
    """Vectors of a ``.jsonl`` file, plain or compressed (``.xz``, ``.gz``, ``.bz2``)."""
    opener = OPENERS.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def out_of_scope(vector: Json) -> str:
    """Why a vector is not ours to agree with (a tag, the gate it switches on, or a step); empty when it is."""
    for tag in vector["tags"]:
        if tag in OUT_OF_SCOPE_TAGS or (tag.startswith(OUT_OF_SCOPE) and tag not in IN_SCOPE):
            return str(tag)
    if vector["scenario"].get("gates", {}).get("PodLevelResourceManagers"):
        return "gate"
    if vector["scenario"].get("memory_policy", "Static") != "Static":
        return "memory_policy"
    for step in vector["scenario"].get("steps") or ():
        if step["op"] in OUT_OF_SCOPE_OPS:
            return str(step["op"])
        if step["op"] == "restart" and any(key in step for key in OTHER_MACHINE):
            return "restart:changed"
    return ""


@dataclass(frozen=True, slots=True)
class Difference:
    """First disagreement in a vector: where, what the kubelet said, what we say."""

    step: str
    what: str
    expected: Json
    actual: Json

    def __str__(self) -> str:
        return f"{self.step}: {self.what}: expected {_short(self.expected)}, got {_short(self.actual)}"


def _short(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 300 else text[:300] + "…"


def run(vector: Json) -> Difference | None:
    """Replay a vector; ``None`` when everything that is compared agrees."""
    if vector["scenario"].get("mode") == "policy":
        return _PolicyReplay(vector["scenario"]).run(vector["expected"])
    return _Replay(vector["scenario"]).run(vector["expected"])


class _Replay:
    """A whole kubelet, driven through the steps of a scenario."""

    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        node_map = node_map_of(scenario)
        self.kubelet = Kubelet(node_map, TopologyPolicy.NONE, Scope.CONTAINER)
        self.kubelet.writes_hints = True
        self._configure(scenario["topology"])

    def _configure(self, settings: Json) -> None:
        options = settings.get("options") or {}
        closest = str(options.get("prefer-closest-numa-nodes", "false")).lower() in ("true", "1", "t")
        self.kubelet.policy = TopologyPolicy(settings["policy"])
        self.kubelet.scope = Scope(settings.get("scope") or "container")
        self.kubelet.distances = distances_of(self.scenario) if closest else None

    def run(self, expected: Json) -> Difference | None:
        start = expected["start"]
        if not start["ok"]:
            return Difference("start", "ok", False, True)
        mine = self._machine_state()
        if start["machine_state"] != mine:
            return Difference("start", "machine_state", start["machine_state"], mine)
        for number, (step, want) in enumerate(zip(self.scenario["steps"], expected["steps"], strict=True), 1):
            got = getattr(self, "_" + step["op"])(step, want)
            for what in sorted(got.keys() | (want.keys() & COMPARED)):
                if (wanted := _normal(what, want.get(what))) != (given := _normal(what, got.get(what))):
                    return Difference(f"step {number} {step['op']}", what, wanted, given)
        return None

    def _admit(self, step: Json, want: Json) -> Json:
        del want
        pod = pod_of(step)
        answer = self.kubelet.admit(pod, others_of(step))
        return {**self._answer(pod, answer), **({} if answer.admitted else self._state_and_after_gc())}

    def _state_and_after_gc(self) -> Json:
        """The state, and what a sweep makes of it where that is another."""
        before = self._state()
        self.kubelet.sweep()
        after = self._state()
        return {"state": before} if after == before else {"state": before, "state_after_gc": after}

    def _answer(self, pod: Pod, answer: Admission) -> Json:
        got = {
            "admitted": answer.admitted,
            "qos": pod.qos_class().value,
            "hints": [
                {**({"pod": True} if a.container == POD else {"container": a.container}), "hints": _hints(a.hints)}
                for a in answer.asked
            ],
            "cpuset_mems": {name: ",".join(map(str, nodes)) for name, nodes in answer.mems.items()},
            "state": self._state(),
        }
        if answer.reason:
            got["reason"] = answer.reason
        got["affinity"] = {name: _hint(hint) for name, hint in answer.affinity.items()}
        return got

    def _remove(self, step: Json, want: Json) -> Json:
        del want
        self.kubelet.end(step["uid"])
        return {"state": self._state()}

    def _gc(self, step: Json, want: Json) -> Json:
        del step, want
        self.kubelet.sweep()
        return {"state": self._state()}

    def _start(self, step: Json, want: Json) -> Json:
        del want
        self.kubelet.start(step["uid"], step["container"])
        return {"state": self._state()}

    def _remove_container(self, step: Json, want: Json) -> Json:
        del want
        self.kubelet.remove_container(step["uid"], step["container"])
        return {"state": self._state()}

    def _hints(self, step: Json, want: Json) -> Json:
        del want
        pod = pod_of(step) if "containers" in step else self.kubelet.active.get(step["uid"])
        if pod is None:
            return {}
        pod_hints = self.kubelet.pod_hints(pod)
        hints = {c.name: _hints(self.kubelet.container_hints(pod, c)) for c in pod.containers}
        return {"qos": pod.qos_class().value, "pod_hints": _hints(pod_hints), "container_hints": hints}

    def _restart(self, step: Json, want: Json) -> Json:
        del want
        self._configure(step.get("topology") or self.scenario["topology"])
        self.scenario = {**self.scenario, "topology": step.get("topology") or self.scenario["topology"]}
        try:
            self.kubelet.restart()
        except StartFailed:
            return {"ok": False}
        got: Json = {"ok": True}
        if step.get("readmit"):
            pods = dict(self.kubelet.active)
            got["readmissions"] = [
                {"uid": answer.uid, **self._answer(pods[answer.uid], answer)} for answer in self.kubelet.readmit()
            ]
        got["machine_state_full"] = self._machine_state()
        return {**got, **self._state_and_after_gc()}

    def _merge(self, step: Json, want: Json) -> Json:
        del want
        policy = TopologyPolicy(step["policy"])
        lists = [entry for provider in step["providers"] or () for entry in provider_of(provider)]
        best = merge(lists, self.kubelet.nodes, policy, self.kubelet.distances)
        return {"admit": admits(policy, best), "affinity": _hint(best)}

    def _allocatable(self, step: Json, want: Json) -> Json:
        del step, want
        return {
            "blocks": [
                {"numaAffinity": [n], "type": kind, "size": table.allocatable}
                for n, node in self.kubelet.ledger.nodes.items()
                for kind, table in node.tables.items()
                if table.allocatable
            ]
        }

    def _machine_state(self) -> Json:
        return {str(n): _kubelet_node(s) for n, s in self.kubelet.ledger.node_map().nodes.items()}

    def _state(self) -> Json:
        ledger = self.kubelet.ledger
        return {
            "assignments": {
                pod: {
                    name: {b.type: {"nodes": list(b.affinity), "size": b.size_bytes} for b in blocks}
                    for name, blocks in containers.items()
                }
                for pod, containers in ledger.entries.items()
            },
            "machine_state": {
                str(n): {
                    "assignments": node.count,
                    "cells": list(NodeSet(node.cells)),
                    "reserved": {k: t.reserved for k, t in node.tables.items()},
                    "free": {k: t.free for k, t in node.tables.items()},
                }
                for n, node in ledger.nodes.items()
            },
        }


COMPARED = frozenset(
    {
        "admitted", "reason", "qos", "hints", "affinity", "cpuset_mems", "state", "state_after_gc", "container_hints",
        "pod_hints", "ok", "readmissions", "admit", "blocks",
    }
)  # fmt: skip
"""What a step is compared by; messages, metrics and checkpoint texts are not."""


class _PolicyReplay:
    """The policy object alone, from a given state, as upstream's own tests drive it."""

    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        self.reserved = sum(
            _number(q) for entry in scenario["reserved"] for k, q in entry["limits"].items() if k == MEMORY
        )
        given = scenario["initial_state"]
        self.ledger = Ledger(_node_map(given["machine_state"]))
        self.ledger.entries = {
            pod: {name: [_block(b) for b in blocks] for name, blocks in containers.items()}
            for pod, containers in given["assignments"].items()
        }
        self.static = StaticPolicy(self.ledger)

    def run(self, expected: Json) -> Difference | None:
        is_configured = self.reserved > 0
        if is_configured != expected["start"]["ok"]:
            return Difference("start", "ok", expected["start"]["ok"], is_configured)
        steps = zip(self.scenario["steps"], expected.get("steps", ()), strict=True) if is_configured else ()
        for number, (step, want) in enumerate(steps, 1):
            got = getattr(self, "_" + step["op"])(step)
            for what in sorted(got.keys() | (want.keys() & {"hints", "ok", "state"})):
                if (wanted := _normal(what, want.get(what))) != (given := _normal(what, got.get(what))):
                    return Difference(f"step {number} {step['op']}", what, wanted, given)
        return None

    def _policy_start(self, step: Json) -> Json:
        del step
        try:
            self.static.ledger = started(self.ledger, node_map_of(self.scenario))
        except (StartFailed, ReservationError):  # the kubelet wraps below zero and then finds a difference
            return {"ok": False, "state": self._state()}
        return {"ok": True, "state": self._state()}

    def _policy_allocate(self, step: Json) -> Json:
        pod = pod_of(step)
        container = pod.container(step["container"])
        assert container is not None, step
        try:
            self.static.allocate(pod, container, _given_hint(step["affinity"]))
        except AllocationError:
            return {"ok": False, "state": self._state()}
        return {"ok": True, "state": self._state()}

    def _policy_remove(self, step: Json) -> Json:
        self.static.ledger.remove(step["uid"], step["container"])
        return {"state": self._state()}

    def _policy_hints(self, step: Json) -> Json:
        pod = pod_of(step)
        container = pod.container(step["container"])
        assert container is not None, step
        return {"hints": _hints(_listed(self.static.of_container(pod, container)))}

    def _policy_pod_hints(self, step: Json) -> Json:
        return {"hints": _hints(_listed(self.static.of_pod(pod_of(step))))}

    def _state(self) -> Json:
        ledger = self.static.ledger
        return {
            "assignments": {
                pod: {
                    name: [{"numaAffinity": list(b.affinity), "type": b.type, "size": b.size_bytes} for b in blocks]
                    for name, blocks in containers.items()
                }
                for pod, containers in ledger.entries.items()
            },
            "machine_state": {str(n): _kubelet_node(s) for n, s in ledger.node_map().nodes.items()},
        }


def node_map_of(scenario: Json) -> NodeMap:
    """The scenario's empty machine, through the same function as a real one's."""
    nodes = {}
    for node in scenario["nodes"]:
        pools = tuple(
            HugepagePool(int(size), pages, pages, 0)
            for size, pages in sorted((node.get("hugepages") or {}).items(), key=lambda item: int(item[0]))
        )
        kind = NodeKind.MEMORY if node["memory_bytes"] else NodeKind.MEMORYLESS
        nodes[NodeId(node["id"])] = NumaNode(NodeId(node["id"]), CpuSet(), kind, node["memory_bytes"], pools=pools)
    reserved = {
        NodeId(entry["numa"]): {MemoryType(k): int(_number(q)) for k, q in entry["limits"].items()}
        for entry in scenario["reserved"]
    }
    return build_node_map(Topology(dict(sorted(nodes.items()))), reserved, NodeSet.from_ids(nodes))


def distances_of(scenario: Json) -> dict[NodeId, dict[NodeId, int]]:
    """Distances by node id; the n-th number belongs to the n-th node."""
    ids = sorted(NodeId(node["id"]) for node in scenario["nodes"])
    return {
        NodeId(node["id"]): dict(zip(ids, node.get("distances") or (), strict=False)) for node in scenario["nodes"]
    }


def pod_of(step: Json) -> Pod:
    """The pod of a step; init containers come first."""
    containers = tuple(_container(c) for c in step["containers"])
    ordered = tuple(c for c in containers if c.init) + tuple(c for c in containers if not c.init)
    qos = QosClass(step["qos"]) if step.get("qos") else None
    return Pod(step["uid"], ordered, qos, bool(step.get("pod_resources")))


def _container(given: Json) -> PodContainer:
    return PodContainer(
        name=given["name"],
        requests={k: _number(q) for k, q in (given.get("requests") or {}).items()},
        limits={k: _number(q) for k, q in (given.get("limits") or {}).items()},
        init=bool(given.get("init")),
        restartable=bool(given.get("restartable")),
    )


def _number(quantity: Json) -> Decimal:
    return parse_quantity(quantity) if isinstance(quantity, str) else Decimal(quantity)


def others_of(step: Json) -> dict[str, list[ProviderHints]]:
    """Other providers' hints of an admission, by container and for the pod."""
    extra = step.get("extra_hints") or {}
    found = {name: provider_of(given) for name, given in (extra.get("containers") or {}).items()}
    if extra.get("pod"):
        found[POD] = provider_of(extra["pod"])
    return found


def provider_of(given: Json) -> list[ProviderHints]:
    """One provider's lists; a provider without any has no preference."""
    if not given:
        return [ProviderHints("", None)]
    return [
        ProviderHints(name, None if hints is None else tuple(_given_hint(h) for h in hints))
        for name, hints in given.items()
    ]


def _given_hint(given: Json) -> Hint:
    if given is None:
        return Hint(None, False)
    return Hint(None if given["nodes"] is None else NodeSet.from_ids(given["nodes"]), given["preferred"])


def _hint(hint: Hint) -> Json:
    return {"nodes": None if hint.affinity is None else list(hint.affinity), "preferred": hint.preferred}


def _listed(own: Sets | Hints | None) -> Hints | None:
    return own.hints() if isinstance(own, Sets) else own


def _hints(hints: Hints | None) -> Json:
    if hints is None:
        return None
    return {
        kind: [",".join(map(str, h.affinity or ())) + ("!" if h.preferred else "") for h in found]
        for kind, found in hints.items()
    }


def _kubelet_node(state: NodeState) -> Json:
    return {
        "numberOfAssignments": state.number_of_assignments,
        "memoryMap": {
            kind: {
                "total": t.total,
                "systemReserved": t.system_reserved,
                "allocatable": t.allocatable,
                "reserved": t.reserved,
                "free": t.free,
            }
            for kind, t in state.memory_map.items()
        },
        "cells": list(state.cells),
    }


def _node_map(given: Json) -> NodeMap:
    return NodeMap(
        {
            NodeId(int(node)): NodeState(
                {
                    MemoryType(kind): MemoryTable(
                        t["total"], t["systemReserved"], t["allocatable"], t["reserved"], t["free"]
                    )
                    for kind, t in state["memoryMap"].items()
                },
                state["numberOfAssignments"],
                NodeSet.from_ids(state["cells"]),
            )
            for node, state in given.items()
        }
    )


def _block(given: Json) -> Block:
    return Block(NodeSet.from_ids(given["numaAffinity"]), MemoryType(given["type"]), given["size"])


def _normal(what: str, value: Json) -> Json:
    """A value in a form that can be compared: block lists in order, free and reserved summed over a group."""
    if what == "readmissions":
        return [
            {"affinity": {}, **{k: _normal(k, v) for k, v in entry.items() if k in COMPARED | {"uid"}}}
            for entry in value or []
        ]
    if what == "blocks" and value is not None:
        return sorted(value, key=lambda b: (b["numaAffinity"], b["type"]))
    if what == "affinity":
        return value or {}  # nothing stored is shown as absent or as empty
    if what == "machine_state_full" and value is not None:
        return _summed(value)
    if what not in ("state", "state_after_gc") or value is None:
        return value
    assignments = {
        pod: {
            name: sorted(blocks, key=lambda b: (b["type"], b["size"])) if isinstance(blocks, list) else blocks
            for name, blocks in containers.items()
        }
        for pod, containers in value["assignments"].items()
    }
    return {"assignments": assignments, **_summed(value["machine_state"])}


def _summed(machine_state: Json) -> Json:
    """What each node says beside its amounts, and these summed over each group."""
    machine = {n: {k: v for k, v in node.items() if k not in AMOUNTS} for n, node in machine_state.items()}
    sums: dict[str, dict[str, int]] = {}
    for node in machine_state.values():
        group = sums.setdefault(str(sorted(node["cells"])), {})
        for kind, amount in _amounts(node):
            group[kind] = group.get(kind, 0) + amount
    return {"machine_state": machine, "sums": sums}


AMOUNTS = ("reserved", "free", "memoryMap")


def _amounts(node: Json) -> Iterator[tuple[str, int]]:
    for word in ("reserved", "free"):
        for kind, amount in (node.get(word) or {}).items():
            yield f"{word} {kind}", amount
    for kind, table in (node.get("memoryMap") or {}).items():
        for word, amount in table.items():
            yield f"{word} {kind}", amount

"""
The documents the API answers with: plain mappings, bytes as integers, stable keys.

Owns: the shape of ``status`` and ``containers``. Must never: read the kernel or change anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from numapin import API_VERSION, __version__
from numapin.daemon.agent import Agent
from numapin.daemon.documents import container_facts, container_label, kept_for_pods, node_tables
from numapin.daemon.enabling import enabled_findings
from numapin.daemon.leftovers import sentence
from numapin.daemon.nested import NestedRows
from numapin.daemon.shortcomings import unused_nodes
from numapin.daemon.since_start import pin_label, since_start_document
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.sysfs import read_available
from numapin.model.checkpoint import Phase
from numapin.model.container import ContainerKind, QosClass
from numapin.model.memory import Owner
from numapin.model.nodeset import NodeSet

NO_NESTED = NestedRows()


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while the daemon runs; times in nanoseconds."""

    pid: int
    started_wall_ns: int
    started_monotonic_ns: int
    cgroup_version: str
    boot_id: str
    checkpoint: str | None
    process: Callable[[], Mapping[str, object]] = dict
    """What the daemon itself costs now: ``resident_bytes``, ``cpu_seconds``, and ``machine_booted_seconds``."""
    findings: Callable[[], Sequence[tuple[str, str]]] = tuple
    """Pairs of stable code and sentence about what the daemon cannot see or use, as of now."""
    configuration_refused: Callable[[], bool] = lambda: False
    """Whether the last reload was refused."""


def container_row(view: Tracked) -> dict[str, object]:
    """One container, as ``containers`` and ``status`` list it."""
    record, verdict = view.record, view.classification
    return container_facts(
        id=record.id,
        name=record.name,
        pod_uid=record.pod_uid,
        pod_name=record.pod_name,
        runtime=record.runtime.value,
        kind=record.kind.value,
        cgroup=record.cgroup,
        qos=verdict.qos.value,
        rule=verdict.rule,
        reason=verdict.reason,
        request=dict(sorted(verdict.request.items())),
        nodes=list(view.nodes),
        allowed_nodes=list(record.parent_mems),
        state=view.state.value,
        message="; ".join(filter(None, (view.message, sentence(view)))),
        left_bytes={str(n): size for n, size in view.left.items() if view.nodes},
        writes=view.writes,
        repairs=view.repairs,
        repair_cause=view.repair_cause.value if view.repair_cause is not None else None,
        last_repair_seconds=None if view.repaired_wall_ns is None else view.repaired_wall_ns // 1_000_000_000,
        unit=view.unit_note or None,
        findings=list(dict.fromkeys((*record.doubts, *record.findings, *verdict.findings))),
    )


def summary(agent: Agent, *, configuration_refused: bool = False) -> str:
    """One line for people and for ``systemctl status``; *configuration_refused* is what became of the last reload."""
    states = Counter(v.state for v in agent.views.values())
    words = [f"{states[ContainerState.PINNED]} pinned"]
    words += [
        f"{states[s]} {s.value}"
        for s in ContainerState
        if states[s] and s not in (ContainerState.PINNED, ContainerState.UNMANAGED)
    ]
    words.append(f"{states[ContainerState.UNMANAGED]} not managed")
    if short := len(agent.ledger.misfits):
        words.append(f"{short} promise{'s do' if short > 1 else ' does'} not fit")
    if agent.ledger.save_error is not None:
        words.append(f"CHECKPOINT CANNOT BE {'READ' if agent.ledger.held else 'SAVED'}")
    if configuration_refused:
        words.append("NEW CONFIGURATION REFUSED")
    return ", ".join(words) + (" (dry run)" if agent.dry_run else "")


def containers_document(agent: Agent, nested: NestedRows = NO_NESTED) -> dict[str, object]:
    """Every container found, by cgroup path, each followed by what is inside it."""
    return containers_of(list(agent.views.values()), nested)


def containers_of(views: Sequence[Tracked], nested: NestedRows) -> dict[str, object]:
    """The document of these views, with what is inside them."""
    rows = [*map(container_row, views), *nested.rows]
    return {
        "apiVersion": API_VERSION,
        "kind": "Containers",
        "containers": sorted(rows, key=lambda r: str(r["cgroup"])),
        "nested_unfinished": list(nested.unfinished),
    }


def status_document(
    agent: Agent, about: About, *, now_ns: int, wall_ns: int, nested: NestedRows = NO_NESTED
) -> dict[str, object]:
    """Everything ``status`` shows, in one document."""
    config, topology, ledger = agent.machine.config, agent.machine.topology, agent.ledger
    guaranteed = [
        v
        for v in sorted(agent.views.values(), key=lambda v: v.record.cgroup)
        if _holds(agent, v)
        or (v.classification.qos is QosClass.GUARANTEED and v.state is not ContainerState.UNMANAGED)
    ]
    last = agent.last_pass_ns
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "running": True,
        "version": __version__,
        "pid": about.pid,
        "uptime_seconds": (now_ns - about.started_monotonic_ns) // 1_000_000_000,
        "policy": config.policy.value,
        "scope": config.scope.value,
        "dry_run": agent.dry_run,
        "cgroup_version": about.cgroup_version,
        "cgroup_root": config.cgroup_root,
        "boot_id": about.boot_id,
        "process": dict(about.process()),
        "last_full_pass_seconds_ago": None if last is None else round((now_ns - last) / 1e9, 3),
        "wall_seconds": wall_ns // 1_000_000_000,
        "summary": summary(agent, configuration_refused=about.configuration_refused()),
        "nodes": node_tables(ledger.books, topology, read_available(agent.machine.root, topology.online)),
        "groups": [list(g) for g in ledger.books.groups()],
        "containers": [container_row(v) for v in guaranteed],
        "held": _held(agent),
        "kept_for_pods": kept_for_pods(ledger.books),
        "counts": _counts(agent.views) | {"nested": len(nested.rows)},
        "counters": asdict(agent.counters),
        "since_start": since_start_document(
            agent.history,
            started_ns=about.started_monotonic_ns,
            now_ns=now_ns,
            repairs=agent.counters.repairs,
            causes=agent.counters.repair_causes,
            overflows=agent.counters.overflows,
        ),
        "checkpoint": {
            "path": about.checkpoint,
            "error": None if ledger.save_error is None else str(ledger.save_error),
        },
        "findings": [{"code": c, "message": m} for c, m in _findings(agent, about)],
    }


def _holds(agent: Agent, view: Tracked) -> bool:
    """True for who has a promise, or something wrong that somebody should see, whatever its class is now."""
    pin = agent.ledger.pins.get(view.record.cgroup)
    promised = pin is not None and pin.inode == view.record.inode
    return bool(view.nodes) or promised or view.state is ContainerState.FAILED


def _held(agent: Agent) -> list[dict[str, object]]:
    """Reservations whose container ended while its pod lives on, or its runtime keeps it."""
    return [
        {"id": p.container_id, "name": p.name, "pod_uid": p.pod_uid, "nodes": list(p.nodes)}
        for p in sorted(agent.ledger.pins.values(), key=lambda p: p.cgroup)
        if p.ended_ns is not None
    ]


def _counts(views: Mapping[str, Tracked]) -> dict[str, int]:
    """Number of containers by class; sandboxes and system containers stand apart, as does what is nested."""
    counts: Counter[str] = Counter({q.value: 0 for q in QosClass})
    for view in views.values():
        kind = view.record.kind
        counts[view.classification.qos.value if kind is ContainerKind.CONTAINER else kind.value] += 1
    return dict(counts)


def _has_our_nodes(agent: Agent, view: Tracked) -> bool:
    """True while a promise stands although nothing is promised any more: its nodes are to be put back first."""
    pin = agent.ledger.pins.get(view.record.cgroup)
    return pin is not None and pin.inode == view.record.inode and pin.phase is not Phase.FOREIGN


def _labels(agent: Agent) -> dict[Owner, str]:
    """How people know whose promise it is."""
    views = agent.views
    return {
        pin.owner: _label(views[pin.cgroup]) if pin.cgroup in views else pin_label(pin)
        for pin in agent.ledger.pins.values()
    }


def _label(view: Tracked) -> str:
    record = view.record
    return container_label(id=record.id, name=record.name, pod=record.pod_name or record.pod_uid)


def _findings(agent: Agent, about: About) -> list[tuple[str, str]]:
    found = [*about.findings(), *enabled_findings(agent.ledger.enabled)]
    if agent.kubelet is not None:
        found += agent.kubelet.findings()
    found += [("kubelet-and-ours", sentence) for sentence in agent.ledger.short]
    found += [("topology", w) for w in agent.machine.topology.warnings]
    found += unused_nodes(agent.machine.topology, agent.machine.usable)
    if gone := agent.machine.gone:
        found.append(("machine", f"memory is reserved for the system on {gone.named}, where there is none now; the "
                      "reservation counts again when it is back"))  # fmt: skip
    known = agent.machine.known | NodeSet.from_ids(agent.ledger.books.node_map.nodes)  # one that only lost its memory
    if missing := agent.machine.config.cpu_less_nodes - agent.machine.topology.online - known:
        online = agent.machine.topology.online
        found.append(
            ("cpu-less-nodes", f"nodes.cpu_less names {missing.named}, and the nodes online are {online}; "
             "it takes numbers of nodes, not of CPUs"),
        )  # fmt: skip
    if trouble := agent.machine.trouble:
        found.append(("machine", f"{trouble}; as much is reserved as there is"))
    labels = _labels(agent)
    found += [("memory-in-use", shortage.sentence) for shortage in agent.shortages]
    found += [("promise-does-not-fit", f"{labels.get(o, o)}: {s}") for o, s in agent.ledger.misfits.items()]
    found += [
        ("not-put-back", f"{_label(view)}: {view.message}; it is tried again at each full pass")
        for view in sorted(agent.views.values(), key=lambda v: v.record.cgroup)
        if view.state is ContainerState.FAILED and _has_our_nodes(agent, view)
    ]
    if agent.ledger.save_error is not None:
        waits = "; no promise is made and no nodes are written until it can be" if agent.ledger.held else ""
        found.append((agent.ledger.save_error.code, f"{agent.ledger.save_error}{waits}"))
    return found

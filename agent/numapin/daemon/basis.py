"""
What a question "what would happen" is asked of: books, rules and nodes, from the daemon, a checkpoint or a machine.

Owns: how they travel from the daemon to the command, which does the planning, so that no question holds the daemon's
loop. Must never: write anything, or import the daemon's moving parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from numapin import API_VERSION
from numapin.daemon.config import load_config
from numapin.daemon.machine import Machine
from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import CheckpointCorrupt, CheckpointError, RequestFailed
from numapin.model.memory import MEMORY, Books, MemoryType, hugepages
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Rules, Scope, TopologyPolicy
from numapin.model.topology import NodeKind, NumaNode, Topology
from numapin.planner.accounting import rebase
from numapin.planner.kernel_free import Ceilings
from numapin.state.codec import decode, encode


@dataclass(frozen=True, slots=True)
class Basis:
    """
    Everything an answer depends on besides the question.

    ``usable``: nodes that may hold assignments; ``normal``: those with normal memory; ``None`` is no rule.
    ``topology`` has the nodes' CPUs and nothing else, and is ``None`` where nobody knows them. ``ceilings`` are
    bytes of free pages that the kernel has, per node and page type. ``source`` says where it came from.
    """

    books: Books
    rules: Rules
    scope: Scope = Scope.CONTAINER
    usable: NodeSet | None = None
    normal: NodeSet | None = None
    topology: Topology | None = None
    ceilings: Mapping[NodeId, Mapping[MemoryType, int]] = field(default_factory=dict)
    source: Mapping[str, object] = field(default_factory=dict)


def _as_it_is(free: Ceilings) -> Ceilings:
    return free


class _Document(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """The answer to the request ``plan``; node and CPU sets in list format."""

    api_version: str
    kind: str
    checkpoint: str
    scope: Scope
    prefer_closest: bool
    distances: dict[int, dict[int, int]]
    usable: str
    normal: str
    cpus: dict[int, str]
    free_pages: dict[int, dict[str, int]]
    note: str = ""


def basis_document(
    machine: Machine, books: Books, *, wall_ns: int, note: str = "", left: Callable[[Ceilings], Ceilings] = _as_it_is
) -> dict[str, object]:
    """
    What the daemon knows now, with the hugepage pools read again; nothing of it is kept. *note* is why it would not
    be done all the same; *left* takes from what the kernel has free what is promised already.

    Raises:
        KernelReadError, KernelFormatError: The pools cannot be read.
    """
    fresh = machine.with_pools()
    if fresh.node_map != machine.node_map:
        books = rebase(books, fresh.node_map)
    rules = fresh.rules()
    types = dict.fromkeys([MEMORY, *_page_types(fresh.topology)], 0)
    document = _Document(
        api_version=API_VERSION,
        kind="PlanBasis",
        checkpoint=encode(Checkpoint(rules.policy.value, "", wall_ns, books)).decode(),
        scope=fresh.config.scope,
        prefer_closest=rules.prefer_closest,
        distances={int(a): {int(b): d for b, d in row.items()} for a, row in rules.distances.items()},
        usable=str(fresh.usable),
        normal=str(fresh.topology.with_normal_memory),
        cpus={int(i): str(n.cpus) for i, n in fresh.topology.nodes.items()},
        free_pages={int(n): {str(t): v for t, v in free.items()} for n, free in left(fresh.ceilings(types)).items()},
        note=note,
    )
    found: dict[str, object] = msgspec.to_builtins(document, str_keys=True)
    return found


def read_basis(document: object, socket: str) -> Basis:
    """
    The basis in the daemon's answer.

    Raises:
        RequestFailed: It is none (``bad-answer``).
    """
    try:
        found = msgspec.convert(document, _Document, str_keys=True, strict=False)
        if found.kind != "PlanBasis":
            raise ValueError(f"kind is {found.kind[:40]!r}")
        checkpoint = decode(found.checkpoint.encode(), socket)
        nodes = {
            NodeId(i): NumaNode(NodeId(i), CpuSet.parse(cpus), NodeKind.MEMORY, 0)
            for i, cpus in sorted(found.cpus.items())
        }
        distances = {NodeId(a): {NodeId(b): d for b, d in row.items()} for a, row in found.distances.items()}
        return Basis(
            checkpoint.books,
            Rules(TopologyPolicy(checkpoint.policy), found.prefer_closest, distances),
            found.scope,
            NodeSet.parse(found.usable),
            NodeSet.parse(found.normal),
            Topology(nodes),
            {NodeId(n): {MemoryType(t): v for t, v in free.items()} for n, free in found.free_pages.items()},
            {"from": "daemon", "socket": socket, "note": found.note},
        )
    except (msgspec.ValidationError, ValueError, CheckpointError) as exc:
        raise RequestFailed("bad-answer", f"{socket}: the answer is no basis for a plan: {exc}") from exc


def checkpoint_basis(data: bytes, path: Path) -> Basis:
    """
    The books in a checkpoint and its policy; neither CPUs nor distances nor the kernel's free pages are known.

    Raises:
        CheckpointError: The file cannot be believed, or its policy is none we know.
    """
    checkpoint = decode(data, path)
    try:
        policy = TopologyPolicy(checkpoint.policy)
    except ValueError as exc:
        raise CheckpointCorrupt(str(path), f"policyName: {checkpoint.policy[:40]!r} is no policy") from exc
    return Basis(checkpoint.books, Rules(policy), source={"from": "checkpoint", "path": str(path)})


def machine_basis(root: Path) -> Basis:
    """
    The machine below *root* as if nothing ran on it, with the reservations of the configuration there.

    Raises:
        KernelReadError, KernelFormatError: sysfs cannot be understood.
        ConfigError: The configuration is wrong, or a reservation does not fit the machine.
    """
    machine = Machine.read(root, load_config(root))
    return Basis(
        Books(machine.node_map),
        machine.rules(),
        machine.config.scope,
        machine.usable,
        machine.topology.with_normal_memory,
        machine.topology,
        source={"from": "machine", "root": str(root)},
    )


def _page_types(topology: Topology) -> list[MemoryType]:
    return sorted({hugepages(pool.size_bytes) for node in topology.nodes.values() for pool in node.pools})

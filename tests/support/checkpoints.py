"""Checkpoints for tests: a small sound one, and Hypothesis strategies for all others."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from hypothesis import strategies as st

from numapin.model.checkpoint import Checkpoint, Phase, PinRecord, RefusalRecord, Restored
from numapin.model.container import ContainerId, Runtime
from numapin.model.memory import MEMORY, Block, Books, MemoryTable, MemoryType, NodeMap, NodeState, Owner, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Exclusion, Explanation, Hint, NodeView, ProviderHints, RefusalCode, TopologyPolicy
from numapin.planner.accounting import reserve

GIB = 1 << 30
WALL_NS = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""


def explanation(node: int = 0) -> Explanation:
    """One GiB on two nodes of ten, placed on *node*."""
    views = tuple(
        NodeView(
            NodeId(n),
            {MEMORY: 10 * GIB},
            {MEMORY: (10 - 9 * (n != node)) * GIB},
            NodeSet.of(n),
            n,
            None if n == node else Exclusion.NOT_ENOUGH_FREE,
            {MEMORY: 5 * GIB},
        )
        for n in (0, 1)
    )
    return Explanation(
        TopologyPolicy.RESTRICTED,
        {MEMORY: GIB},
        views,
        1,
        (NodeSet.of(node),),
        NodeSet.of(node),
        preferred=True,
        tie_break="lowest-id",
    )


def pin(number: int, node: int = 0) -> PinRecord:
    """A verified Docker container with one GiB on *node*."""
    container = ContainerId(f"{number:064x}")
    return PinRecord(
        container_id=container,
        name=f"db-{number}",
        pod_uid=None,
        runtime=Runtime.DOCKER,
        cgroup=f"/system.slice/docker-{container}.scope",
        inode=4000 + number,
        owner=Owner(container, container),
        phase=Phase.VERIFIED,
        nodes=NodeSet.of(node),
        original_mems=NodeSet.of(0, 1),
        explanation=explanation(node),
    )


def refusal() -> RefusalRecord:
    """A container that wanted more than there is."""
    container = ContainerId("f" * 64)
    return RefusalRecord(
        owner=Owner(container, container),
        container_id=container,
        name="huge",
        inode=4999,
        code=RefusalCode.NO_ROOM,
        kubelet_reason="TopologyAffinityError",
        message="needs 15 GiB; node 0 has 9 GiB free, node 1 10 GiB",
        explanation=replace(explanation(), chosen=None, width=2, would_fit="stop db-0"),
    )


def sample(containers: int = 2, saved_ns: int = WALL_NS) -> Checkpoint:
    """Sound books of two nodes of ten GiB with *containers* on them, in turn, and one refusal."""
    table = MemoryTable(10 * GIB, 0, 10 * GIB, 0, 10 * GIB)
    pages = MemoryTable(GIB, 0, GIB, 0, GIB)
    nodes = {NodeId(n): NodeState({MEMORY: table, hugepages(2 << 20): pages}, 0, NodeSet.of(n)) for n in (0, 1)}
    books = Books(NodeMap(nodes))
    pins = [pin(k, k % 2) for k in range(containers)]
    for record in pins:
        books = reserve(books, record.owner, (Block(record.nodes, MEMORY, GIB),))
    return Checkpoint(
        policy="restricted",
        boot_id="7d4d7a5e-8c0d-4a53-9d0e-0a7c6f0a9b11",
        saved_ns=saved_ns,
        books=books,
        containers={p.cgroup: p for p in pins},
        refusals={f"/system.slice/docker-{'f' * 64}.scope": refusal()},
    )


def reseal(text: bytes) -> bytes:
    """*text* up to its checksum line, with the right checksum for whatever stands there."""
    body = text[: text.rindex(b'\n"checksum":') + 1]
    digest = hashlib.sha256(body + b'"checksum":""\n}\n').hexdigest()
    return body + b'"checksum":"sha256:' + digest.encode() + b'"\n}\n'


# ---- strategies ------------------------------------------------------------------------------------------------

_bytes = st.integers(0, 2**63 - 1)
_signed = st.integers(-(2**63), 2**63 - 1)
_text = st.text(max_size=20)
_types = st.sampled_from([MEMORY, hugepages(2 << 20), hugepages(1 << 30), MemoryType("hugepages-64Ki")])
_ids = st.integers(0, 1023)
_node_sets = st.builds(NodeSet.from_ids, st.frozensets(_ids, max_size=4))
_sizes = st.dictionaries(_types, _signed, max_size=3)
_owners = st.builds(Owner, _text, _text)
_cgroups = st.text(max_size=30).map(lambda t: "/" + t)

_views = st.builds(
    NodeView,
    node=_ids.map(NodeId),
    allocatable=_sizes,
    free=_sizes,
    cells=_node_sets,
    assignments=st.integers(0, 1000),
    exclusion=st.none() | st.sampled_from(Exclusion),
    kernel_free=_sizes,
    normal=st.booleans(),
    own=st.booleans(),
    resident=_signed,
    ended=st.booleans(),
)
_hints = st.builds(Hint, affinity=st.none() | _node_sets, preferred=st.booleans())
_providers = st.builds(ProviderHints, resource=_text, hints=st.none() | st.lists(_hints, max_size=3).map(tuple))
_explanations = st.builds(
    Explanation,
    policy=st.sampled_from(TopologyPolicy),
    sizes=_sizes,
    nodes=st.lists(_views, max_size=3).map(tuple),
    width=st.none() | st.integers(1, 1024),
    candidates=st.lists(_node_sets, max_size=3).map(tuple),
    chosen=st.none() | _node_sets,
    preferred=st.booleans(),
    tie_break=_text,
    would_fit=_text,
    hints=st.lists(_providers, max_size=2).map(tuple),
    distances=st.dictionaries(_ids.map(NodeId), st.dictionaries(_ids.map(NodeId), st.integers(0, 255))),
)
_tables = st.builds(
    MemoryTable, total=_bytes, system_reserved=_bytes, allocatable=_bytes, reserved=_bytes, free=_signed
)
_states = st.builds(
    NodeState,
    memory_map=st.dictionaries(_types, _tables, max_size=3),
    number_of_assignments=st.integers(0, 10_000),
    cells=_node_sets,
)
_blocks = st.builds(Block, affinity=_node_sets, type=_types, size_bytes=_bytes)


@st.composite
def _pins(draw: st.DrawFn) -> PinRecord:
    return PinRecord(
        container_id=ContainerId(draw(_text)),
        name=draw(_text),
        pod_uid=draw(st.none() | _text),
        runtime=draw(st.sampled_from(Runtime)),
        cgroup=draw(_cgroups),
        inode=draw(_bytes),
        owner=draw(_owners),
        phase=draw(st.sampled_from(Phase)),
        nodes=draw(_node_sets),
        original_mems=draw(_node_sets),
        explanation=draw(st.none() | _explanations),
        message=draw(_text),
        ended_ns=draw(st.none() | _bytes),
        unit=draw(st.none() | _text),
        original_below=draw(st.dictionaries(_text, _node_sets, max_size=2)),
        original_migrate=draw(st.none() | st.booleans()),
    )


_refusals = st.builds(
    RefusalRecord,
    owner=_owners,
    container_id=_text.map(ContainerId),
    name=_text,
    inode=_bytes,
    code=st.sampled_from(RefusalCode),
    kubelet_reason=_text,
    message=_text,
    explanation=_explanations,
)


_restored = st.builds(Restored, inode=_bytes, mems=st.lists(_node_sets, max_size=3).map(tuple), follows=st.booleans())


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any checkpoint that can be written, sound or not."""
    pins = draw(st.lists(_pins(), max_size=3))
    return Checkpoint(
        policy=draw(_text),
        boot_id=draw(_text),
        saved_ns=draw(_bytes),
        books=Books(
            NodeMap(draw(st.dictionaries(_ids.map(NodeId), _states, max_size=4))),
            draw(st.dictionaries(_owners, st.lists(_blocks, max_size=3).map(tuple), max_size=3)),
        ),
        containers={p.cgroup: p for p in pins},
        refusals=draw(st.dictionaries(_cgroups, _refusals, max_size=2)),
        restored=draw(st.dictionaries(_cgroups, _restored, max_size=2)),
        handed_over={p.cgroup: p for p in draw(st.lists(_pins(), max_size=1))},
    )

"""
The slowest decisions: CPU and device hints, groups and single containers in the books, on 64 and 1,024 nodes.

What is timed is all that the daemon does for one container between its record and the promise in the ledger: class,
the kernel's free pages, the hints (a device's node is read from a file), the decision with its explanation, the books
after it. Milliseconds of processor time; each row is the slowest of one to three memory types, all four policies,
``prefer_closest`` on and off, pod scope too, requests for half a node, three nodes, about a third of the machine, and
one that fits nowhere; on an empty machine, on one in use, and on a full one, where nearly all is refused. Where a
first try is above half of the limit, the best of five counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from time import process_time

from numapin.daemon.admission import Admission
from numapin.daemon.config import Config
from numapin.daemon.ledger import Ledger
from numapin.daemon.machine import Machine
from numapin.kernel.clock import SystemClock
from numapin.model.container import (
    ContainerId,
    ContainerKind,
    ContainerRecord,
    Device,
    Limits,
    OciFacts,
    QosClass,
    Runtime,
)
from numapin.model.memory import Block, Books, Owner
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from numapin.planner.accounting import build_node_map, rebase

LIMITS_MS = {64: 10.0, 1024: 100.0}
GIB, MIB = 1 << 30, 1 << 20
MAJOR = 240


@dataclass(frozen=True)
class Mix:
    """What narrows the choice; ``cpu_nodes`` is how many nodes have the container's CPUs (0: no hint)."""

    name: str
    cpu_nodes: int
    devices: int


def mixes(count: int) -> list[Mix]:
    """The combinations of hints; the shares of 1,024 nodes are scaled to *count*."""
    half, nearly = count // 2, count * 1000 // 1024
    found = [Mix("none", 0, 0), Mix("devices on 4", 0, 4), Mix("devices on 8", 0, 8)]
    for nodes in (3, 8, half, nearly):
        found += [Mix(f"CPUs of {nodes}", nodes, 0), Mix(f"CPUs of {nodes}, devices on 4", nodes, 4)]
    return found


def topology_of(count: int) -> Topology:
    """Nodes of 64 to 76 GiB with two pools each, eight CPUs each, distances in rings."""
    return Topology(
        {
            NodeId(n): NumaNode(
                id=NodeId(n),
                cpus=CpuSet.from_ids(range(8 * n, 8 * n + 8)),
                kind=NodeKind.MEMORY,
                memory_bytes=(64 + n * 7 % 13) * GIB,
                pools=(
                    HugepagePool(2 * MIB, 4096, 4096 - n % 5 * 100, 0),
                    HugepagePool(GIB, 4 + n % 3, 4 + n % 3, 0),
                ),
                distances={NodeId(m): 10 if n == m else 20 + abs(n - m) % 9 for m in range(count)},
            )
            for n in range(count)
        }
    )


def in_use(empty: Books, count: int) -> Books:
    """A hundred groups of two to five nodes and three hundred single containers per 1,024 nodes."""
    rng, left = Random(count), list(empty.node_map.nodes)
    rng.shuffle(left)
    kinds = tuple(empty.node_map.nodes[NodeId(0)].memory_map)
    held: dict[Owner, tuple[Block, ...]] = {}
    for number in range(100 * count // 1024):
        width = rng.randint(2, 5)
        nodes, left = NodeSet.from_ids(left[:width]), left[width:]
        used = kinds[: rng.randint(1, len(kinds))]
        held[Owner("group", str(number))] = tuple(Block(nodes, k, rng.randint(1, 3) * GIB) for k in used)
    for number in range(300 * count // 1024):
        node = NodeSet.of(left[number % (len(left) // 2)])
        held[Owner("single", str(number))] = tuple(Block(node, k, rng.randint(1, 2) * GIB) for k in kinds)
    return rebase(Books(empty.node_map, held), empty.node_map)


def occupied(empty: Books) -> Books:
    """A single container on every node, so that what would fit when empty is refused."""
    kinds = tuple(empty.node_map.nodes[NodeId(0)].memory_map)
    held = {
        Owner("single", str(n)): tuple(Block(NodeSet.of(n), k, (45 if k == kinds[0] else 1) * GIB) for k in kinds)
        for n in empty.node_map.nodes
    }
    return rebase(Books(empty.node_map, held), empty.node_map)


def records(count: int, mix: Mix) -> Iterator[tuple[ContainerRecord, Scope]]:
    """One container per size and number of types, on its own and in a pod."""
    every = NodeSet.from_ids(range(count))
    step = max(1, count // max(1, mix.cpu_nodes))
    cpus = CpuSet.from_ids(8 * (n * step % count) for n in range(mix.cpu_nodes)) if mix.cpu_nodes else None
    devices = tuple(Device(f"/dev/d{n}", False, MAJOR, n) for n in range(mix.devices))
    kinds_of = ((1, False), (2, False), (3, False), (2, True))
    for share, (kinds, in_pod) in product((0.5, 2.6, 0.3 * count, 2.0 * count), kinds_of):
        huge = {2 * MIB: int(7 * GIB * share), GIB: int(4 * GIB * share)}
        sizes = dict(list(huge.items())[: kinds - 1])
        limits = Limits(memory_bytes=int(50 * GIB * share), cpu_quota_us=50_000, cpus=cpus, hugetlb=sizes)
        record = ContainerRecord(
            id=ContainerId("c"),
            name="c",
            cgroup="/c",
            inode=1,
            runtime=Runtime.DOCKER,
            kind=ContainerKind.CONTAINER,
            limits=limits,
            mems=NodeSet(),
            effective_mems=every,
            parent_mems=every,
            oci=OciFacts("config.json", limits, devices=devices),
        )
        if in_pod:
            whole = replace(limits, memory_bytes=int(52 * GIB * share))
            record = replace(record, pod_uid="p", pod_qos=QosClass.GUARANTEED, pod_limits=whole)
        yield record, Scope.POD if in_pod else Scope.CONTAINER


def write_devices(root: Path) -> None:
    """``/sys/dev/char`` entries of eight devices, on every third node."""
    links = root / "sys/dev/char"
    links.mkdir(parents=True)
    for n in range(8):
        place = root / f"sys/devices/pci0000:00/0000:00:{n:02x}.0"
        (place / "misc").mkdir(parents=True)
        (place / "numa_node").write_text(f"{3 * n}\n")
        (links / f"{MAJOR}:{n}").symlink_to(place / "misc")


def decided(admission: Admission, record: ContainerRecord, enough_ms: float) -> float:
    """Milliseconds of one decision; the best of five where the first is above *enough_ms*."""
    best = float("inf")
    for _ in range(5):
        mark = admission.ledger.mark()
        begin = process_time()
        admission.decide(record)
        best = min(best, (process_time() - begin) * 1000)
        admission.ledger.undo(mark)
        if best <= enough_ms:
            break
    return best


def slowest(machine: Machine, books: Books, count: int, mix: Mix) -> tuple[float, str]:
    """Milliseconds of the slowest decision of one row, and which it was."""
    worst = (0.0, "")
    closest_too = (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED)
    for policy, closest in [*((p, False) for p in TopologyPolicy), *((p, True) for p in closest_too)]:
        for record, scope in records(count, mix):
            config = replace(machine.config, policy=policy, prefer_closest=closest, scope=scope)
            ledger = Ledger(None, policy=policy, boot_id="b", clock=SystemClock(), books=books)
            admission = Admission(replace(machine, config=config), ledger, dry_run=False)
            took = decided(admission, record, LIMITS_MS[count] / 2)
            if took > worst[0]:
                gib = (record.limits.memory_bytes or 0) // GIB
                types = 1 + len(record.limits.hugetlb)
                worst = took, f"{policy}{', closest' if closest else ''}, {scope}, {types} types, {gib} GiB"
    return worst


def main() -> list[str]:
    """Print the table; a line per limit that is not held."""
    print("one container in the daemon, ms of processor time: the slowest of all policies, types and sizes")
    print(f"{'nodes':>5} {'books':<7} {'hints':<27} {'worst':>7}  which")
    failed = []
    with tempfile.TemporaryDirectory(prefix="numapin-bench-") as folder:
        write_devices(Path(folder))
        for count, limit in LIMITS_MS.items():
            topology = topology_of(count)
            empty = Books(build_node_map(topology, {}, topology.online))
            machine = Machine(Path(folder), Config(), topology, topology.online, empty.node_map)
            used = (("empty", empty), ("in use", in_use(empty, count)), ("full", occupied(empty)))
            for (state, books), mix in product(used, mixes(count)):
                took, which = slowest(machine, books, count, mix)
                print(f"{count:5} {state:<7} {mix.name:<27} {took:7.1f}  {which}", flush=True)
                if took > limit:
                    failed.append(f"{count} nodes, {state}, {mix.name}: {took:.1f} ms is above {limit:.0f} ms")
    return failed

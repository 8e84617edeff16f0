"""The machine as last read: topology, reservations and the empty NodeMap that follows from both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from numapin.daemon.config import Config, read_config, reserved_bytes
from numapin.kernel.devices import read_device_node, read_interface_node
from numapin.kernel.sysfs import read_hugepage_pools, read_node_available, read_topology
from numapin.model.container import ContainerRecord
from numapin.model.errors import ConfigError, KernelError
from numapin.model.memory import MEMORY, MemoryTable, MemoryType, NodeMap, NodeState, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import ProviderHints, Rules
from numapin.model.topology import HugepagePool, Topology
from numapin.planner.accounting import ReservationError, build_node_map
from numapin.planner.classify import known_limits
from numapin.planner.providers import cpu_hints, device_hints


def usable_nodes(topology: Topology, cpu_less_allowed: Iterable[int]) -> NodeSet:
    """
    Nodes that may hold assignments: those with memory, without CPU-less ones the admin did not name.

    Where every node with memory is CPU-less (all CPUs on a memoryless node) there is no other choice: all of them.
    """
    allowed = frozenset(cpu_less_allowed)
    usable = NodeSet.from_ids(
        i for i in topology.with_memory if topology.nodes[i].cpus or topology.synthetic or i in allowed
    )
    return usable or topology.with_memory


def load_for_machine(root: Path, file: Path | None = None) -> Config:
    """
    As `load_config`; where the files have problems, what else of them the machine cannot keep is told with them.

    Raises:
        ConfigError: Every problem.
    """
    config, problems = read_config(root, file)
    if not problems:
        return config
    try:
        Machine.read(root, config)
    except ConfigError as exc:
        problems += exc.problems
    except KernelError:
        pass  # nobody knows what it could keep
    raise ConfigError(problems)


NO_NODES = NodeSet()


@dataclass(frozen=True, slots=True)
class Machine:
    """
    One reading of the machine. `read` makes it, `again` the next one, `with_pools` refreshes only the pools.

    ``gone``: nodes that were used before, have no memory now, and have a reservation of their own, which counts for
    nothing until they are back. A reservation on a node that nobody knows is an error. ``trouble``: what of the
    configured reservations no longer fits the machine, which changed since `read`; as much as there is counts.
    """

    root: Path
    config: Config
    topology: Topology
    usable: NodeSet
    node_map: NodeMap
    known: NodeSet = NO_NODES
    gone: NodeSet = NO_NODES
    trouble: str = ""

    @classmethod
    def read(cls, root: Path, config: Config, known: NodeSet = NO_NODES) -> Machine:
        """
        Read everything below *root*. *known* are nodes that were used before.

        Raises:
            KernelReadError, KernelFormatError: sysfs cannot be understood.
            ConfigError: A reservation does not fit the machine.
        """
        return cls._of(root, config, read_topology(root), known)

    @classmethod
    def _of(cls, root: Path, config: Config, topology: Topology, known: NodeSet, *, resized: bool = False) -> Machine:
        usable = usable_nodes(topology, config.cpu_less_nodes)
        gone = NodeSet.from_ids(n for n in config.reserved.nodes if n in known and n not in usable)
        named = {n: sizes for n, sizes in config.reserved.nodes.items() if n not in gone}
        reserved = replace(config, reserved=replace(config.reserved, nodes=named))
        sizes, trouble = reserved_bytes(reserved, topology, usable), ""
        try:
            node_map = build_node_map(topology, sizes, usable)
        except ReservationError as exc:
            if not resized:
                keys = [(f"reserved.node.{p.node}.{p.type}", str(p)) for p in exc.problems]
                raise ConfigError(
                    tuple((config.sources.get(k, "configuration"), k, what) for k, what in keys)
                ) from exc
            trouble = str(exc)
            for p in exc.problems:
                sizes[p.node][p.type] = max(0, p.total - p.hugepage_pools)
            node_map = build_node_map(topology, sizes, usable)
        nothing = {n: NodeState({MEMORY: MemoryTable(0, 0, 0, 0, 0)}, 0, NodeSet.of(n)) for n in gone}
        with_gone = NodeMap(dict(sorted({**node_map.nodes, **nothing}.items())))  # so that the next start knows them
        return cls(root, config, topology, usable, with_gone, known | usable, gone, trouble)

    def again(self) -> Machine:
        """
        The machine as it is now. A reservation that it no longer holds is no error here: it is in ``trouble``.

        Raises:
            KernelReadError, KernelFormatError: As `read`.
        """
        return self._of(self.root, self.config, read_topology(self.root), self.known, resized=True)

    def is_as(self, other: Machine) -> bool:
        """True when decisions would be the same: all but what is free at the moment."""
        return self._lasting() == other._lasting()

    def _lasting(self) -> tuple[object, ...]:
        nodes = {i: replace(n, free_bytes=0, pools=()) for i, n in self.topology.nodes.items()}
        return self.config, nodes, self.topology.warnings, self.usable, self.node_map, self.gone, self.trouble

    def with_pools(self) -> Machine:
        """
        The machine with its hugepage pools read again; ``self`` when their sizes did not change.

        Pools change without any event (inotify does not see sysfs), so they are read before each decision that
        needs them. A reservation that they no longer hold is no error here: it is in ``trouble``.

        Raises:
            KernelReadError, KernelFormatError: As `read`.
        """
        nodes = {
            i: replace(n, pools=read_hugepage_pools(self.root, i)) if i in self.usable else n
            for i, n in self.topology.nodes.items()
        }
        if nodes == self.topology.nodes:
            return self
        return self._of(self.root, self.config, replace(self.topology, nodes=nodes), self.known, resized=True)

    def ceilings(self, sizes: Mapping[MemoryType, int]) -> Mapping[NodeId, Mapping[MemoryType, int]]:
        """Bytes of free pages the kernel has, per usable node and requested page size; as of the last reading."""
        asked = [t for t in sizes if t != MEMORY]
        if not asked:
            return {}
        return {
            i: {t: free[t] for t in asked if t in free}
            for i in self.usable
            for free in [{hugepages(p.size_bytes): p.free_hugepages * p.size_bytes for p in self._pools(i)}]
        }

    def _pools(self, node: NodeId) -> tuple[HugepagePool, ...]:
        return self.topology.nodes[node].pools

    def available_bytes(self, nodes: NodeSet) -> int:
        """
        Bytes the kernel could give on *nodes* now without swapping: free plus reclaimable page cache.

        Raises:
            KernelReadError, KernelFormatError: A node's meminfo cannot be read.
        """
        return sum(read_node_available(self.root, n) for n in nodes)

    def hints(self, record: ContainerRecord) -> tuple[ProviderHints, ...]:
        """What the container's CPUs and devices say about nodes, as far as the configuration asks them."""
        found: list[ProviderHints] = []
        if self.config.provider_cpus:
            # at the first look the runtime may not have written them yet
            cpus = cpu_hints(known_limits(record)[0].cpus, self.topology, self.usable)
            found += [cpus] if cpus is not None else []
        if self.config.provider_devices and record.oci is not None:
            placed = [(d.path, read_device_node(self.root, d)) for d in record.oci.devices]
            placed += [(name, read_interface_node(self.root, name)) for name in record.oci.net_devices]
            found += device_hints([(name, node) for name, node in placed if node is not None], self.usable)
        return tuple(found)

    def rules(self) -> Rules:
        """The configured way to decide, with this machine's distances where the policy uses them."""
        distances: dict[NodeId, Mapping[NodeId, int]] = {}
        if self.config.prefer_closest:
            distances = {i: n.distances for i, n in self.topology.nodes.items() if n.distances is not None}
        return Rules(self.config.policy, self.config.prefer_closest, distances)

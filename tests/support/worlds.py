"""Lives of machines: what may happen to one between two runs of the daemon, all of it chosen by a seed."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from numapin.daemon.config import Reserved
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.memory import MEMORY
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import TopologyPolicy
from support.cgroup_trees import TASKS, cri, oci
from support.daemon import BARE, BOOT, Host, cid, docker
from support.machines import GIB, MIB, PAGE_2M, Node, write_machine

V1 = CgroupVersion.V1
PODS = "/kubepods.slice"
LEAST = 5 * GIB
"""What a node has at least: with less its pool and reservation could be more than all, a wrong configuration."""


class Kind(StrEnum):
    """Where a container comes from."""

    DOCKER = "docker"
    POD = "pod"
    FOREIGN = "foreign"
    """Docker's, with nodes that somebody else chose for it."""


@dataclass(frozen=True)
class Living:
    """
    A container: its cgroup, what it asks for, and whether it is the one of before under this id.

    ``mems`` are a foreign one's nodes, ``name`` what one of a pod is called there.
    """

    number: int
    path: str
    kind: Kind
    gib: int
    pages: int = 0
    same: bool = False
    mems: NodeSet = field(default_factory=NodeSet)
    name: str = ""

    @property
    def pod(self) -> str:
        """Cgroup of its pod."""
        return self.path.rpartition("/")[0]

    @property
    def is_named(self) -> bool:
        """Whether a foreign one's nodes stand in its bundle too; else somebody wrote them by hand."""
        return self.number % 2 == 1


def leave(host: Host) -> None:
    """Let go of the descriptors of an agent that was killed."""
    for view in host.agent.views.values():
        view.close()
    os.close(host.writer.fileno())


class World:
    """One machine's life; every choice comes from *seed*, every third machine has cgroup v1."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        ids = sorted(self.chance.sample(range(12), self.chance.randint(1, 4)))
        self.nodes = [self.node(i) for i in ids]
        self.host = Host(root, nodes=self.nodes, version=V1 if seed % 3 == 2 else CgroupVersion.V2)
        self.living: dict[str, Living] = {}
        self.number = 0
        self.boots = 0

    @property
    def is_v1(self) -> bool:
        """Whether this machine has cgroup v1."""
        return self.host.tree.version is V1

    @property
    def granted(self) -> NodeSet:
        """The nodes there are."""
        return NodeSet.from_ids(n.id for n in self.nodes)

    def node(self, number: int) -> Node:
        """A node of any size, with 2 MiB pages or without."""
        pages = self.chance.choice([0, 0, 512, 1024])
        return Node(
            number, f"{2 * number}-{2 * number + 1}", self.chance.randint(8, 24) * GIB, pools={PAGE_2M: pages}
        )

    # ---- what happens between two runs of the daemon --------------------------------------------------------------

    def pass_time(self) -> None:
        """Whatever a reboot, or a mere restart of the daemon, may bring."""
        is_reboot = self.chance.random() < 0.8
        if self.chance.random() < 0.3:  # nobody said goodbye to the daemon
            leave(self.host)
        else:
            self.host.stop()
            os.close(self.host.writer.fileno())
        if is_reboot:
            self.boots += 1
            self.host.boot = f"{BOOT[:-4]}{self.boots:04x}"
        self.change_machine(narrow=not is_reboot)
        self.change_configuration()
        for living in [self.living[path] for path in sorted(self.living)]:
            self.pass_time_for(living, is_reboot=is_reboot)
        for _ in range(self.chance.randint(0, 3)):
            self.add()
        for pod in self.pods() - {c.pod for c in self.living.values()}:
            if self.chance.random() < 0.5:  # else it waits for its next container
                self.host.remove(pod)

    def pass_time_for(self, living: Living, *, is_reboot: bool) -> None:
        """A container ends, is made anew, or is as it was."""
        fate = self.chance.random()
        is_impossible = is_reboot and not living.mems.issubset(self.granted)  # its runtime cannot make it again
        if fate < 0.25 or is_impossible:
            self.remove(living)
        elif fate < 0.32:  # the id is used again, for something else
            self.remove(living)
            self.create(replace(self.sized(living), same=False))
        elif fate < 0.42 and living.kind is Kind.POD:  # the pod's container under another id
            self.remove(living)
            self.number += 1
            self.create(replace(self.in_pod(self.number, living.pod, living), same=True))
        elif is_reboot and fate < 0.6:  # made anew, perhaps with an inode that another one had
            self.remove(living)
            self.create(replace(living, same=True))
        elif is_reboot:  # made anew with the very inode of before
            self.host.put(living.path, {"cpuset.mems": f"{living.mems}\n"})
            self.living[living.path] = replace(living, same=True)
        else:
            self.living[living.path] = replace(living, same=True)

    def change_machine(self, *, narrow: bool) -> None:
        """Totals move, pools change, now and then a node shrinks, goes or comes."""
        self.nodes = [
            replace(n, memory=max(LEAST, n.memory + self.chance.randint(-60, 60) * MIB), pools=self.pools(n))
            for n in self.nodes
        ]
        fate = self.chance.random()
        if fate < 0.1:
            k = self.chance.randrange(len(self.nodes))
            self.nodes[k] = replace(self.nodes[k], memory=max(LEAST, self.nodes[k].memory // 2))
        elif fate < 0.2 and len(self.nodes) > 1:
            self.nodes.pop(self.chance.randrange(len(self.nodes)))
        elif fate < 0.35 and len(self.nodes) < 5:
            free = sorted(set(range(12)) - {n.id for n in self.nodes})
            self.nodes.append(self.node(self.chance.choice(free)))
        write_machine(self.host.root, self.nodes)
        self.host.tree.nodes = str(self.granted)
        for above in ("/", "/system.slice", PODS, *self.pods()):
            if (self.host.tree.cpuset / above[1:]).exists():
                self.host.grant(above, str(self.granted))
                if self.is_v1:
                    self.host.put(above, {"cpuset.mems": f"{self.granted}\n"})
        if self.is_v1 and narrow:
            self.narrow()
        for living in [c for c in self.living.values() if c.mems == self.granted and not c.is_named]:
            self.remove(living)  # all nodes there are is what a cgroup has of which nobody chose any

    def narrow(self) -> None:
        """A v1 kernel takes the nodes that went out of every cpuset, and the processes out of one without any."""
        for living in list(self.living.values()):
            text = self.host.mems(living.path)
            left = NodeSet.parse(text) & self.granted
            if text and not left:
                self.remove(living)
            elif len(str(left)) <= len(text):  # a plain file keeps the end of a longer text
                self.host.put(living.path, {"cpuset.mems": f"{left}\n"})

    def pools(self, node: Node) -> dict[int, int]:
        """The node's pool as it was, mostly."""
        before = node.pools.get(PAGE_2M, 0)
        assert isinstance(before, int)
        return {PAGE_2M: before if self.chance.random() < 0.8 else self.chance.choice([0, 256, 512, 1024])}

    def change_configuration(self) -> None:
        """Another policy, another reservation; one on a node that went stays in the file."""
        policy = self.host.config.policy
        if self.chance.random() < 0.2:
            policy = self.chance.choice(list(TopologyPolicy))
        reserved = self.host.config.reserved
        if self.chance.random() < 0.3:
            named = {}
            if self.chance.random() < 0.5:
                one = self.chance.choice(self.nodes)
                named = {NodeId(one.id): {MEMORY: self.chance.randint(0, 2) * GIB}}
            reserved = Reserved(self.chance.choice([0, 50_000, 200_000]), self.chance.choice([0, 64 * MIB]), named)
        self.host.config = replace(BARE, policy=policy, reserved=reserved)

    # ---- containers -----------------------------------------------------------------------------------------------

    def pods(self) -> set[str]:
        """Cgroups of pods, also of those without a container at the moment."""
        return {f"{PODS}/{p.name}" for p in (self.host.tree.cpuset / PODS[1:]).glob("kubepods-pod*.slice")}

    def add(self) -> None:
        """A container that was not there before."""
        self.number += 1
        number, kind = self.number, self.chance.choice([Kind.DOCKER, Kind.DOCKER, Kind.POD, Kind.FOREIGN])
        if kind is Kind.POD:
            uid = f"{number:08x}-0000-4000-8000-000000000000".replace("-", "_")
            pods = [*sorted(self.pods()), f"{PODS}/kubepods-pod{uid}.slice"]
            new = self.in_pod(number, self.chance.choice(pods), Living(number, "", kind, 0, name=f"app-{number}"))
        else:
            new = Living(number, docker(number), kind, 0)
        if kind is Kind.FOREIGN:
            ids = self.chance.sample(self.granted.ids(), self.chance.randint(1, len(self.nodes)))
            new = replace(new, mems=NodeSet.from_ids(ids))
            if new.mems == self.granted and not new.is_named:
                new = replace(new, kind=Kind.DOCKER, mems=NodeSet())
        self.create(self.sized(new))

    def in_pod(self, number: int, pod: str, like: Living) -> Living:
        """A container of *pod* under another id."""
        return replace(like, number=number, path=f"{pod}/cri-containerd-{cid(number)}.scope")

    def sized(self, living: Living) -> Living:
        """The container with any size."""
        return replace(living, gib=self.chance.choice([1, 2, 3, 5, 9, 15]), pages=self.chance.choice([0, 0, 0, 128]))

    def remove(self, living: Living) -> None:
        """A container's end."""
        self.host.remove(living.path)
        for namespace in ("k8s.io", "moby"):
            shutil.rmtree(self.host.root / TASKS[1:] / namespace / cid(living.number), ignore_errors=True)
        del self.living[living.path]

    def create(self, living: Living) -> None:
        """Its cgroup and bundle, as a runtime makes them."""
        if living.kind is Kind.POD:
            self.host.tree.task("k8s.io", cid(living.number), oci(annotations=cri(living.name)))
        elif living.kind is Kind.FOREIGN and living.is_named:
            config = oci(memory=living.gib * GIB, quota=50_000, mems=str(living.mems))
            self.host.tree.task("moby", cid(living.number), config)
        huge = {"2MB": living.pages * PAGE_2M} if living.pages else {}
        self.host.guaranteed(living.path, living.gib, hugetlb=huge, mems=str(living.mems))
        if not living.mems:
            self.host.put(living.path, {"cpuset.mems": "\n"})
        self.host.obedient(living.path)
        self.living[living.path] = living

"""Huge pages that are promised and not in use: the kernel calls them free, and nobody else gets them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from numapin.daemon.basis import read_basis
from numapin.daemon.plan_answer import plan_document
from numapin.daemon.what_if import Question, container_plan
from numapin.model.memory import MEMORY, hugepages
from numapin.model.nodeset import NodeId, NodeSet
from numapin.model.plan import Scope
from numapin.planner.kernel_free import add, spend
from support.cgroup_trees import GIB
from support.daemon import POD, POD_SLICE, Host, cri, docker
from support.kubelet import document, put, text
from support.machines import PAGE_2M, Pool, even, write_machine

HUGE = hugepages(PAGE_2M)
FIRST, SECOND, THIRD = docker(1), docker(2), docker(3)


def with_pages(tmp_path: Path, free: int, *, pages: int = 1024) -> Host:
    """Two nodes of 10 GiB with 2 GiB of 2 MiB pages each, *free* of which nobody uses."""
    return Host(tmp_path, nodes=even(2, memory=10 * GIB, pools={PAGE_2M: Pool(pages, free)}))


def free_pages(host: Host, *free: int) -> None:
    """The kernel has so many free pages on each node from now on."""
    pools = [{PAGE_2M: Pool(1024, count)} for count in free]
    write_machine(host.root, [replace(n, pools=p) for n, p in zip(host.nodes, pools, strict=True)])


def uses(host: Host, path: str, node: int, size: int) -> None:
    """The container uses so many bytes of huge pages on that node."""
    each = " ".join(f"N{n}={size if n == node else 0}" for n in (0, 1))
    host.put(path, {"hugetlb.2MB.numa_stat": f"total={size} {each}\n", "hugetlb.2MB.current": f"{size}\n"})


def asks(host: Host, path: str, gib: float, effective: str = "0") -> str:
    """A container with that much memory in huge pages appears; returns its state."""
    host.guaranteed(path, 1, hugetlb={"2MB": int(gib * GIB)}, effective=effective)
    uses(host, path, 0, 0)
    host.agent.on_created([path])
    host.wait_for_writes()
    return host.states()[path]


def planned(host: Host, gib: int, count: int = 1) -> list[list[int]]:
    """Nodes that ``plan`` names for containers with so much in huge pages, one after the other."""
    basis = read_basis(json.loads(json.dumps(plan_document(host.agent, wall_ns=0))), "socket")
    document = container_plan(basis, Question({MEMORY: GIB, HUGE: gib * GIB}, count))
    placements = document["placements"]
    assert isinstance(placements, list)
    return [p["nodes"] for p in placements]


def test_what_is_promised_and_not_used_is_not_free(tmp_path: Path) -> None:
    """
    Others use 300 of 1,024 pages of each node, and a container that uses nothing yet was promised 512 of node 0: the
    next 512 are had on node 1, though the kernel still has 724 free on node 0; ``plan`` says the same.
    """
    host = with_pages(tmp_path, 724)
    host.start()
    first = asks(host, FIRST, 1)
    said = planned(host, 1, count=2)
    second, third = asks(host, SECOND, 1, "1"), asks(host, THIRD, 1)

    assert (first, second, third) == ("pinned", "pinned", "refused")
    assert (host.mems(FIRST), host.mems(SECOND)) == ("0", "1")
    assert said == [[1]]
    assert host.reserved(HUGE) == {0: 1, 1: 1}
    host.sound()


def test_what_is_used_is_counted_once(tmp_path: Path) -> None:
    """A container that uses its pages took them from the kernel's free ones: the rest is to be had."""
    host = with_pages(tmp_path, 1024)
    host.start()
    asks(host, FIRST, 1)
    uses(host, FIRST, 0, GIB)
    free_pages(host, 512, 0)

    assert asks(host, SECOND, 1) == "pinned"
    assert host.mems(SECOND) == "0"


def test_where_nobody_knows_it_is_taken_to_use_all(tmp_path: Path) -> None:
    """Before Linux 5.17 the kernel does not say what a container uses: its pages are gone from the free ones."""
    host = with_pages(tmp_path, 1024)
    host.start()
    asks(host, FIRST, 1)
    (host.tree.cpuset / FIRST[1:] / "hugetlb.2MB.numa_stat").unlink()
    free_pages(host, 512, 0)

    assert asks(host, SECOND, 1) == "pinned"


def test_a_container_that_ended_uses_nothing(tmp_path: Path) -> None:
    """What waits for its restart is kept for it and for nobody else, and itself gets it."""
    host = with_pages(tmp_path, 724)
    (tmp_path / "var/lib/docker/containers" / FIRST.removeprefix("/system.slice/docker-")[:64]).mkdir(parents=True)
    host.start()
    asks(host, FIRST, 1)
    host.agent.on_removed([host.remove(FIRST)])
    other = asks(host, SECOND, 1, "1")
    again = asks(host, FIRST, 1)

    assert (other, again) == ("pinned", "pinned")
    assert (host.mems(SECOND), host.mems(FIRST)) == ("1", "0")


def test_what_a_pod_shares_is_its_containers_own(tmp_path: Path) -> None:
    """A sibling uses all of the pod's pages, which have none of their own: the next one gets the pod's node."""
    host = with_pages(tmp_path, 600)
    host.start()
    host.tree.add(POD_SLICE, memory=4 * GIB, quota=100_000, hugetlb={"2MB": GIB})
    one, other = host.guaranteed(cri(1), 1), host.guaranteed(cri(2), 1)
    host.agent.on_created([one])
    host.wait_for_writes()
    uses(host, one, 0, GIB)
    free_pages(host, 88, 600)
    host.agent.on_created([other])
    host.wait_for_writes()

    assert host.states() == {one: "pinned", other: "pinned"}
    assert (host.mems(one), host.mems(other)) == ("0", "0")
    assert host.reserved(HUGE) == {0: 1}


def test_beside_a_kubelet(tmp_path: Path) -> None:
    """Of what the kubelet's containers use no record is kept here: their pages are taken to be used."""
    host = with_pages(tmp_path, 1024)
    host.start()
    put(host.root, text(document({POD: {"app": ((0,), 1)}}, nodes=2)))
    host.agent.on_kubelet()
    free_pages(host, 512, 0)

    assert asks(host, FIRST, 1) == "pinned"


def test_a_pods_first_container_asks_for_the_whole(tmp_path: Path) -> None:
    """Under pod scope the node must have pages that the kernel can give, also when the first needs none itself."""
    host = with_pages(tmp_path, 0)
    host.config = replace(host.config, scope=Scope.POD)
    host.start()
    free_pages(host, 0, 1024)
    host.tree.add(POD_SLICE, memory=4 * GIB, quota=100_000, hugetlb={"2MB": GIB})
    host.agent.on_created([host.guaranteed(cri(1), 1, hugetlb={"2MB": 0}, effective="1")])
    host.wait_for_writes()

    assert host.mems(cri(1)) == "1"


def test_of_a_group_it_is_taken_where_there_is_some() -> None:
    """A promise on two nodes is taken once, from both where one has not enough, and never below zero."""
    free = {NodeId(n): {HUGE: 100} for n in (0, 1, 2)}
    group = NodeSet.of(0, 1)

    assert spend(free, [(group, HUGE, 130)]) == {0: {HUGE: 0}, 1: {HUGE: 70}, 2: {HUGE: 100}}
    assert spend(free, [(group, HUGE, 900)]) == {0: {HUGE: 0}, 1: {HUGE: 0}, 2: {HUGE: 100}}
    assert spend(free, [(group, MEMORY, 5), (NodeSet.of(7), HUGE, 5)]) == free
    more = add(free, {NodeId(0): {HUGE: 1}, NodeId(9): {HUGE: 1}})
    assert [more[NodeId(n)][HUGE] for n in (0, 1, 2)] == [101, 100, 100]
    assert len(more) == len(free)

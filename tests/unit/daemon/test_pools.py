"""Hugepage pools that change while the daemon runs: nobody tells, and what is in them is not memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from numapin.daemon.config import Reserved
from numapin.daemon.status import About, status_document
from numapin.model.memory import hugepages
from numapin.model.nodeset import NodeId
from support.cgroup_trees import GIB
from support.daemon import BARE, Host, docker
from support.machines import PAGE_2M, Node, Pool, even, write_machine

PATH = docker(1)
HUGE = hugepages(PAGE_2M)
ABOUT = About(1, 0, 0, "v2", "", None)


def nodes_with(pages: int, free: int | None = None) -> list[Node]:
    """Two nodes of 10 GiB with that many 2 MiB pages each."""
    return even(2, memory=10 * GIB, pools={PAGE_2M: Pool(pages, free)})


def resize(host: Host, nodes: list[Node]) -> None:
    """The machine has other pools from now on, and says nothing."""
    host.nodes = nodes
    write_machine(host.root, nodes)


def finding_list(status: dict[str, object]) -> list[object]:
    """The findings of a status document."""
    found = status["findings"]
    assert isinstance(found, list)
    return found


def test_memory_in_new_pools_is_not_promised(tmp_path: Path) -> None:
    """Pools that grew take their memory from the next decision, though its container asks for no pages."""
    host = Host(tmp_path, nodes=nodes_with(0))
    host.start()
    resize(host, nodes_with(4096))
    host.agent.on_created([host.guaranteed(PATH, 9)])

    assert host.states() == {PATH: "refused"}
    assert "node 0 has 2 GiB free" in host.view(PATH).message
    host.sound()


def test_memory_of_old_pools_is_to_be_had(tmp_path: Path) -> None:
    """Pools that shrank make room for who was refused, with the next full pass and nothing else."""
    host = Host(tmp_path, nodes=nodes_with(4096))
    host.guaranteed(PATH, 9)
    host.start()
    before = host.states()
    resize(host, nodes_with(0))
    host.agent.full_pass()

    assert before == {PATH: "refused"}
    assert host.states() == {PATH: "pinned"}
    assert host.reserved() == {0: 9}
    host.sound()


def test_the_sum_tells_whether_to_read_them(tmp_path: Path) -> None:
    """Where the kernel says how much is in pools, pools are read again only when that is another number."""
    meminfo = tmp_path / "proc/meminfo"
    host = Host(tmp_path, nodes=nodes_with(0))
    meminfo.write_text("MemTotal: 20971520 kB\nHugetlb: 0 kB\n")
    host.start()
    resize(host, nodes_with(4096))
    meminfo.write_text("MemTotal: 20971520 kB\nHugetlb: 0 kB\n")
    host.agent.on_created([host.guaranteed(PATH, 9)])
    unseen = host.states()
    meminfo.write_text("MemTotal: 20971520 kB\nHugetlb: 16777216 kB\n")
    host.agent.on_created([host.guaranteed(docker(2), 9)])

    assert unseen == {PATH: "pinned"}
    assert host.states() == {PATH: "pinned", docker(2): "refused"}


def test_pages_that_move_between_nodes(tmp_path: Path) -> None:
    """
    Pages are taken from one node's pool and given to another's: the sum is the same, and before the next decision,
    about memory alone too, each node has as much memory as it has now.
    """
    meminfo = tmp_path / "proc/meminfo"
    sides = [[nodes_with(0)[0], nodes_with(4096)[1]], [nodes_with(4096)[0], nodes_with(0)[1]]]
    host = Host(tmp_path, nodes=sides[0])
    meminfo.write_text("MemTotal: 20971520 kB\nHugetlb: 8388608 kB\n")
    first = host.guaranteed(docker(2), 1)
    host.start()
    resize(host, sides[1])
    meminfo.write_text("MemTotal: 20971520 kB\nHugetlb: 8388608 kB\n")
    host.agent.on_created([host.guaranteed(PATH, 9, effective="1")])

    assert host.states() == {first: "pinned", PATH: "pinned"}
    assert host.mems(PATH) == "1"
    assert host.reserved() == {0: 1, 1: 9}


def test_a_reservation_that_no_pool_holds_any_more(tmp_path: Path) -> None:
    """Pages that are gone are promised to nobody, whatever is reserved of them; log and status name it."""
    reserved = Reserved(0, 0, {NodeId(0): {HUGE: 512 * PAGE_2M}})
    host = Host(tmp_path, nodes=nodes_with(1024), config=replace(BARE, reserved=reserved))
    host.start()
    resize(host, nodes_with(0))
    host.agent.on_created([host.guaranteed(PATH, 1, hugetlb={"2MB": GIB})])
    host.agent.full_pass()
    status = status_document(host.agent, ABOUT, now_ns=1, wall_ns=1)
    told = "node 0, hugepages-2Mi: 1 GiB reserved (1073741824 bytes) is more than the pool's 0 (0 bytes)"
    resize(host, nodes_with(1024))
    host.agent.full_pass()

    assert {"code": "machine", "message": f"{told}; as much is reserved as there is"} in finding_list(status)
    assert host.log.events().count("reservation_does_not_fit") == 1
    assert host.states() == {PATH: "pinned"}
    assert host.reserved(HUGE) == {0: 1}
    host.sound()


def test_a_container_that_uses_its_pages_may_change_its_size(tmp_path: Path) -> None:
    """Pages that it has already are not missing to it: more memory and less are followed, with no page free."""
    host = Host(tmp_path, nodes=nodes_with(512))
    host.guaranteed(PATH, 1, hugetlb={"2MB": GIB})
    host.start()
    resize(host, [Node(0, "0-1", 10 * GIB, pools={PAGE_2M: Pool(512, 0)}), nodes_with(512)[1]])
    used = {"hugetlb.2MB.numa_stat": f"total={GIB} N0={GIB} N1=0\n", "hugetlb.2MB.current": f"{GIB}\n"}
    seen = []
    for gib in (2, 3, 1):
        host.put(PATH, {"memory.max": f"{gib * GIB}\n", **used})
        host.agent.on_created([PATH])
        seen.append((host.reserved(), host.view(PATH).message))

    assert seen == [({0: 2}, ""), ({0: 3}, ""), ({0: 1}, "")]
    assert host.reserved(HUGE) == {0: 1}
    host.sound()

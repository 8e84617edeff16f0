"""What a container that runs already has: pages that choose its node, huge pages that are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.holdings import read_holdings
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.cgroupfs import open_cgroup
from numapin.model.errors import KernelFormatError
from numapin.model.memory import hugepages
from support.cgroup_trees import GIB
from support.daemon import Host, docker
from support.machines import Pool, even
from support.trees import write_tree

MIB = 1 << 20
HUGE = hugepages(2 * MIB)


def test_huge_pages_in_use_are_the_container_s_own(tmp_path: Path) -> None:
    """A daemon that comes later does not refuse a container for want of the pages which that container has."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB, pools={2 * MIB: Pool(512, free=0)}))
    path = host.guaranteed(docker(1), 2, hugetlb={"2MB": GIB}, effective="1")
    late = host.guaranteed(docker(2), 2, hugetlb={"2MB": GIB})
    host.put(path, {"hugetlb.2MB.numa_stat": f"total={GIB} N0=0 N1={GIB}\n"})

    host.start()

    assert host.states() == {path: "pinned", late: "refused"}
    assert host.mems(path) == "1"
    assert host.reserved(HUGE) == {1: 1}


def test_little_memory_does_not_choose(tmp_path: Path) -> None:
    """A program's first pages lie where it happened to start, and so does the runtime's copy of itself."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 0, 2: 20 * MIB})

    host.start()
    host.wait_for_writes()

    assert host.mems(path) == "0"


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_both_forms_of_the_kernel(tmp_path: Path, version: CgroupVersion) -> None:
    """v2 has one line; on v1 the line with everything below counts."""
    host = Host(tmp_path, version=version)
    path = host.guaranteed(docker(1), 2, hugetlb={"2MB": GIB})
    if version is CgroupVersion.V2:
        host.put(path, {"hugetlb.2MB.numa_stat": f"total={3 * MIB} N0={MIB} N1={2 * MIB}\n"})
    else:
        lines = f"total=0 N0=0 N1=0\nhierarchical_total={3 * MIB} N0={MIB} N1={2 * MIB}\n"
        write_tree(tmp_path, {f"sys/fs/cgroup/hugetlb{path}/hugetlb.2MB.numa_stat": lines})
    record = host.tree.only()

    with open_cgroup(host.tree.hierarchy(), path) as cgroup:
        found = read_holdings(cgroup, record)

    assert found.hugepages == {0: {HUGE: MIB}, 1: {HUGE: 2 * MIB}}
    assert found.memory == {}


def test_an_old_kernel_and_a_garbled_file(tmp_path: Path) -> None:
    """Without the file nothing is known; one of another shape is an error with its path, and costs no placement."""
    host = Host(tmp_path, nodes=even(1, memory=10 * GIB, pools={2 * MIB: 512}))
    path = host.guaranteed(docker(1), 2, hugetlb={"2MB": GIB})
    record = host.tree.only()
    with open_cgroup(host.tree.hierarchy(), path) as cgroup:
        assert read_holdings(cgroup, record).hugepages == {}
        host.put(path, {"hugetlb.2MB.numa_stat": "total=0 N0=lots\n"})
        with pytest.raises(KernelFormatError, match=r"hugetlb\.2MB\.numa_stat"):
            read_holdings(cgroup, record)

    host.start()

    assert host.states() == {path: "pinned"}

"""What only a pod's cgroup limits, its containers share: reserved once, on nodes that all of them get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.daemon.status import About, status_document
from numapin.model.checkpoint import record_problems
from numapin.model.memory import hugepages, shared_of
from numapin.model.plan import Scope
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, POD_SLICE, Host, cid, cri, docker
from support.daemon import POD as POD_UID
from support.machines import PAGE_2M, Pool, even, write_machine

HUGE = hugepages(PAGE_2M)
SCOPES = pytest.mark.parametrize("scope", list(Scope))


def with_pools(tmp_path: Path, scope: Scope = Scope.CONTAINER, *, nodes: int = 2) -> Host:
    """Nodes of 10 GiB with 1 GiB of 2 MiB pages each, hence 9 GiB of memory."""
    machine = even(nodes, memory=10 * GIB, pools={PAGE_2M: Pool(512, 512)})
    return Host(tmp_path, nodes=machine, config=replace(BARE, scope=scope))


def pod(host: Host, gib: int, huge_gib: int = 0) -> None:
    """The pod's cgroup and what it may use."""
    hugetlb = {"2MB": huge_gib * GIB} if huge_gib else {}
    host.tree.add(POD_SLICE, memory=gib * GIB, quota=100_000, hugetlb=hugetlb)


def starts(host: Host, number: int, gib: float | None, *, effective: str = "0", hugetlb: int | None = None) -> str:
    """A container of the pod with memory of its own or none, and hugepages of its own or none; returns its path."""
    host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(f"c{number}", pod="db")))
    limits = {"2MB": hugetlb * GIB} if hugetlb is not None else {}
    memory = None if gib is None else int(gib * GIB)
    path = host.container(cri(number), memory=memory, quota=50_000, effective=effective, hugetlb=limits)
    if host.agent.last_pass_ns is not None:
        host.agent.on_created([path])
        host.wait_for_writes()
    return path


def ends(host: Host, path: str) -> None:
    """A container's cgroup goes and the grace of its memory passes."""
    host.agent.on_removed([host.remove(path)])
    host.clock.advance(ns=2 * BARE.release_grace_ns)
    host.agent.due(host.clock.monotonic_ns())


def consistent(host: Host) -> None:
    """The books are sound, in memory and in what would be saved."""
    host.sound()
    assert record_problems(host.agent.ledger.snapshot()) == ()


@SCOPES
def test_dropped_hugepage_limits_are_reserved_once(tmp_path: Path, scope: Scope) -> None:
    """Two containers whose hugepage limits containerd dropped: the pod's pages once, and both on their node."""
    host = with_pools(tmp_path, scope)
    host.start()
    pod(host, 6, huge_gib=1)
    one, other = starts(host, 1, 2), starts(host, 2, 4)

    assert host.states() == {one: "pinned", other: "pinned"}
    assert (host.mems(one), host.mems(other)) == ("0", "0")
    assert host.reserved(HUGE) == {0: 1}
    assert host.reserved() == {0: 6}
    consistent(host)


@SCOPES
def test_a_limit_of_the_pod_alone_is_reserved_once(tmp_path: Path, scope: Scope) -> None:
    """Pod-level memory and three containers without any of their own: 6 GiB, not 18, and one node for all."""
    host = with_pools(tmp_path, scope)
    host.start()
    pod(host, 6)
    paths = [starts(host, k, None) for k in (1, 2, 3)]

    assert host.states() == dict.fromkeys(paths, "pinned")
    assert {host.mems(p) for p in paths} == {"0"}
    assert host.reserved() == {0: 6}
    consistent(host)


@SCOPES
def test_it_stays_while_any_of_them_lives(tmp_path: Path, scope: Scope) -> None:
    """The first one ends and its grace passes: what the others may use is theirs still; with the last it goes."""
    host = with_pools(tmp_path, scope)
    host.start()
    pod(host, 6, huge_gib=1)
    one, other, bare = starts(host, 1, 2), starts(host, 2, 2), starts(host, 3, None)
    before = host.reserved(HUGE)
    ends(host, one)
    after_one = host.reserved(HUGE)
    consistent(host)
    ends(host, bare)
    after_two = host.reserved(HUGE)
    host.remove(other)
    host.remove(POD_SLICE)
    host.agent.on_removed([other, POD_SLICE])

    assert before == after_one == after_two == {0: 1}
    assert (host.reserved(HUGE), host.reserved()) == ({}, {})
    consistent(host)


@SCOPES
def test_a_restart_of_the_daemon_changes_nothing(tmp_path: Path, scope: Scope) -> None:
    """The books after it are those before, and no cgroup is written."""
    host = with_pools(tmp_path, scope)
    host.start()
    pod(host, 6, huge_gib=1)
    paths = [starts(host, 1, 2), starts(host, 2, None), starts(host, 3, 1)]
    before = host.agent.ledger.books.assignments
    host.restart()

    assert host.agent.ledger.books.assignments == before
    assert host.states() == dict.fromkeys(paths, "pinned")
    assert host.agent.counters.writes == 0
    consistent(host)


def test_the_pods_limit_is_followed(tmp_path: Path) -> None:
    """More pages for the pod are reserved where it is, fewer given back; its memory too."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 4)
    paths = [starts(host, 1, None), starts(host, 2, None)]
    seen = []
    for gib in (7, 3):
        (host.tree.cpuset / POD_SLICE[1:] / "memory.max").write_text(f"{gib * GIB}\n")
        host.agent.full_pass()
        seen.append(host.reserved())
        consistent(host)

    assert seen == [{0: 7}, {0: 3}]
    assert host.states() == dict.fromkeys(paths, "pinned")


def test_one_that_does_not_fit_there(tmp_path: Path) -> None:
    """
    A sibling that finds no room on the pod's node gets nodes of its own, with as much as it may use, under container
    scope; what it may touch is on its nodes. When the other ends it keeps that.
    """
    host = with_pools(tmp_path)
    host.start()
    pod(host, 14, huge_gib=1)
    one, other = starts(host, 1, 7), starts(host, 2, 7, effective="1")
    both = host.reserved(HUGE)
    consistent(host)
    host.restart()
    again = host.reserved(HUGE)
    ends(host, one)

    assert both == again == {0: 1, 1: 1}
    assert host.mems(other) == "1"
    assert host.reserved() == {1: 7}
    assert host.reserved(HUGE) == {1: 1}
    consistent(host)


def test_limits_of_their_own_are_not_shared(tmp_path: Path) -> None:
    """One that has all the pod's pages as its own limit leaves nothing to share: its sibling asks for none."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 12, huge_gib=1)
    one, other = starts(host, 1, 6, hugetlb=1), starts(host, 2, 6, effective="1")

    assert host.states() == {one: "pinned", other: "pinned"}
    assert (host.reserved(), host.reserved(HUGE)) == ({0: 6, 1: 6}, {0: 1})
    consistent(host)


def test_another_scope(tmp_path: Path) -> None:
    """A reload to pod scope and back books the same bytes under the other rule."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 6, huge_gib=1)
    paths = [starts(host, 1, 2), starts(host, 2, None)]
    seen = []
    for scope in (Scope.POD, Scope.CONTAINER):
        host.agent.on_machine(replace(host.agent.machine, config=replace(host.config, scope=scope)))
        host.wait_for_writes()
        seen.append((host.reserved(HUGE), shared_of(POD_UID) in host.agent.ledger.books.assignments))
        consistent(host)

    assert seen == [({0: 1}, False), ({0: 1}, True)]
    assert host.states() == dict.fromkeys(paths, "pinned")


def test_a_sibling_with_its_own_limit_takes_it_from_what_is_shared(tmp_path: Path) -> None:
    """In whatever order they come, all that a pod holds on its nodes is its limit, over a restart too."""
    for order in ((None, 4), (4, None)):
        host = with_pools(tmp_path / str(order), nodes=1)
        host.start()
        pod(host, 6)
        paths = [starts(host, number, gib) for number, gib in enumerate(order, 1)]
        found = host.states(), host.reserved()
        host.restart()

        assert found == (dict.fromkeys(paths, "pinned"), {0: 6})
        assert host.reserved() == {0: 6}
        consistent(host)


def test_what_is_kept_outlives_its_nodes_memory(tmp_path: Path) -> None:
    """Under pod scope a node loses its memory and gets it back: what the pod may use on it stays the pod's."""
    host = with_pools(tmp_path, Scope.POD)
    host.start()
    pod(host, 6)
    path = starts(host, 1, None)
    host.agent.on_created([host.guaranteed(docker(8), 9, effective="1"), host.guaranteed(docker(9), 5)])
    host.wait_for_writes()
    seen = []
    for memory in (0, 10):
        host.nodes[0] = replace(host.nodes[0], memory=memory * GIB, pools={})
        write_machine(host.root, host.nodes)
        host.agent.on_machine(host.agent.machine.again())
        host.agent.full_pass()
        host.wait_for_writes()
        seen.append((host.reserved(), host.states()[docker(9)]))
        consistent(host)

    assert seen == [({0: 6, 1: 9}, "refused")] * 2
    assert host.states()[path] == "pinned"


def test_another_scope_moves_nobody(tmp_path: Path) -> None:
    """Two of a pod that are on different nodes stay there when pod scope comes, by a reload and by a restart."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 4)
    host.agent.on_created([host.guaranteed(docker(8), 6)])
    host.wait_for_writes()
    one, other = starts(host, 1, 2), starts(host, 2, None, effective="1")
    assert (host.mems(one), host.mems(other)) == ("0", "1")
    host.agent.on_removed([host.remove(docker(8))])
    host.config = replace(host.config, scope=Scope.POD)
    host.agent.on_machine(replace(host.agent.machine, config=host.config))
    host.wait_for_writes()
    reloaded = host.mems(one), host.mems(other)
    consistent(host)
    host.restart()

    assert reloaded == (host.mems(one), host.mems(other)) == ("0", "1")
    assert host.states() == {one: "pinned", other: "pinned"}
    consistent(host)


def test_another_scope_while_one_waits(tmp_path: Path) -> None:
    """What an ended container left to its pod goes with the rule that had it; no record stays without its memory."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 4)
    path = starts(host, 1, None)
    host.agent.on_removed([host.remove(path)])
    assert host.reserved() == {0: 4}
    host.agent.on_machine(replace(host.agent.machine, config=replace(host.config, scope=Scope.POD)))

    consistent(host)


def test_it_is_shown(tmp_path: Path) -> None:
    """Status names the pod, the nodes and the sizes of what is shared."""
    host = with_pools(tmp_path)
    host.start()
    pod(host, 6, huge_gib=1)
    starts(host, 1, 2)
    document = status_document(host.agent, About(1, 0, 0, "v2", "", None), now_ns=0, wall_ns=0)

    assert document["kept_for_pods"] == [{"pod_uid": POD_UID, "nodes": [0], "sizes": {HUGE: GIB}, "shared": True}]


STEP = st.one_of(
    st.tuples(
        st.just("start"),
        st.integers(1, 5),
        st.sampled_from([None, 1, 2, 4]),
        st.sampled_from([None, None, None, 1]),
    ),
    st.tuples(st.sampled_from(["end", "docker", "restart", "pass"]), st.integers(1, 5), st.none(), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Scope)), st.integers(3, 9), st.lists(STEP, max_size=12))
def test_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    scope: Scope,
    gib: int,
    steps: list[tuple[str, int, int | None, int | None]],
) -> None:
    """
    Containers of one pod and strangers in any order, restarts of the daemon between: the books are sound, and where
    all of a pod's containers are on the same nodes and none has pages of its own, its pages are reserved once.
    """
    host = with_pools(tmp_path_factory.mktemp("shared"), scope)
    host.start()
    pod(host, gib, huge_gib=1)
    for what, number, memory, huge in steps:
        path, stranger = cri(number), docker(number)
        there = path in host.agent.views
        if what == "start" and not there:
            starts(host, number, memory, hugetlb=huge)
        elif what == "end" and there:
            ends(host, path)
        elif what == "docker" and stranger not in host.agent.views:
            host.agent.on_created([host.guaranteed(stranger, 2)])
            host.wait_for_writes()
        elif what == "restart":
            host.restart()
        elif what == "pass":
            host.agent.full_pass()
        consistent(host)
        pins = [p for p in host.agent.ledger.pins.values() if p.pod_uid == POD_UID]
        if len({p.nodes for p in pins}) == 1 and not any(huge for _, _, _, huge in steps):
            assert sum(host.reserved(HUGE).values()) == 1

"""What runs inside a container: listed and explained, never booked; and the other choice, ``cgroup.root``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.daemon.explain import Known, explain_document
from numapin.daemon.nested import KEPT_NS, MOST_AT_ONCE, Nested, NestedRows, nested_rows
from numapin.daemon.out_of_reach import OutOfReach
from numapin.daemon.status import About, container_row, containers_document, status_document
from numapin.daemon.survey import found_containers
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.kernel.recognition import MOST_INSIDE, Inside
from numapin.model.errors import RequestFailed
from support.cgroup_trees import GIB, oci
from support.daemon import BARE, Host, cid, docker
from support.machines import even
from support.trees import write_tree

VERSIONS = (CgroupVersion.V1, CgroupVersion.V2)
OUTER = docker(1)
INNER_POD = f"{OUTER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{'a' * 32}.slice"
INNER = f"{INNER_POD}/cri-containerd-{cid(2)}.scope"
INSIDE = replace(BARE, cgroup_root=f"{OUTER}/kubelet.slice")


def kind(root: Path, version: CgroupVersion = CgroupVersion.V2, **options: Any) -> Host:
    """The machine of B038: a container of 8 GiB with a pod's container of 4 GiB inside; on v1 it has one node."""
    nodes = even(4 if version is CgroupVersion.V2 else 1, memory=20 * GIB)
    host = Host(root, version=version, nodes=nodes, **options)
    host.tree.task("moby", cid(1), oci(memory=8 * GIB))
    host.guaranteed(OUTER, 8)
    host.guaranteed(INNER, 4)
    return host


def rows_of(document: Any) -> Any:
    """The rows of a containers document, as plain data."""
    return document["containers"]


def look(host: Host) -> NestedRows:
    """What is inside the agent's containers now."""
    return nested_rows(host.tree.discovery(host.config.cgroup_root), list(host.agent.views.values()))


def status(host: Host) -> Any:
    """The status document."""
    me = About(1, 0, 0, "v2", host.boot, None)
    return status_document(host.agent, me, now_ns=0, wall_ns=0, nested=look(host))


def explained(host: Host, wanted: str) -> Any:
    """The explanation document."""
    rows = [container_row(v) for v in host.agent.views.values()]
    known = Known(rows, host.agent.ledger.pins, host.agent.ledger.refusals, look(host).rows)
    return explain_document(known, wanted, {"from": "daemon"})


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_outer_container_is_booked(tmp_path: Path, version: CgroupVersion) -> None:
    """8 GiB are reserved, not 12; the inner one has no view, no watch, no record, no write and no class (B038)."""
    host = kind(tmp_path, version)
    before = host.mems(INNER)

    host.start()
    host.agent.on_created([INNER, INNER_POD])
    host.agent.full_pass()

    assert host.states() == {OUTER: "pinned"}
    assert host.reserved() == {0: 8}
    assert (host.watched.mems, set(host.agent.ledger.pins)) == ({OUTER}, {OUTER})
    assert host.mems(INNER) == before
    counts = status(host)["counts"]
    assert (counts["Guaranteed"], counts["nested"], sum(counts.values())) == (1, 1, 2)


def test_the_list_names_the_container_around(tmp_path: Path) -> None:
    """The inner one follows the outer one with state and rule of its own and the keys of every row."""
    host = kind(tmp_path)
    host.start()
    outer, inner = rows_of(containers_document(host.agent, look(host)))

    assert (outer["cgroup"], outer["state"], outer["nested_in"]) == (OUTER, "pinned", None)
    assert (inner["cgroup"], inner["state"], inner["nested_in"]) == (INNER, "nested", OUTER)
    assert (inner["kind"], inner["rule"], inner["qos"]) == ("nested", "inside-a-container", "Unknown")
    assert (inner["nodes"], inner["request"]) == ([], {})
    assert inner["message"] == f"runs inside ({cid(1)[:12]}), whose reservation on node 0 covers it"
    assert list(outer) == list(inner)


def test_explain_says_who_covers_it_and_the_other_way(tmp_path: Path) -> None:
    """By the inner id there is a sentence with the outer container, and the key that turns it round."""
    host = kind(tmp_path)
    host.start()
    document = explained(host, INNER)
    (remedy,) = document["remedies"]

    assert document == explained(host, cid(2))
    assert document["sentences"][0] == (
        f"Nested: runs inside ({cid(1)[:12]}), whose reservation on node 0 covers it. "
        "On its own it gets no nodes and no reservation."
    )
    assert f'cgroup.root = "{OUTER}"' in remedy


def test_an_outer_container_without_a_reservation(tmp_path: Path) -> None:
    """Nothing is said to be covered where the outer container has nothing."""
    host = Host(tmp_path)
    host.container(OUTER, memory=8 * GIB)
    host.guaranteed(INNER, 4)
    host.start()
    (row,) = look(host).rows

    assert row["message"] == f"runs inside ({cid(1)[:12]}), which has no reservation (not-managed)"
    assert host.reserved() == {}


def test_nobody_takes_anothers_id_by_what_he_runs_inside(tmp_path: Path) -> None:
    """An inner container with a real one's id does not make that id ambiguous, nor does its name."""
    host = Host(tmp_path)
    host.guaranteed(OUTER, 1)
    host.guaranteed(docker(2), 1)
    host.guaranteed(f"{OUTER}/docker/{cid(2)}", 1)
    host.start()

    assert explained(host, cid(2))["container"]["cgroup"] == docker(2)
    with pytest.raises(RequestFailed, match="no container 'nobody' is known"):
        explained(host, "nobody")


def test_a_look_serves_for_a_moment(tmp_path: Path) -> None:
    """Questions in quick succession cost one look; after two seconds there is another."""
    host = kind(tmp_path)
    host.start()
    nested = Nested(host.tree.discovery(), host.clock)
    views = list(host.agent.views.values())
    first = nested.look(views)
    host.remove(INNER)

    assert nested.look(views) is first
    host.clock.advance(ns=KEPT_NS)
    assert (len(first.rows), len(nested.look(views).rows)) == (1, 0)


def test_all_looks_together_are_bounded(tmp_path: Path) -> None:
    """However many containers hold very much, one answer costs so much and no more; the rest is named."""
    host = Host(tmp_path)
    for number in range(1, 7):
        host.guaranteed(docker(number), 1)
    host.start()
    asked: list[int] = []

    class Endless:
        """A machine whose containers hold more than anyone looks at."""

        def nested(self, outer: str, most: int = MOST_INSIDE) -> Inside:
            asked.append(most)
            return Inside((), False, most + 1)

    found = nested_rows(Endless(), list(host.agent.views.values()))

    assert asked == [MOST_INSIDE, MOST_AT_ONCE - MOST_INSIDE - 1, 0, 0, 0, 0]
    assert found.unfinished == [docker(n) for n in range(1, 7)]


def test_a_look_without_a_daemon(tmp_path: Path) -> None:
    """``containers --root`` lists the inner one too, and obeys ``cgroup.root``."""
    kind(tmp_path)
    states = [(r["cgroup"], r["state"]) for r in rows_of(found_containers(tmp_path))]
    write_tree(tmp_path, {"etc/numapin/numapin.toml": f'[cgroup]\nroot = "{OUTER}"\n'})
    other = [(r["cgroup"], r["qos"]) for r in rows_of(found_containers(tmp_path))]

    assert states == [(OUTER, "not-decided"), (INNER, "nested")]
    assert other == [(INNER, "Guaranteed")]


# ---- the other choice ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_root_inside_the_inner_one_is_booked(tmp_path: Path, version: CgroupVersion) -> None:
    """4 GiB are reserved, not 12, and the outer container is neither known nor written (B038)."""
    host = kind(tmp_path, version, config=INSIDE)
    before = host.mems(OUTER)

    host.start()

    assert host.states() == {INNER: "pinned"}
    assert host.reserved() == {0: 4}
    assert (host.mems(INNER), host.mems(OUTER)) == ("0", before)
    assert look(host).rows == []
    assert host.view(INNER).classification.rule == "pod-path"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_root_takes_pins_out_of_reach_back(tmp_path: Path, version: CgroupVersion) -> None:
    """After a restart with a root inside, the outer cgroup is as before us and only the inner one is booked."""
    host = kind(tmp_path, version)
    before = host.mems(OUTER)
    host.start()
    host.stop()
    assert host.mems(OUTER) == "0"
    inner = host.tree.discovery(INSIDE.cgroup_root)

    left = OutOfReach(tmp_path, inner.reaches, host.boot, host.clock, host.log).release(host.saved())

    assert host.mems(OUTER) == (before or "0-3")  # on v2 a populated cgroup cannot be emptied: its parent's nodes
    assert (left.containers, left.books.assignments) == ({}, {})
    assert host.log.facts("container_out_of_reach")["cgroup"] == OUTER
    host.file.save(left)
    host.config = INSIDE
    host.start()
    assert (host.states(), host.reserved()) == ({INNER: "pinned"}, {0: 4})
    host.stop()
    outer = host.tree.discovery()
    back = OutOfReach(tmp_path, outer.reaches, host.boot, host.clock, host.log).release(host.saved())
    assert back.containers == {}
    assert host.log.facts("container_out_of_reach")["cgroup"] == INNER


def test_pins_in_reach_are_not_touched(tmp_path: Path) -> None:
    """Without a change of root the checkpoint is the same value; another boot's pins are left to the adoption."""
    host = kind(tmp_path)
    host.start()
    host.stop()
    saved, discovery = host.saved(), host.tree.discovery()
    inner = host.tree.discovery(INSIDE.cgroup_root)

    assert OutOfReach(tmp_path, discovery.reaches, host.boot, host.clock, host.log).release(saved) is saved
    assert OutOfReach(tmp_path, inner.reaches, "another", host.clock, host.log).release(saved) is saved
    assert host.mems(OUTER) == "0"

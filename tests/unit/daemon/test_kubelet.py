"""A kubelet beside us (`numapin.daemon.kubelet`) and what the agent makes of it: hand-over, damage, restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.daemon.kubelet import Beside
from numapin.daemon.pinning import WriteJob
from numapin.daemon.release import release_document
from numapin.daemon.status import About, status_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Phase, record_problems
from numapin.model.errors import RequestFailed
from numapin.model.kubelet import Hands
from numapin.model.memory import MEMORY, Block
from numapin.model.nodeset import NodeSet
from numapin.planner.accounting import check
from support.cgroup_trees import BURSTABLE_SLICE, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, POD, Host, MemoryLog, cid, cri, docker
from support.kubelet import STATE, Held, document, put, text
from support.machines import even, write_machine
from support.trees import write_tree

V1 = CgroupVersion.V1
ABOUT = About(pid=1, started_wall_ns=0, started_monotonic_ns=0, cgroup_version="v2", boot_id="b", checkpoint="/c")


def pod_container(
    host: Host, number: int, gib: float = 2, *, name: str = "app", mems: str = "", oci_mems: str = ""
) -> str:
    """A container of the Guaranteed pod, called *name* in it; *oci_mems* is what the kubelet asked for."""
    host.tree.task("k8s.io", cid(number), oci(annotations=cri_annotations(name), mems=oci_mems))
    return host.guaranteed(cri(number), gib, mems=mems, effective=mems or "0")


def static(host: Host, entries: dict[str, Held] | None = None, **options: object) -> None:
    """The kubelet writes its state: memory of the pod's containers by name."""
    put(host.root, text(document({POD: entries} if entries else None, **options)))  # type: ignore[arg-type]


def damage(host: Host) -> None:
    """The file is cut in half."""
    content = (host.root / STATE).read_text() if (host.root / STATE).exists() else text(document())
    put(host.root, content[: len(content) // 2])


def findings(host: Host) -> dict[str, str]:
    """Findings of the status by code."""
    found = status_document(host.agent, ABOUT, now_ns=0, wall_ns=0)["findings"]
    assert isinstance(found, list)
    return {f["code"]: f["message"] for f in found}


# ---- whose the containers are ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["None", ""])
def test_no_kubelet_places(tmp_path: Path, policy: str) -> None:
    """Without a file, and with the policy None, containers of pods are ours like all others."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    if policy:
        static(host, policy=policy)
    host.start()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    assert findings(host) == {}
    host.sound()


def test_a_static_kubelet_keeps_its_containers(tmp_path: Path) -> None:
    """Its pods' containers are left alone with its nodes shown, others are ours and get what is left."""
    host = Host(tmp_path)
    theirs = pod_container(host, 1, 8, oci_mems="0")
    unpinned = pod_container(host, 2, 1, name="not-in-the-file")
    ours = host.guaranteed(docker(3), 5, effective="1")
    static(host, {"app": ((0,), 8)})
    host.start()

    assert host.states() == {theirs: "pinned-by-others", unpinned: "pinned-by-others", ours: "pinned"}
    assert (host.mems(theirs), host.mems(unpinned), host.mems(ours)) == ("", "", "1")
    assert str(host.view(theirs).nodes) == "0"
    assert "left to the kubelet (memory manager policy Static), which gave it node 0" in host.view(theirs).message
    assert "no nodes of its own" in host.view(unpinned).message
    assert host.reserved() == {0: 8, 1: 5}
    assert "1 assignments, 8 GiB of memory" in findings(host)["kubelet-beside"]
    host.sound()


def test_its_burstable_containers_stay_unmanaged(tmp_path: Path) -> None:
    """What no rule would pin is shown as before, whoever places the pods."""
    host = Host(tmp_path)
    path = host.guaranteed(f"{BURSTABLE_SLICE}/cri-containerd-{cid(1)}.scope")
    static(host)
    host.start()

    assert host.states() == {path: "not-managed"}


def test_memory_of_a_pod_is_reserved_once(tmp_path: Path) -> None:
    """Where the kubelet gave memory to a pod as a whole, its containers' part of it is not counted again."""
    host = Host(tmp_path)
    static(host, {"app": ((0,), 2)}, pods={POD: ((0,), 6)})
    host.start()

    assert host.reserved() == {0: 6}


def test_nodes_table_shows_what_it_holds(tmp_path: Path) -> None:
    """The status counts the kubelet's bytes as reserved and lists none of its assignments as containers of ours."""
    host = Host(tmp_path)
    static(host, {"app": ((1, 2), 12)})
    host.start()
    document_ = status_document(host.agent, ABOUT, now_ns=0, wall_ns=0)
    nodes = document_["nodes"]
    assert isinstance(nodes, list)

    assert [n["memory_map"]["memory"]["reserved"] >> 30 for n in nodes] == [0, 10, 2, 0]
    assert document_["groups"] == []
    assert document_["containers"] == []


def test_following_can_be_switched_off(tmp_path: Path) -> None:
    """With kubelet.follow = false pods are ours, whatever the file says; a reload hands them over and back."""
    host = Host(tmp_path, config=replace(BARE, kubelet_follow=False))
    path = pod_container(host, 1)
    static(host, {"app": ((3,), 2)})
    host.start()
    off = host.states()[path], host.reserved()
    host.agent.on_machine(replace(host.agent.machine, config=BARE))
    on = host.states()[path], host.reserved()
    host.agent.on_machine(replace(host.agent.machine, config=host.config))

    assert off == ("pinned", {0: 2})
    assert on == ("pinned-by-others", {3: 2})
    assert (host.states()[path], host.reserved()) == ("pinned", {0: 2})


def test_another_path(tmp_path: Path) -> None:
    """The file is where kubelet.state says."""
    host = Host(tmp_path, config=replace(BARE, kubelet_state=Path("/srv/k/memory_manager_state")))
    write_tree(tmp_path / "srv/k", {"memory_manager_state": text(document({POD: {"app": ((2,), 3)}}))})
    host.start()

    assert host.reserved() == {2: 3}


# ---- hand-over ---------------------------------------------------------------------------------------------


def test_hand_over_when_the_file_appears(tmp_path: Path) -> None:
    """Our pin leaves the books and stays in the cgroup; the kubelet's numbers stand instead; nothing is doubled."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    other = host.guaranteed(docker(2), 3)
    host.start()
    writes = host.agent.counters.writes
    before = host.reserved()
    static(host, {"app": ((2,), 4)})
    host.agent.on_kubelet()

    assert before == {0: 7}
    assert host.states() == {pod: "pinned-by-others", other: "pinned"}
    assert host.reserved() == {0: 3, 2: 4}
    assert host.mems(pod) == "0"
    assert writes == host.agent.counters.writes
    assert host.watched.mems == {other}
    assert set(host.agent.ledger.pins) == {other}
    assert set(host.saved().containers) == {other}
    host.sound()


def test_handed_over_container_is_never_written(tmp_path: Path) -> None:
    """After the hand-over foreign writes, full passes and another size leave its cgroup as it is."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.start()
    static(host, {"app": ((0,), 4)})
    host.agent.on_kubelet()
    host.put(pod, {"cpuset.mems": "3\n", "cpuset.mems.effective": "3\n", "memory.max": f"{5 << 30}\n"})
    host.agent.on_mems_written([pod])
    host.agent.on_state([pod])
    host.agent.full_pass()

    assert host.mems(pod) == "3"
    assert host.states() == {pod: "pinned-by-others"}
    assert host.reserved() == {0: 4}


def test_room_that_the_hand_over_frees_is_used(tmp_path: Path) -> None:
    """A refused container gets the nodes that our pin on the pod's container held and the kubelet's does not."""
    host = Host(tmp_path, nodes=even(2, memory=10 << 30))
    pod_container(host, 1, 8)
    host.guaranteed(docker(2), 8, effective="1")
    late = host.guaranteed(docker(3), 8)
    host.start()
    refused = host.states()[late]
    static(host)
    host.agent.on_kubelet()

    assert refused == "refused"
    assert host.states()[late] == "pinned"
    assert host.reserved() == {0: 8, 1: 8}


def test_memory_waiting_for_a_pod_is_handed_over(tmp_path: Path) -> None:
    """What an ended container left to its pod is the kubelet's affair from the hand-over on."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.start()
    host.agent.on_removed([host.remove(pod)])
    waiting = host.reserved()
    static(host, {"app": ((1,), 4)})
    host.agent.on_kubelet()

    assert waiting == {0: 4}
    assert host.reserved() == {1: 4}
    assert host.agent.ledger.pins == {}


def test_assignments_come_and_go(tmp_path: Path) -> None:
    """Each new file stands instead of the one before, and what goes makes room at once."""
    host = Host(tmp_path, nodes=even(1, memory=10 << 30))
    host.start()
    static(host, {"app": ((0,), 4)})
    host.agent.on_kubelet()
    one = host.reserved()
    static(host, {"app": ((0,), 4), "more": ((0,), 4)})
    host.agent.on_kubelet()
    two = host.reserved()
    late = host.guaranteed(docker(1), 5)
    host.agent.on_created([late])
    refused = host.states()[late]
    static(host, {"more": ((0,), 4)})
    host.agent.on_kubelet()

    assert (one, two) == ({0: 4}, {0: 8})
    assert refused == "refused"
    assert host.states()[late] == "pinned"
    assert host.reserved() == {0: 9}


def test_file_is_read_before_a_decision(tmp_path: Path) -> None:
    """A container decided in the same turn as the kubelet's write does not get what the kubelet gave away."""
    host = Host(tmp_path)
    host.start()
    static(host, {"app": ((0,), 8)})
    ours = host.guaranteed(docker(1), 5, effective="1")
    host.agent.on_created([ours])

    assert str(host.view(ours).nodes) == "1"
    assert host.reserved() == {0: 8, 1: 5}


def test_new_placement_is_shown(tmp_path: Path) -> None:
    """A container that the kubelet places after its cgroup was seen gets its nodes in the status."""
    host = Host(tmp_path)
    static(host)
    pod = pod_container(host, 1, 4)
    host.start()
    before = str(host.view(pod).nodes)
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()

    assert before == ""
    assert str(host.view(pod).nodes) == "3"


def test_same_file_again_does_nothing(tmp_path: Path) -> None:
    """A kubelet that writes the same state again costs no decision, no save and no line."""
    host = Host(tmp_path)
    static(host, {"app": ((3,), 4)})
    pod_container(host, 1, 4)
    host.start()
    host.agent.flush()
    lines, saves = len(host.log.lines), host.agent.ledger.saves
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()
    host.agent.full_pass()

    assert lines == len(host.log.lines)
    assert saves == host.agent.ledger.saves
    assert not host.agent.ledger.dirty


@pytest.mark.parametrize("way", ["unlink", "policy None"])
def test_file_goes(tmp_path: Path, way: str) -> None:
    """Containers of pods become ours: the one we pinned before anew, the one the kubelet pinned stays foreign."""
    host = Host(tmp_path)
    mine = pod_container(host, 1, 4)
    host.start()
    static(host, {"app": ((0,), 4), "side": ((1,), 2)})
    side = pod_container(host, 2, 2, name="side", mems="1", oci_mems="1")
    host.agent.on_created([side])
    handed = host.states()
    if way == "unlink":
        (tmp_path / STATE).unlink()
    else:
        static(host, policy="None")
    host.agent.full_pass()

    assert handed == {mine: "pinned-by-others", side: "pinned-by-others"}
    assert host.states() == {mine: "pinned", side: "pinned-by-others"}
    assert "by somebody else" in host.view(side).message
    assert host.reserved() == {0: 4, 1: 2}
    assert str(host.agent.ledger.pins[mine].original_mems) == ""
    assert findings(host) == {}
    host.sound()


def test_old_pin_of_a_refused_container_is_undone(tmp_path: Path) -> None:
    """When it comes back to us and does not fit, the value we once wrote is not left behind without a promise."""
    host = Host(tmp_path, nodes=even(2, memory=10 << 30))
    pod = pod_container(host, 1, 8)
    host.start()
    static(host)
    host.agent.on_kubelet()
    host.guaranteed(docker(2), 8)
    host.guaranteed(docker(3), 8, effective="1")
    host.agent.full_pass()
    left = host.mems(pod)
    (tmp_path / STATE).unlink()
    host.agent.on_kubelet()

    assert left == "0"
    assert host.states()[pod] == "refused"
    assert host.mems(pod) == "0-1"


def test_pages_on_the_way_at_the_hand_over(tmp_path: Path) -> None:
    """A pin whose write a thread still performs does not come back as ours when the thread is done."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.holds(pod, {0: 1 << 30})
    host.start()
    pinning = host.states()[pod]
    static(host, {"app": ((0,), 4)})
    host.agent.on_kubelet()
    host.wait_for_writes()

    assert pinning == "pinning"
    assert host.states()[pod] == "pinned-by-others"
    assert host.agent.ledger.pins == {}
    assert host.watched.mems == set()


def test_a_write_that_waits_is_dropped(tmp_path: Path) -> None:
    """What a thread has not begun is not written once the container is somebody else's."""
    host = Host(tmp_path)
    path = pod_container(host, 1)
    host.prepare()
    with host.tree.discovery().open(path) as cgroup:
        for nodes in (NodeSet.of(1), NodeSet.of(2)):
            assert host.writer.submit(WriteJob(cgroup, nodes, migrate=False), 1 << 30) is None
    waiting = host.writer.busy
    host.writer.cancel(path)
    host.wait_for_writes()

    assert waiting == 2
    assert host.mems(path) == "1"


# ---- numbers that clash ------------------------------------------------------------------------------------


def test_memory_promised_twice_is_named(tmp_path: Path) -> None:
    """Where kubelet and we have promised the same bytes, ours stand, it is said, and room that comes is theirs."""
    host = Host(tmp_path, nodes=even(1, memory=10 << 30))
    ours = host.guaranteed(docker(1), 7)
    host.start()
    static(host, {"app": ((0,), 6)})
    host.agent.on_kubelet()
    clash = findings(host)["kubelet-and-ours"]
    during = host.reserved()
    host.agent.on_removed([host.remove(ours)])

    assert "3 GiB of memory" in clash
    assert "node 0" in clash
    assert during == {0: 10}
    assert host.reserved() == {0: 6}
    assert "kubelet-and-ours" not in findings(host)


def test_machine_that_shrinks_and_grows(tmp_path: Path) -> None:
    """After a change of the machine the kubelet's assignments are accounted anew, in full where there is room."""
    host = Host(tmp_path, nodes=even(2, memory=10 << 30))
    static(host, {"app": ((1,), 8)})
    host.start()
    seen = []
    for size in (4, 10):
        write_machine(tmp_path, even(2, memory=size << 30))
        host.agent.on_machine(type(host.agent.machine).read(tmp_path, host.config))
        seen.append((host.reserved(), check(host.agent.ledger.books)))

    assert seen == [({1: 4}, ()), ({1: 8}, ())]


# ---- damage ------------------------------------------------------------------------------------------------


def test_damaged_while_static(tmp_path: Path) -> None:
    """The last good reading stands, with one finding and one line in the log, until the file is good again."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    static(host, {"app": ((2,), 4)})
    host.start()
    damage(host)
    host.agent.on_kubelet()
    host.agent.full_pass()
    during = host.states()[pod], host.reserved()
    said = findings(host)
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()

    assert during == ("pinned-by-others", {2: 4})
    assert "the last good reading stands" in said["kubelet-state-damaged"]
    assert "drain the node" in said["kubelet-state-damaged"]
    assert host.log.events().count("kubelet_state_unusable") == 1
    assert host.reserved() == {3: 4}
    assert "kubelet-state-damaged" not in findings(host)


def test_damaged_at_start(tmp_path: Path) -> None:
    """Pods' containers are left alone; nodes that stand in their cgroups are accounted; others are ours."""
    host = Host(tmp_path)
    plain = pod_container(host, 1, 4)
    pinned = pod_container(host, 2, 3, name="side", mems="2", oci_mems="2")
    ours = host.guaranteed(docker(3), 5)
    damage(host)
    host.start()

    assert host.states() == {plain: "pinned-by-others", pinned: "pinned-by-others", ours: "pinned"}
    assert (host.mems(plain), host.mems(pinned)) == ("", "2")
    assert host.reserved() == {0: 5, 2: 3}
    assert "its state cannot be read" in host.view(plain).message
    assert "left alone until it can be read" in findings(host)["kubelet-state-damaged"]
    host.sound()


def test_readable_after_damage_at_start(tmp_path: Path) -> None:
    """Once the file can be read its numbers stand instead of those from the cgroups, nothing twice."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 3, mems="2", oci_mems="2")
    damage(host)
    host.start()
    before = host.reserved()
    static(host, {"app": ((2,), 3)})
    host.agent.on_kubelet()

    assert before == {2: 3}
    assert host.reserved() == {2: 3}
    assert host.states() == {pod: "pinned-by-others"}
    assert host.agent.ledger.pins == {}
    host.sound()


def test_our_pins_under_a_damaged_file(tmp_path: Path) -> None:
    """An earlier pin of ours on a pod's container keeps its bytes and its record, and is not written again."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 8)
    host.start()
    host.stop()
    damage(host)
    host.grant(pod, "0-3")
    host.start()
    late = host.guaranteed(docker(2), 5, effective="1")
    host.agent.on_created([late])

    assert host.states() == {pod: "pinned-by-others", late: "pinned"}
    assert host.reserved() == {0: 8, 1: 5}
    assert host.agent.ledger.pins[pod].phase is Phase.VERIFIED
    assert host.agent.counters.writes == 1
    host.sound()


def in_doubtful_hands(host: Host, when: str) -> str:
    """A container that we pinned before the file was damaged: while the daemon ran, or between two runs of it."""
    pod = pod_container(host, 1, 4)
    host.start()
    damage(host)
    if when == "running":
        host.agent.on_kubelet()
    else:
        host.stop()
        host.watched.mems.clear()  # a process that is gone watches nothing
        host.start()
        host.restart()
    return pod


@pytest.mark.parametrize("when", ["running", "restarted"])
@pytest.mark.parametrize("way", ["unlink", "policy None"])
def test_our_pin_survives_a_damaged_file(tmp_path: Path, when: str, way: str) -> None:
    """It is left alone and keeps its record on disk; when the file goes it is our pin, and a release restores it."""
    host = Host(tmp_path)
    pod = in_doubtful_hands(host, when)
    host.agent.flush()
    saved, shown, watched = host.saved().containers[pod], host.view(pod), set(host.watched.mems)
    if way == "unlink":
        (tmp_path / STATE).unlink()
    else:
        static(host, policy="None")
    host.agent.full_pass()
    ours = host.states(), host.view(pod).message
    host.agent.release()
    host.agent.flush()

    assert (saved.phase, str(saved.nodes), str(saved.original_mems)) == (Phase.VERIFIED, "0", "")
    assert (shown.state.value, str(shown.nodes)) == ("pinned-by-others", "0")
    assert "its state cannot be read" in shown.message
    assert watched == set()
    assert ours == ({pod: "pinned"}, "")
    assert host.mems(pod) == "0-3"
    assert host.saved().containers == {}


@pytest.mark.parametrize("when", ["running", "restarted"])
def test_our_pin_is_handed_over_after_a_damaged_file(tmp_path: Path, when: str) -> None:
    """When the file can be read again and the kubelet places, nothing of the pin is left but the value."""
    host = Host(tmp_path)
    pod = in_doubtful_hands(host, when)
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()

    assert host.states() == {pod: "pinned-by-others"}
    assert host.reserved() == {3: 4}
    assert host.agent.ledger.pins == {}
    assert host.mems(pod) == "0"


def test_release_in_doubtful_hands(tmp_path: Path) -> None:
    """What is asked for by hand is done: our value goes, and nodes that others chose stay."""
    host = Host(tmp_path)
    pod = in_doubtful_hands(host, "restarted")
    theirs = pod_container(host, 2, 1, name="side", mems="1")
    host.agent.on_created([theirs])
    host.agent.release()
    host.agent.full_pass()

    assert host.mems(pod) == "0-3"
    assert host.states() == {pod: "released", theirs: "pinned-by-others"}
    assert host.mems(theirs) == "1"
    assert host.agent.ledger.pins.keys() == {theirs}
    host.sound()


def test_somebody_writes_in_doubtful_hands(tmp_path: Path) -> None:
    """Another value in place of ours is nobody's drift: it is accounted and stays."""
    host = Host(tmp_path)
    pod = in_doubtful_hands(host, "running")
    host.put(pod, {"cpuset.mems": "2\n"})
    host.agent.full_pass()

    assert host.mems(pod) == "2"
    assert host.reserved() == {2: 4}
    assert host.agent.ledger.pins[pod].phase is Phase.FOREIGN


def test_metadata_of_a_container_in_doubtful_hands(tmp_path: Path) -> None:
    """Nodes that its metadata asks for are accounted, and not written in place of our old value either."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 8)
    host.start()
    host.stop()
    damage(host)
    host.tree.task("k8s.io", cid(1), oci(annotations=cri_annotations("app"), mems="3"))
    host.start()

    assert host.mems(pod) == "0"
    assert host.states() == {pod: "pinned-by-others"}
    assert host.reserved() == {3: 8}
    assert host.agent.counters.writes == 0
    assert not host.writer.busy


def test_damaged_policy_none(tmp_path: Path) -> None:
    """After a good reading of policy None a damaged file changes nothing but the findings."""
    host = Host(tmp_path)
    static(host, policy="None")
    pod = pod_container(host, 1)
    host.start()
    damage(host)
    host.agent.on_kubelet()

    assert host.states() == {pod: "pinned"}
    assert "kubelet-state-damaged" in findings(host)


def test_unverifiable_file_is_believed_and_named(tmp_path: Path) -> None:
    """A file of a later kubelet is used; the status says that its checksum could not be verified."""
    host = Host(tmp_path)
    put(tmp_path, json.dumps({**document({POD: {"app": ((2,), 3)}}), "later": 1, "checksum": 7}))
    host.start()

    assert host.reserved() == {2: 3}
    assert "'later'" in findings(host)["kubelet-state-unverified"]


# ---- restarts ----------------------------------------------------------------------------------------------


def test_checkpoint_holds_only_ours(tmp_path: Path) -> None:
    """The saved books have no assignment of the kubelet's and no contradiction; after a restart all is as before."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    ours = host.guaranteed(docker(2), 5, effective="1")
    static(host, {"app": ((0,), 8)})
    host.start()
    before = host.agent.ledger.books
    host.stop()
    saved = host.saved()
    host.start()

    assert {str(o) for o in saved.books.assignments} == {cid(2)}
    assert record_problems(saved) == ()
    assert check(saved.books) == ()
    assert before == host.agent.ledger.books
    assert host.states() == {pod: "pinned-by-others", ours: "pinned"}
    assert host.agent.counters.writes == 0


def test_kubelet_changed_while_we_were_away(tmp_path: Path) -> None:
    """Its file is read anew at the start: what went is not remembered, what came is accounted before we decide."""
    host = Host(tmp_path)
    static(host, {"app": ((0,), 8)})
    host.start()
    host.stop()
    static(host, {"other": ((1,), 9)})
    ours = host.guaranteed(docker(2), 5)
    host.start()

    assert host.reserved() == {0: 5, 1: 9}
    assert str(host.view(ours).nodes) == "0"


def test_static_kubelet_came_while_we_were_away(tmp_path: Path) -> None:
    """Our saved pins on pods' containers are handed over at the start without a write, also on disk."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.start()
    host.stop()
    static(host, {"app": ((3,), 4)})
    host.start()

    assert host.states() == {pod: "pinned-by-others"}
    assert host.mems(pod) == "0"
    assert host.reserved() == {3: 4}
    assert host.saved().containers == {}
    assert host.agent.counters.writes == 0


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_handed_over_and_back_over_a_restart(tmp_path: Path, version: CgroupVersion) -> None:
    """
    A daemon that starts while the kubelet places and sees it stop knows its own old value from somebody's choice: the
    container is pinned again, and a release brings back what stood there before the first write.
    """
    host = Host(tmp_path, version=version)
    pod = host.guaranteed(cri(1), 15, mems="0-3" if version is V1 else "", effective="0-1")  # texts as long as before
    host.start()
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()
    host.stop()
    assert host.saved().handed_over.keys() == {pod}

    host.start()
    (host.root / STATE).unlink()
    host.agent.on_kubelet()

    assert host.states() == {pod: "pinned"}
    assert host.mems(pod) == "0-1"
    assert str(host.saved().containers[pod].original_mems) == ("0-3" if version is V1 else "")
    assert host.saved().handed_over == {}
    host.sound()


@pytest.mark.parametrize("everything", [False, True])
def test_taken_back_where_there_is_no_room(tmp_path: Path, everything: bool) -> None:
    """
    A container that the kubelet leaves is refused, or everything was released meanwhile: what stood there before our
    pin is put back once, though it may be the same nodes, and then it is quiet.
    """
    host = Host(tmp_path, nodes=even(2, memory=10 << 30))
    pod = pod_container(host, 1, 12)
    host.obedient(pod)
    host.start()
    host.wait_for_writes()
    host.put(pod, {"memory.current": f"{64 << 20}\n"})
    static(host, nodes=2)
    host.agent.on_kubelet()
    host.agent.on_created([host.guaranteed(docker(2), 7)])
    if everything:
        host.agent.release()
    (host.root / STATE).unlink()
    host.agent.on_kubelet()
    for _ in range(5):
        host.wait_for_writes()
        host.agent.full_pass()

    assert host.states()[pod] == ("released" if everything else "refused")
    assert host.mems(pod) == "0-1"
    assert host.agent.ledger.handed_over == {}
    assert host.log.events().count("container_refused") == (0 if everything else 1)
    host.sound()


def test_handed_over_and_ended(tmp_path: Path) -> None:
    """What was there before is forgotten with the container, also when it ends while no daemon runs."""
    host = Host(tmp_path)
    one, other = pod_container(host, 1, 4), pod_container(host, 2, 4)
    host.start()
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()
    assert host.saved().handed_over.keys() == {one, other}
    host.agent.on_removed([host.remove(one)])
    host.stop()
    assert host.saved().handed_over.keys() == {other}
    host.remove(other)

    host.start()
    host.stop()

    assert host.saved().handed_over == {}


def take_disk(root: Path) -> Path:
    """A file stands where the state directory was, which is ``away``: nothing can be saved. Returns its path."""
    state = root / "var/lib/numapin"
    state.rename(root / "away")
    state.write_text("no directory")
    return state


def test_hand_over_without_a_disk(tmp_path: Path) -> None:
    """While the checkpoint cannot be saved the hand-over holds in memory, and is on disk when it can be again."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.start()
    host.agent.flush()
    state = take_disk(tmp_path)
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()
    unsaved = host.reserved(), host.mems(pod), host.watched.mems
    shown = host.states(), host.view(pod).message
    with pytest.raises(RequestFailed, match="has no promise of numapin's"):
        release_document(host.agent, {"container": pod})
    state.unlink()
    (tmp_path / "away").rename(state)
    host.agent.full_pass()
    host.agent.flush()

    assert unsaved == ({3: 4}, "0", set())
    assert shown[0] == {pod: "pinned-by-others"}
    assert "which gave it node 3" in shown[1]
    assert host.states() == {pod: "pinned-by-others"}
    assert host.saved().containers == {}


def test_taken_back_without_a_disk(tmp_path: Path) -> None:
    """The kubelet's file goes while nothing can be saved: the container is nobody's for now, and is shown so."""
    host = Host(tmp_path)
    pod, side = pod_container(host, 1, 4), host.guaranteed(docker(2), 4)
    static(host, {"app": ((3,), 4)})
    host.start()
    host.agent.flush()
    state = take_disk(tmp_path)
    (host.root / STATE).unlink()
    host.agent.on_kubelet()
    shown = host.states(), host.view(pod).message, host.mems(pod)
    state.unlink()
    (tmp_path / "away").rename(state)
    host.agent.flush()

    assert shown[0] == {pod: "failed", side: "pinned"}
    assert "cannot be saved" in shown[1]
    assert shown[2] == ""
    assert host.states() == {pod: "pinned", side: "pinned"}
    host.sound()


def test_doubtful_hands_without_a_disk(tmp_path: Path) -> None:
    """A pin of ours is shown as left alone, whether anything can be saved or not."""
    host = Host(tmp_path)
    pod = pod_container(host, 1, 4)
    host.start()
    host.agent.flush()
    take_disk(tmp_path)
    damage(host)
    host.agent.ledger.dirty = True
    host.agent.on_kubelet()

    assert host.agent.ledger.save_error is not None
    assert host.states() == {pod: "pinned-by-others"}
    assert host.agent.ledger.pins[pod].phase is Phase.VERIFIED


def test_dry_run(tmp_path: Path) -> None:
    """A dry run shows the same hand-over."""
    host = Host(tmp_path, dry_run=True)
    pod = pod_container(host, 1, 4)
    host.start()
    before = host.states()[pod]
    static(host, {"app": ((3,), 4)})
    host.agent.on_kubelet()

    assert before == "would-pin"
    assert host.states()[pod] == "pinned-by-others"
    assert host.reserved() == {3: 4}


# ---- any order ---------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("file"), st.dictionaries(st.sampled_from(["app", "side"]), st.integers(0, 15), max_size=2)),
    st.tuples(
        st.sampled_from(["none", "gone", "damage", "restart", "pass", "pod", "docker", "end"]), st.integers(1, 4)
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=10))
def test_any_order_of_events(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]) -> None:
    """Files, containers, restarts in any order: sound books, nothing written in the kubelet's hands (property)."""
    host = Host(tmp_path_factory.mktemp("host"))
    host.start()
    alive: set[int] = set()
    for what, value in steps:
        act(host, alive, what, value)
        held = host.agent.kubelet
        assert held is not None
        host.sound()
        assert record_problems(host.agent.ledger.snapshot()) == ()
        pods = [v for v in host.agent.views.values() if v.record.pod_uid is not None]
        if held.hands is not Hands.OURS:
            assert {v.state.value for v in pods} <= {"pinned-by-others"}
            assert not any(v.record.cgroup in host.watched.mems for v in pods)
        if held.hands is Hands.KUBELET:
            assert all(p.pod_uid is None for p in host.agent.ledger.pins.values())
        booked = host.agent.ledger.books.assignments
        assert {o for o in booked if o.pod.startswith("kubelet:")} <= set(held.assignments)


def act(host: Host, alive: set[int], what: str, value: object) -> None:
    """One step of the story."""
    match what, value:
        case "file", dict(sizes):
            static(host, {str(n): ((k,), size) for k, (n, size) in enumerate(sizes.items())})
            host.agent.on_kubelet()
        case "none", _:
            static(host, policy="None")
            host.agent.on_kubelet()
        case "gone", _:
            (host.root / STATE).unlink(missing_ok=True)
            host.agent.on_kubelet()
        case "damage", _:
            damage(host)
            host.agent.on_kubelet()
        case "restart", _:
            host.restart()
        case "pass", _:
            host.agent.full_pass()
        case "pod" | "docker", int(number) if number not in alive:
            alive.add(number)
            make = pod_container if what == "pod" else lambda h, n: h.guaranteed(docker(n), 2, effective="0-3")
            host.agent.on_created([make(host, number)])
        case "end", int(number) if number in alive:
            alive.discard(number)
            path = next(p for p in (cri(number), docker(number)) if p in host.agent.views)
            host.agent.on_removed([host.remove(path)])


# ---- the reading itself ------------------------------------------------------------------------------------


def test_only_a_changed_stamp_is_read_again(tmp_path: Path) -> None:
    """A look that need not be certain reads a replaced file, and no other."""
    put(tmp_path, text(document({POD: {"app": ((0,), 1)}})))
    beside = Beside(tmp_path, BARE, MemoryLog())
    first = beside.refresh(certain=False)
    again = beside.refresh(certain=False)
    put(tmp_path, text(document({POD: {"app": ((0,), 2)}})))

    assert (first, again) == (True, False)
    assert beside.refresh(certain=False)
    assert list(beside.assignments.values()) == [(Block(NodeSet.of(0), MEMORY, 2 << 30),)]


def test_configuration_names_another_file(tmp_path: Path) -> None:
    """The watcher is told the new path, once; the old file's reading is forgotten."""
    told: list[Path | None] = []
    put(tmp_path, text(document({POD: {"app": ((0,), 1)}})))
    beside = Beside(tmp_path, BARE, MemoryLog(), told.append)
    beside.refresh()
    before = beside.hands
    for config in (BARE, replace(BARE, kubelet_state=Path("/srv/x")), replace(BARE, kubelet_follow=False)):
        beside.configure(config)
    beside.refresh()

    assert before is Hands.KUBELET
    assert told == [Path("/srv/x"), None]
    assert beside.hands is Hands.OURS
    assert beside.assignments == {}

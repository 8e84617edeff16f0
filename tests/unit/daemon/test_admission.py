"""Who is managed, what is left alone, what doubts do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.checkpoint import Phase
from numapin.model.container import StandaloneQos
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, Host, cid, cri, docker
from support.machines import even


def in_task(host: Host, number: int, **options: object) -> None:
    """Docker's bundle of the container, with OCI options."""
    host.tree.task("moby", cid(number), oci(memory=2 * GIB, quota=50_000, **options))  # type: ignore[arg-type]


# ---- pins of others -----------------------------------------------------------------------------------------------


def test_a_pin_in_the_metadata_is_left_alone(tmp_path: Path) -> None:
    """``--cpuset-mems``: accounted where it says, no file of the cgroup touched, phase foreign on disk."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, mems="3")
    in_task(host, 1, mems="3")
    stamp = (host.tree.cpuset / path.lstrip("/") / "cpuset.mems").stat().st_mtime_ns

    host.start()
    host.agent.full_pass()

    assert host.states() == {path: "pinned-by-others"}
    assert host.view(path).message == "node 3 was chosen by somebody else"
    assert host.reserved() == {3: 2}
    assert host.saved().containers[path].phase is Phase.FOREIGN
    assert stamp == (host.tree.cpuset / path.lstrip("/") / "cpuset.mems").stat().st_mtime_ns
    assert host.watched.mems == set()
    host.sound()


def test_a_pin_in_the_cgroup_is_left_alone(tmp_path: Path) -> None:
    """A value that neither we nor the parent gave is somebody's choice too; with its end the bytes are free."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, mems="1-2")
    host.start()

    assert host.states() == {path: "pinned-by-others"}
    assert host.mems(path) == "1-2"
    assert host.reserved() == {1: 2}
    host.agent.on_removed([host.remove(path)])
    assert host.reserved() == {}


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_the_parent_s_value_is_nobody_s_choice(tmp_path: Path, version: CgroupVersion) -> None:
    """A container that has exactly what its parent grants (v1 copies it) is ours to place."""
    host = Host(tmp_path, version=version, nodes=even(1, memory=10 * GIB))
    path = host.guaranteed(docker(1), 2, mems="0")

    host.start()

    assert host.states() == {path: "pinned"}


def test_a_foreign_pin_that_moves_is_accounted_anew(tmp_path: Path) -> None:
    """The admin moves it to another node: the books follow at the next pass."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, mems="1")
    host.start()
    host.put(path, {"cpuset.mems": "2\n"})

    host.agent.full_pass()

    assert host.states() == {path: "pinned-by-others"}
    assert host.reserved() == {2: 2}


def test_a_foreign_pin_that_is_lifted_is_placed(tmp_path: Path) -> None:
    """When the value is the parent's again the container is ours, without what was accounted before."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, mems="1-2")
    host.start()
    host.put(path, {"cpuset.mems": "\n"})

    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert host.mems(path) == "0"
    assert host.reserved() == {0: 2}
    host.sound()


def test_a_foreign_pin_larger_than_its_node(tmp_path: Path) -> None:
    """What cannot be accounted is said with the number; nothing goes below zero."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 12, mems="1")

    host.start()

    assert "2 GiB of memory could not be accounted" in host.view(path).message
    assert host.reserved() == {1: 10}


# ---- doubts --------------------------------------------------------------------------------------------------------


def test_a_doubt_gives_no_pin(tmp_path: Path) -> None:
    """Metadata of another cgroup: no reservation, no pin, the reason with the file, and the others are served."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 1)
    in_task(host, 1, cgroups_path="system.slice:docker:" + cid(7))

    host.start()

    assert host.states() == {path: "unpinned", other: "pinned"}
    assert f"{cid(1)}/config.json names the cgroup" in host.view(path).message
    assert host.mems(path) == ""
    assert host.reserved() == {0: 1}


def test_a_doubt_takes_no_pin_away(tmp_path: Path) -> None:
    """A pinned container whose metadata becomes unreadable keeps its nodes and its memory, with the reason."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    in_task(host, 1)
    host.start()
    host.tree.task("moby", cid(1), "{ not JSON")

    host.agent.full_pass()

    assert host.states() == {path: "pinned"}
    assert "config.json" in host.view(path).message
    assert host.reserved() == {0: 2}
    assert host.mems(path) == "0"


def test_a_doubt_keeps_a_deferred_promise(tmp_path: Path) -> None:
    """A reservation that waits for room is neither written nor lost while the facts are in doubt."""
    host = Host(tmp_path, nodes=[replace(n, free=100 << 20) for n in even(2, memory=10 * GIB)])
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 0, 1: 1 << 30})
    host.put(path, {"memory.numa_stat": f"anon N0=0 N1={1 << 30}\n"})
    filler = host.guaranteed(docker(2), 9.5, mems="1")
    host.start()
    assert host.states() == {path: "deferred", filler: "pinned-by-others"}
    host.tree.task("moby", cid(1), "{ not JSON")

    host.agent.full_pass()

    assert host.states()[path] == "unpinned"
    assert host.mems(path) == ""
    assert host.reserved() == {0: 2, 1: 9}
    assert host.view(path).nodes == NodeSet.of(0)
    in_task(host, 1)
    host.agent.full_pass()
    assert host.states()[path] == "deferred"
    host.sound()


def test_a_doubt_keeps_a_foreign_account(tmp_path: Path) -> None:
    """Bytes accounted for somebody else's pin stay out of the books while its metadata is unreadable."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2, mems="1")
    host.start()
    host.tree.task("moby", cid(1), "{ not JSON")

    host.agent.full_pass()

    assert host.states() == {path: "pinned-by-others"}
    assert host.reserved() == {1: 2}


@pytest.mark.parametrize(
    ("text", "says"), [("{ not JSON", "JSON"), ("[]", "config.json"), ("x" * (5 << 20), "EFBIG"), ("\0\0", "JSON")]
)
def test_bad_metadata(tmp_path: Path, text: str, says: str) -> None:
    """OCI files that are no JSON, no object, huge or binary: told with the path, no pin, the others served."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 1)
    host.tree.task("moby", cid(1), text)

    host.start()

    assert host.states() == {path: "unpinned", other: "pinned"}
    assert says in host.view(path).message
    assert f"{cid(1)}/config.json" in host.view(path).message


def test_metadata_behind_a_link(tmp_path: Path) -> None:
    """A ``config.json`` that is a symbolic link out of the bundle is not followed."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    directory = host.tree.task("moby", cid(1), "{}")
    (directory / "config.json").unlink()
    (tmp_path / "outside.json").write_text("{}")
    (directory / "config.json").symlink_to(tmp_path / "outside.json")

    host.start()

    assert host.states() == {path: "unpinned"}
    assert "ELOOP" in host.view(path).message


def test_missing_metadata_is_normal(tmp_path: Path) -> None:
    """Without any OCI file the live limits decide, and a finding says so."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)

    host.start()

    assert host.states() == {path: "pinned"}
    assert any("no OCI metadata" in f for f in host.view(path).record.findings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpuset.mems", "rubbish\n"),
        ("cpuset.mems.effective", "0-\n"),
        ("memory.max", "lots\n"),
        ("cpu.max", "1 2 3\n"),
    ],
)
def test_garbled_cgroup_files(tmp_path: Path, name: str, text: str) -> None:
    """A cgroup file with unexpected content gives no pin and a sentence with its path; the others are served."""
    host = Host(tmp_path)
    path, other = host.guaranteed(docker(1), 2), host.guaranteed(docker(2), 1)
    host.put(path, {name: text})

    host.start()

    assert host.states() == {path: "unpinned", other: "pinned"}
    assert f"{path}/{name}" in host.view(path).message


def test_cpuset_not_enabled(tmp_path: Path) -> None:
    """An ancestor without cpuset: the remedy is in the message, nothing is enabled by itself."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    for name in ("cpuset.mems", "cpuset.mems.effective", "cpuset.cpus"):
        (host.tree.cpuset / path.lstrip("/") / name).unlink()
    control = host.tree.cpuset / "system.slice/cgroup.subtree_control"
    control.write_text("cpu memory\n")

    host.start()

    assert host.states() == {path: "unpinned"}
    assert "echo +cpuset > /sys/fs/cgroup/system.slice/cgroup.subtree_control" in host.view(path).message
    assert control.read_text() == "cpu memory\n"


# ---- who is who ----------------------------------------------------------------------------------------------------


def test_the_same_id_in_two_runtimes(tmp_path: Path) -> None:
    """Two living containers with one id are two reservations; each end gives back its own."""
    host = Host(tmp_path)
    one = host.guaranteed(docker(1), 2)
    two = host.guaranteed(f"/machine.slice/libpod-{cid(1)}.scope", 3)
    host.start()

    assert host.states() == {one: "pinned", two: "pinned"}
    assert host.reserved() == {0: 5}
    host.restart()
    assert host.reserved() == {0: 5}
    host.agent.on_removed([host.remove(two)])
    assert host.reserved() == {0: 2}
    host.agent.on_removed([host.remove(one)])
    assert host.reserved() == {}
    host.sound()


@pytest.mark.parametrize(
    ("mode", "mark", "state"),
    [
        (StandaloneQos.LIMITS, None, "pinned"),
        (StandaloneQos.LIMITS, "false", "not-managed"),
        (StandaloneQos.ANNOTATION, None, "not-managed"),
        (StandaloneQos.ANNOTATION, "true", "pinned"),
        (StandaloneQos.NEVER, "true", "not-managed"),
    ],
)
def test_standalone_modes(tmp_path: Path, mode: StandaloneQos, mark: str | None, state: str) -> None:
    """``qos.standalone`` and the annotation decide together."""
    host = Host(tmp_path, config=replace(BARE, qos_standalone=mode))
    path = host.guaranteed(docker(1), 2)
    in_task(host, 1, annotations={} if mark is None else {"numapin.guaranteed": mark})

    host.start()

    assert host.states() == {path: state}


def test_a_reloaded_mode_counts_for_everybody(tmp_path: Path) -> None:
    """Another ``qos.standalone`` takes effect at once on running containers, in both directions."""
    host = Host(tmp_path, config=replace(BARE, qos_standalone=StandaloneQos.NEVER))
    path = host.guaranteed(docker(1), 2)
    host.start()
    assert host.states() == {path: "not-managed"}

    host.agent.on_machine(replace(host.agent.machine, config=BARE))
    assert host.states() == {path: "pinned"}
    host.agent.on_machine(replace(host.agent.machine, config=host.config))
    assert host.states() == {path: "not-managed"}
    assert host.mems(path) == "0-3"
    assert host.reserved() == {}


def test_system_containers_only_on_request(tmp_path: Path) -> None:
    """LXC is not managed unless the configuration says so."""
    host = Host(tmp_path)
    path = host.guaranteed("/lxc.payload.web", 2)
    host.start()
    assert host.states() == {path: "not-managed"}
    host.stop()

    host.config = replace(BARE, qos_system_containers=True)
    host.start()

    assert host.states() == {path: "pinned"}
    assert host.reserved() == {0: 2}


def test_a_sandbox_is_never_pinned(tmp_path: Path) -> None:
    """A pause container holds no workload; one that was taken for a container before gives back what it got."""
    host = Host(tmp_path)
    path = host.guaranteed(cri(1), 2)
    host.start()
    assert host.states() == {path: "pinned"}
    host.tree.task("k8s.io", cid(1), oci(annotations=cri_annotations("", kind="sandbox")))

    host.agent.full_pass()

    assert host.states() == {path: "not-managed"}
    assert host.mems(path) == "0-3"
    assert host.reserved() == {}


def test_classes_other_than_guaranteed(tmp_path: Path) -> None:
    """Burstable and BestEffort containers keep all nodes and hold nothing."""
    host = Host(tmp_path)
    burstable = host.container(docker(1), memory=GIB)
    best_effort = host.container(docker(2))

    host.start()

    assert host.states() == {burstable: "not-managed", best_effort: "not-managed"}
    assert (host.mems(burstable), host.mems(best_effort)) == ("", "")
    assert host.reserved() == {}
    assert host.agent.ledger.dirty is False


def test_all_types_together(tmp_path: Path) -> None:
    """Memory and hugepages come from the same node, and free pages of the kernel count, not only the pool."""
    host = Host(tmp_path, nodes=even(2, memory=10 * GIB, pools={2 << 20: 1024}))
    first = host.guaranteed(docker(1), 1, hugetlb={"2MB": 2 * GIB})
    second = host.guaranteed(docker(2), 1, hugetlb={"2MB": GIB}, effective="1")

    host.start()

    assert host.states() == {first: "pinned", second: "pinned"}
    assert (host.mems(first), host.mems(second)) == ("0", "1")


@pytest.mark.parametrize("options", [{}, {"memory": GIB}])
def test_what_is_in_doubt_and_not_guaranteed_is_not_ours(tmp_path: Path, options: dict[str, int]) -> None:
    """A container that would get no nodes anyway is not managed, whatever stands in the way of giving it some."""
    host = Host(tmp_path)
    path = host.container(f"/odd.slice/docker-{cid(1)}.scope", **options)
    for name in ("cpuset.mems", "cpuset.mems.effective", "cpuset.cpus"):
        (host.tree.cpuset / path.lstrip("/") / name).unlink()
    host.put("/odd.slice", {"cgroup.subtree_control": "cpu memory\n"})
    host.start()

    assert host.states() == {path: "not-managed"}
    assert any("cpuset is not enabled" in finding for finding in host.view(path).record.doubts)


def test_a_class_in_doubt_is_told(tmp_path: Path) -> None:
    """A container whose limits cannot be read may be Guaranteed: it is unpinned, with the file."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.put(path, {"memory.max": "garbage\n"})
    host.start()

    assert host.states() == {path: "unpinned"}
    assert "memory.max" in host.view(path).message

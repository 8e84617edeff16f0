"""What `numapin.daemon.doctor` finds on hosts with and without what is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.daemon.doctor import WATCHES, Check, Verdict, examine
from support.daemon import Host, cid, docker
from support.machines import GIB, Node, even, write_machine
from support.privilege import public_directory, unprivileged
from support.trees import write_tree


def by_name(checks: list[Check], verdict: Verdict | None = None) -> dict[str, str]:
    """Sentence of the last check of each name, of one verdict only if given."""
    return {c.name: c.sentence for c in checks if verdict in (None, c.verdict)}


def healthy(tmp_path: Path) -> Host:
    """A machine with all that is needed, one Guaranteed container and one without limits."""
    host = Host(tmp_path)
    host.guaranteed(docker(1), 2)
    host.container(docker(2))
    write_tree(tmp_path, {WATCHES: "65536\n", "run/systemd/system/x": "", "run/runc/x": ""})
    return host


def test_everything_is_there(tmp_path: Path) -> None:
    """A host with all that is needed has no problem and no note, and the numbers are its own."""
    host = healthy(tmp_path)
    checks = examine(host.root)
    said = by_name(checks)

    assert [] == [c for c in checks if c.verdict is not Verdict.OK]
    assert said["nodes"] == "online: 0-3; used: 0-3; 38 GiB can be promised"
    assert said["containers"] == "2 found, 1 Guaranteed, 1 BestEffort"
    assert said["cgroups"] == "cpuset is v2, /sys/fs/cgroup"
    assert said["events"] == "4 cgroups, and 65536 inotify watches for each user"
    assert said["runtimes"] == "state of runtimes in /run/runc"
    assert said["checkpoint"] == f"none yet in {host.file.path}"


def test_runtimes_with_their_data_elsewhere(tmp_path: Path) -> None:
    """The directories that Docker's and Podman's configuration names are looked at."""
    host = healthy(tmp_path)
    write_tree(
        tmp_path,
        {
            "etc/docker/daemon.json": '{"data-root": "/srv/docker"}',
            "srv/docker/containers/x/y": "",
            "var/lib/docker/containers/x/y": "",
        },
    )

    assert by_name(examine(host.root), Verdict.OK)["runtimes"] == (
        "state of runtimes in /run/runc, /srv/docker/containers"
    )


def test_a_runtime_s_configuration_that_cannot_be_believed(tmp_path: Path) -> None:
    """It is named with what is done instead, and is no problem of the host's."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {"etc/docker/daemon.json": '{"data-root": "../srv"}'})
    checks = examine(host.root)

    assert {} == by_name(checks, Verdict.PROBLEM)
    assert by_name(checks, Verdict.NOTE)["runtimes"] == (
        "state of runtimes in /run/runc; /etc/docker/daemon.json: expected a plain absolute path as data-root, found "
        "'../srv'; the usual directories are looked at instead"
    )


def test_a_user_who_may_not_look() -> None:
    """A directory of a runtime's that is closed to whoever asks is no error, and is named as one not looked into."""
    with public_directory() as root:
        write_tree(root, {"var/lib/docker/containers/x/y": "", "run/runc/x": ""})
        (root / "var/lib/docker").chmod(0o700)
        with unprivileged():
            said = [check.sentence for check in examine(root) if check.name == "runtimes"]

    assert said[0].startswith("state of runtimes in /run/runc")
    assert said[1].startswith("without root this cannot look into /var/lib/docker/containers: ")


def test_nothing_is_there(tmp_path: Path) -> None:
    """An empty tree is told thing by thing, and is no error."""
    problems = by_name(examine(tmp_path), Verdict.PROBLEM)

    assert {"nodes", "cgroups"} == set(problems)
    assert "no cpuset controller" in problems["cgroups"]


def test_one_node(tmp_path: Path) -> None:
    """One node is no problem, and the note says what it means."""
    write_machine(tmp_path, even(1, memory=10 * GIB))

    assert "nothing to choose" in by_name(examine(tmp_path), Verdict.NOTE)["nodes"]


def test_memory_without_cpus(tmp_path: Path) -> None:
    """A node with memory and no CPUs is named, with the key that makes it used."""
    nodes = [*even(2, memory=10 * GIB), Node(2, memory=10 * GIB, cpus="")]
    write_machine(tmp_path, nodes)

    assert "nodes.cpu_less" in by_name(examine(tmp_path), Verdict.NOTE)["nodes"]


def test_wrong_configuration(tmp_path: Path) -> None:
    """Each wrong key is a problem of its own, and the rest is looked at all the same."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {"etc/numapin/numapin.toml": 'policy = "x"\nscop = "pod"\n'})
    checks = examine(host.root)
    problems = [c.sentence for c in checks if c.verdict is Verdict.PROBLEM]

    assert 2 == len(problems)
    assert "policy: must be" in problems[0]
    assert "scop: " in problems[1]
    assert "2 found" in by_name(checks)["containers"]


def test_a_reservation_that_does_not_fit(tmp_path: Path) -> None:
    """A node that shall keep more than it has is a problem with its numbers."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {"etc/numapin/numapin.toml": "[reserved.node.1]\nmemory = '11Gi'\n"})

    assert "reserved.node.1.memory" in by_name(examine(host.root), Verdict.PROBLEM)["nodes"]


@pytest.mark.parametrize(("count", "verdict"), [(7, Verdict.OK), (6, Verdict.PROBLEM)])
def test_too_few_watches(tmp_path: Path, count: int, verdict: Verdict) -> None:
    """Fewer inotify watches than cgroups and what is to come is a problem, with the sysctl that mends it."""
    host = healthy(tmp_path)
    host.container("/system.slice/a.service")
    host.container(f"{docker(1)}/inside")  # is not watched
    host.container("/user.slice")
    host.container("/init.scope")
    write_tree(tmp_path, {WATCHES: f"{count + 1024}\n"})
    (check,) = [c for c in examine(host.root) if c.name == "events"]

    assert check.verdict is verdict
    assert (verdict is Verdict.PROBLEM) == ("sysctl fs.inotify.max_user_watches=65536" in check.sentence)


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    """A checkpoint that cannot be believed is a problem, and stays where it is."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {"var/lib/numapin/state.json": "{}"})

    assert str(host.file.path) in by_name(examine(host.root), Verdict.PROBLEM)["checkpoint"]
    assert host.file.path.read_text() == "{}"


def test_a_checkpoint(tmp_path: Path) -> None:
    """A good one is told with the number of its containers."""
    host = healthy(tmp_path)
    host.start()
    host.stop()

    assert by_name(examine(host.root))["checkpoint"] == f"{host.file.path}, 1 container"


def without_cpuset(host: Host, path: str) -> None:
    """The controller is not enabled above the container."""
    for name in ("cpuset.mems", "cpuset.mems.effective", "cpuset.cpus"):
        (host.tree.cpuset / path.lstrip("/") / name).unlink()
    host.put("/odd.slice", {"cgroup.subtree_control": "cpu memory\n"})


def test_only_who_would_get_nodes_is_a_problem(tmp_path: Path) -> None:
    """A container without cpuset is a problem when it is Guaranteed, and none at all when it has no limits."""
    host = healthy(tmp_path)
    path = host.container(f"/odd.slice/docker-{cid(7)}.scope")
    without_cpuset(host, path)
    assert {} == by_name(examine(host.root), Verdict.PROBLEM)
    path = host.guaranteed(f"/odd.slice/docker-{cid(8)}.scope")
    without_cpuset(host, path)

    assert "gets no nodes" in by_name(examine(host.root), Verdict.PROBLEM)["containers"]


def test_what_the_daemon_would_enable_is_a_note(tmp_path: Path) -> None:
    """With cgroup.enable_cpuset the daemon mends it itself."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {"etc/numapin/numapin.toml": "[cgroup]\nenable_cpuset = true\n"})
    path = host.guaranteed(f"/odd.slice/docker-{cid(8)}.scope")
    without_cpuset(host, path)
    checks = examine(host.root)

    assert {} == by_name(checks, Verdict.PROBLEM)
    assert "the daemon does it" in by_name(checks, Verdict.NOTE)["containers"]


@pytest.mark.parametrize("text", ["9" * 5000, "", "-1", "many"])
def test_odd_number_of_watches(tmp_path: Path, text: str) -> None:
    """A limit that is no number is a note."""
    host = healthy(tmp_path)
    write_tree(tmp_path, {WATCHES: text})

    assert "does not tell" in by_name(examine(host.root), Verdict.NOTE)["events"]


def test_unreadable_number_of_watches(tmp_path: Path) -> None:
    """So is one that cannot be read."""
    host = healthy(tmp_path)
    (tmp_path / WATCHES).unlink()
    (tmp_path / WATCHES).mkdir()

    assert WATCHES in by_name(examine(host.root), Verdict.NOTE)["events"]


def test_nothing_can_be_promised(tmp_path: Path) -> None:
    """Nodes whose memory is all in hugepage pools are a problem, although they are there."""
    write_machine(tmp_path, even(2, memory=GIB, pools={2 << 20: 512}))

    assert "0 can be promised: all of it is in hugepage pools" in by_name(examine(tmp_path), Verdict.PROBLEM)["nodes"]

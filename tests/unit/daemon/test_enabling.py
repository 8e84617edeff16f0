"""``cgroup.enable_cpuset``: for whom the controller is enabled, in which order, and what is said of it."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.release import _show
from numapin.daemon.machine import Machine
from numapin.daemon.release import release_document, release_offline
from numapin.daemon.status import About, status_document
from numapin.kernel.cgroup_controllers import Enabled, missing_cpuset
from numapin.kernel.cgroupfs import Cgroup
from numapin.model.checkpoint import Phase
from numapin.model.errors import CpusetNotEnabled
from support.cgroup_trees import GIB, oci, write_files
from support.daemon import BARE, BOOT, Host, cid, docker
from support.machines import MIB, Node, write_machine

ON = replace(BARE, enable_cpuset=True)
SLICE = "/odd.slice"
CONTROL = "/sys/fs/cgroup/odd.slice/cgroup.subtree_control"
FILES = ("cpuset.mems", "cpuset.mems.effective", "cpuset.cpus")


def below(number: int) -> str:
    """A Docker container in the slice without cpuset."""
    return docker(number).replace("/system.slice", SLICE)


class Kernel:
    """
    A host whose slice lacks cpuset, with a kernel that does what is written there.

    ``asked`` are the containers for which the controller was enabled, ``saved`` is what the checkpoint said then.
    With *refuses* the write fails with this errno.
    """

    def __init__(self, root: Path, **options: Any) -> None:
        self.host = Host(root, **({"config": ON} | options))
        self.asked: list[str] = []
        self.saved: list[tuple[tuple[str, ...], Phase]] = []
        self.refuses = 0
        self.host.enable = self.enable

    def lacks(self, path: str) -> None:
        """The kernel shows no cpuset below *path*."""
        self.host.put(path, {"cgroup.subtree_control": "cpu memory pids\n"})

    def run(self, number: int = 1, gib: float = 2, **options: Any) -> str:
        """A Guaranteed container in the slice, as the kernel shows it."""
        path = self.host.guaranteed(below(number), gib, **options)
        if "cpuset" not in (self.host.tree.cpuset / SLICE[1:] / "cgroup.subtree_control").read_text().split():
            self.bare(path)
        return path

    def bare(self, path: str) -> None:
        """The container's cgroup has no cpuset files."""
        for name in FILES:
            (self.host.tree.cpuset / path[1:] / name).unlink()

    def enable(self, cgroup: Cgroup) -> Enabled:
        """As `enable_cpuset`, with the kernel's effect."""
        self.asked.append(cgroup.path)
        saved = self.host.saved()
        self.saved.append((saved.cpuset_enabled, saved.containers[cgroup.path].phase))
        missing = missing_cpuset(cgroup.hierarchy, cgroup.path)
        if self.refuses:
            return Enabled((), missing, CpusetNotEnabled(CONTROL, self.refuses))
        for path in missing:
            self.host.put(path, {"cgroup.subtree_control": "cpuset cpu memory pids\n"})
        self.host.put(cgroup.path, {"cpuset.mems": "\n", "cpuset.mems.effective": "0\n", "cpuset.cpus": "\n"})
        return Enabled(missing)

    def findings(self) -> dict[str, str]:
        """Findings of the status by code."""
        me = About(1, 0, 0, "v2", self.host.boot, None)
        document: Any = status_document(self.host.agent, me, now_ns=0, wall_ns=0)
        return {f["code"]: f["message"] for f in document["findings"]}


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A host that may enable cpuset, with a slice that lacks it."""
    made = Kernel(tmp_path)
    made.host.tree.add(SLICE)
    made.lacks(SLICE)
    return made


def test_enabled_after_the_save_and_then_pinned(kernel: Kernel) -> None:
    """Promise and intent are on disk before the controller is enabled; then the container is pinned as any other."""
    path = kernel.run()
    host = kernel.host
    host.start()

    assert (host.states(), host.reserved(), host.mems(path)) == ({path: "pinned"}, {0: 2}, "0")
    assert (kernel.asked, kernel.saved) == ([path], [((SLICE,), Phase.PLANNED)])
    assert host.log.events().index("cpuset_enabling") < host.log.events().index("cpuset_enabled")
    assert "CPU affinity" in host.log.facts("cpuset_enabling")["reason"]
    assert SLICE in kernel.findings()["cpuset-enabled"]
    assert "affinity" in kernel.findings()["cpuset-enabled"]
    host.agent.full_pass()
    assert (kernel.asked, host.states()) == ([path], {path: "pinned"})


def test_not_without_the_key(tmp_path: Path) -> None:
    """By default nothing is enabled; the row has the command and the key (B058, B059)."""
    kernel = Kernel(tmp_path, config=BARE)
    kernel.host.tree.add(SLICE)
    kernel.lacks(SLICE)
    path = kernel.run()
    kernel.host.start()

    assert (kernel.asked, kernel.host.states()) == ([], {path: "unpinned"})
    assert f"echo +cpuset > {CONTROL}" in kernel.host.view(path).message
    assert "cgroup.enable_cpuset = true" in kernel.host.view(path).message
    assert kernel.host.reserved() == {}


def test_the_key_takes_effect_with_a_reload(tmp_path: Path) -> None:
    """A container that was left alone is decided again when the key is switched on, without a restart."""
    kernel = Kernel(tmp_path, config=BARE)
    kernel.host.tree.add(SLICE)
    kernel.lacks(SLICE)
    path = kernel.run()
    kernel.host.start()
    kernel.host.agent.on_machine(Machine.read(tmp_path, ON))

    assert (kernel.asked, kernel.host.states()) == ([path], {path: "pinned"})


def test_only_for_a_container_with_a_promise(kernel: Kernel) -> None:
    """Not for a Burstable one, nor for one that is refused: nobody's affinity is reset for nothing."""
    host = kernel.host
    burstable = host.container(below(1), memory=GIB)
    kernel.bare(burstable)
    large = kernel.run(2, 90)
    host.start()

    assert (kernel.asked, host.states()) == ([], {burstable: "not-managed", large: "refused"})
    assert (host.agent.ledger.enabled, kernel.findings().get("cpuset-enabled")) == (frozenset(), None)


def test_not_at_the_root(kernel: Kernel) -> None:
    """Where the hierarchy's root lacks it, the container is left alone and the message says why and how (B059)."""
    host = kernel.host
    kernel.lacks("/")
    path = kernel.run()
    host.start()

    assert (kernel.asked, host.states()) == ([], {path: "unpinned"})
    assert "every process on the host" in host.view(path).message
    assert "echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control && " in host.view(path).message


def test_not_with_another_doubt(kernel: Kernel) -> None:
    """A container whose facts are in doubt for another reason too gets nothing enabled."""
    path = kernel.run()
    kernel.host.tree.task("moby", cid(1), oci(memory=2 * GIB, quota=50_000, cgroups_path="/elsewhere"))
    kernel.host.start()

    assert (kernel.asked, kernel.host.states()) == ([], {path: "unpinned"})


def test_not_in_a_dry_run(tmp_path: Path) -> None:
    """A dry run says that it would be pinned and enables nothing."""
    kernel = Kernel(tmp_path, dry_run=True)
    kernel.host.tree.add(SLICE)
    kernel.lacks(SLICE)
    path = kernel.run()
    kernel.host.start()

    assert (kernel.asked, kernel.host.states()) == ([], {path: "would-pin"})
    assert kernel.findings().get("cpuset-enabled") is None


def test_not_while_nothing_can_be_saved(kernel: Kernel) -> None:
    """Without the promise on disk the controller is not touched; it is enabled when the disk takes it again."""
    path = kernel.run()
    host = kernel.host
    directory = host.file.path.parent
    directory.parent.mkdir(parents=True)
    directory.write_text("")  # a file has the directory's place
    host.start()
    assert (kernel.asked, host.states()) == ([], {path: "failed"})
    assert host.agent.ledger.enabled == frozenset()
    directory.unlink()
    host.agent.flush()

    assert (kernel.asked, host.states()) == ([path], {path: "pinned"})


def test_a_refusal_of_the_kernel(kernel: Kernel) -> None:
    """EBUSY: no promise, the row has file, errno and remedy; the next full pass tries again."""
    path = kernel.run()
    host, kernel.refuses = kernel.host, errno.EBUSY
    host.start()

    assert (host.states(), host.reserved()) == ({path: "failed"}, {})
    message = host.view(path).message
    assert (CONTROL in message, "EBUSY" in message, "child cgroup" in message) == (True, True, True)
    assert host.log.facts("cpuset_not_enabled")["code"] == "cpuset-not-enabled"
    assert host.agent.ledger.enabled == frozenset()
    host.sound()
    kernel.refuses = 0
    host.agent.full_pass()
    assert (host.states(), host.reserved()) == ({path: "pinned"}, {0: 2})


def test_a_refusal_for_good_is_said_once(kernel: Kernel) -> None:
    """It is tried with the next pass and then less and less often: no line with each pass, and hardly a save."""
    paths = [kernel.run(number) for number in (1, 2, 3)]
    host, kernel.refuses = kernel.host, errno.EBUSY
    host.start()
    host.agent.flush()
    said = host.log.events()
    cost = []
    for _ in range(4):
        tries, saves = len(kernel.asked), host.agent.ledger.saves
        host.agent.full_pass()
        host.agent.flush()
        cost.append((len(kernel.asked) - tries, host.agent.ledger.saves - saves))
    host.clock.advance(ns=60_000_000_000)
    host.agent.full_pass()

    assert host.states() == dict.fromkeys(paths, "failed")
    assert (said.count("cpuset_enabling"), said.count("cpuset_not_enabled")) == (3, 3)
    assert host.log.events() == said
    assert cost == [(3, 3), (0, 0), (0, 0), (0, 0)]  # the promises, the slice they have in common, what is left
    assert len(kernel.asked) == 9
    host.sound()


def test_a_refusal_of_long_standing_ends(kernel: Kernel) -> None:
    """However often it was refused, ten minutes later at most it is tried; enabled by hand it is pinned at once."""
    first = kernel.run(1)
    host, kernel.refuses = kernel.host, errno.EBUSY
    host.start()
    for _ in range(20):
        host.clock.advance(ns=600_000_000_000)
        host.agent.full_pass()
    assert len(kernel.asked) == 21
    host.put(SLICE, {"cgroup.subtree_control": "cpuset cpu memory pids\n"})
    host.put(first, {"cpuset.mems": "\n", "cpuset.mems.effective": "0\n", "cpuset.cpus": "\n"})
    host.agent.full_pass()

    assert host.states() == {first: "pinned"}
    assert len(kernel.asked) == 21
    assert kernel.findings().get("cpuset-enabled") is None
    kernel.lacks(SLICE)
    kernel.bare(first)
    host.agent.full_pass()
    host.agent.full_pass()
    assert len(kernel.asked) == 23  # another refusal, from the beginning


def without_room(root: Path) -> tuple[Kernel, str]:
    """A host whose only container waits, cpuset missing, for room on the only node it may have."""
    nodes = [Node(0, "0-1", 10 * GIB, free=255 * MIB), Node(1, "2-3", GIB, free=GIB)]
    kernel = Kernel(root, nodes=nodes)
    kernel.host.tree.add(SLICE)
    kernel.lacks(SLICE)
    path = kernel.run()
    kernel.host.holds(path, {0: 0, 1: 600 * MIB})
    kernel.host.start()
    kernel.host.agent.flush()
    return kernel, path


def test_a_pin_that_waits_enables_nothing_and_says_so(tmp_path: Path) -> None:
    """While there is no room the controller is not touched, so neither status nor checkpoint ever claim it."""
    kernel, path = without_room(tmp_path)
    host = kernel.host
    waits = host.states(), kernel.findings().get("cpuset-enabled"), host.saved().cpuset_enabled
    host.remove(path)
    host.agent.on_removed([path])
    host.agent.full_pass()

    assert waits == ({path: "deferred"}, None, ())
    assert (kernel.asked, kernel.findings().get("cpuset-enabled")) == ([], None)


def test_not_before_it_is_on_disk(tmp_path: Path) -> None:
    """A disk that is full when the pin's turn comes holds it back; it is enabled when that is over."""
    kernel, path = without_room(tmp_path)
    host = kernel.host
    directory = host.file.path.parent
    directory.rename(tmp_path / "away")
    directory.write_text("")  # a file has the directory's place
    write_machine(tmp_path, [replace(host.nodes[0], free=9 * GIB), host.nodes[1]])
    host.agent.full_pass()
    refused = host.states(), list(kernel.asked), host.agent.ledger.enabled
    directory.unlink()
    (tmp_path / "away").rename(directory)
    host.agent.flush()
    host.agent.full_pass()
    host.wait_for_writes()

    assert refused == ({path: "deferred"}, [], frozenset())
    assert (host.states(), kernel.asked) == ({path: "pinned"}, [path])
    assert host.agent.ledger.enabled == {SLICE}


def test_somebody_else_was_quicker(kernel: Kernel) -> None:
    """What another program enabled since the look is not claimed."""
    path = kernel.run()
    host = kernel.host

    def quicker(cgroup: Cgroup) -> Enabled:
        kernel.enable(cgroup)
        return Enabled()

    host.enable = quicker
    host.start()

    assert host.states() == {path: "pinned"}
    assert host.agent.ledger.enabled == frozenset()


def test_above_the_configured_root_too(tmp_path: Path) -> None:
    """The way down begins at the hierarchy's top, not at ``cgroup.root``: the kernel enables it only top-down."""
    top = "/lxc.payload.x/inner"
    host = Host(tmp_path, config=replace(ON, cgroup_root=top))
    path = host.guaranteed(f"{top}/odd.slice/docker-{cid(1)}.scope", 2)
    for name in FILES:
        (host.tree.cpuset / path[1:] / name).unlink()
    above = ["/lxc.payload.x", top, f"{top}/odd.slice"]
    for cgroup in above:
        host.put(cgroup, {"cgroup.subtree_control": "cpu\n", "cgroup.controllers": "cpuset cpu\n"})
    host.put(path, {"cgroup.controllers": "cpuset\n"})
    host.start()
    written = [(host.tree.cpuset / c[1:] / "cgroup.subtree_control").read_text().strip() for c in above]

    assert written == ["+cpuset"] * 3
    assert host.log.facts("cpuset_enabled")["paths"] == above


def test_two_containers_of_one_slice(kernel: Kernel) -> None:
    """The second finds it enabled by then; the slice is remembered once."""
    first, second = kernel.run(1), kernel.run(2)
    kernel.host.start()

    assert kernel.host.states() == {first: "pinned", second: "pinned"}
    assert kernel.host.agent.ledger.enabled == {SLICE}


def test_taken_away_again(kernel: Kernel) -> None:
    """systemd disables what it does not know of when it looks at a slice anew: enabled again, on the same nodes."""
    path = kernel.run()
    host = kernel.host
    host.start()
    kernel.lacks(SLICE)
    kernel.bare(path)
    host.agent.full_pass()

    assert (kernel.asked, host.states(), host.mems(path)) == ([path, path], {path: "pinned"}, "0")
    assert host.reserved() == {0: 2}
    host.sound()


def test_remembered_over_a_restart(kernel: Kernel) -> None:
    """It is in the checkpoint of this boot, until its cgroup goes; another boot knows nothing of it."""
    kernel.run()
    host = kernel.host
    host.start()
    host.restart()
    assert host.agent.ledger.enabled == {SLICE}
    host.stop()
    host.boot = "another"
    host.start()
    assert host.agent.ledger.enabled == frozenset()
    host.agent.ledger.will_enable([SLICE, "/gone.slice"])
    host.agent.full_pass()
    assert host.agent.ledger.enabled == {SLICE}


def test_release_leaves_it_and_says_so(kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``release --all``, by the daemon or from the checkpoint, names the cgroups and does not disable anything."""
    path = kernel.run()
    host = kernel.host
    write_files(tmp_path, {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
    host.start()
    one: Any = release_document(host.agent, {"container": path})
    every: Any = release_document(host.agent, {"all": True})
    host.stop()
    control = (host.tree.cpuset / "odd.slice/cgroup.subtree_control").read_text()
    state, lock = host.file.path, tmp_path / "run/lock"
    offline: Any = release_offline(tmp_path, state, lock, why="no daemon", clock=host.clock)
    _show(offline)

    assert one["cpuset_left_enabled"] == []
    assert every["cpuset_left_enabled"] == offline["cpuset_left_enabled"] == [SLICE]
    assert control == "cpuset cpu memory pids\n"
    assert f"numapin enabled cpuset in {CONTROL}; it stays enabled" in capsys.readouterr().out
    assert host.saved().cpuset_enabled == (SLICE,)

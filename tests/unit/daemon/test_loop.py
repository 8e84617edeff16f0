"""What runs when: a loop over scripted sources, ended by a real SIGTERM."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from numapin.daemon.loop import FLUSH_NS, LATEST_NS, REREAD_NS, SAVE_RETRY_NS, SETTLE_NS, Loop
from numapin.daemon.notify import Notifier
from numapin.kernel.watch import CgroupEvent, EventKind
from numapin.model.errors import ConfigError, ExitStatus, InvariantError, KernelReadError
from support.daemon import Host, docker

Step = Callable[[], list[CgroupEvent]]


class Script:
    """A source that is always readable; each read is the next step, and after the last one comes SIGTERM."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._fd = os.eventfd(1, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def read(self) -> list[CgroupEvent]:
        """Events of the next step."""
        if not self._steps:
            signal.raise_signal(signal.SIGTERM)
            return []
        return self._steps.pop(0)()

    def drain(self) -> bool:
        """As hotplug: each step is an uevent."""
        return bool(self.read())

    def close(self) -> None:
        """Let the descriptor go."""
        os.close(self._fd)


class Rig:
    """A host, a loop on it, and what was called."""

    def __init__(self, root: Path) -> None:
        self.host = Host(root)
        self.host.prepare()
        self.rereads = 0
        self.looks = 0
        self.reread_error: Exception | None = None
        self.reloads = 0
        self.reload_error: Exception | None = None

    def run(self, *steps: Step, hotplug: Script | None = None) -> ExitStatus:
        """Serve the steps and stop."""
        script = Script(*steps)
        loop = Loop(
            agent=self.host.agent,
            writer=self.host.writer,
            cgroups=script,
            runtimes=None,
            hotplug=hotplug,
            api=None,
            notifier=Notifier(),
            clock=self.host.clock,
            log=self.host.log,
            pass_interval_ns=60_000_000_000,
            reread_machine=self._reread,
            look_at_machine=self._look,
            reload_config=self._reload,
            status_line=lambda: "fine",
        )
        try:
            return loop.run()
        finally:
            script.close()

    def after(self, seconds: float = 0, ns: int = 0) -> Step:
        """A step in which only time passes."""

        def step() -> list[CgroupEvent]:
            self.host.clock.advance(seconds=seconds, ns=ns)
            return []

        return step

    def events(self, *found: tuple[EventKind, str]) -> Step:
        """A step with events."""
        return lambda: [CgroupEvent(kind, path) for kind, path in found]

    def _reread(self) -> None:
        self.rereads += 1
        if self.reread_error is not None:
            raise self.reread_error

    def _look(self) -> None:
        self.looks += 1

    def _reload(self) -> None:
        self.reloads += 1
        if self.reload_error is not None:
            raise self.reload_error


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A loop that has not run yet; handlers of the test's own process are put back by the loop itself."""
    before = signal.getsignal(signal.SIGTERM)
    yield Rig(tmp_path)
    assert before == signal.getsignal(signal.SIGTERM)


def test_a_first_look_then_ready_then_stop(rig: Rig) -> None:
    """Containers that are there are pinned before READY; SIGTERM stops with the pins in place and all saved."""
    path = rig.host.guaranteed(docker(1), 2)

    assert rig.run() is ExitStatus.OK
    assert rig.host.log.events() == ["container_pinned", "ready", "stopped"]
    assert rig.host.mems(path) == "0"
    assert rig.host.saved().containers[path].phase.value == "verified"


def test_events_reach_the_agent(rig: Rig) -> None:
    """Created, written and removed cgroups of one batch are handled in the right order."""
    host = rig.host

    def create() -> list[CgroupEvent]:
        return [CgroupEvent(EventKind.CREATED, host.guaranteed(docker(1), 2))]

    def drift() -> list[CgroupEvent]:
        host.put(docker(1), {"cpuset.mems": "3\n"})
        return [CgroupEvent(EventKind.MEMS_WRITTEN, docker(1))]

    def replace() -> list[CgroupEvent]:
        host.put("/keeps-inodes-apart", {"x": ""})
        host.remove(docker(1))
        host.guaranteed(docker(1), 5)
        return [CgroupEvent(EventKind.CREATED, docker(1)), CgroupEvent(EventKind.REMOVED, docker(1))]

    rig.run(create, drift, replace)

    assert host.agent.counters.repairs == 1
    assert host.reserved() == {0: 5}
    assert host.states() == {docker(1): "pinned"}


def test_an_overflow_is_a_full_pass(rig: Rig) -> None:
    """After lost events everything is looked at once, in the same turn, and it is counted."""
    host = rig.host

    def overflow() -> list[CgroupEvent]:
        host.guaranteed(docker(1), 2)
        return [CgroupEvent(EventKind.OVERFLOW, "")]

    rig.run(overflow)

    assert host.states() == {docker(1): "pinned"}
    assert host.agent.counters.overflows == 1


def test_the_slow_pass(rig: Rig) -> None:
    """What no event told about is found after the interval, not before."""
    host = rig.host
    seen: list[int] = []

    def silent() -> list[CgroupEvent]:
        host.guaranteed(docker(1), 2)
        return []

    def look() -> list[CgroupEvent]:
        seen.append(len(host.agent.views))
        return []

    rig.run(silent, rig.after(59), look, rig.after(1), look)

    assert seen == [0, 1]


def test_the_result_of_writes_is_saved_a_moment_later(rig: Rig) -> None:
    """One more save, 200 ms after the write, has the verified phase; then nothing more is saved."""
    host = rig.host
    host.guaranteed(docker(1), 2)
    saves: list[int] = []

    def look() -> list[CgroupEvent]:
        saves.append(host.agent.counters.saves)
        return []

    rig.run(look, rig.after(ns=FLUSH_NS - 1), look, rig.after(ns=1), look, rig.after(10), look)

    assert saves == [1, 1, 2, 2]


def test_a_disk_that_is_full_is_not_hammered(rig: Rig) -> None:
    """While saves fail they are tried every few seconds and said once; the first that works is said too."""
    host = rig.host
    path = host.guaranteed(docker(1), 2)
    obstacle = host.file.path.with_name("state.json.new")

    def full() -> list[CgroupEvent]:
        obstacle.mkdir()
        return [CgroupEvent(EventKind.REMOVED, host.remove(path))]

    def room() -> list[CgroupEvent]:
        obstacle.rmdir()
        return []

    retry = rig.after(ns=SAVE_RETRY_NS)
    rig.run(rig.after(1), rig.after(1), full, rig.after(1), *[retry] * 4, room, retry, retry)

    assert host.log.events().count("checkpoint_unwritable") == 1
    assert host.log.events().count("checkpoint_writable_again") == 1
    assert host.saved().containers == {}


def test_uevents_are_gathered(rig: Rig) -> None:
    """A burst of uevents makes the machine be read once, a moment after the last."""
    event = [CgroupEvent(EventKind.CREATED, "")]
    count: list[int] = []
    hotplug = Script(*[lambda: event] * 3, *[list] * 50)

    def look() -> list[CgroupEvent]:
        count.append(rig.rereads)
        return []

    rig.run(look, look, look, rig.after(ns=SETTLE_NS), look, look, hotplug=hotplug)
    hotplug.close()

    assert count[0] == 0
    assert rig.rereads == 1


def test_a_stream_of_uevents_is_followed(rig: Rig) -> None:
    """While blocks come one by one, closer than a moment, the machine is read again within a second of the first."""
    event = [CgroupEvent(EventKind.CREATED, "")]
    hotplug = Script(*[lambda: event] * 40)
    seen: list[int] = []

    def passes() -> list[CgroupEvent]:
        rig.host.clock.advance(ns=SETTLE_NS - 50_000_000)
        seen.append(rig.rereads)
        return []

    rig.run(*[passes] * 40, hotplug=hotplug)
    hotplug.close()

    took = 40 * (SETTLE_NS - 50_000_000)
    assert seen[1_000_000_000 // (SETTLE_NS - 50_000_000)] == 1
    assert took // 1_000_000_000 <= rig.rereads <= took // LATEST_NS + 1


def test_a_machine_that_cannot_be_read_is_read_again(rig: Rig) -> None:
    """A node on its way out: the reading after the uevent fails, and is tried again a few times; then all is well."""
    event = [CgroupEvent(EventKind.CREATED, "")]
    hotplug = Script(lambda: event, *[list] * 50)
    rig.reread_error = KernelReadError("/sys/devices/system/node/node1", 2)
    seen: list[int] = []

    def look() -> list[CgroupEvent]:
        seen.append(rig.rereads)
        rig.reread_error = None if rig.rereads == 2 else rig.reread_error
        return []

    waits = [rig.after(ns=ns) for ns in (SETTLE_NS, *REREAD_NS, *REREAD_NS)]
    rig.run(look, *[step for wait in waits for step in (wait, look)], hotplug=hotplug)
    hotplug.close()

    assert seen == [0, 1, 2, 3, 3, 3, 3, 3]
    assert rig.host.log.events().count("step_not_done") == 2


def test_a_machine_that_stays_unreadable_is_left_to_the_full_pass(rig: Rig) -> None:
    """It is not tried for ever; from then on each full pass looks at it."""
    hotplug = Script(lambda: [CgroupEvent(EventKind.CREATED, "")], *[list] * 50)
    rig.reread_error = KernelReadError("/sys/devices/system/node/node1", 2)

    rig.run(rig.after(), *[rig.after(seconds=61)] * 6, hotplug=hotplug)
    hotplug.close()

    assert rig.rereads == 1 + len(REREAD_NS)
    assert rig.looks == 6 - rig.rereads


def test_a_failing_step_does_not_stop_the_rest(rig: Rig) -> None:
    """Errors of the kernel and of the configuration are a line without a trace; a bug is one with its trace."""
    host = rig.host

    def unreadable() -> list[CgroupEvent]:
        raise KernelReadError("/sys/x", 5)

    def wrong() -> list[CgroupEvent]:
        raise ConfigError((("a.toml", "policy", "is wrong"),))

    def bug() -> list[CgroupEvent]:
        raise ZeroDivisionError

    def create() -> list[CgroupEvent]:
        return [CgroupEvent(EventKind.CREATED, host.guaranteed(docker(1), 2))]

    assert rig.run(unreadable, wrong, bug, create) is ExitStatus.OK
    assert [(level, event) for level, event, _ in host.log.lines if event in ("step_not_done", "step_failed")] == [
        ("warning", "step_not_done"),
        ("warning", "step_not_done"),
        ("exception", "step_failed"),
    ]
    assert host.states() == {docker(1): "pinned"}


def test_a_broken_invariant_ends_the_process(rig: Rig) -> None:
    """Books that are wrong are not served: the service manager starts a fresh process."""

    def broken() -> list[CgroupEvent]:
        raise InvariantError("1 is not 2")

    assert rig.run(broken) is ExitStatus.FAILURE
    assert rig.host.log.facts("invariant_broken")["reason"] == "internal error, please report: 1 is not 2"


def test_sighup_reloads(rig: Rig) -> None:
    """SIGHUP reads the configuration; a wrong one is refused in one line and everything goes on."""

    def hup() -> list[CgroupEvent]:
        signal.raise_signal(signal.SIGHUP)
        return []

    def spoil() -> list[CgroupEvent]:
        rig.reload_error = ConfigError((("a.toml", "policy", "is wrong"),))
        return hup()

    assert rig.run(hup, rig.after(), spoil, rig.after()) is ExitStatus.OK
    assert rig.reloads == 2
    assert rig.host.log.events().count("configuration_refused") == 1
    assert "a.toml: policy: is wrong" in rig.host.log.facts("configuration_refused")["reason"]


def test_many_signals_at_once(rig: Rig) -> None:
    """A hundred SIGHUP before a SIGTERM do not keep the daemon from stopping."""

    def storm() -> list[CgroupEvent]:
        for _ in range(100):
            signal.raise_signal(signal.SIGHUP)
        return []

    assert rig.run(storm) is ExitStatus.OK


def test_a_thread_s_result_is_taken(rig: Rig) -> None:
    """A write that ran in a thread is verified when its descriptor says so."""
    host = rig.host
    path = host.guaranteed(docker(1), 2)
    host.holds(path, {0: 20 << 20})

    def wait() -> list[CgroupEvent]:
        with selectors.DefaultSelector() as selector:
            selector.register(host.writer, selectors.EVENT_READ)
            assert selector.select(60)
        return []

    rig.run(wait, rig.after())

    assert host.states() == {path: "pinned"}

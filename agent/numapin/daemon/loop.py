"""
The loop: one selector over events, signals, finished writes and the API; timers are its timeout.

Owns: when something runs, and the one broad ``except``. Must never: decide about a container.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Protocol

from numapin.daemon.agent import Agent
from numapin.daemon.logs import Log
from numapin.daemon.notify import Notifier
from numapin.daemon.pinning import Writer
from numapin.daemon.units import Units
from numapin.kernel.clock import Clock
from numapin.kernel.watch import CgroupEvent, EventKind
from numapin.model.errors import ExitStatus, InvariantError, KernelError, NumapinError

FLUSH_NS = 200_000_000
"""How long the result of a write may wait for its own save; the promise itself is on disk before the write."""

SAVE_RETRY_NS = 5_000_000_000
"""When a save that failed is tried again."""

SETTLE_NS = 300_000_000
"""After the last uevent before the machine is read again: a DIMM comes as a burst of blocks."""

LATEST_NS = 700_000_000
"""After the first uevent at the latest: what comes block by block for minutes is followed meanwhile."""

REREAD_NS = (1_000_000_000, 5_000_000_000, 30_000_000_000)
"""When the machine is read again after it could not be (a node on its way out); then the full pass looks at it."""


class Source(Protocol):
    """A descriptor with events to read."""

    def fileno(self) -> int: ...

    def read(self) -> list[CgroupEvent]: ...


class Hotplug(Protocol):
    """Uevents of memory and nodes, or the kubelet's file; `drain` takes all there is and says whether any came."""

    def fileno(self) -> int: ...

    def drain(self) -> bool: ...


class Api(Protocol):
    """The API socket in the loop."""

    def attach(self, selector: selectors.BaseSelector) -> None: ...

    def ready(self, key: selectors.SelectorKey, now_ns: int) -> None: ...

    def expire(self, now_ns: int) -> int | None: ...

    def deadline_ns(self) -> int | None: ...

    def close(self) -> None: ...


class Loop:
    """Runs an agent until SIGTERM or SIGINT."""

    def __init__(
        self,
        *,
        agent: Agent,
        writer: Writer,
        cgroups: Source,
        runtimes: Source | None,
        hotplug: Hotplug | None,
        units: Units | None = None,
        api: Api | None,
        notifier: Notifier,
        clock: Clock,
        log: Log,
        pass_interval_ns: int,
        reread_machine: Callable[[], None],
        look_at_machine: Callable[[], None],
        reload_config: Callable[[], None],
        status_line: Callable[[], str],
        kubelet: Hotplug | None = None,
    ) -> None:
        self._agent = agent
        self._writer = writer
        self._cgroups = cgroups
        self._runtimes = runtimes
        self._hotplug = hotplug
        self._units = units
        self._kubelet = kubelet
        self._api = api
        self._notifier = notifier
        self._clock = clock
        self._log = log
        self.pass_interval_ns = pass_interval_ns
        self._reread_machine = reread_machine
        self._look_at_machine = look_at_machine
        self._reload_config = reload_config
        self._status_line = status_line
        self._stop = False
        self._pass_due = 0
        self._flush_due: int | None = None
        self._machine_due: int | None = None
        self._machine_latest: int | None = None
        self._rereads = 0  # that failed in succession
        self._watchdog_due: int | None = None
        self._told = ""

    def run(self) -> ExitStatus:
        """
        Look at everything once, say READY, then serve events until told to stop. Pins stay in place.

        Returns FAILURE only when an invariant of ours broke; the service manager then starts a fresh process.
        """
        with selectors.DefaultSelector() as selector, self._signals() as signals:
            selector.register(signals, selectors.EVENT_READ, self._on_signal)
            selector.register(self._cgroups, selectors.EVENT_READ, self._on_cgroups)
            selector.register(self._writer, selectors.EVENT_READ, self._on_writes)
            if self._runtimes is not None:
                selector.register(self._runtimes, selectors.EVENT_READ, self._on_runtimes)
            if self._hotplug is not None:
                selector.register(self._hotplug, selectors.EVENT_READ, self._on_hotplug)
            if self._kubelet is not None:
                selector.register(self._kubelet, selectors.EVENT_READ, self._on_kubelet)
            if self._units is not None:
                selector.register(self._units, selectors.EVENT_READ, self._on_units)
            if self._api is not None:
                self._api.attach(selector)
            self._timers()
            self._notifier.ready(self._tell())
            self._log.info("ready", status=self._told)
            status = self._serve(selector)
            self._notifier.stopping("stopping; pins stay in place")
        with contextlib.suppress(KernelError):
            self._agent.close()
        if self._api is not None:
            self._api.close()
        self._log.info("stopped")
        return status

    def _serve(self, selector: selectors.BaseSelector) -> ExitStatus:
        while not self._stop:
            events = selector.select(self._timeout_s())
            for key, _ in events:
                if callable(key.data):
                    if not self._guarded(key.data):
                        return ExitStatus.FAILURE
                elif self._api is not None and not self._guarded(
                    lambda api=self._api, key=key: api.ready(key, self._clock.monotonic_ns())  # type: ignore[misc]
                ):
                    return ExitStatus.FAILURE
            for timers in (self._machine_timers, self._timers):
                if not self._guarded(timers):
                    return ExitStatus.FAILURE
        return ExitStatus.OK

    def _guarded(self, step: Callable[[], None]) -> bool:
        """Run one step; a failure is logged and the rest goes on. False only for a broken invariant."""
        try:
            step()
        except InvariantError as exc:
            self._log.critical("invariant_broken", code=exc.code, reason=str(exc))
            return False
        except NumapinError as exc:
            self._log.warning("step_not_done", code=exc.code, reason=str(exc))
        except Exception:  # noqa: BLE001 - the one broad except: one container's trouble must not stop the others
            self._log.exception("step_failed")
        return True

    # ---- what can become ready -----------------------------------------------------------------------------

    def _on_cgroups(self) -> None:
        events = self._cgroups.read()
        if self._overflowed(events):
            return
        removed = [e.path for e in events if e.kind is EventKind.REMOVED]
        created = [e.path for e in events if e.kind in (EventKind.CREATED, EventKind.LIMIT_WRITTEN)]
        written = [e.path for e in events if e.kind is EventKind.MEMS_WRITTEN]
        if removed:
            self._agent.on_removed(removed)
        if created:
            self._agent.on_created(created)
        if written:
            self._agent.on_mems_written(written)

    def _on_runtimes(self) -> None:
        assert self._runtimes is not None
        events = self._runtimes.read()
        self._overflowed(events)
        self._agent.on_state([e.path for e in events if e.kind is EventKind.STATE_APPEARED])

    def _overflowed(self, events: list[CgroupEvent]) -> bool:
        """True when the kernel dropped events: everything is looked at then."""
        if all(e.kind is not EventKind.OVERFLOW for e in events):
            return False
        self._agent.counters.overflows += 1
        self._log.warning("event_overflow")
        self._pass_due = 0
        return True

    def _on_writes(self) -> None:
        self._agent.on_outcomes(self._writer.collect())

    def _on_units(self) -> None:
        assert self._units is not None
        self._agent.on_units(self._units.collect())

    def _on_hotplug(self) -> None:
        assert self._hotplug is not None
        if self._hotplug.drain():
            now = self._clock.monotonic_ns()
            self._machine_latest = self._machine_latest or now + LATEST_NS
            self._machine_due, self._rereads = min(now + SETTLE_NS, self._machine_latest), 0

    def _on_kubelet(self) -> None:
        assert self._kubelet is not None
        if self._kubelet.drain():
            self._agent.on_kubelet()

    def _on_signal(self) -> None:
        for number in self._signal_reader.recv(64):
            if number == signal.SIGHUP:
                self._notifier.reloading(monotonic_ns=self._clock.monotonic_ns())
                try:
                    self._reload_config()
                except NumapinError as exc:
                    self._log.error("configuration_refused", code=exc.code, reason=str(exc))
                self._pass_due = 0  # an administrator who reloads wants everything looked at
                self._notifier.ready(self._tell())
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._stop = True

    # ---- timers ----------------------------------------------------------------------------------------------

    def _machine_timers(self) -> None:
        now = self._clock.monotonic_ns()
        if self._machine_due is not None and now >= self._machine_due:
            self._reread()
        elif now >= self._pass_due:
            self._look_at_machine()

    def _timers(self) -> None:
        now = self._clock.monotonic_ns()
        if now >= self._pass_due:
            self._pass_due = now + self.pass_interval_ns
            self._agent.full_pass()
        if (due := self._agent.next_due_ns()) is not None and now >= due:
            self._agent.due(now)
        if self._agent.ledger.dirty and self._flush_due is None:
            self._flush_due = now + (FLUSH_NS if self._agent.ledger.save_error is None else SAVE_RETRY_NS)
        elif self._flush_due is not None and now >= self._flush_due:
            self._flush_due = None
            self._agent.flush()
        if self._api is not None:
            self._api.expire(self._clock.monotonic_ns())  # not now: all of the above may have taken long
        if self._notifier.watchdog_ns is not None and (self._watchdog_due is None or now >= self._watchdog_due):
            self._notifier.watchdog()
            self._watchdog_due = now + self._notifier.watchdog_ns // 2
        line = self._status_line()
        if self._told and line != self._told:
            self._told = line
            self._notifier.status(line)

    def _reread(self) -> None:
        """Raises: NumapinError; it is tried again then."""
        self._machine_due = self._machine_latest = None
        try:
            self._reread_machine()
        except NumapinError:
            if self._rereads < len(REREAD_NS):
                self._machine_due = self._clock.monotonic_ns() + REREAD_NS[self._rereads]
                self._rereads += 1
            raise
        self._rereads = 0

    def _tell(self) -> str:
        self._told = self._status_line()
        return self._told

    def _timeout_s(self) -> float:
        now = self._clock.monotonic_ns()
        due = [self._pass_due]
        for time in (self._agent.next_due_ns(), self._flush_due, self._machine_due, self._watchdog_due):
            if time is not None:
                due.append(time)
        if self._api is not None and (deadline := self._api.deadline_ns()) is not None:
            due.append(deadline)
        return max(0.0, (min(due) - now) / 1e9)

    @contextlib.contextmanager
    def _signals(self):  # type: ignore[no-untyped-def]
        """Signals as bytes on a socket, so that they are events like all others."""
        self._signal_reader, writer = socket.socketpair()
        self._signal_reader.setblocking(False)
        writer.setblocking(False)
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {s: signal.signal(s, lambda *_: None) for s in handled}
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield self._signal_reader
        finally:
            signal.set_wakeup_fd(previous)
            for s, handler in before.items():
                signal.signal(s, handler)
            self._signal_reader.close()
            writer.close()

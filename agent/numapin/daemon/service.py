"""
Putting the daemon together: configuration, machine, checkpoint, watchers, loop.

Owns: the order of start and what each missing piece means. Must never: hold a rule of its own.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from numapin.daemon.agent import Agent
from numapin.daemon.answers import Answers
from numapin.daemon.api import ApiServer
from numapin.daemon.config import keep_until_restart, under
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log, set_up_logging
from numapin.daemon.loop import Loop
from numapin.daemon.machine import Machine, load_for_machine
from numapin.daemon.nested import Nested
from numapin.daemon.notify import Notifier
from numapin.daemon.offline import not_used
from numapin.daemon.out_of_reach import OutOfReach
from numapin.daemon.pinning import Writer
from numapin.daemon.report import Reporter
from numapin.daemon.shortcomings import memory_gap, no_memory_controller
from numapin.daemon.status import About, summary
from numapin.daemon.suitability import notes
from numapin.daemon.troubles import Troubles
from numapin.daemon.undo import ALL_RELEASED
from numapin.daemon.units import Units
from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy, find_hierarchy
from numapin.kernel.clock import Clock, SystemClock
from numapin.kernel.discovery import Discovery
from numapin.kernel.files import read_optional
from numapin.kernel.kubelet_watch import KubeletStateWatcher
from numapin.kernel.own import read_machine_memory, read_own_footprint
from numapin.kernel.runtime_paths import RuntimePaths, read_runtime_paths
from numapin.kernel.runtime_watch import RuntimeStateWatcher
from numapin.kernel.systemd import BOOTED, Systemd
from numapin.kernel.uevents import UeventWatcher
from numapin.kernel.watch import CgroupWatcher
from numapin.model.checkpoint import Checkpoint
from numapin.model.errors import CheckpointError, CheckpointUnreadable, ExitStatus, KernelError, NumapinError
from numapin.model.memory import Books
from numapin.model.nodeset import NodeSet
from numapin.state.checkpoint import CheckpointFile
from numapin.state.lock import DaemonLock, state_lock


class Service:
    """One run of the daemon on the machine below *root*."""

    def __init__(self, root: Path, config_file: Path | None, *, dry_run: bool, clock: Clock | None = None) -> None:
        self._root = root
        self._config_file = config_file
        self._dry_run = dry_run
        self._clock = clock or SystemClock()
        self._config = load_for_machine(root, config_file)
        self._log: Log = set_up_logging(self._config.log_level, self._config.log_format)
        self._troubles = Troubles()

    def run(self, say: Callable[[str], None] | None = None) -> ExitStatus:
        """
        Serve until told to stop; what this host is not made for is told to *say*, or else to the log.

        Raises:
            NoCpusetController, KernelReadError, KernelFormatError: The machine cannot be read.
            ConfigError: A reservation does not fit the machine.
            AlreadyRunning: Another daemon serves this root.
            CheckpointUnreadable: In a dry run; else the daemon waits until the checkpoint can be read.
        """
        hierarchy = find_hierarchy(self._root)
        machine = Machine.read(self._root, self._config, self._nodes_of_before())
        paths, _ = read_runtime_paths(self._root)  # what is wrong with them is the doctor's to say
        discovery = Discovery(hierarchy, self._root, paths, top=self._config.cgroup_root)
        for sentence in notes(self._root, machine, discovery, paths):
            say(sentence) if say is not None else self._log.info("about_this_host", reason=sentence)
        _raise_descriptor_limit()
        with contextlib.ExitStack() as stack:
            lock = under(self._root, self._config.socket).with_name("lock")
            stack.enter_context(DaemonLock(lock))
            if not self._dry_run:
                state = under(self._root, self._config.state_dir)
                stack.enter_context(state_lock(state, besides=lock, create=True))
            return self._serve(stack, hierarchy, machine, discovery, paths)

    def _serve(
        self,
        stack: contextlib.ExitStack,
        hierarchy: Hierarchy,
        machine: Machine,
        discovery: Discovery,
        paths: RuntimePaths,
    ) -> ExitStatus:
        clock, log = self._clock, self._log
        boot_id = (read_optional(self._root / "proc/sys/kernel/random/boot_id") or "").strip()
        file = CheckpointFile(under(self._root, self._config.state_dir) / "state.json")
        ledger = Ledger(
            None if self._dry_run else file,
            policy=self._config.policy.value,
            boot_id=boot_id,
            clock=clock,
            books=Books(machine.node_map),
        )
        nested = Nested(discovery, clock)
        out_of_reach = OutOfReach(self._root, discovery.reaches, boot_id, clock, log)
        cgroups = stack.enter_context(CgroupWatcher(hierarchy, discovery.is_container_path))
        runtimes = stack.enter_context(RuntimeStateWatcher(hierarchy, self._root, paths))
        kubelet_file = self._kubelet_file(stack)
        units = self._units(hierarchy)
        agent = Agent(
            machine=machine,
            finder=discovery,
            drift=cgroups,
            ledger=ledger,
            writer=(writer := Writer(clock)),
            clock=clock,
            reporter=Reporter(log),
            migrate_v1=self._config.v1_memory_migrate and hierarchy.version is CgroupVersion.V1,
            dry_run=self._dry_run,
            units=units,
            kubelet=Beside(self._root, self._config, log, kubelet_file.follow if kubelet_file else None),
            out_of_reach=out_of_reach,
        )
        self._agent = agent

        def load() -> Checkpoint | None:
            found = self._load(file)
            return found if self._dry_run or found is None else out_of_reach.release(found)

        try:
            checkpoint = load()
        except CheckpointUnreadable as exc:
            if self._dry_run:
                raise
            agent.hold(exc, load)
        else:
            if checkpoint is not None:
                agent.adopt(checkpoint)
        if self._root == Path("/"):
            self._troubles.lasting += memory_gap(machine.topology, read_machine_memory())
        for code, sentence in no_memory_controller(hierarchy):
            self._troubles.add(code, sentence)
            log.warning("no_memory_controller", code=code, reason=sentence)
        about = About(
            pid=os.getpid(),
            started_wall_ns=clock.wall_ns(),
            started_monotonic_ns=clock.monotonic_ns(),
            cgroup_version=hierarchy.version.value,
            boot_id=boot_id,
            checkpoint=None if self._dry_run else str(file.path),
            process=lambda: asdict(read_own_footprint()),
            findings=lambda: [
                *self._troubles.findings(),
                *(("not-watched", sentence) for sentence in (*cgroups.findings, *runtimes.findings)),
                *(("unreadable", sentence) for sentence in discovery.problems),
                *(("cgroup-root", sentence) for sentence in (discovery.top_problem(),) if sentence),
                *(("systemd-absent", units.finding) for _ in (1,) if units is not None and units.finding),
                *out_of_reach.findings(),
                *(("all-released", ALL_RELEASED) for _ in (1,) if agent.undo.everything),
            ],
            configuration_refused=lambda: bool(self._troubles.configuration),
        )
        log.info(
            "starting",
            policy=self._config.policy.value,
            online=str(machine.topology.online),
            cgroup_version=hierarchy.version.value,
            dry_run=self._dry_run,
        )
        self._loop = Loop(
            agent=agent,
            writer=writer,
            cgroups=cgroups,
            runtimes=runtimes,
            hotplug=self._uevents(stack),
            units=units,
            api=ApiServer(
                under(self._root, self._config.socket),
                Answers(agent, about, nested, clock),
                changing=frozenset({"release"}),
            ),
            notifier=Notifier.from_environment(os.environ, pid=os.getpid()),
            clock=clock,
            log=log,
            pass_interval_ns=self._config.full_pass_interval_ns,
            reread_machine=self._reread_machine,
            look_at_machine=self._look_at_machine,
            reload_config=self._reload,
            status_line=lambda: summary(agent, configuration_refused=bool(self._troubles.configuration)),
            kubelet=kubelet_file,
        )
        return self._loop.run()

    def _nodes_of_before(self) -> NodeSet:
        """Nodes that an earlier run had in its books; asked only where some node has a reservation of its own."""
        if not self._config.reserved.nodes:
            return NodeSet()
        with contextlib.suppress(CheckpointError):
            before = CheckpointFile(under(self._root, self._config.state_dir) / "state.json").peek().checkpoint
            return NodeSet() if before is None else NodeSet.from_ids(before.books.node_map.nodes)
        return NodeSet()

    def _load(self, file: CheckpointFile) -> Checkpoint | None:
        """
        What an earlier run left, ``None`` where there is nothing to believe; damaged files are named.

        Raises:
            CheckpointUnreadable: There is something, and it cannot be read.
        """
        loaded = file.peek() if self._dry_run else file.load(wall_ns=self._clock.wall_ns())
        for damaged in loaded.damaged:
            code, sentence = not_used(damaged, f"; kept as {damaged.kept_as}")
            kept_as = str(damaged.kept_as)
            self._log.error(
                "checkpoint_not_used", code=code, path=str(damaged.path), reason=damaged.reason, kept_as=kept_as
            )
            self._troubles.add(code, sentence)
        return loaded.checkpoint

    def _kubelet_file(self, stack: contextlib.ExitStack) -> KubeletStateWatcher | None:
        path = self._config.kubelet_state if self._config.kubelet_follow else None
        try:
            return stack.enter_context(KubeletStateWatcher(self._root, path))
        except KernelError as exc:
            self._troubles.add("not-watched", f"the kubelet's state is seen only by the full pass: {exc}")
            self._log.warning("kubelet_state_not_watched", code=exc.code, reason=str(exc))
            return None

    def _units(self, hierarchy: Hierarchy) -> Units | None:
        """systemd manages memory nodes only on v2; where it does not run there is nobody to tell."""
        if hierarchy.version is not CgroupVersion.V2 or self._dry_run or not (self._root / BOOTED).is_dir():
            return None
        return Units(Systemd(self._root))

    def _uevents(self, stack: contextlib.ExitStack) -> UeventWatcher | None:
        try:
            return stack.enter_context(UeventWatcher())
        except KernelError as exc:
            self._troubles.add("no-uevents", f"memory hotplug is seen only by the full pass: {exc}")
            self._log.warning("no_uevents", code=exc.code, reason=str(exc))
            return None

    def _reread_machine(self) -> None:
        """The kernel said that memory or nodes changed: everything is looked at on the machine as it is now."""
        self._agent.on_machine(self._machine_again())

    def _look_at_machine(self) -> None:
        """Nobody said anything: only another machine is worth that."""
        machine = self._machine_again()
        if not machine.is_as(self._agent.machine):
            self._agent.on_machine(machine)

    def _machine_again(self) -> Machine:
        self._troubles.machine = ""
        try:
            return self._agent.machine.again()
        except NumapinError as exc:
            self._troubles.machine = f"the machine changed, and what it is now cannot be used: {exc}"
            raise

    def _reload(self) -> None:
        """
        Take a new configuration; reservations and policy count for what is decided from now on.

        What only a restart takes up stays as it was and is named in log and status.

        Raises:
            NumapinError: The old one stays in force, which the status says until a reload succeeds.
        """
        try:
            config, waiting = keep_until_restart(self._config, load_for_machine(self._root, self._config_file))
            machine = Machine.read(self._root, config, self._agent.machine.known)
        except NumapinError as exc:
            self._troubles.refuse(exc)
            raise
        self._troubles.configuration = self._troubles.machine = ""
        self._config = config
        self._log = set_up_logging(config.log_level, config.log_format)
        self._agent.ledger.set_policy(config.policy.value)
        self._loop.pass_interval_ns = config.full_pass_interval_ns
        self._agent.on_machine(machine)
        self._log.info("configuration_reloaded", policy=config.policy.value)
        self._troubles.wait_for_restart(waiting)
        if waiting:
            self._log.warning("needs_restart", keys=list(waiting), reason=self._troubles.restart)


def _raise_descriptor_limit() -> None:
    """Each managed container keeps a directory open; take what the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

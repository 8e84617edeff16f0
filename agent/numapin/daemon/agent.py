"""
The agent: what happens on an event, on the slow pass, when a write is done, when the machine changes.

Owns: one view per container, and what each event means for it. Must never: block on a
page migration, or write a cgroup it has not recognised as a container, but for those above one with `enabling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from numapin.daemon.adoption import adopt
from numapin.daemon.batch import Batch
from numapin.daemon.delivery import Delivery, DriftWatch
from numapin.daemon.drift import Repairs
from numapin.daemon.enabling import Enabler
from numapin.daemon.in_use import Shortage, shortages
from numapin.daemon.inherited import Following
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.leftovers import Leftovers
from numapin.daemon.machine import Machine
from numapin.daemon.out_of_reach import OutOfReach
from numapin.daemon.pinning import Outcome, Writer
from numapin.daemon.presence import Finder, Presence, rules_of_class
from numapin.daemon.report import Counters, Reporter
from numapin.daemon.retention import Retention
from numapin.daemon.saving import Load, Saving
from numapin.daemon.since_start import History, adopted_from
from numapin.daemon.situation import Situation
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.units import UnitOutcome, Units
from numapin.daemon.untouched import Untouched
from numapin.daemon.views import Views
from numapin.kernel.cgroup_controllers import enable_cpuset
from numapin.kernel.clock import Clock
from numapin.model.checkpoint import Checkpoint
from numapin.model.container import ContainerRecord
from numapin.model.errors import CheckpointUnreadable, KernelError
from numapin.model.nodeset import NodeSet
from numapin.planner.changes import changes


class Agent:
    """One view per container, and everything that changes it. Single-threaded; only `Writer` has threads."""

    def __init__(
        self,
        *,
        machine: Machine,
        finder: Finder,
        drift: DriftWatch,
        ledger: Ledger,
        writer: Writer,
        clock: Clock,
        reporter: Reporter,
        migrate_v1: bool,
        dry_run: bool,
        kubelet: Beside | None = None,
        units: Units | None = None,
        enable: Enabler = enable_cpuset,
        out_of_reach: OutOfReach | None = None,
    ) -> None:
        self._situation = Situation(machine, ledger, reporter.log)
        self.out_of_reach = out_of_reach
        self.ledger = ledger
        self.kubelet = kubelet
        self.dry_run = dry_run
        self.last_pass_ns: int | None = None
        self.shortages: tuple[Shortage, ...] = ()
        self._found = Presence(finder, reporter.log)
        self._drift = drift
        self._clock = clock
        self._reporter = reporter
        self._log = reporter.log
        self._views = Views(ledger, clock, reporter)
        self._saving = Saving(ledger, reporter)
        self._leftovers = Leftovers(clock, reporter.log)
        self._delivery = Delivery(
            opener=finder,
            drift=drift,
            ledger=ledger,
            writer=writer,
            reporter=reporter,
            leftovers=self._leftovers,
            migrate_v1=migrate_v1,
            dry_run=dry_run,
            units=units,
            enable=enable,
        )
        self.undo = self._delivery.undo
        self._repairs = Repairs(
            write=lambda view: self._delivery.write(view, self.machine), clock=clock, reporter=reporter
        )
        self._retention = Retention(ledger, clock, reporter.log, self._found.exists, finder.is_kept)
        self._batch = Batch(
            situation=self._situation,
            ledger=ledger,
            found=self._found,
            views=self._views,
            saving=self._saving,
            delivery=self._delivery,
            following=Following(finder=finder, writer=writer, ledger=ledger, log=reporter.log),
            kubelet=kubelet,
            reporter=reporter,
            dry_run=dry_run,
            writing=writer.is_writing,
        )
        self._adopted = False

    @property
    def machine(self) -> Machine:
        """The machine as last read."""
        return self._situation.machine

    @property
    def views(self) -> dict[str, Tracked]:
        """Every container's view by its cgroup."""
        return self._views.known

    @property
    def counters(self) -> Counters:
        """Events since the daemon started."""
        return self._reporter.counters

    @property
    def history(self) -> History:
        """What happened since then and is over."""
        return self._reporter.history

    # ---- start -----------------------------------------------------------------------------------------------

    def adopt(self, checkpoint: Checkpoint) -> None:
        """
        Continue from what an earlier run promised, on the machine as it is now.

        Living containers keep nodes and memory; what is gone is given back. Nothing is written here.
        """
        released = adopt(
            checkpoint,
            ledger=self.ledger,
            retention=self._retention,
            records={r.cgroup: r for r in self._found.scan()},
            grace_ns=self.machine.config.release_grace_ns,
            exists=self._found.exists,
            still_there=self._still_there,
        )
        held = frozenset(self.ledger.books.assignments)
        self.ledger.go_by(self.machine.config.scope)
        self.ledger.rebase(self.machine.node_map)
        differs = changes(checkpoint.books.node_map, self.machine.node_map)
        if differs:
            self._log.info("machine_differs", reason="; ".join(differs))
        same_boot = checkpoint.boot_id == self.ledger.boot_id
        self.history.adopted = adopted_from(checkpoint, self.ledger.pins, held, same_boot=same_boot, differs=differs)
        self._log.info("checkpoint_adopted", pins=len(self.ledger.pins), released=released, same_boot=same_boot)
        self._adopted = True

    def _still_there(self, path: str, inode: int) -> bool:
        stays = self.out_of_reach is not None and self.out_of_reach.has(path)
        return stays or self._found.still_there(path, inode)

    def hold(self, error: CheckpointUnreadable, load: Load) -> None:
        """
        Start without knowing what an earlier run promised: no decision holds and no cgroup is written, until *load*,
        tried with each `flush`, returns it.
        """
        self._saving.hold(error, load)

    def _resume(self) -> None:
        """Begin anew with the checkpoint if it can be read by now."""
        readable, checkpoint = self._saving.resume()
        if not readable:
            return
        self._views.close()
        self.views.clear()
        if checkpoint is not None:
            self.adopt(checkpoint)
        self.full_pass()

    # ---- events ----------------------------------------------------------------------------------------------

    def full_pass(self) -> None:
        """Look at everything: the safety net under the events, and the first look at start."""
        self.on_kubelet()
        if self.last_pass_ns is not None:  # at the start the machine has just been read
            self._situation.refresh_pools()
        if self.out_of_reach is not None:
            self._situation.released |= self.out_of_reach.retry(self.ledger)
        records = self._found.scan()
        alive = {r.cgroup for r in records}
        missing = [view.record for path, view in self.views.items() if path not in alive]
        self._ended([r.cgroup for r in missing if not self._found.still_there(r.cgroup, r.inode)])
        self.on_mems_written([*(r.cgroup for r in records if self._views.drifted(r)), *self._repairs.contested()])
        self._admit([r for r in records if self._views.needs_decision(r, self.kubelet)])
        self._retry(everything=True)
        self.ledger.forget_gone(self._found.exists)
        if self._adopted:
            self._adopted = False
            self._situation.name_misfits()  # not before: a container may have come back with another size
        self._look_at_leftovers([path for path, view in self.views.items() if view.left])
        self.shortages = shortages(self.machine.root, self.ledger.books, self.ledger.pins, self.views)
        self.last_pass_ns = self._clock.monotonic_ns()

    def on_created(self, paths: Iterable[str]) -> None:
        """Cgroups appeared, or their runtime's state did: look whether they are containers."""
        found = [self._found.inspect(path) for path in dict.fromkeys(paths)]
        self._admit([r for r in found if r is not None and self._views.needs_decision(r, self.kubelet)])
        self._retry()

    def on_state(self, paths: Iterable[str]) -> None:
        """A runtime wrote its state: the container at each path is set up, or was changed."""
        known = list(dict.fromkeys(paths))
        self.on_created(known)
        for path in known:
            if path in self.views:
                self._drift.prune(path)  # it was a plain directory until its runtime said so
                self._repairs.runtime_wrote(self.views[path])

    def on_kubelet(self, *, certain: bool = True) -> None:
        """
        The kubelet's state file changed, or may have: account what it holds, and hand its pods' containers over to it
        or take them back. Without *certain* the file is read only when it looks changed.
        """
        if self.kubelet is None or not self.kubelet.refresh(certain=certain):
            return
        other = [v for v in self.views.values() if self.kubelet.disagrees(v)]
        for view in other:
            if self.kubelet.claims(view.record):
                self._delivery.let_go(view)
        self._situation.released |= self.kubelet.account(self.ledger)
        self._admit([r for r in (self._found.inspect(v.record.cgroup) for v in other) if r is not None])
        self._retry(everything=True)

    def on_removed(self, paths: Iterable[str]) -> None:
        """Cgroups went; one that was made anew under the same path meanwhile is another container."""
        known = list(dict.fromkeys(paths))
        self._ended([p for p in known if p in self.views and not self._found.lives(self.views[p].record)])
        for path in known:
            self._situation.released |= self._retention.end_of_pod(path)
        self._retry()

    def on_mems_written(self, paths: Iterable[str]) -> None:
        """Somebody wrote a pinned container's ``cpuset.mems``, perhaps we: put it right where it is not."""
        for path in dict.fromkeys(paths):
            if (view := self.views.get(path)) is not None:
                self._repairs.look(view)

    def on_units(self, outcomes: Iterable[UnitOutcome]) -> None:
        """systemd was told, or would not be: note which, and who had told it other nodes."""
        for outcome in outcomes:
            view = self.views.get(outcome.job.path)
            if view is not None and view.record.inode == outcome.job.inode:
                self._repairs.unit_said(view, differed=outcome.differed)
                self._delivery.unit_done(view, outcome)

    def release(self, paths: Iterable[str] | None = None) -> None:
        """
        Take the promises of these containers back, of ended ones too, and restore their cgroups; with ``None`` of
        all, and make no new ones until the daemon is started again. Nothing here waits: `Undo.pending` tells what is
        not done yet.
        """
        if paths is None:
            self.undo.everything = True
            if self.out_of_reach is not None:
                self.out_of_reach.retry(self.ledger)
        for path in [*self.ledger.pins, *self.views] if paths is None else list(paths):
            self._retention.give_back(path)  # an ended one's, which has no view
            view = self.views.get(path)
            if view is None or not self.undo.applies(view):
                continue
            record = self._found.inspect(path)
            if record is not None and record.inode != view.record.inode:
                continue
            view.record = record or view.record
            self._repairs.forget(path)
            self._delivery.release(view)
        self._situation.released = True
        self._retry()

    def untouched(self) -> Untouched:
        """Huge pages that are promised and not in use yet, as of now."""
        return Untouched(self.ledger, self._found.hugepages)

    def mems_of(self, view: Tracked) -> NodeSet | None:
        """What the view's cgroup says now; ``None`` when it is gone, or cannot be read."""
        was_open = view.cgroup is not None
        try:
            cgroup = self._delivery.hold(view)
            return None if cgroup is None else cgroup.read_cpuset_mems()
        except KernelError:
            return None
        finally:
            if not was_open:
                view.close()

    def on_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Writes are done: note what the kernel granted."""
        for outcome in outcomes:
            view = self.views.get(outcome.path)
            if view is not None and view.record.inode == outcome.inode:
                self._delivery.verify(view, outcome)
                self._repairs.look(view)  # an event that came while a thread was writing was not looked at
                self._situation.released |= not view.nodes
        self._retry()

    def on_machine(self, machine: Machine) -> None:
        """The machine or the configuration changed: put the promises onto it and try again what did not fit."""
        old = self.machine.config
        if machine.config == old:  # else it is the configuration that changed what can be promised
            self.history.machine_changed(self.machine.node_map, machine.node_map, self._clock.monotonic_ns())
        self._situation.change(machine)
        self.ledger.go_by(machine.config.scope)
        if self.kubelet is not None:
            self.kubelet.configure(machine.config)
            self.on_kubelet()
        if rules_of_class(old) != rules_of_class(machine.config):
            self._admit([r for r in map(self._found.inspect, list(self.views)) if r is not None])
        for view in list(self.views.values()):
            self._delivery.machine_changed(view, machine)
        self._retry(everything=True)

    def due(self, now_ns: int) -> None:
        """Look again at young containers, and give back what waited long enough."""
        if paths := self._views.young.take_due(now_ns):
            self.on_created(paths)
        self.on_mems_written(self._repairs.take_due(now_ns))
        self._look_at_leftovers(self._leftovers.take_due(now_ns))
        self._situation.released |= self._retention.take_due(now_ns)
        self._retry()

    def _look_at_leftovers(self, paths: Iterable[str]) -> None:
        for path in paths:
            if (view := self.views.get(path)) is not None and view.state is ContainerState.PINNED:
                self._leftovers.look(view)

    def next_due_ns(self) -> int | None:
        """Monotonic time of the next `due`, or ``None``."""
        times = (
            self._retention.next_ns(),
            self._views.young.next_ns(),
            self._repairs.next_ns(),
            self._leftovers.next_ns(),
        )
        return min((t for t in times if t is not None), default=None)

    def flush(self) -> None:
        """Save what the last batch's writes brought, if anything; read what could not be read at the start."""
        if self._saving.held:
            self._resume()
        elif self.ledger.dirty:
            self._saving.save()
        if self._saving.take_recovered():
            self.full_pass()  # what was decided while nothing could be saved did not hold

    def close(self) -> None:
        """Save and let go of every descriptor; pins stay as they are."""
        if self.ledger.dirty:
            self._saving.save()
        self._views.close()

    # ---- decisions, ends and retries -------------------------------------------------------------------------

    def _admit(self, records: Sequence[ContainerRecord]) -> None:
        """Decide about all, save once, then write each."""
        self.on_kubelet(certain=False)
        self._batch.decide(records, first_pass=self.last_pass_ns is None)

    def _ended(self, paths: Sequence[str]) -> None:
        for path in paths:
            view = self._views.take(path)
            self._repairs.forget(path)
            self._delivery.forget(view)
            self.ledger.not_handed_over(path)
        for path in paths:
            self._situation.released |= self._retention.end(path, self.machine.config.release_grace_ns)

    def _retry(self, *, everything: bool = False) -> None:
        """Try again what was refused or held back, when memory was released or the machine was looked at."""
        if not (self._situation.released or everything):
            return
        self._situation.released = False
        if self.ledger.short:
            self.ledger.set_neighbour(self.ledger.neighbour)
        for view in self._views.in_state(ContainerState.DEFERRED, ContainerState.LOST):
            self._delivery.write(view, self.machine)
        if self.machine.config.retry_refused:
            waiting = [v for v in self.views.values() if v.state is ContainerState.REFUSED or v.wish]
            refused = [v.record.cgroup for v in waiting if v.state is not ContainerState.PINNING]
            self._admit([r for r in map(self._found.inspect, refused) if r is not None])

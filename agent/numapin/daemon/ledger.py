"""
The promises of this daemon: books, pin records, refusals, and their way to the disk.

Owns: the order *decide, save, then write*. Must never: write a cgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from numapin.kernel.clock import Clock
from numapin.model.checkpoint import Checkpoint, Phase, PinRecord, RefusalRecord, Restored, explained_owners
from numapin.model.errors import CheckpointError, CheckpointUnreadable, CheckpointUnwritable
from numapin.model.memory import Block, Books, NodeMap, Owner, of_pod
from numapin.model.plan import Scope
from numapin.planner.accounting import misfits, rebase, release
from numapin.planner.neighbour import account_neighbour
from numapin.state.checkpoint import CheckpointFile


@dataclass(frozen=True, slots=True)
class Mark:
    """What `Ledger.undo` goes back to."""

    books: Books
    pins: dict[str, PinRecord]
    refusals: dict[str, RefusalRecord]
    enabled: frozenset[str]
    restored: dict[str, Restored]
    handed_over: dict[str, PinRecord]
    dirty: bool


class Ledger:
    """
    The current promises, keyed by cgroup path, and the file they are kept in.

    ``file`` is ``None`` in a dry run: nothing is saved then. ``save_error`` is the last failed save's error until
    one succeeds; while it stands, no new promise is made. ``held``: the file could not be read at the start, so
    nothing may be promised or saved before it can. ``neighbour`` is what another memory manager holds: in the
    books, so that it is not promised twice, and never on disk. ``short`` names what of it we had promised already.
    ``enabled`` are cgroups in which we enabled cpuset, or are doing so; ``restored`` those whose own value may be
    one that we put back; ``handed_over`` are pins that ended because another memory manager places their containers.
    """

    def __init__(self, file: CheckpointFile | None, *, policy: str, boot_id: str, clock: Clock, books: Books) -> None:
        self.file = file
        self.policy = policy
        self.boot_id = boot_id
        self.books = books
        self.pins: dict[str, PinRecord] = {}
        self.refusals: dict[str, RefusalRecord] = {}
        self.enabled: frozenset[str] = frozenset()
        self.restored: dict[str, Restored] = {}
        self.handed_over: dict[str, PinRecord] = {}
        self.dirty = False
        self.save_error: CheckpointError | None = None
        self.held = False
        self.saves = 0
        self.neighbour: Mapping[Owner, tuple[Block, ...]] = {}
        self.short: tuple[str, ...] = ()
        self._clock = clock
        self._enabled_on_disk: frozenset[str] = frozenset()
        self._misfits: tuple[Books, Mapping[Owner, str]] | None = None

    @property
    def misfits(self) -> Mapping[Owner, str]:
        """Promises that the machine does not hold (`planner.accounting.misfits`); books that stay cost nothing."""
        if self._misfits is None or self._misfits[0] is not self.books:
            self._misfits = self.books, misfits(self.books)
        return self._misfits[1]

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Take over what an earlier run promised; the caller then drops what is gone and rebases."""
        self.books, self.short = account_neighbour(checkpoint.books, self.neighbour)
        self.pins = dict(checkpoint.containers)
        self.refusals = dict(checkpoint.refusals)
        same_boot = checkpoint.boot_id == self.boot_id
        self.enabled = frozenset(checkpoint.cpuset_enabled) if same_boot else frozenset()
        self.restored = dict(checkpoint.restored) if same_boot else {}
        self.handed_over = dict(checkpoint.handed_over) if same_boot else {}

    def hold(self, error: CheckpointUnreadable) -> None:
        """What an earlier run promised is in the file and cannot be read: nothing is promised until `resume`."""
        self.save_error, self.held, self.dirty = error, True, True

    def resume(self) -> None:
        """The file was read; `adopt` takes what was in it."""
        self.save_error, self.held, self.dirty = None, False, False

    def mark(self) -> Mark:
        """Remember the present promises before a batch of decisions."""
        return Mark(
            self.books,
            dict(self.pins),
            dict(self.refusals),
            self.enabled,
            dict(self.restored),
            dict(self.handed_over),
            self.dirty,
        )

    def undo(self, mark: Mark) -> None:
        """Forget every change since *mark*."""
        self.books, self.pins, self.refusals = mark.books, dict(mark.pins), dict(mark.refusals)
        self.enabled, self.restored, self.dirty = mark.enabled, dict(mark.restored), mark.dirty
        self.handed_over = dict(mark.handed_over)

    def snapshot(self) -> Checkpoint:
        """The value that the file would hold now."""
        return Checkpoint(
            policy=self.policy,
            boot_id=self.boot_id,
            saved_ns=self._clock.wall_ns(),
            books=release(self.books, *self.neighbour),
            containers=dict(self.pins),
            refusals=dict(self.refusals),
            cpuset_enabled=tuple(sorted(self.enabled)),
            restored=dict(self.restored),
            handed_over=dict(self.handed_over),
        )

    def save(self) -> None:
        """
        Put the present promises on disk.

        Raises:
            CheckpointUnwritable: The file could not be saved; the one on disk is the old one.
            CheckpointUnreadable: It was never read, so it must not be replaced.
        """
        if self.held and self.save_error is not None:
            raise self.save_error
        if self.file is not None:
            try:
                self.file.save(self.snapshot())
            except CheckpointUnwritable as exc:
                self.save_error = exc
                raise
            self.saves += 1
            self._enabled_on_disk = self.enabled
        self.save_error = None
        self.dirty = False

    def rebase(self, node_map: NodeMap) -> None:
        """Put the same assignments onto a machine that changed."""
        ours = rebase(release(self.books, *self.neighbour), node_map)
        self.books, self.short = account_neighbour(ours, self.neighbour)
        self.dirty = True

    def set_neighbour(self, assignments: Mapping[Owner, tuple[Block, ...]]) -> None:
        """Account what another memory manager holds now, in place of what it held before."""
        ours = release(self.books, *self.neighbour)
        self.neighbour = dict(assignments)
        self.books, self.short = account_neighbour(ours, self.neighbour)

    def set_pin(self, pin: PinRecord) -> None:
        """Add or replace the record of one cgroup; a refusal of the same cgroup is over."""
        if self.pins.get(pin.cgroup) == pin and pin.cgroup not in self.refusals:
            return
        self.pins[pin.cgroup] = pin
        self.refusals.pop(pin.cgroup, None)
        self.dirty = True

    def update_pin(self, cgroup: str, **changes: object) -> None:
        """Replace fields of one record; nothing happens when it is gone."""
        if (pin := self.pins.get(cgroup)) is not None:
            self.set_pin(replace(pin, **changes))  # type: ignore[arg-type]  # names are PinRecord's

    def will_enable(self, paths: Iterable[str]) -> bool:
        """Note cgroups in which cpuset is about to be enabled; true when that must be saved before it is done."""
        wanted = frozenset(paths)
        self._set_enabled(self.enabled | wanted)
        return not wanted <= self._enabled_on_disk

    def not_enabled(self, paths: Iterable[str]) -> None:
        """cpuset was not enabled in these after all, or they went."""
        self._set_enabled(self.enabled.difference(paths))

    def _set_enabled(self, paths: frozenset[str]) -> None:
        self.dirty |= paths != self.enabled
        self.enabled = paths

    def set_restored(self, cgroup: str, restored: Restored | None) -> None:
        """Note that a value of ours that is no pin stands in a cgroup, or shall; ``None``: none does."""
        if self.restored.get(cgroup) == restored:
            return
        if restored is None:
            del self.restored[cgroup]
        else:
            self.restored[cgroup] = restored
        self.dirty = True

    def hand_over(self, cgroup: str) -> bool:
        """
        Another memory manager places this container: its record is kept aside, for its value stays in the cgroup, and
        its memory is given back. Returns whether there was any.
        """
        pin = self.pins.get(cgroup)
        if pin is not None and pin.phase is not Phase.FOREIGN and pin.ended_ns is None:
            self.handed_over[cgroup] = pin
            self.dirty = True
        return self.drop(cgroup)

    def not_handed_over(self, cgroup: str) -> None:
        """The container ended, or is placed by us again."""
        self.dirty |= self.handed_over.pop(cgroup, None) is not None

    def forget_gone(self, exists: Callable[[str], bool]) -> None:
        """What is remembered of cgroups beside their pins ends with them; *exists* says whether a path is there."""
        self.not_enabled([path for path in self.enabled if not exists(path)])
        for path in [path for path in self.restored if not exists(path)]:
            self.set_restored(path, None)
        for path in [path for path in self.handed_over if not exists(path)]:
            self.not_handed_over(path)

    def refuse(self, cgroup: str, refusal: RefusalRecord) -> None:
        """Note a refusal; the container has no promise."""
        if self.refusals.get(cgroup) != refusal:
            self.refusals[cgroup] = refusal
            self.dirty = True

    def forget(self, cgroup: str) -> None:
        """Drop a cgroup's record; its memory stays with the owner."""
        if self.pins.pop(cgroup, None) is not None:
            self.dirty = True

    def drop(self, cgroup: str) -> bool:
        """
        Forget a cgroup's record and give its memory back, unless another live record has the same owner.

        Returns whether memory was given back.
        """
        if self.refusals.pop(cgroup, None) is not None:
            self.dirty = True
        pin = self.pins.pop(cgroup, None)
        if pin is None:
            return False
        self.dirty = True
        return self.drop_owner(pin.owner)

    def drop_owner(self, owner: Owner) -> bool:
        """Give an owner's memory back when no record needs it any more; returns whether anything was given back."""
        gone = self._unexplained() & {owner, *of_pod(owner.pod)}
        if gone:
            self.books = release(self.books, *gone)
            self.dirty = True
        return bool(gone)

    def _unexplained(self) -> set[Owner]:
        """Owners that no record explains; what a pod's containers share is on the nodes of one of them."""
        explained = explained_owners(self.pins.values())
        found = self.books.assignments.keys() - explained - self.neighbour.keys()
        for owner in explained & self.books.assignments.keys():
            if owner.is_shared:
                nodes = {block.affinity for block in self.books.assignments[owner]}
                if not any(pin.owner.pod == owner.pod and nodes == {pin.nodes} for pin in self.pins.values()):
                    found.add(owner)
        return found

    def go_by(self, scope: Scope) -> None:
        """
        Give back what only another scope has: under pod scope a pod holds all it may use (`rest_of`), else what its
        containers share (`shared_of`). They are decided again after that.
        """
        other = [o for o in self.books.assignments if (o.is_shared if scope is Scope.POD else o.is_rest)]
        if gone := [o for o in other if o not in self.neighbour]:
            self.books = release(self.books, *gone)
            for cgroup in [c for c, p in self.pins.items() if p.ended_ns is not None and p.owner in gone]:
                del self.pins[cgroup]
            self.dirty = True

    def drop_orphans(self) -> list[Owner]:
        """Give back what no record explains: its container is there but is not managed any more. Returns whose."""
        orphans = sorted(self._unexplained())
        if orphans:
            self.books = release(self.books, *orphans)
            self.dirty = True
        return orphans

    def set_policy(self, policy: str) -> None:
        """Decide by another policy from now on."""
        self.dirty |= policy != self.policy
        self.policy = policy

    def holder(self, owner: Owner, *, besides: str = "") -> PinRecord | None:
        """A record of a living cgroup, other than *besides*, with this owner."""
        if owner not in self.books.assignments:
            return None
        found = (p for p in self.pins.values() if p.owner == owner and p.ended_ns is None and p.cgroup != besides)
        return next(found, None)

    def ended_of_pod(self, pod_uid: str, besides: Owner) -> tuple[Owner, ...]:
        """Owners of the pod's ended containers whose memory waits for the pod's next container."""
        waiting = {p.owner for p in self.pins.values() if p.pod_uid == pod_uid and p.ended_ns is not None}
        alive = {p.owner for p in self.pins.values() if p.ended_ns is None}
        return tuple(sorted(waiting - alive - {besides}))

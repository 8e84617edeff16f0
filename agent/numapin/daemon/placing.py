"""
A Guaranteed container's nodes: request → plan → the promise or the refusal in the ledger.

Owns: what is asked of the planner, and what its answer means for the books and for the container. Must never: write a
cgroup or the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from numapin.daemon.asking import ask, ask_anew
from numapin.daemon.holdings import Before, Holdings
from numapin.daemon.inherited import original_mems
from numapin.daemon.ledger import Ledger
from numapin.daemon.machine import Machine
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.untouched import Untouched
from numapin.model.checkpoint import Phase, PinRecord, RefusalRecord
from numapin.model.container import Classification, ContainerRecord
from numapin.model.memory import MEMORY, MemoryType, Owner, of_pod, rest_of, shared_of
from numapin.model.nodeset import NodeSet
from numapin.model.plan import Plan, Refusal, Request, Scope
from numapin.planner.classify import pod_request
from numapin.planner.kernel_free import Ceilings, add


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The container's new view, and what to do in the cgroup.

    ``pin`` asks for its nodes to be written; ``unpin`` for the value before our first write to be restored;
    ``follow`` for the parent's nodes in place of those that an earlier undo left.
    """

    view: Tracked
    pin: bool = False
    unpin: PinRecord | None = None
    follow: NodeSet | None = None


class Placing:
    """Asks the planner about one container after the other, and keeps its answers in the ledger (unsaved)."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        untouched: Untouched,
        *,
        dry_run: bool,
        before: Callable[[ContainerRecord], Before],
    ) -> None:
        """*before* says what a first write would change beside the nodes."""
        self._machine = machine
        self._ledger = ledger
        self._untouched = untouched
        self._dry_run = dry_run
        self._before = before

    def place(
        self,
        record: ContainerRecord,
        verdict: Classification,
        pin: PinRecord | None,
        holdings: Holdings,
    ) -> Decision:
        """What becomes of *record*, with *pin* as the promise it has from us, if any."""
        owner = self._owner(record, verdict, pin)
        alone = owner not in of_pod(owner.pod) and verdict.borrowed >= verdict.request.keys()
        borrowed: frozenset[MemoryType] = frozenset() if alone else verdict.borrowed
        ended = self._ledger.ended_of_pod(record.pod_uid, owner) if record.pod_uid is not None else ()
        request = Request(
            owner=owner,
            sizes=verdict.request,
            allowed=record.parent_mems & self._machine.usable,
            normal=self._machine.topology.with_normal_memory,
            ceilings=self._ceilings(record, verdict, (owner, *of_pod(owner.pod), *ended), holdings),
            resident=holdings.memory,
            reusable=ended,
            hints=self._machine.hints(record),
            affinity=pin.nodes if pin is not None else None,  # another size never moves a running container
        )
        if pin is None:
            answer = ask_anew(self._machine, self._ledger, record, request, borrowed)
        else:
            answer = ask(self._machine, self._ledger.books, record, request, borrowed)
        if isinstance(answer, Refusal):
            return self._refuse(record, verdict, pin, answer)
        return self._promise(record, verdict, pin, answer)

    def _ceilings(
        self, record: ContainerRecord, verdict: Classification, its: tuple[Owner, ...], holdings: Holdings
    ) -> Ceilings:
        """
        Huge pages that it could get or has: what the kernel has free and was promised to no other than *its* owners,
        and what it uses already, or what its pod's containers use of what they share with it.
        """
        whole = pod_request(record) if self._machine.config.scope is Scope.POD else {}
        free = self._machine.ceilings({**whole, **verdict.request})
        if not free:
            return {}
        left = self._untouched.leave(free, its)
        shares = verdict.borrowed - {MEMORY}
        own = {n: {k: v for k, v in kinds.items() if k not in shares} for n, kinds in holdings.hugepages.items()}
        return add(left, own, self._untouched.shared(its[0].pod, shares) if shares else {})

    def _owner(self, record: ContainerRecord, verdict: Classification, pin: PinRecord | None) -> Owner:
        """
        Who is to hold what the container gets; its pod, where it has no size of its own and is not somewhere else
        already.
        """
        if record.pod_uid is not None and verdict.borrowed >= verdict.request.keys():
            in_pod = self._machine.config.scope is Scope.POD
            pod = rest_of(record.pod_uid) if in_pod else shared_of(record.pod_uid)
            if pin is None or {b.affinity for b in self._ledger.books.assignments.get(pod, ())} <= {pin.nodes}:
                return pod
        if pin is not None and pin.owner not in of_pod(pin.owner.pod):
            return pin.owner
        return owner_of(record, self._ledger)

    def _refuse(
        self, record: ContainerRecord, verdict: Classification, pin: PinRecord | None, refusal: Refusal
    ) -> Decision:
        if pin is not None:
            # It grew beyond its nodes: the old promise and the pin stay, the wish is named.
            wish = f"keeps {pin.nodes.named} with the old size; the new size is refused: {refusal.message}"
            held_back = pin.phase is Phase.DEFERRED
            written = record.mems == pin.nodes
            granted = written and record.effective_mems == pin.nodes  # else its parent allows fewer by now
            if granted and pin.phase is Phase.PLANNED:
                self._ledger.update_pin(record.cgroup, phase=Phase.VERIFIED)
            view = Tracked(
                record,
                verdict,
                ContainerState.DEFERRED if held_back else ContainerState.PINNED,
                "; ".join(filter(None, (pin.message if held_back else "", wish))),
                pin.nodes,
                wish=wish,
            )
            return Decision(view, pin=not held_back and not granted and not self._dry_run)
        self._ledger.refuse(
            record.cgroup,
            RefusalRecord(
                inode=record.inode,
                owner=refusal.owner,
                container_id=record.id,
                name=record.name,
                code=refusal.code,
                kubelet_reason=refusal.kubelet_reason,
                message=refusal.message,
                explanation=refusal.explanation,
            ),
        )
        return Decision(Tracked(record, verdict, ContainerState.REFUSED, refusal.message))

    def _promise(
        self, record: ContainerRecord, verdict: Classification, pin: PinRecord | None, plan: Plan
    ) -> Decision:
        before = self._ledger.books.assignments
        unchanged = (
            pin is not None
            and (pin.nodes, pin.owner) == (plan.nodes, plan.owner)
            and before.get(plan.owner) == plan.books.assignments.get(plan.owner)
        )
        if not unchanged:
            self._forget_ended(plan)
            self._ledger.books = plan.books
            made = pin_record(
                record,
                plan.owner,
                plan.nodes,
                Phase.PLANNED,
                original=original_mems(record, self._ledger.restored),
                plan=plan,
            )
            self._ledger.set_pin(self._with_originals(made, record, pin))
        elif any(before.get(o) != plan.books.assignments.get(o) for o in of_pod(plan.owner.pod)):
            self._forget_ended(plan)
            self._ledger.books, self._ledger.dirty = plan.books, True
        granted = record.mems == plan.nodes and record.effective_mems == plan.nodes
        if granted and (pin is not None or not self._dry_run):
            if self._ledger.pins[record.cgroup].phase is not Phase.VERIFIED:
                self._ledger.update_pin(record.cgroup, phase=Phase.VERIFIED)
            return Decision(Tracked(record, verdict, ContainerState.PINNED, "", plan.nodes))
        state = ContainerState.WOULD_PIN if self._dry_run else ContainerState.PINNING
        return Decision(Tracked(record, verdict, state, "", plan.nodes), pin=not self._dry_run)

    def _forget_ended(self, plan: Plan) -> None:
        """Records of ended containers whose memory goes to the one of *plan*, or to its pod."""
        used = set(plan.books.assignments)
        for cgroup, old in list(self._ledger.pins.items()):
            if old.ended_ns is not None and (old.owner not in used or old.owner == plan.owner):
                self._ledger.forget(cgroup)

    def _with_originals(self, made: PinRecord, record: ContainerRecord, pin: PinRecord | None) -> PinRecord:
        """A record with what was there before our first write: as an earlier record says, or as it is now."""
        if pin is None:
            before = self._before(record)
            return replace(made, original_below=before.below, original_migrate=before.migrate)
        return replace(
            made,
            original_mems=pin.original_mems,
            original_below=pin.original_below,
            original_migrate=pin.original_migrate,
        )


def owner_of(record: ContainerRecord, ledger: Ledger) -> Owner:
    """The record's owner; its cgroup path where another living container of another runtime has the same id."""
    owner = record.owner
    other = ledger.holder(owner)
    if record.pod_uid is None and other is not None and other.cgroup != record.cgroup:
        return Owner(record.cgroup, record.cgroup)
    return owner


def pin_record(
    record: ContainerRecord,
    owner: Owner,
    nodes: NodeSet,
    phase: Phase,
    *,
    original: NodeSet,
    message: str = "",
    plan: Plan | None = None,
) -> PinRecord:
    """A promise of *nodes*; *original* is the value that an undo shall bring back."""
    return PinRecord(
        container_id=record.id,
        name=record.name,
        pod_uid=record.pod_uid,
        runtime=record.runtime,
        cgroup=record.cgroup,
        inode=record.inode,
        owner=owner,
        phase=phase,
        nodes=nodes,
        original_mems=original,
        explanation=plan.explanation if plan is not None else None,
        message=message,
        ended_ns=None,
    )

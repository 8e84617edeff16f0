"""
One container's decision: which rule applies to whom.

Owns: what comes before a placement: who manages it, what is doubtful, what somebody else chose. Must never: write a
cgroup or the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from numapin.daemon.config import Config
from numapin.daemon.enabling import may_enable, why_not
from numapin.daemon.holdings import Before, Holdings
from numapin.daemon.inherited import is_restored, look_at_restored, original_mems, to_follow
from numapin.daemon.kubelet import Beside
from numapin.daemon.ledger import Ledger
from numapin.daemon.machine import Machine
from numapin.daemon.placing import Decision, Placing, owner_of, pin_record
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.undo import ALL_RELEASED
from numapin.daemon.untouched import Untouched, Used
from numapin.model.checkpoint import Phase, PinRecord, Restored
from numapin.model.container import Classification, ContainerKind, ContainerRecord, QosClass
from numapin.model.kubelet import Hands
from numapin.model.nodeset import NodeSet
from numapin.planner.classify import classify
from numapin.planner.foreign import account_foreign


def classify_record(record: ContainerRecord, config: Config) -> Classification:
    """Class and request of a record under the configuration."""
    return classify(record, standalone=config.qos_standalone, lxc=config.qos_system_containers)


def may_be_managed(record: ContainerRecord, config: Config) -> bool:
    """True for containers, and for LXC and nspawn where the configuration asks for them."""
    if record.kind is ContainerKind.SYSTEM:
        return config.qos_system_containers
    return record.kind is ContainerKind.CONTAINER


def foreign_mems(record: ContainerRecord, ours: PinRecord | None, restored: Mapping[str, Restored]) -> NodeSet | None:
    """
    Nodes that somebody else chose for this container, or ``None``.

    Either its OCI document names them, or its cgroup has a value of its own that neither we nor the parent gave
    (cgroup v1 copies the parent's value, v2 leaves it empty). *restored* are values that we put back.
    """
    if record.oci is not None and record.oci.mems is not None:
        return record.oci.mems
    if ours is not None or not record.mems or record.mems == record.parent_mems or is_restored(record, restored):
        return None
    return record.mems


class Admission:
    """Decides for one record after the other against the ledger's books."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        *,
        dry_run: bool,
        kubelet: Beside | None = None,
        released: Callable[[ContainerRecord], str] = lambda _: "",
        before: Callable[[ContainerRecord], Before] = lambda _: Before(),
        hugepages: Used = lambda _pin, _kind: None,
        writing: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """
        *released* says why a container gets no pin although it could, empty when it may; *before* what a first write
        would change beside the nodes; *hugepages* what a container uses of them; *writing* whether a write of ours to
        this cgroup is on its way.
        """
        self.machine = machine
        self.ledger = ledger
        self.dry_run = dry_run
        self.kubelet = kubelet
        self._released = released
        untouched = Untouched(ledger, hugepages)
        self._placing = Placing(machine, ledger, untouched, dry_run=dry_run, before=before)
        self._writing = writing

    def decide(self, record: ContainerRecord, holdings: Holdings | None = None) -> Decision:
        """
        Decide about one container and note the promise or the refusal in the ledger (unsaved).

        *holdings* is what the container has already: its memory only breaks ties, its huge pages count as free.
        """
        look_at_restored(self.ledger, record, self.machine.topology.with_memory)
        decision = self._decide(record, holdings)
        written = decision.pin or decision.unpin is not None or decision.view.state is ContainerState.FOREIGN
        if written or self.dry_run or self._released(record) == ALL_RELEASED:
            return decision
        return replace(decision, follow=to_follow(self.ledger, record))

    def _decide(self, record: ContainerRecord, holdings: Holdings | None) -> Decision:
        verdict = classify_record(record, self.machine.config)
        pin, earlier = self.ledger.pins.get(record.cgroup), None
        if pin is not None and pin.inode != record.inode:  # another container under the same path
            earlier = pin if pin.owner == record.owner and pin.ended_ns is None else None
            self.ledger.forget(record.cgroup)
            if pin.owner != record.owner:
                self.ledger.drop_owner(pin.owner)
            pin = None
        if self.kubelet is not None and self.kubelet.claims(record):
            decision = self._to_kubelet(self.kubelet, record, verdict, pin)
            decision.view.hands = self.kubelet.hands
            return decision
        if not may_be_managed(record, self.machine.config):
            return self._leave(record, verdict, ContainerState.UNMANAGED, verdict.reason, pin)
        if pin is not None and pin.phase is not Phase.FOREIGN and (why := self._released(record)):
            return Decision(Tracked(record, verdict, ContainerState.RELEASED, why))  # its cgroup is being put back
        if may_enable(record, self.machine.config):
            record = replace(record, doubts=())  # it has no nodes of its own yet, like one that inherits
            verdict = classify_record(record, self.machine.config)
        others = verdict.qos in (QosClass.BURSTABLE, QosClass.BEST_EFFORT)
        if record.doubts and not (others and record.class_certain and pin is None):
            message = "; ".join(record.doubts) + why_not(record, self.machine.config)
            return self._doubt(record, verdict, pin, message)
        if verdict.qos is not QosClass.GUARANTEED:
            return self._leave(record, verdict, ContainerState.UNMANAGED, verdict.reason, pin)
        if not verdict.request:
            return self._doubt(record, verdict, pin, verdict.reason)
        ours = pin if pin is not None and pin.phase is not Phase.FOREIGN else None
        theirs = foreign_mems(record, ours, self.ledger.restored)
        before = None if ours is not None else self._handed_over(record)
        if theirs is not None and before is None:
            return self._account(record, verdict, pin, theirs)
        if pin is not None and ours is None:
            self.ledger.drop(record.cgroup)  # nobody else's any more
        if before is not None and not self.dry_run:
            self.ledger.not_handed_over(record.cgroup)
        if why := self._released(record):
            return Decision(Tracked(record, verdict, ContainerState.RELEASED, why), unpin=before)
        decision = self._placing.place(record, verdict, ours, holdings or Holdings())
        made = self.ledger.pins.get(record.cgroup)
        if earlier is not None and made is not None and (made.owner, made.nodes) == (earlier.owner, earlier.nodes):
            # its runtime made the cgroup twice: why it has its nodes was decided with the first
            self.ledger.update_pin(record.cgroup, explanation=earlier.explanation)
        if before is None:
            return decision
        # what stands in the cgroup is ours of old, and not what was there before us
        self.ledger.update_pin(
            record.cgroup,
            original_mems=before.original_mems,
            original_below=before.original_below,
            original_migrate=before.original_migrate,
        )
        return decision if decision.view.nodes else replace(decision, unpin=before)

    def _handed_over(self, record: ContainerRecord) -> PinRecord | None:
        """Our own earlier pin, left in the cgroup for another manager's sake, when its value still stands there."""
        pin = self.ledger.handed_over.get(record.cgroup)
        if pin is None or pin.inode != record.inode or pin.nodes != record.mems:
            return None
        return pin

    def _leave(
        self,
        record: ContainerRecord,
        verdict: Classification,
        state: ContainerState,
        message: str,
        pin: PinRecord | None = None,
    ) -> Decision:
        """
        Not ours (any more): no promise; a pin of ours is taken back.

        Its record stays until the cgroup is as before: whoever is killed in between finds the value to be restored.
        """
        undo = pin if pin is not None and pin.phase is not Phase.FOREIGN else None
        if undo is None or self.dry_run:
            self.ledger.drop(record.cgroup)
        else:
            self.ledger.dirty = True  # while nothing can be saved, no cgroup is written
        return Decision(Tracked(record, verdict, state, message), unpin=undo)

    def _to_kubelet(
        self, kubelet: Beside, record: ContainerRecord, verdict: Classification, pin: PinRecord | None
    ) -> Decision:
        """
        The kubelet's to place: no promise and no pin of ours, and a value we wrote stays where it is.

        While the kubelet's own accounting cannot be read, a pin of ours that stands in the cgroup keeps its record,
        which alone knows what to put back; other nodes that stand there are accounted as they are.
        """
        if pin is not None and kubelet.hands is Hands.UNKNOWN and self._stands(record, pin):
            message = kubelet.message(record)
            return Decision(Tracked(record, verdict, ContainerState.FOREIGN, message, pin.nodes))
        guaranteed = verdict.qos is QosClass.GUARANTEED and may_be_managed(record, self.machine.config)
        if guaranteed and kubelet.hands is Hands.UNKNOWN:
            theirs = foreign_mems(record, None, self.ledger.restored)
            if verdict.request and theirs is not None:
                return replace(self._account(record, verdict, pin, theirs, kubelet.message(record)), unpin=None)
            if record.doubts and pin is not None:
                self.ledger.update_pin(record.cgroup, phase=Phase.FOREIGN)
                message = "; ".join(record.doubts)
                return Decision(Tracked(record, verdict, ContainerState.FOREIGN, message, pin.nodes))
        self.ledger.drop(record.cgroup)
        if not guaranteed:
            return Decision(Tracked(record, verdict, ContainerState.UNMANAGED, verdict.reason))
        nodes, message = kubelet.nodes_of(record), kubelet.message(record)
        return Decision(Tracked(record, verdict, ContainerState.FOREIGN, message, nodes))

    @staticmethod
    def _stands(record: ContainerRecord, pin: PinRecord) -> bool:
        """True when the container's nodes are our choice, and nobody else named any."""
        others = record.oci is not None and record.oci.mems is not None
        return pin.phase is not Phase.FOREIGN and record.mems == pin.nodes and not others

    def _doubt(
        self, record: ContainerRecord, verdict: Classification, pin: PinRecord | None, message: str
    ) -> Decision:
        """Unclear facts never give a pin and never take one away; without cpuset none stands."""
        if pin is None:
            self.ledger.drop(record.cgroup)
            return Decision(Tracked(record, verdict, ContainerState.UNPINNED, message))
        kept = ContainerState.UNPINNED if record.cpuset_missing else ContainerState.PINNED
        states = {Phase.VERIFIED: kept, Phase.FOREIGN: ContainerState.FOREIGN}
        state = states.get(pin.phase, ContainerState.UNPINNED)
        return Decision(Tracked(record, verdict, state, message, pin.nodes))

    def _account(
        self,
        record: ContainerRecord,
        verdict: Classification,
        pin: PinRecord | None,
        theirs: NodeSet,
        why: str = "",
    ) -> Decision:
        """Somebody else's pin: its bytes are taken out of the books, its cgroup is left alone."""
        owner = pin.owner if pin is not None else owner_of(record, self.ledger)
        books, note = account_foreign(self.ledger.books, owner, verdict.request, theirs)
        self.ledger.dirty |= books != self.ledger.books
        self.ledger.books = books
        was = "was" if len(theirs) == 1 else "were"
        message = (why or f"{theirs.named} {was} chosen by somebody else") + (f"; {note}" if note else "")
        original = original_mems(record, self.ledger.restored)
        account = pin_record(record, owner, theirs, Phase.FOREIGN, original=original, message=message)
        undo = self._ours_below(record, pin, theirs)
        if undo is not None:  # noted until it is done, like any promise: the daemon may be killed in between
            account = replace(account, original_below=undo.original_below, original_migrate=undo.original_migrate)
        self.ledger.set_pin(account)
        return Decision(Tracked(record, verdict, ContainerState.FOREIGN, message, theirs), unpin=undo)

    def _ours_below(self, record: ContainerRecord, pin: PinRecord | None, theirs: NodeSet) -> PinRecord | None:
        """
        What of our writes is to be undone in a cgroup for which somebody else chose *theirs*, while we pinned.

        What we took for drift and put right, or what a thread is about to, was the new choice; and on v1 the
        children and ``memory_migrate`` are still as we made them, whatever the nodes are.
        """
        if pin is None:
            return None
        on_v1 = record.cgroup_v1 and (bool(pin.original_below) or pin.original_migrate is not None)
        drift = pin.phase is not Phase.FOREIGN and (record.mems != theirs or self._writing(record.cgroup))
        return replace(pin, original_mems=theirs) if on_v1 or drift else None

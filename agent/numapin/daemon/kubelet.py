"""
A kubelet beside us: whose the containers of pods are, and what the kubelet has promised.

Owns: which reading of the kubelet's state file counts. Must never: write a cgroup, or give a container of a pod to
ourselves while nobody knows what the kubelet does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from numapin.daemon.config import Config
from numapin.daemon.ledger import Ledger
from numapin.daemon.logs import Log
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.kubelet_state import kubelet_state_stamp, read_kubelet_state
from numapin.model.container import ContainerRecord
from numapin.model.errors import KubeletStateUnusable
from numapin.model.kubelet import Hands, KubeletState
from numapin.model.memory import MEMORY, Block, Owner
from numapin.model.nodeset import NodeSet
from numapin.model.quantity import format_bytes


class Beside:
    """
    The kubelet as its state file was last read.

    *follow* is told which file to watch, ``None`` for none. Until the first `refresh` there is no kubelet.
    """

    def __init__(
        self, root: Path, config: Config, log: Log, follow: Callable[[Path | None], None] | None = None
    ) -> None:
        self.hands = Hands.OURS
        self.error: KubeletStateUnusable | None = None
        self._root = root
        self._log = log
        self._follow = follow
        self._path = config.kubelet_state if config.kubelet_follow else None
        self._good: KubeletState | None = None
        self._stamp: tuple[int, int, int] | None = None

    @property
    def assignments(self) -> Mapping[Owner, tuple[Block, ...]]:
        """What the kubelet holds, as far as it is known."""
        return self._good.assignments if self._good is not None and self._good.places else {}

    # ---- reading ---------------------------------------------------------------------------------------------

    def configure(self, config: Config) -> None:
        """Go by another configuration from the next `refresh` on."""
        path = config.kubelet_state if config.kubelet_follow else None
        if path != self._path:
            self._path, self._good, self.error = path, None, None
            if self._follow is not None:
                self._follow(path)

    def refresh(self, *, certain: bool = True) -> bool:
        """
        Read the file; returns whether anything changed in what the kubelet holds or whose the containers are.

        Without *certain* it is read only when its inode, size or time are other ones than at the last reading.
        """
        stamp = None if self._path is None else kubelet_state_stamp(self._root, self._path)
        if not certain and stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self.hands, self._good if self.hands is Hands.KUBELET else None
        self._read()
        if self._good is not None:
            self.hands = Hands.KUBELET if self._good.places else Hands.OURS
        else:
            self.hands = Hands.UNKNOWN if self.error is not None else Hands.OURS
        changed = before != (self.hands, self._good if self.hands is Hands.KUBELET else None)
        if before[0] is not self.hands:
            policy = None if self._good is None else self._good.policy
            self._log.info("pods_are_in_hands_of", hands=self.hands.value, kubelet_policy=policy)
        return changed

    def _read(self) -> None:
        error, self.error = self.error, None
        try:
            self._good = None if self._path is None else read_kubelet_state(self._root, self._path)
        except KubeletStateUnusable as exc:
            self.error = exc
            if str(exc) != str(error):
                self._log.error("kubelet_state_unusable", code=exc.code, reason=str(exc), kept=self._good is not None)

    # ---- what follows from it --------------------------------------------------------------------------------

    def claims(self, record: ContainerRecord) -> bool:
        """True for a container that is, or may be, the kubelet's to place."""
        return self.hands is not Hands.OURS and record.pod_uid is not None

    def nodes_of(self, record: ContainerRecord) -> NodeSet:
        """Nodes that the kubelet gave this container, or none."""
        if self.hands is not Hands.KUBELET or self._good is None or record.pod_uid is None:
            return NodeSet()
        return self._good.placements.get((record.pod_uid, record.name), NodeSet())

    def message(self, record: ContainerRecord) -> str:
        """Why this container is left alone."""
        if self.hands is Hands.UNKNOWN or self._good is None:
            return "left alone: the kubelet may place it, its state cannot be read"
        nodes = self.nodes_of(record)
        given = nodes.named if nodes else "no nodes of its own"
        return f"left to the kubelet (memory manager policy {self._good.policy}), which gave it {given}"

    def disagrees(self, view: Tracked) -> bool:
        """True when a decision about a container of a pod was made for other hands, or by an earlier state."""
        hands = self.hands if self.claims(view.record) else Hands.OURS
        if view.hands is not hands:
            return True
        left = hands is Hands.KUBELET and view.state is ContainerState.FOREIGN
        return left and view.message != self.message(view.record)

    def account(self, ledger: Ledger) -> bool:
        """
        Put what the kubelet holds into the books in place of what it held, and let go of our pins on its containers.

        Their cgroups are not touched. Returns whether anything of ours was given back.
        """
        released = False
        if self.hands is Hands.KUBELET:
            for cgroup in [c for c, p in ledger.pins.items() if p.pod_uid is not None]:
                released |= ledger.hand_over(cgroup)
        ledger.set_neighbour(self.assignments)
        return released

    def findings(self) -> list[tuple[str, str]]:
        """Pairs of stable code and sentence for the status."""
        found: list[tuple[str, str]] = []
        if self.hands is Hands.KUBELET and self._good is not None:
            size = sum(b.size_bytes for blocks in self.assignments.values() for b in blocks if b.type == MEMORY)
            sentence = (
                f"the kubelet places the containers of its pods itself (memory manager policy {self._good.policy}): "
                "they are left alone, and what it promised counts as reserved here "
                f"({len(self.assignments)} assignments, {format_bytes(size)} of memory)"
            )
            found.append(("kubelet-beside", sentence))
            if self._good.unverified and self.error is None:
                found.append(("kubelet-state-unverified", f"{self._path}: {self._good.unverified}; it is believed"))
        if self.error is not None:
            kept = (
                "the last good reading stands"
                if self._good is not None
                else "the containers of pods are left alone until it can be read"
            )
            sentence = (
                f"{self.error}; {kept}. The kubelet does not start with a damaged file: drain the node, stop the "
                "kubelet, remove the file, start it; where no kubelet runs any more, remove the file"
            )
            found.append(("kubelet-state-damaged", sentence))
        return found

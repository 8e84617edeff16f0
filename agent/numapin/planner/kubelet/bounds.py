"""
How many nodes and sets of nodes a kubelet's answer is worked out for.

Owns: these numbers, what one pod may still cost, and what is said beyond. Must never: look at a node.
"""

from __future__ import annotations

from enum import Enum, auto

from numapin.planner.witness import Steps

LISTED_NODES = 16
"""Sets of more nodes than this are not listed: there are 65,535 of 16 nodes, and each node doubles them."""
LISTED_SETS = 1 << 21
"""Sets that are looked at for one pod, all its containers together: some seconds."""
KUBELET_NODES = 8
"""The kubelet's own limit, for every policy but none, unless ``max-allowable-numa-nodes`` raises it."""


class Unanswered(Enum):
    """What it is that would take longer than anybody waits, or cannot be."""

    NOT_STARTED = auto()
    """The kubelet refuses to start on so many nodes."""
    ALL_COMPARED = auto()
    """Every set of nodes counts, since hints of several kinds of memory, or of others, are put together."""
    KINDS = auto()
    """The fewest nodes that have enough of several kinds of memory are not found in time."""
    CLOSEST = auto()
    """The closest of all sets of that size is not found in time."""
    CONTAINERS = auto()
    """Sets would have to be listed for so many containers, or kinds of memory, that together they are too many."""


class TooManyNodes(ValueError):
    """*nodes* are so many that there is no answer; *why* says what for, *limit* up to how many there is one."""

    def __init__(self, nodes: int, limit: int, why: Unanswered, kinds: int = 1) -> None:
        super().__init__(nodes, limit, why, kinds)
        self.nodes = nodes
        self.limit = limit
        self.why = why
        self.kinds = kinds

    def __str__(self) -> str:
        nodes, limit = self.nodes, f"this is always answered for up to {self.limit} nodes"
        kinds = f"{self.kinds} kinds of memory" if self.kinds > 1 else "memory"
        match self.why:
            case Unanswered.NOT_STARTED:
                return (
                    f"the kubelet does not start with a topology manager policy on {nodes} nodes: its limit is "
                    f"{self.limit} (option max-allowable-numa-nodes)"
                )
            case Unanswered.ALL_COMPARED:
                beside = "" if self.kinds > 1 else " and other resources"
                return (
                    f"where no set of nodes that {kinds}{beside} all prefer has room, the kubelet puts every set of "
                    f"{nodes} nodes together with every other, which takes too long; {limit}"
                )
            case Unanswered.KINDS:
                return (
                    f"which of {nodes} nodes are the fewest that have enough of {kinds} takes too long to find; "
                    f"{limit}, and for one kind of memory on any number"
                )
            case Unanswered.CLOSEST:
                return (
                    f"which of all the sets of {nodes} nodes that would do is the closest takes too long to find; "
                    f"{limit}, and on any number without prefer_closest"
                )
            case Unanswered.CONTAINERS:
                return (
                    f"every set of {nodes} nodes counts for each of the containers, and for {kinds}, and for so many "
                    "containers that takes too long; ask for fewer"
                )


class Budget:
    """
    What one pod's answer may still cost: *sets* of nodes that are looked at, and as many steps of searches.

    Either takes a microsecond or two. Without steps a search of many nodes gives up.
    """

    __slots__ = ("_sets", "left", "steps")

    def __init__(self, sets: int = LISTED_SETS) -> None:
        self._sets = self.left = sets
        self.steps = Steps.of(sets)

    @property
    def spent(self) -> int:
        """What was used up, both together."""
        return 2 * self._sets - self.left - self.steps.left

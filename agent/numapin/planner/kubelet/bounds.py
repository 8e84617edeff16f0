"""
How many nodes and sets of nodes a kubelet's answer is worked out for.

Owns: these numbers, and what is said beyond them. Must never: count anything itself.
"""

from __future__ import annotations

LISTED_NODES = 16
"""Sets of more nodes than this are not listed: there are 65,535 of 16 nodes, and each node doubles them."""
LISTED_SETS = 1 << 19
"""Sets that are looked at for one pod, all its containers together: some seconds."""
MERGED_NODES = 10
"""Lists of sets of more nodes than this are not merged with each other."""
KUBELET_NODES = 8
"""The kubelet's own limit, for every policy but none, unless ``max-allowable-numa-nodes`` raises it."""


class TooManyNodes(ValueError):
    """
    So many nodes that the kubelet refuses to start (``refused``), or would take longer than anybody waits.

    *limit* 0 is where the number of containers adds to it.
    """

    def __init__(self, nodes: int, limit: int, *, refused: bool) -> None:
        super().__init__(nodes, limit, refused)
        self.nodes = nodes
        self.limit = limit
        self.refused = refused

    def __str__(self) -> str:
        if self.refused:
            return (
                f"the kubelet does not start with a topology manager policy on {self.nodes} nodes: its limit is "
                f"{self.limit} (option max-allowable-numa-nodes)"
            )
        if not self.limit:
            return (
                f"the kubelet tries every set of {self.nodes} nodes for each container, and for so many containers "
                "that takes too long; ask for fewer containers"
            )
        return (
            f"the kubelet tries every set of {self.nodes} nodes, which takes too long; this is answered for up to "
            f"{self.limit} nodes"
        )

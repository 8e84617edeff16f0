"""One look at a cgroup tree without a daemon: containers and their classes, no decision. Must never: write."""

from __future__ import annotations

from pathlib import Path

from numapin.daemon.admission import classify_record
from numapin.daemon.config import load_config
from numapin.daemon.documents import API_VERSION
from numapin.daemon.status import container_row
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.kernel.cgroup_mounts import find_hierarchy
from numapin.kernel.discovery import Discovery


def found_containers(root: Path) -> dict[str, object]:
    """
    Containers document of one look at the cgroup tree below *root*, with classes but without any decision.

    Raises:
        NoCpusetController, KernelError: The tree cannot be read.
        ConfigError: The configuration below *root* is wrong.
    """
    config = load_config(root)
    discovery = Discovery(find_hierarchy(root), root)
    rows = []
    for record in sorted(discovery.scan(), key=lambda r: r.cgroup):
        verdict = classify_record(record, config)
        rows.append(container_row(Tracked(record, verdict, ContainerState.UNDECIDED, nodes=record.mems)))
    return {"apiVersion": API_VERSION, "kind": "Containers", "containers": rows}

"""One look at a cgroup tree without a daemon: containers and their classes, no decision. Must never: write."""

from __future__ import annotations

from pathlib import Path

from numapin.daemon.admission import classify_record
from numapin.daemon.config import load_config
from numapin.daemon.nested import nested_rows
from numapin.daemon.status import containers_of
from numapin.daemon.tracked import ContainerState, Tracked
from numapin.daemon.unseen import closed_places
from numapin.kernel.cgroup_mounts import find_hierarchy
from numapin.kernel.discovery import Discovery
from numapin.kernel.runtime_paths import read_runtime_paths


def found_containers(root: Path) -> dict[str, object]:
    """
    Containers document of one look at the cgroup tree below *root*, with classes but without any decision.

    Its ``unreadable`` are directories of the runtimes that this process may not look into.

    Raises:
        NoCpusetController, KernelError: The tree cannot be read.
        ConfigError: The configuration below *root* is wrong.
    """
    config = load_config(root)
    hierarchy, (paths, _) = find_hierarchy(root), read_runtime_paths(root)
    discovery = Discovery(hierarchy, root, paths, top=config.cgroup_root)
    views = [
        Tracked(record, classify_record(record, config), ContainerState.UNDECIDED, nodes=record.mems)
        for record in discovery.scan()
    ]
    return {**containers_of(views, nested_rows(discovery, views)), "unreadable": list(closed_places(root))}

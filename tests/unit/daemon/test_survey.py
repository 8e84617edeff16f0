"""One look at a cgroup tree without a daemon: `numapin.daemon.survey`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numapin.daemon.survey import found_containers
from support.daemon import Host, cid, docker
from support.trees import write_tree


def test_names_where_docker_keeps_them(tmp_path: Path) -> None:
    """Docker's name is found where its configuration puts its data."""
    Host(tmp_path).guaranteed(docker(1), 1)
    write_tree(
        tmp_path,
        {
            "etc/docker/daemon.json": '{"data-root": "/srv/docker"}',
            f"srv/docker/containers/{cid(1)}/config.v2.json": json.dumps({"Name": "/orders-db"}),
        },
    )
    document: Any = found_containers(tmp_path)

    assert [row["name"] for row in document["containers"]] == ["orders-db"]

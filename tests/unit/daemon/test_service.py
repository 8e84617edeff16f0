"""What is said about a host before the daemon serves it, and where the daemon looks then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numapin.daemon.config import Config
from numapin.daemon.machine import Machine
from numapin.daemon.service import Service
from numapin.daemon.suitability import notes
from numapin.kernel.cgroup_mounts import find_hierarchy
from numapin.kernel.discovery import Discovery
from numapin.kernel.runtime_paths import RuntimePaths
from numapin.model.errors import ConfigError, NoCpusetController
from support.cgroup_trees import GIB, CgroupTree
from support.daemon import Host, cid, docker
from support.machines import even, write_machine
from support.running import Numapin
from support.trees import write_tree


def said(root: Path) -> tuple[str, ...]:
    """Sentences about the host below *root*."""
    return tuple(notes(root, Machine.read(root, Config()), Discovery(find_hierarchy(root), root), RuntimePaths()))


def test_a_suitable_host(tmp_path: Path) -> None:
    """Several nodes and a container: nothing to say."""
    Host(tmp_path).guaranteed(docker(1), 1)

    assert said(tmp_path) == ()


def test_one_node_and_no_runtime(tmp_path: Path) -> None:
    """What can be done here, and where a real choice can be seen."""
    Host(tmp_path, nodes=even(1))

    one_node, nothing = said(tmp_path)

    assert "one NUMA node with memory (node 0)" in one_node
    assert "no container runtime was used on this host yet" in nothing
    assert all("make demo" in sentence for sentence in (one_node, nothing))


def test_a_runtime_without_a_container(tmp_path: Path) -> None:
    """With a runtime there, what is started counts."""
    Host(tmp_path)
    write_tree(tmp_path, {"var/lib/docker/containers/": ""})

    (nothing,) = said(tmp_path)

    assert "no container runs now; the ones you start are picked up" in nothing
    assert "make demo" in nothing


def test_a_tree_that_cannot_be_read(tmp_path: Path) -> None:
    """Nothing is said of containers where that cannot be told; the daemon has its own words for it."""
    Host(tmp_path)
    discovery = Discovery(find_hierarchy(tmp_path), tmp_path)
    (tmp_path / "sys/fs/cgroup").rename(tmp_path / "gone")

    assert list(notes(tmp_path, Machine.read(tmp_path, Config()), discovery, RuntimePaths())) == []


def test_no_cpuset(tmp_path: Path) -> None:
    """Without the controller there is nothing to serve."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "memory\n"})

    with pytest.raises(NoCpusetController, match="cgroup v2 with controllers memory"):
        Service(tmp_path, None, dry_run=True).run()


def test_a_wrong_configuration_is_all_told(tmp_path: Path) -> None:
    """Every problem at once, before anything is looked at."""
    write_tree(tmp_path, {"etc/numapin/numapin.toml": "policy = 1\nrelease_grace = 'soon'\n"})

    with pytest.raises(ConfigError) as caught:
        Service(tmp_path, None, dry_run=False)

    assert [key for _, key, _ in caught.value.problems] == ["policy", "release_grace"]


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    """Neither state nor socket directory is made by looking."""
    write_machine(tmp_path, even(2, memory=GIB))
    CgroupTree(tmp_path, nodes="0-1")

    said(tmp_path)

    assert not (tmp_path / "var").exists()
    assert not (tmp_path / "run").exists()


def test_the_daemon_looks_where_docker_is_configured_to(tmp_path: Path) -> None:
    """The names of containers come from the data-root of Docker's configuration."""
    root = tmp_path / "machine"
    Host(root).guaranteed(docker(1), 1)
    write_tree(
        root,
        {
            "etc/docker/daemon.json": '{"data-root": "/srv/docker"}',
            f"srv/docker/containers/{cid(1)}/config.v2.json": json.dumps({"Name": "/orders-db"}),
        },
    )
    daemon = Numapin(tmp_path, root=root)
    try:
        daemon.start()
        names = [row["name"] for row in daemon.status()["containers"]]
    finally:
        daemon.kill()

    assert names == ["orders-db"]

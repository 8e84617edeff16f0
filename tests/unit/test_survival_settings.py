"""Entry B109 of the bug log: a setting is an error or does something, and nothing hangs on another setting."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

from numapin.daemon.config import Config, Reserved, load_config
from numapin.daemon.config_keys import KEYS
from numapin.daemon.machine import Machine
from numapin.model.errors import ConfigError
from support.daemon import BARE, Host, docker
from support.machines import GIB, PAGE_2M, Node, write_machine
from support.trees import write_tree

PACKAGE = Path(__file__).parents[2] / "agent" / "numapin"
MAIN = "etc/numapin/numapin.toml"


@pytest.mark.parametrize("cpus", [None, "0"])
@pytest.mark.parametrize("is_asked", [True, False])
def test_b109_memory_needs_no_cpus(tmp_path: Path, cpus: str | None, is_asked: bool) -> None:
    """B109: 30 GiB go to the one node that has them, with CPUs and without, unless CPUs of the other have a say."""
    config = replace(BARE, provider_cpus=is_asked, provider_devices=is_asked)
    host = Host(tmp_path, nodes=[Node(0, "0", 8 * GIB), Node(1, "1", 64 * GIB)], config=config)
    path = host.guaranteed(docker(1), 30, cpus=cpus, effective="1")

    host.start()

    if is_asked and cpus:  # all of it on node 1 is not what the CPUs of node 0 ask for, and that is said
        assert host.states() == {path: "refused"}
        assert "memory fits on node 1, but cpu wants node 0" in host.view(path).message
    else:
        assert (host.states(), host.mems(path), host.reserved()) == ({path: "pinned"}, "1", {1: 30})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('polcy = "none"', "polcy"),
        ('numa.policy = "none"', "numa"),
        ('[reserved]\npolicy = "none"', "reserved.policy"),
        ("[nodes]\nreserved = [0]", "nodes.reserved"),
        ('[reserved.node.7]\nmemory = "1Gi"', "reserved.node.7.memory"),
        ('[reserved.node.2]\nmemory = "1Gi"', "reserved.node.2.memory"),
        ('[reserved.node.3]\nmemory = "1Gi"', "reserved.node.3.memory"),
        ('[reserved.node.1]\nhugepages-2Mi = "2Mi"', "reserved.node.1.hugepages-2Mi"),
        ('[reserved.node.0]\nhugepages-1Gi = "1Gi"', "reserved.node.0.hugepages-1Gi"),
        ('[reserved.node.0]\nhugepages-2Mi = "3Mi"', "reserved.node.0.hugepages-2Mi"),
    ],
)
def test_b109_a_setting_without_an_effect_is_an_error(tmp_path: Path, text: str, key: str) -> None:
    """B109: a key nobody reads, a reservation on a node or pool that is not there or not used: no start."""
    nodes = [Node(0, "0", 8 * GIB, pools={PAGE_2M: 8}), Node(1, "1", 8 * GIB), Node(2, "", 8 * GIB), Node(3, "2", 0)]
    write_tree(write_machine(tmp_path, nodes), {MAIN: text})

    with pytest.raises(ConfigError) as caught:
        Machine.read(tmp_path, load_config(tmp_path))

    assert [found for _, found, _ in caught.value.problems] == [key]


def test_b109_every_setting_is_asked_for() -> None:
    """B109: each key's field is read by some module that is neither about the file nor about showing it."""
    asked = set()
    for path in PACKAGE.rglob("*.py"):
        if path.stem in ("config", "config_keys", "check_config", "doctor", "status"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config"):
                asked.add(node.attr)
    for node in ast.walk(ast.parse((PACKAGE / "daemon/config.py").read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("reserved"):
            asked.add(f"reserved.{node.attr}")

    assert {key.field for key in KEYS.values()} <= asked
    assert {f.name for f in fields(Config)} - {"sources"} <= asked
    assert {f"reserved.{f.name}" for f in fields(Reserved)} <= asked

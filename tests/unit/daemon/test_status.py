"""The documents of status and containers: a golden one, and what each finding says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from numapin import __version__
from numapin.daemon.status import About, containers_document, status_document, summary
from numapin.kernel.cgroup_mounts import CgroupVersion
from support.cgroup_trees import GIB, oci
from support.cgroup_trees import cri as cri_annotations
from support.daemon import BARE, Host, cid, cri, docker
from support.golden import golden
from support.machines import Node, even

MIB = 1 << 20
POOLS = {2 * MIB: 512}


def about(host: Host, **changes: Any) -> About:
    """What the service knows of itself."""
    return About(
        pid=4242,
        started_wall_ns=host.clock.wall_ns(),
        started_monotonic_ns=host.clock.monotonic_ns(),
        cgroup_version="v2",
        boot_id=host.boot,
        checkpoint="/var/lib/numapin/state.json",
        **changes,
    )


def document(host: Host, **changes: Any) -> Any:
    """The status now, to be looked into."""
    me = about(host, **changes)
    return status_document(host.agent, me, now_ns=host.clock.monotonic_ns(), wall_ns=host.clock.wall_ns())


def everything(root: Path) -> Host:
    """One of each: pinned, in a group, foreign, refused, held back, burstable, sandbox, ended; a node not used."""
    nodes = [
        Node(0, "0-1", 10 * GIB, pools=POOLS),
        Node(1, "2-3", 10 * GIB, pools=POOLS),
        Node(2, "4-5", 10 * GIB, pools=POOLS),
        Node(3, "6-7", 10 * GIB, free=GIB, pools=POOLS),
        Node(8, "", 16 * GIB),
    ]
    host = Host(root, nodes=nodes)
    host.tree.task("k8s.io", cid(1), oci(annotations=cri_annotations("db")))
    host.guaranteed(cri(1), 4, hugetlb={"2MB": GIB}, effective="0")
    host.start()
    host.guaranteed(docker(2), 15, effective="1-2")
    late = host.guaranteed(docker(3), 6, effective="3")
    host.holds(late, {0: 3 * GIB, 1: 4 * GIB})
    host.guaranteed(docker(4), 9)
    host.guaranteed(docker(5), 1, mems="0")
    host.container(docker(6), memory=GIB)
    host.tree.task("k8s.io", cid(7), oci(annotations=cri_annotations("", kind="sandbox")))
    host.container(cri(7))
    host.tree.task("k8s.io", cid(8), oci(annotations=cri_annotations("init")))
    ended = host.guaranteed(cri(8), 1)
    host.agent.full_pass()
    host.agent.on_removed([host.remove(ended)])
    return host


def shorten(rows: Any) -> None:
    """Leave the first words of a refusal; the whole sentence is the planner's and is tested there."""
    for row in rows:
        if row["state"] == "refused":
            row["message"] = row["message"].partition(";")[0]


def test_the_whole_document(tmp_path: Path) -> None:
    """Every key and value of a status with one container of each kind, as the golden file has it."""
    host = everything(tmp_path)
    me = about(host)
    host.clock.advance(seconds=3725.5)

    found: Any = status_document(host.agent, me, now_ns=host.clock.monotonic_ns(), wall_ns=host.clock.wall_ns())

    assert found.pop("version") == __version__
    shorten(found["containers"])
    text = json.dumps(found, indent=2, sort_keys=True) + "\n"
    assert golden("status-v1.json", text) == text


def test_the_list_of_containers(tmp_path: Path) -> None:
    """Every container found is in it, with class, rule, request and state, as the golden file has it."""
    found: Any = containers_document(everything(tmp_path).agent)
    shorten(found["containers"])
    text = json.dumps(found, indent=2, sort_keys=True) + "\n"

    assert golden("containers-v1.json", text) == text


def test_the_summary_line(tmp_path: Path) -> None:
    """One line with every state that occurs, the dry run and a checkpoint that cannot be saved."""
    host = everything(tmp_path)

    assert summary(host.agent) == "2 pinned, 1 deferred, 1 pinned-by-others, 1 refused, 2 not managed"
    host.file.path.with_name("state.json.new").mkdir()
    host.agent.flush()
    assert summary(host.agent).endswith("2 not managed, CHECKPOINT CANNOT BE SAVED")


def test_a_dry_run_says_so(tmp_path: Path) -> None:
    """In the summary and in the document."""
    host = Host(tmp_path, dry_run=True)
    host.guaranteed(docker(1), 1)
    host.start()

    assert summary(host.agent) == "0 pinned, 1 would-pin, 0 not managed (dry run)"
    assert document(host)["dry_run"] is True


def test_findings(tmp_path: Path) -> None:
    """What the daemon cannot see, odd hardware, promises that do not fit and an unsaved checkpoint are all told."""
    host = Host(tmp_path, nodes=[*even(1, memory=10 * GIB), Node(5, "", GIB)])
    host.guaranteed(docker(1), 8)
    host.start()
    host.agent.flush()
    assert [f["code"] for f in document(host)["findings"]] == ["cpu-less-nodes"]
    host.nodes[0] = replace(host.nodes[0], memory=5 * GIB)
    from support.machines import write_machine

    write_machine(tmp_path, host.nodes)
    host.agent.on_machine(type(host.agent.machine).read(tmp_path, BARE))
    host.file.path.with_name("state.json.new").mkdir()
    host.agent.flush()

    found = document(host, findings=lambda: [("not-watched", "one directory")])

    codes = ["not-watched", "cpu-less-nodes", "promise-does-not-fit", "checkpoint-unwritable"]
    assert codes == [f["code"] for f in found["findings"]]
    assert "node 5 has memory but no CPUs" in found["findings"][1]["message"]
    assert found["findings"][2]["message"].startswith(f"{cid(1)[:12]}: node 0 can promise 5 GiB")
    assert found["summary"].startswith("1 pinned, 0 not managed, 1 promise does not fit, ")
    assert found["findings"][3]["message"] == found["checkpoint"]["error"]


def test_pages_that_stay_behind_on_v1(tmp_path: Path) -> None:
    """Without memory_migrate the status says that what a running container had before is not moved."""
    host = Host(tmp_path, version=CgroupVersion.V1, config=replace(BARE, v1_memory_migrate=False))
    path = host.guaranteed(docker(1), 2)
    host.put(path, {"cpuset.mems": "\n"})
    host.start()

    (row,) = document(host)["containers"]

    assert row["message"] == "pages it had before stay where they are (cgroup v1 without memory_migrate)"


def test_a_pinned_container_of_doubtful_class_is_listed(tmp_path: Path) -> None:
    """A container that holds a promise is in the status whatever its class looks like at the moment."""
    host = Host(tmp_path)
    path = host.guaranteed(docker(1), 2)
    host.start()
    host.put(path, {"cpu.max": "rubbish\n"})
    host.agent.full_pass()

    (row,) = document(host)["containers"]

    assert (row["state"], row["nodes"]) == ("pinned", [0])
    assert "cpu.max" in row["message"]


def test_everything_is_plain_json(tmp_path: Path) -> None:
    """Bytes are integers and every value survives a round trip."""
    host = everything(tmp_path)

    for found in (document(host), containers_document(host.agent)):
        assert json.loads(json.dumps(found)) == found

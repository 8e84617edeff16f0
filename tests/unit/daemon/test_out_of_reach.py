"""A pinned cgroup outside of a new ``cgroup.root`` gets back what it had, also when that has to be tried again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numapin.daemon.release import release_document
from numapin.kernel.cgroup_mounts import CgroupVersion
from numapin.model.nodeset import NodeSet
from support.daemon import BARE, Host, docker

PATH = docker(1)
ELSEWHERE = replace(BARE, cgroup_root="/other")


class Refusing:
    """A host whose kernel takes nothing for the pinned container, and whose ``cgroup.root`` became another one."""

    def __init__(self, root: Path, version: CgroupVersion) -> None:
        v1 = version is CgroupVersion.V1
        self.host = Host(root, version=version)
        self.host.guaranteed(PATH, 15, effective="0-1", mems="0-3" if v1 else "")
        self.host.tree.add("/other", controllers=False)
        self.host.start()
        self.host.agent.flush()
        assert (self.host.mems(PATH), self.host.reserved()) == ("0-1", {0: 10, 1: 5})
        self.host.stop()
        self._mems = self.host.tree.cpuset / PATH[1:] / "cpuset.mems"
        self._kept = root / "kept"
        self._mems.rename(self._kept)
        self._mems.mkdir()
        self.host.config = ELSEWHERE
        self.host.start()
        self.host.agent.flush()

    def give_in(self) -> None:
        """From now on the kernel takes what is written."""
        self._mems.rmdir()
        self._kept.rename(self._mems)

    @property
    def findings(self) -> list[tuple[str, str]]:
        """What the status says about it."""
        assert self.host.agent.out_of_reach is not None
        return self.host.agent.out_of_reach.findings()


@pytest.mark.parametrize("version", [CgroupVersion.V1, CgroupVersion.V2])
def test_a_passing_error(tmp_path: Path, version: CgroupVersion) -> None:
    """The record, its memory and a finding stay, said once, until a pass can put the old value back."""
    story = Refusing(tmp_path, version)
    host = story.host
    host.agent.full_pass()
    host.agent.flush()

    assert [code for code, _ in story.findings] == ["out-of-reach"]
    assert PATH in story.findings[0][1]
    assert (set(host.saved().containers), host.reserved()) == ({PATH}, {0: 10, 1: 5})
    assert host.log.events().count("container_out_of_reach") == 1
    host.sound()
    story.give_in()
    host.agent.full_pass()
    host.agent.flush()
    assert (host.mems(PATH), host.reserved(), story.findings) == ("0-3", {}, [])
    assert host.saved().containers == {}
    assert host.saved().restored[PATH].mems == (NodeSet.parse("0-3"),)


def test_another_start(tmp_path: Path) -> None:
    """A daemon that starts later finds the record and tries again; in reach again it is a pin like any other."""
    story = Refusing(tmp_path, CgroupVersion.V2)
    story.host.restart()
    assert len(story.findings) == 1
    story.host.stop()
    story.give_in()
    story.host.config = BARE

    story.host.start()

    assert (story.host.states(), story.host.reserved()) == ({PATH: "pinned"}, {0: 10, 1: 5})
    assert story.findings == []


def test_its_end(tmp_path: Path) -> None:
    """When its cgroup goes the next pass gives the memory back."""
    story = Refusing(tmp_path, CgroupVersion.V2)
    story.give_in()
    story.host.remove(PATH)

    story.host.agent.full_pass()

    assert (story.host.reserved(), story.findings, story.host.agent.ledger.restored) == ({}, [], {})


def test_release_of_all(tmp_path: Path) -> None:
    """``release --all`` tries too, and its answer names what is not as before."""
    story = Refusing(tmp_path, CgroupVersion.V2)

    refused = release_document(story.host.agent, {"all": True})["containers"]
    story.give_in()
    done = release_document(story.host.agent, {"all": True})["containers"]

    assert isinstance(refused, list)
    assert [(row["cgroup"], row["state"], bool(row["problem"])) for row in refused] == [(PATH, "pinned", True)]
    assert (done, story.host.mems(PATH)) == ([], "0-3")

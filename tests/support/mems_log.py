"""How long the ``cpuset.mems`` of some cgroups were not what they should be, as a watcher in the guest saw it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import support.mems_watcher
from support.guest.machine import Guest

PROGRAM: Final = Path(support.mems_watcher.__file__)
LOG: Final = "/tmp/mems.log"


@dataclass(frozen=True, slots=True)
class Wrong:
    """One time that a cgroup had other nodes than it should; ``seconds`` until it was right again."""

    cgroup: str
    mems: str
    seconds: float


@dataclass(frozen=True, slots=True)
class MemsLog:
    """A running watcher."""

    guest: Guest

    @classmethod
    def start(cls, guest: Guest, cgroups: Iterable[str]) -> Self:
        """From now on the changes of these cgroups' ``cpuset.mems`` are written down."""
        files = " ".join(f"/sys/fs/cgroup{cgroup}/cpuset.mems" for cgroup in cgroups)
        guest.push(PROGRAM, "/tmp/mems_watcher.py")
        watcher = f"python3 /tmp/mems_watcher.py {LOG} {files} >/tmp/mems.err 2>&1"
        guest.run(f"{watcher} & until test -s {LOG}; do sleep 0.1; done")
        return cls(guest)

    def wrong(self, right: Mapping[str, str]) -> list[Wrong]:
        """
        Each time that one was not *right* (its cgroup → its nodes), oldest first.

        Raises:
            AssertionError: One still is not; carries since when, and which nodes it has.
        """
        since: dict[str, tuple[float, str]] = {}
        found: list[Wrong] = []
        for line in self.guest.read(LOG).decode().splitlines():
            entry = json.loads(line)
            cgroup = entry["file"].removeprefix("/sys/fs/cgroup").removesuffix("/cpuset.mems")
            if entry["mems"] != right[cgroup]:
                since.setdefault(cgroup, (entry["at"], entry["mems"]))
            elif cgroup in since:
                start, mems = since.pop(cgroup)
                found.append(Wrong(cgroup, mems, entry["at"] - start))
        assert {} == since, since
        return found


def in_words(what: str, wrong: Iterable[Wrong]) -> str:
    """A figure for the closing lines."""
    times = sorted(one.seconds * 1000 for one in wrong)
    if not times:
        return f"{what}: never wrong"
    return (
        f"{what}: wrong {len(times)} times, for {times[len(times) // 2]:.0f} ms (median), {times[-1]:.0f} ms at most"
    )

"""
One look at everything that numapin needs from a host, each with a verdict and a remedy. Needs no daemon.

Owns: what is looked at, and what its absence means. Must never: write anything.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from numapin.daemon.admission import classify_record, may_be_managed
from numapin.daemon.config import Config, load_config, under
from numapin.daemon.config_keys import format_duration
from numapin.daemon.enabling import may_enable
from numapin.daemon.machine import Machine
from numapin.daemon.shortcomings import memory_gap, no_memory_controller, unused_nodes
from numapin.daemon.suitability import places, used_runtimes
from numapin.daemon.unseen import closed_places, closed_sentence
from numapin.kernel.cgroup_mounts import Hierarchy, find_hierarchy
from numapin.kernel.discovery import Discovery
from numapin.kernel.files import is_directory, list_subdirectories, read_optional
from numapin.kernel.own import read_machine_memory
from numapin.kernel.runtime_paths import RuntimePaths, read_runtime_paths
from numapin.kernel.systemd import BOOTED
from numapin.model.container import ContainerKind, ContainerRecord, QosClass
from numapin.model.errors import CheckpointError, ConfigError, KernelError, KernelReadError
from numapin.model.memory import MEMORY
from numapin.model.quantity import format_available, format_bytes
from numapin.model.topology import Topology
from numapin.state.checkpoint import CheckpointFile

WATCHES = "proc/sys/fs/inotify/max_user_watches"
SPARE_WATCHES = 1024
"""For the runtimes' directories and the containers that come next."""
_SHOWN = 5
_DIGITS = 19


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    """Works, with a limit that the administrator should know."""
    PROBLEM = "problem"
    """numapin cannot do its work, or part of it, until this is mended."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: its *name*, the verdict, and a sentence with the facts and, where needed, what to do."""

    name: str
    verdict: Verdict
    sentence: str


def examine(root: Path, config_file: Path | None = None) -> list[Check]:
    """Every check of the machine below *root*; what is wrong with it becomes a check, not an error."""
    checks: list[Check] = []
    config = _configuration(root, config_file, checks)
    machine = _machine(root, config, checks)
    if machine is not None:
        checks += _nodes(root, machine)
    hierarchy = _hierarchy(root, checks)
    paths, doubted = read_runtime_paths(root)
    if hierarchy is not None:
        checks += _cgroups(root, hierarchy, config, paths)
    checks.append(_runtimes(root, paths, doubted))
    if closed := closed_sentence(closed_places(root)):
        checks.append(Check("runtimes", Verdict.NOTE, closed))
    checks.append(_systemd(root))
    checks.append(_checkpoint(root, config))
    return checks


def _configuration(root: Path, file: Path | None, checks: list[Check]) -> Config:
    """The configuration, or the defaults where it is wrong."""
    try:
        config = load_config(root, file)
    except ConfigError as exc:
        checks += _problems("configuration", exc)
        checks.append(Check("configuration", Verdict.NOTE, "what follows is looked at with the defaults"))
        return Config()
    files = sorted(set(config.sources.values()))
    said = f"read from {', '.join(files)}" if files else "no file sets anything: the defaults are in force"
    checks.append(Check("configuration", Verdict.OK, f"{said}; policy {config.policy.value}"))
    return config


def _problems(name: str, exc: ConfigError) -> list[Check]:
    return [Check(name, Verdict.PROBLEM, ": ".join(filter(None, problem))) for problem in exc.problems]


def _machine(root: Path, config: Config, checks: list[Check]) -> Machine | None:
    try:
        return Machine.read(root, config)
    except ConfigError as exc:
        checks += _problems("nodes", exc)
    except KernelError as exc:
        checks.append(Check("nodes", Verdict.PROBLEM, str(exc)))
    return None


def _nodes(root: Path, machine: Machine) -> Iterator[Check]:
    topology, usable = machine.topology, machine.usable
    room = sum(machine.node_map.nodes[n].memory_map[MEMORY].allocatable for n in usable)
    facts = f"online: {topology.online}; used: {usable or 'none'}; {format_available(room)} can be promised"
    if not room:
        why = "all of it is in hugepage pools or reserved for the system" if usable else "no node has memory"
        yield Check("nodes", Verdict.PROBLEM, f"{facts}: {why}")
    elif len(usable) < 2:
        yield Check("nodes", Verdict.NOTE, f"{facts}; with one node there is nothing to choose, only books to keep")
    else:
        yield Check("nodes", Verdict.OK, facts)
    yield from (Check("nodes", Verdict.NOTE, said) for _, said in unused_nodes(topology, usable))
    for warning in topology.warnings:
        yield Check("nodes", Verdict.NOTE, warning)
    if root == Path("/"):
        yield from (Check("nodes", Verdict.NOTE, said) for _, said in memory_gap(topology, read_machine_memory()))
    yield _hugepages(topology)


def _hugepages(topology: Topology) -> Check:
    totals: Counter[str] = Counter()
    for node in topology.nodes.values():
        for pool in node.pools:
            totals[format_bytes(pool.size_bytes)] += pool.total_bytes
    pools = ", ".join(f"{format_bytes(size)} in pages of {page}" for page, size in totals.items() if size)
    return Check("hugepages", Verdict.OK, pools or "no pool has pages: hugepages are promised to nobody")


def _hierarchy(root: Path, checks: list[Check]) -> Hierarchy | None:
    try:
        hierarchy = find_hierarchy(root)
    except KernelError as exc:
        checks.append(Check("cgroups", Verdict.PROBLEM, str(exc)))
        return None
    hybrid = " (hybrid)" if hierarchy.hybrid else ""
    checks.append(
        Check("cgroups", Verdict.OK, f"cpuset is {hierarchy.version.value}{hybrid}, {hierarchy.mount_point}")
    )
    checks += [Check("cgroups", Verdict.NOTE, said) for _, said in no_memory_controller(hierarchy)]
    return hierarchy


def _cgroups(root: Path, hierarchy: Hierarchy, config: Config, paths: RuntimePaths) -> Iterator[Check]:
    discovery = Discovery(hierarchy, root, paths, top=config.cgroup_root)
    try:
        records = discovery.scan()
    except KernelError as exc:
        yield Check("containers", Verdict.PROBLEM, str(exc))
        return
    if problem := discovery.top_problem():
        yield Check("containers", Verdict.PROBLEM, problem)
    yield Check("containers", Verdict.OK, _counted(records, config))
    wanted = [r for r in records if r.doubts and _wants_nodes(r, config)]
    enabled = [r for r in wanted if may_enable(r, config)]
    if enabled:
        said = f"cpuset is not enabled above {len(enabled)} of them; the daemon does it (cgroup.enable_cpuset)"
        yield Check("containers", Verdict.NOTE, said)
    doubted = [r for r in wanted if r not in enabled]
    if doubted and closed_places(root):
        yield Check("containers", Verdict.NOTE, f"{len(doubted)} of them cannot be judged without root")
        doubted = []
    for record in doubted[:_SHOWN]:
        yield Check("containers", Verdict.PROBLEM, f"{record.name} gets no nodes: {'; '.join(record.doubts)}")
    if len(doubted) > _SHOWN:
        yield Check(
            "containers", Verdict.PROBLEM, f"and {len(doubted) - _SHOWN} more: numapin containers --root {root}"
        )
    yield _watches(root, hierarchy, discovery, config)


def _wants_nodes(record: ContainerRecord, config: Config) -> bool:
    guaranteed = classify_record(record, config).qos is QosClass.GUARANTEED
    return may_be_managed(record, config) and (guaranteed or not record.class_certain)


def _counted(records: list[ContainerRecord], config: Config) -> str:
    own = [r for r in records if r.kind is ContainerKind.CONTAINER]
    classes = Counter(classify_record(r, config).qos for r in own)
    return f"{len(own)} found" + "".join(f", {classes[q]} {q.value}" for q in QosClass if classes[q])


def _watches(root: Path, hierarchy: Hierarchy, discovery: Discovery, config: Config) -> Check:
    try:
        text = (read_optional(root / WATCHES) or "").strip()
    except KernelReadError as exc:
        return Check("events", Verdict.NOTE, str(exc))
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        return Check("events", Verdict.NOTE, f"{root / WATCHES} does not tell how many watches there may be")
    cgroups = _watched(str(hierarchy.cpuset_mount), discovery)
    if int(text) < cgroups + SPARE_WATCHES:
        interval, wanted = format_duration(config.full_pass_interval_ns), max(65_536, 4 * cgroups)
        return Check(
            "events",
            Verdict.PROBLEM,
            f"{cgroups} cgroups and {text} inotify watches for each user: what cannot be watched is seen by the full "
            f"pass only (every {interval}); raise it: sysctl fs.inotify.max_user_watches={wanted}",
        )
    return Check("events", Verdict.OK, f"{cgroups} cgroups, and {text} inotify watches for each user")


def _watched(mount: str, discovery: Discovery) -> int:
    """Directories that a daemon would watch: all but what is inside containers."""
    count, pending = 0, [""]
    while pending:
        here = pending.pop()
        count += 1
        if here and discovery.is_container_path(here):
            continue
        try:
            pending += [f"{here}/{name}" for name in list_subdirectories(mount + here)]
        except KernelReadError:
            continue  # gone meanwhile
    return count


def _runtimes(root: Path, paths: RuntimePaths, doubted: Sequence[str]) -> Check:
    """Which of the runtimes' directories are there; *doubted* are sentences about files that should say where."""
    found = used_runtimes(root, paths)
    if found:
        said = f"state of runtimes in {', '.join(found)}"
    else:
        said = f"no runtime has kept anything yet in any of {', '.join(places(paths))}"
    verdict = Verdict.OK if found and not doubted else Verdict.NOTE
    return Check("runtimes", verdict, "; ".join((said, *doubted)))


def _systemd(root: Path) -> Check:
    if is_directory(root / BOOTED):
        return Check("systemd", Verdict.OK, "runs; units of pinned containers are told their nodes (cgroup v2)")
    return Check("systemd", Verdict.NOTE, "does not run here; numapin needs none, but something must run numapin run")


def _checkpoint(root: Path, config: Config) -> Check:
    file = CheckpointFile(under(root, config.state_dir) / "state.json")
    try:
        loaded = file.peek()
    except CheckpointError as exc:
        if isinstance(exc.__cause__, PermissionError) and os.geteuid() != 0:
            return Check("checkpoint", Verdict.NOTE, f"{file.path} cannot be read without root: run this with sudo")
        return Check("checkpoint", Verdict.PROBLEM, str(exc))
    if loaded.damaged:
        return Check("checkpoint", Verdict.PROBLEM, "; ".join(d.reason for d in loaded.damaged))
    if loaded.checkpoint is None:
        return Check("checkpoint", Verdict.OK, f"none yet in {file.path}")
    count = len(loaded.checkpoint.containers)
    return Check("checkpoint", Verdict.OK, f"{file.path}, {count} container{'s' * (count != 1)}")

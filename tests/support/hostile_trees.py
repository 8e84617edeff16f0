"""Whole machines on which containers, and whoever writes their documents, mean harm; and what changed on them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from numapin.kernel.cgroup_mounts import CgroupVersion
from support.cgroup_trees import GIB, TASKS, cri, oci, write_files
from support.daemon import POD_SLICE, Host, cid
from support.hostile import ESCAPE, as_json, documents, texts

DECOYS = (
    "/system.slice/sshd.service",
    "/system.slice",
    "/user.slice/user-0.slice",
    "/init.scope",
    "/docker",
    "/kubepods/burstable",
    "/machine.slice",
    POD_SLICE,
)
"""Cgroups that belong to no container, each with a ``cpuset.mems`` that a trick might lead to."""

CLAIMS = (
    *DECOYS,
    "/",
    "",
    "/..",
    "/../../../outside",
    "../../outside",
    "/system.slice/../outside",
    "system.slice:sshd:service",
    ":x:sshd.service",
    "a-" * 2000 + "b.slice:x:y",
    "/sys/fs/cgroup/docker",
    f"/docker/{cid(1)}/../..",
    "/" + "\0",
)
"""What a document may name as its container's cgroup."""

_annotations = st.dictionaries(
    st.sampled_from([*cri(""), "numapin.guaranteed", "io.kubernetes.container.name", "io.container.manager", ESCAPE]),
    texts,
    max_size=4,
)
_claims = st.sampled_from(CLAIMS) | texts


@st.composite
def configs(draw: st.DrawFn) -> str:
    """An OCI config.json with a hostile claim, names, annotations and devices, or something worse."""
    claim, annotations = draw(_claims), draw(_annotations)
    config = oci(memory=GIB, quota=50_000, cgroups_path=claim, annotations=annotations, devices=("/dev/vfio/7",))
    config["linux"]["netDevices"] = {draw(texts): {}}
    return draw(documents(config) | st.just(as_json(config)))


@st.composite
def runc_states(draw: st.DrawFn) -> str:
    """A state.json that names somebody else's cgroup, or something worse."""
    claim = draw(_claims)
    paths = {"": f"/sys/fs/cgroup{claim}", "cpuset": f"/sys/fs/cgroup/cpuset{claim}"}
    state = {
        "id": draw(texts),
        "init_process_pid": draw(st.sampled_from([0, 1, 1001, -5, 2**40])),
        "cgroup_paths": paths,
        "config": {"labels": [f"{k}={v}" for k, v in draw(_annotations).items()], "cgroups": {"memory": GIB}},
    }
    return draw(documents(state) | st.just(as_json(state)))


@st.composite
def crun_states(draw: st.DrawFn) -> str:
    """A status of crun with the same ideas."""
    status = {"pid": 1001, "cgroup-path": draw(_claims), "scope": draw(_claims), "bundle": draw(texts)}
    return draw(documents(status) | st.just(as_json(status)))


Put = Callable[[Path, str], None]


def _file(path: Path, text: str) -> None:
    path.write_text(text, errors="replace")


def _bytes(path: Path, text: str) -> None:
    path.write_bytes(b"\xff\xfe" + text.encode("utf-16-le", "replace"))


def _fifo(path: Path, text: str) -> None:
    del text
    os.mkfifo(path)


def _directory(path: Path, text: str) -> None:
    del text
    path.mkdir()


def _socket(path: Path, text: str) -> None:
    del text
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _zeros(path: Path, text: str) -> None:
    """The device /dev/zero, where nodes can be made; a file of nothing elsewhere."""
    del text
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except OSError:
        path.touch()


def _large(path: Path, text: str) -> None:
    with path.open("w", errors="replace") as file:
        file.write(text)
        file.truncate(64 << 20)


def _link(path: Path, text: str) -> None:
    target = path.parent / "elsewhere.json"
    target.write_text(text, errors="replace")
    path.symlink_to(target)


def _far_link(path: Path, text: str) -> None:
    del text
    path.symlink_to("/proc/self/environ")


def _loop(path: Path, text: str) -> None:
    del text
    path.symlink_to(path.name)


def _hard_link(path: Path, text: str) -> None:
    target = path.parent / "other.json"
    target.write_text(text, errors="replace")
    os.link(target, path)


PUTS: tuple[Put, ...] = (
    *(_file,) * 4,
    *(_bytes, _fifo, _directory, _socket, _zeros, _large, _link, _far_link, _loop, _hard_link),
)


class Hostile:
    """A machine, its containers' cgroups, and everything on it before an agent ran."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.containers: list[str] = []
        self.before: dict[str, Any] = {}

    def __repr__(self) -> str:
        said = {path: content for path, (*_, content) in self.before.items() if path.startswith(("run/", "var/"))}
        return f"Hostile({self.containers}, {said})"

    def changed(self) -> set[str]:
        """Paths below the root whose kind, content or target changed, the agent's own directory left out."""
        now = snapshot(self.host.root)
        return {path for path in self.before.keys() | now.keys() if self.before.get(path) != now.get(path)}

    def allowed(self) -> set[str]:
        """Paths that an agent may change: the nodes of the containers themselves."""
        base = self.host.tree.cpuset.relative_to(self.host.root)
        names = ("cpuset.mems", "cpuset.memory_migrate")
        return {f"{base}{path}/{name}" for path in self.containers for name in names}


def snapshot(root: Path) -> dict[str, Any]:
    """Every path below *root* with what it is; links are not followed, ``var/lib/numapin`` is left out."""
    found: dict[str, Any] = {}
    for directory, directories, files in os.walk(os.fsencode(root)):
        if os.path.relpath(directory, os.fsencode(root)) == b"var/lib":
            directories[:] = [d for d in directories if d != b"numapin"]
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            status = os.lstat(path)
            content: object = None
            written_ns = None if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20:
                with open(path, "rb") as file:
                    content = file.read()
            # the time too: "0" written over "0-3" leaves a plain file as it was
            found[shown] = (status.st_mode, status.st_uid, written_ns, content)
    return found


NAMES = (
    "db",
    f"x{ESCAPE}",
    "\u202egnp",
    "[bold red]loud[/bold red]",
    "a b=c level=critical",
    "n" * 240,
    os.fsdecode(b"\xff\xfe\x80"),
    "\u5bb9\u5668" * 20,
    "e\u0301" * 40,
    "\x7f\x9b",
    "{0}%s",
)
"""Names of system containers, which their owners choose; a cgroup's name has no line end and no slash."""


def build(root: Path, draw: st.DrawFn, version: CgroupVersion) -> Hostile:
    """A machine of two to five containers, decoys, links, and documents that say whatever they like."""
    from numapin.daemon.config import Config, Reserved

    config = Config(reserved=Reserved(fraction_ppm=0, minimum_bytes=0), qos_system_containers=True)
    found = Hostile(Host(root, version=version, config=config))
    host = found.host
    for decoy in DECOYS:
        host.tree.add(decoy, mems="0-3", memory=GIB, quota=50_000, effective="0-3")
    (root / "var/lib").mkdir(parents=True)
    write_files(root / "outside", {"cpuset.mems": "0-3\n", "cpuset.mems.effective": "0\n", "cgroup.procs": "1001\n"})
    for number in range(1, draw(st.integers(2, 5)) + 1):
        _container(found, number, draw)
    if draw(st.booleans()):
        _planted(found, draw)
    found.before = snapshot(root)
    return found


def _container(found: Hostile, number: int, draw: st.DrawFn) -> None:
    host, container = found.host, cid(number)
    tasks, runc = host.root / TASKS[1:], host.root / "run/containerd/runc"
    kind = draw(st.sampled_from(["docker", "pod", "podman", "ctr", "lxc"]))
    paths = {
        "docker": f"/system.slice/docker-{container}.scope",
        "pod": f"{POD_SLICE}/cri-containerd-{container}.scope",
        "podman": f"/machine.slice/libpod-{container}.scope",
        "ctr": f"/work/{container}",
        "lxc": f"/lxc.payload.{draw(st.sampled_from(NAMES))}",
    }
    homes = {
        "docker": tasks / "moby" / container,
        "pod": tasks / "k8s.io" / container,
        "podman": host.root / "var/lib/containers/storage/overlay-containers" / container / "userdata",
        "ctr": tasks / "work" / container,
        "lxc": host.root / "run/lxc" / str(number),
    }
    states = {
        "docker": runc / "moby" / container,
        "pod": runc / "k8s.io" / container,
        "ctr": runc / "work" / container,
    }
    path, home = paths[kind], homes[kind]
    if path not in found.containers:
        host.guaranteed(path, effective="0")
        found.containers.append(path)
    _place(home, "config.json", draw(configs()), draw)
    if draw(st.booleans()):
        _place(home, "options.json", draw(documents({"root": "/run/../outside"}, {"root": "/run/a\0b"})), draw)
    if kind in states and draw(st.booleans()):
        _place(states[kind], "state.json", draw(runc_states()), draw)
    if kind == "podman" and draw(st.booleans()):
        _place(host.root / "run/crun" / container, "status", draw(crun_states()), draw)
    if kind == "docker" and draw(st.booleans()):
        name = draw(documents({"Name": f"/{ESCAPE}"}))
        _place(host.root / "var/lib/docker/containers" / container, "config.v2.json", name, draw)


def _place(directory: Path, name: str, text: str, draw: st.DrawFn) -> None:
    """The document, or something that is none, under its name; now and then the directory is a link elsewhere."""
    if draw(st.integers(0, 9)) == 0 and not directory.exists():
        real = directory.with_name(directory.name + "-real")
        real.mkdir(parents=True, exist_ok=True)
        directory.symlink_to(real)
    else:
        directory.mkdir(parents=True, exist_ok=True)
    if not (directory / name).is_symlink() and not (directory / name).exists():
        draw(st.sampled_from(PUTS))(directory / name, text)


def _planted(found: Hostile, draw: st.DrawFn) -> None:
    """Links in the cgroup tree: a container that is one, and one whose files are."""
    cpuset, outside = found.host.tree.cpuset, found.host.root / "outside"
    (cpuset / "system.slice" / f"docker-{cid(900)}.scope").symlink_to(outside)
    victim = f"/system.slice/docker-{cid(901)}.scope"
    found.host.guaranteed(victim, effective="0")
    found.containers.append(victim)
    for name in draw(st.sets(st.sampled_from(["cpuset.mems", "cpuset.memory_migrate", "cgroup.procs"]), min_size=1)):
        target = outside / ("cpuset.mems" if name != "cgroup.procs" else name)
        (cpuset / victim[1:] / name).unlink(missing_ok=True)
        (cpuset / victim[1:] / name).symlink_to(target)

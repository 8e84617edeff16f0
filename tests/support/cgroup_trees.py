"""Cgroup trees and runtimes' files below a directory, as kernels and runtimes lay them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numapin.kernel.cgroup_mounts import CgroupVersion, Hierarchy, find_hierarchy
from numapin.kernel.discovery import Discovery
from numapin.kernel.runtime_paths import read_runtime_paths
from numapin.model.container import ContainerRecord

GUARANTEED_SLICE = "/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice"
BURSTABLE_SLICE = (
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
)
POD_UID = "11111111-2222-3333-4444-555555555555"
ID_A, ID_B, ID_C = "a" * 64, "b" * 64, "c" * 64
MIB, GIB = 1 << 20, 1 << 30
TASKS = "/run/containerd/io.containerd.runtime.v2.task"


def write_files(directory: Path, files: dict[str, str]) -> None:
    """Write text files, directories included."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class CgroupTree:
    """
    A machine below *root* with one cgroup hierarchy and no containers yet.

    Files are plain files: a write changes one and nothing else. ``nodes`` is what the root grants.
    """

    def __init__(
        self, root: Path, version: CgroupVersion = CgroupVersion.V2, *, nodes: str = "0-3", noprefix: bool = False
    ) -> None:
        self.root = root
        self.version = version
        self.nodes = nodes
        self.prefix = "" if noprefix else "cpuset."
        self._base = root / "sys/fs/cgroup"
        write_files(
            root / "sys/kernel/mm/hugepages", {f"hugepages-{s}kB/nr_hugepages": "0\n" for s in (2048, 1048576)}
        )
        if version is CgroupVersion.V2:
            write_files(self._base, {"cgroup.controllers": "cpuset cpu memory hugetlb pids\n", "cgroup.procs": ""})
            write_files(
                self._base, {"cpuset.mems.effective": f"{nodes}\n", "cgroup.subtree_control": "cpuset memory\n"}
            )
        else:
            for name in ("memory", "cpu,cpuacct", "hugetlb", "unified"):
                (self._base / name).mkdir(parents=True)
            names = {f"{self.prefix}mems": nodes, f"{self.prefix}effective_mems": nodes, f"{self.prefix}cpus": "0-7"}
            write_files(self._base / "cpuset", {k: f"{v}\n" for k, v in names.items()} | {"cgroup.procs": ""})

    @property
    def cpuset(self) -> Path:
        """Directory of the hierarchy with cpuset."""
        return self._base if self.version is CgroupVersion.V2 else self._base / "cpuset"

    def hierarchy(self) -> Hierarchy:
        """The hierarchy as the product finds it."""
        return find_hierarchy(self.root)

    def discovery(self, top: str = "/") -> Discovery:
        """A fresh `Discovery` on this machine, of what is below *top*, with runtimes as they are configured."""
        paths, _ = read_runtime_paths(self.root)
        return Discovery(self.hierarchy(), self.root, paths, top=top)

    def scan(self) -> list[ContainerRecord]:
        """Everything a fresh `Discovery` finds."""
        return self.discovery().scan()

    def only(self) -> ContainerRecord:
        """The one record a fresh scan finds."""
        (record,) = self.scan()
        return record

    def add(
        self,
        path: str,
        *,
        mems: str = "",
        effective: str | None = None,
        memory: int | None = None,
        low: int = 0,
        quota: int | None = None,
        cpus: str | None = None,
        hugetlb: dict[str, int] | None = None,
        pids: tuple[int, ...] = (),
        controllers: bool = True,
    ) -> Path:
        """
        Make a cgroup and its missing ancestors; ``None`` for a limit is the kernel's "no limit".

        *hugetlb* is keyed by the controller's size name (``2MB``). Without *controllers* only cpuset is there.
        """
        parts = path.strip("/").split("/")
        for k in range(1, len(parts)):
            above = "/" + "/".join(parts[:k])
            if not (self.cpuset / above.lstrip("/")).exists():
                self.add(above)
        granted = effective if effective is not None else mems or self.nodes
        make = self._v2 if self.version is CgroupVersion.V2 else self._v1
        make(path.lstrip("/"), mems, granted, memory, low, quota, cpus, hugetlb or {}, pids, controllers)
        return self.cpuset / path.lstrip("/")

    def _v2(
        self,
        path: str,
        mems: str,
        granted: str,
        memory: int | None,
        low: int,
        quota: int | None,
        cpus: str | None,
        hugetlb: dict[str, int],
        pids: tuple[int, ...],
        controllers: bool,
    ) -> None:
        files = {
            "cgroup.procs": "".join(f"{p}\n" for p in pids),
            "cgroup.events": f"populated {int(bool(pids))}\nfrozen 0\n",
            "cgroup.subtree_control": "cpuset cpu memory hugetlb pids\n",
            "cpuset.mems": f"{mems}\n",
            "cpuset.mems.effective": f"{granted}\n",
            "cpuset.cpus": f"{cpus or ''}\n",
        }
        if controllers:
            files |= {
                "memory.max": f"{memory or 'max'}\n",
                "memory.low": f"{low}\n",
                "cpu.max": f"{quota or 'max'} 100000\n",
            }
            files |= {f"hugetlb.{s}.max": f"{hugetlb.get(s, 'max')}\n" for s in ("2MB", "1GB")}
        write_files(self.cpuset / path, files)

    def _v1(
        self,
        path: str,
        mems: str,
        granted: str,
        memory: int | None,
        low: int,
        quota: int | None,
        cpus: str | None,
        hugetlb: dict[str, int],
        pids: tuple[int, ...],
        controllers: bool,
    ) -> None:
        mems = mems or self.nodes
        files = {
            "cgroup.procs": "".join(f"{p}\n" for p in pids),
            f"{self.prefix}mems": f"{mems}\n",
            f"{self.prefix}effective_mems": f"{granted}\n",
            f"{self.prefix}cpus": f"{cpus or '0-7'}\n",
            f"{self.prefix}memory_migrate": "0\n",
        }
        write_files(self.cpuset / path, files)
        if not controllers:
            return
        unlimited = 9223372036854771712
        write_files(
            self._base / "memory" / path,
            {
                "memory.limit_in_bytes": f"{memory or unlimited}\n",
                "memory.soft_limit_in_bytes": f"{low or unlimited}\n",
            },
        )
        write_files(
            self._base / "cpu,cpuacct" / path,
            {"cpu.cfs_quota_us": f"{quota or -1}\n", "cpu.cfs_period_us": "100000\n", "cpu.shares": "1024\n"},
        )
        huge = {f"hugetlb.{s}.limit_in_bytes": f"{hugetlb.get(s, 9223372036852678656)}\n" for s in ("2MB", "1GB")}
        write_files(self._base / "hugetlb" / path, huge)

    # runtimes' files

    def task(self, namespace: str, container_id: str, config: dict[str, Any] | str, **options: object) -> Path:
        """A containerd task directory with its bundle's ``config.json``; *options* go to ``options.json``."""
        directory = self.root / TASKS.lstrip("/") / namespace / container_id
        text = config if isinstance(config, str) else json.dumps(config)
        write_files(directory, {"config.json": text} | ({"options.json": json.dumps(options)} if options else {}))
        return directory

    def storage(self, container_id: str, config: dict[str, Any]) -> None:
        """A bundle of Podman or CRI-O."""
        base = self.root / "var/lib/containers/storage/overlay-containers" / container_id / "userdata"
        write_files(base, {"config.json": json.dumps(config)})

    def runc(self, container_id: str, cgroup: str, *, base: str = "/run/runc", **cgroups: object) -> None:
        """A ``state.json`` of runc; *cgroups* are keys of its ``config.cgroups``."""
        labels = cgroups.pop("labels", [])
        pid, start = cgroups.pop("pid", 0), cgroups.pop("start", 0)
        if self.version is CgroupVersion.V2:
            paths = {"": f"/sys/fs/cgroup{cgroup}"}
        else:
            paths = {"cpuset": f"/sys/fs/cgroup/cpuset{cgroup}", "memory": f"/sys/fs/cgroup/memory{cgroup}"}
        state = {
            "id": container_id,
            "init_process_pid": pid,
            "init_process_start": start,
            "cgroup_paths": paths,
            "config": {"labels": ["bundle=/somewhere/else", *labels], "cgroups": cgroups},  # type: ignore[misc]
        }
        write_files(self.root / base.lstrip("/") / container_id, {"state.json": json.dumps(state)})

    def crun(
        self, container_id: str, cgroup: str, *, scope: str = "", base: str = "/run/crun", config: object = None
    ) -> None:
        """A ``status`` of crun, with the copy of ``config.json`` it keeps."""
        status = {
            "pid": 0,
            "cgroup-path": cgroup,
            "scope": scope,
            "bundle": "/somewhere/else",
            "systemd-cgroup": True,
        }
        files = {"status": json.dumps(status)}
        if config is not None:
            files["config.json"] = json.dumps(config)
        write_files(self.root / base.lstrip("/") / container_id, files)

    def process(self, pid: int, *, comm: str = "postgres", start: int = 100) -> None:
        """A process in ``/proc``."""
        fields = " ".join(["S", "1", *["0"] * 17, str(start), "0", "0"])
        status = f"Name:\t{comm}\nTgid:\t{pid}\nMems_allowed_list:\t0-3\n"
        write_files(
            self.root / "proc" / str(pid),
            {"comm": f"{comm}\n", "stat": f"{pid} ({comm}) {fields}\n", "status": status},
        )


def oci(
    *,
    memory: int | None = None,
    reservation: int | None = None,
    quota: int | None = None,
    shares: int | None = None,
    cpus: str = "",
    mems: str = "",
    hugepages: dict[str, int] | None = None,
    cgroups_path: str = "",
    annotations: dict[str, str] | None = None,
    devices: tuple[str, ...] = (),
) -> dict[str, Any]:
    """An OCI ``config.json`` with what concerns placement, and some keys that do not."""
    return {
        "ociVersion": "1.2.0",
        "process": {"oomScoreAdj": 0, "args": ["sh"]},
        "annotations": annotations,
        "linux": {
            "cgroupsPath": cgroups_path,
            "devices": [{"path": d, "type": "c", "major": 1, "minor": 3} for d in devices],
            "resources": {
                "memory": {"limit": memory, "reservation": reservation, "swap": memory},
                "cpu": {"quota": quota, "period": 100_000, "shares": shares, "cpus": cpus, "mems": mems},
                "hugepageLimits": [{"pageSize": s, "limit": n} for s, n in (hugepages or {}).items()],
            },
        },
    }


def cri(container: str, *, kind: str = "container", pod: str = "web-0", namespace: str = "shop") -> dict[str, str]:
    """Annotations of containerd's CRI plugin."""
    prefix = "io.kubernetes.cri."
    names = {"container-type": kind, "sandbox-name": pod, "sandbox-namespace": namespace, "container-name": container}
    return {prefix + k: v for k, v in names.items()}

"""
What the test guest is: a frozen description, and the key that tells two descriptions apart.

Everything that a finished image or its snapshot depends on is in here; nothing of the host is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent

PACKAGES: Final = (
    # the system
    "systemd", "systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "procps",
    # container runtimes
    "runc", "crun", "containerd", "podman", "docker.io", "docker-cli", "nftables", "iptables",
    "busybox-static",
    # what numapin's own package depends on
    "python3", "python3-psutil", "python3-pyroute2", "python3-structlog", "python3-msgspec",
    "python3-jeepney", "python3-rich", "python3-yaml",
    # for looking
    "numactl", "strace", "jq",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GuestFile:
    """A file of the image; *path* is absolute in the guest."""

    path: str
    content: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        """Permission bits."""
        return 0o755 if self.executable else 0o644


@dataclass(frozen=True, slots=True)
class Machine:
    """
    The virtual hardware.

    ``distances[i][j]`` is the distance from node *i* to node *j*, unitless, 10 is local. Every
    node has the same memory and CPUs, but for the last ``empty_nodes``: these have neither, and the guest's
    kernel does not have them online, until a test plugs memory into one. ``memory_slots`` and
    ``max_memory_mib`` are for that.
    """

    distances: tuple[tuple[int, ...], ...] = (
        (10, 20, 30, 30, 40),
        (20, 10, 30, 30, 40),
        (30, 30, 10, 20, 40),
        (30, 30, 20, 10, 40),
        (40, 40, 40, 40, 10),
    )
    empty_nodes: int = 1
    node_memory_mib: int = 1024
    node_cpus: int = 1
    memory_slots: int = 4
    max_memory_mib: int = 8192
    cpu: str = "max,-la57,-erms,-fsrm,-smap,-smep,-avx,-avx2,-f16c,-fma,-xsave"
    """
    Without what is slow when emulated: 5-level page tables, ``rep movsb``, a second address translation for the
    kernel's accesses to user memory, and registers of 32 bytes that every switch of tasks saves.
    """

    def options(self) -> list[str]:
        """
        QEMU's options for all that the guest can see.

        They name back ends that the caller defines: block node ``disk``, character devices
        ``console`` and ``exec``.
        """
        nodes = range(len(self.distances) - self.empty_nodes)
        memory = f"{len(nodes) * self.node_memory_mib}M"
        words = [
            "-nodefaults",
            *("-machine", "q35"),
            *("-accel", "tcg,thread=multi"),
            *("-cpu", self.cpu),
            *("-smp", str(len(nodes) * self.node_cpus)),
            *("-m", f"{memory},slots={self.memory_slots},maxmem={self.max_memory_mib}M"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *("-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng"),
            *("-serial", "chardev:console"),
            *("-device", "virtio-serial-pci"),
            *("-device", "virtserialport,chardev=exec,name=guest.exec"),
        ]
        for node in nodes:
            first = node * self.node_cpus
            memdev = f"memory{node}"
            size = f"size={self.node_memory_mib}M"
            cpus = f"cpus={first}-{first + self.node_cpus - 1}"
            words += ["-object", f"memory-backend-ram,id={memdev},{size}"]
            words += ["-numa", f"node,nodeid={node},{cpus},memdev={memdev}"]
        for node in range(len(nodes), len(self.distances)):
            words += ["-numa", f"node,nodeid={node}"]
        for source, row in enumerate(self.distances):
            for target, distance in enumerate(row):
                words += ["-numa", f"dist,src={source},dst={target},val={distance}"]
        return words


def _own_files() -> tuple[GuestFile, ...]:
    """The folder ``files`` as it lies beside this module, and the agent; sorted by path."""
    root = HERE / "files"
    files = [
        GuestFile(f"/{path.relative_to(root)}", path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in root.rglob("*")
        if path.is_file()
    ]
    files.append(GuestFile("/usr/local/sbin/guest-exec", (HERE / "agent.py").read_bytes(), True))
    return tuple(sorted(files, key=lambda file: file.path))


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    The image: what is in it, how it boots and what is done before the snapshot.

    ``customize`` runs on the host with the root directory as its argument, ``prepare`` in the
    guest; both are shell scripts.
    """

    suite: str = "trixie"
    packages: tuple[str, ...] = PACKAGES
    files: tuple[GuestFile, ...] = field(default_factory=_own_files)
    customize: str = field(default_factory=(HERE / "customize.sh").read_text)
    prepare: str = field(default_factory=(HERE / "prepare.sh").read_text)
    kernel_arguments: tuple[str, ...] = (
        "root=/dev/vda", "rw", "console=ttyS0", "loglevel=4", "panic=-1", "hugepages=128",
        "mitigations=off", "fsck.mode=skip",
        # an emulator translates code once per address: with random ones, once per process (5 times slower)
        "norandmaps",
        # hardening of the kernel that costs a tenth of the time and guards nothing here
        "lsm=capability", "init_on_alloc=0", "hardened_usercopy=off", "randomize_kstack_offset=off", "nowatchdog",
    )  # fmt: skip
    machine: Machine = field(default_factory=Machine)
    disk_mib: int = 8192

    def key(self) -> str:
        """Sixteen hexadecimal digits, others for every other recipe."""
        text = repr((self, self.machine.options()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

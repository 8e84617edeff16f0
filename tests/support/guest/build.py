"""
The build of an image: root file system, disk, first boot, preparation, snapshot.

Writes into one folder that the caller gives, and nowhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.guest import mirror
from support.guest.errors import BuildFailed, HostNotReady
from support.guest.host import SEARCH_PATH, Tool, require
from support.guest.machine import BASE, Guest
from support.guest.progress import Progress
from support.guest.qemu import Drives
from support.guest.recipe import GuestFile, Recipe

LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def drives_in(directory: Path) -> Drives:
    """Where the files of an image lie in its folder."""
    return Drives(
        kernel=directory / "kernel",
        initrd=directory / "initrd",
        disk=directory / "disk.raw",
        overlay=directory / "overlay.qcow2",
    )


def new_overlay(drives: Drives) -> None:
    """The overlay is an empty qcow2 on top of the disk."""
    _step(
        "the overlay",
        [
            *(require(Tool.QEMU_IMG), "create", "-q", "-f", "qcow2"),
            *("-F", "raw", "-b", str(drives.disk), str(drives.overlay)),
        ],
    )


def build(recipe: Recipe, directory: Path, progress: Progress) -> None:
    """
    *directory*, which must not exist, holds the finished image of *recipe*.

    ``figures.json`` in it tells seconds and bytes of the build.

    Raises:
        HostNotReady: Not root.
        BuildFailed, GuestError: A step failed; the folder is not usable.
    """
    if os.geteuid() != 0:
        raise HostNotReady("root", "build the image once as root (it makes a Debian root)")
    directory.mkdir(parents=True)
    drives = drives_in(directory)
    work = directory / "work"
    progress(f"guest image {directory.stem}: root file system of {recipe.suite}")
    root = _root_file_system(recipe, work)
    progress("disk")
    _disk(recipe, root, drives)
    shutil.rmtree(work)
    root_s = progress.elapsed_s()
    progress("first boot (emulated, some 40 to 80 s)")
    new_overlay(drives)
    with Guest(recipe, drives, directory, snapshot=None, remove=False) as guest:
        guest.run("systemctl is-system-running --wait", timeout_s=300, check=False)
        boot_s = progress.elapsed_s() - root_s
        progress("preparing containers")
        guest.run(recipe.prepare, timeout_s=600)
        guest.run("sync && fstrim / && echo 3 >/proc/sys/vm/drop_caches && sleep 1")
        progress("snapshot")
        before_s = progress.elapsed_s()
        guest.save(BASE)
        save_s = progress.elapsed_s() - before_s
    figures = {
        "root_file_system_s": round(root_s, 1),
        "boot_s": round(boot_s, 1),
        "save_s": round(save_s, 1),
        "total_s": round(progress.elapsed_s(), 1),
        "disk_bytes": drives.disk.stat().st_blocks * 512,
        "overlay_bytes": drives.overlay.stat().st_blocks * 512,
    }
    (directory / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    for name in ("console.sock", "qemu.log"):
        (directory / name).unlink(missing_ok=True)
    (directory / "lock").touch()
    progress(f"guest image ready: {figures}")


def _root_file_system(recipe: Recipe, work: Path) -> Path:
    """The root directory, made with mmdebstrap from where the host's apt gets its packages."""
    root, files, customize = work / "root", work / "files", work / "customize"
    for file in recipe.files:
        _place(file, files)
    customize.write_text(recipe.customize)
    command = [
        # what mmdebstrap mounts and starts is gone when it is, also when it is killed: removing the
        # folder with a mounted /dev in it would be bad
        *(require(Tool.UNSHARE), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        require(Tool.MMDEBSTRAP),
        *("--mode=root", "--variant=minbase", "--components=main", "--quiet"),
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={line}" for line in mirror.host_options()),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
        # before the packages, for the initial RAM disk is made of them when the kernel comes
        f"--setup-hook=cp -R '{files}/.' \"$1\"",
        f"--customize-hook=cp -R '{files}/.' \"$1\"",
        f"--customize-hook=sh '{customize}' \"$1\"",
        f"--include={','.join(recipe.packages)}",
        *(recipe.suite, str(root), mirror.host_mirror()),
    ]
    _step("mmdebstrap", command)
    return root


def _place(file: GuestFile, under: Path) -> None:
    """Write a file of the recipe under a folder that stands for the guest's root."""
    path = under / file.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    path.chmod(file.mode)


def _disk(recipe: Recipe, root: Path, drives: Drives) -> None:
    """Kernel, initial RAM disk, and the raw (sparse) disk with the root file system."""
    boot = root / "boot"
    for pattern, target in (("vmlinuz-*", drives.kernel), ("initrd.img-*", drives.initrd)):
        found = sorted(boot.glob(pattern))
        if len(found) != 1:
            raise BuildFailed("the kernel", f"{len(found)} files {pattern} instead of 1")
        shutil.copyfile(found[0], target)
    with drives.disk.open("wb") as file:
        file.truncate(recipe.disk_mib * 1024 * 1024)
    _step(
        "mke2fs",
        # no journal and no lazy tables: nothing that the guest's kernel does by itself later
        [
            *(require(Tool.MKE2FS), "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"),
            *("-E", "lazy_itable_init=0", "-d", str(root), str(drives.disk)),
        ],
    )


def _step(what: str, command: Sequence[str]) -> None:
    """Run one host command of the build; its output is kept for the case that it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8"},
        text=True,
        errors="replace",
        umask=0o022,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(what, f"status {done.returncode}\n{done.stdout[-3000:]}")

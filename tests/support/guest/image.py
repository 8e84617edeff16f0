"""
The finished image in the cache: finding it, having it built, starting guests from it.

How it is built is ``build``'s; what it is, is the recipe's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.guest import build, cache
from support.guest.host import TO_BUILD, TO_RUN, Tool, ensure, missing_packages, require
from support.guest.machine import BASE, Guest
from support.guest.progress import Progress
from support.guest.qemu import Drives
from support.guest.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image; *directory* may vanish when another recipe is built and nobody uses it."""

    recipe: Recipe
    root: Path
    directory: Path

    @property
    def drives(self) -> Drives:
        """The image's files, all to be read only."""
        return build.drives_in(self.directory)

    def start(self, *, snapshot: str | None = BASE) -> Guest:
        """
        A guest with private files, from *snapshot*; with ``None`` it boots cold from the disk.

        Raises:
            GuestError: The image was removed meanwhile, or the guest did not come up.
        """
        used = cache.share(self.directory)
        cache.remove_unused(self.root / "runs")
        directory, lock = cache.private_directory(self.root)
        private = Drives(self.drives.kernel, self.drives.initrd, self.drives.disk, directory / "overlay.qcow2")
        try:
            if snapshot is None:
                build.new_overlay(private)
            else:
                copy = ["cp", "--reflink=auto", str(self.drives.overlay), str(private.overlay)]
                subprocess.run(copy, check=True)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            lock.close()
            used.close()
            raise
        return Guest(self.recipe, private, directory, snapshot=snapshot, held=(lock, used))


def ensure_image(recipe: Recipe | None = None, progress: Progress | None = None) -> Image:
    """
    The finished image of *recipe* (``None``: the ordinary one), built now where there is none.

    A new image drives out all older ones that nobody uses.

    Raises:
        HostNotReady: Tools are missing and cannot be installed, or building needs root.
        BuildFailed: A step of the build failed; the cache is as before.
    """
    recipe = recipe or Recipe()
    progress = progress or Progress()
    root = cache.cache_root()
    if missing_packages(TO_RUN):
        with cache.build_lock(root, progress):
            ensure(TO_RUN, progress=progress)
    image = Image(recipe, root, root / "images" / f"{recipe.key()}-qemu{qemu_version()}")
    if image.directory.exists():
        return image
    with cache.build_lock(root, progress):
        ensure(TO_BUILD, suite=recipe.suite, progress=progress)
        if not image.directory.exists():
            new = image.directory.with_name(image.directory.name + ".new")
            for left in image.directory.parent.glob("*.new"):
                shutil.rmtree(left)
            try:
                build.build(recipe, new, progress)
                new.rename(image.directory)
            finally:
                shutil.rmtree(new, ignore_errors=True)
            cache.remove_unused(image.directory.parent, keep=image.directory)
    return image


def qemu_version() -> str:
    """The host's QEMU, as in ``7.2.22``: another one cannot be trusted to load a snapshot."""
    command = [require(Tool.QEMU), "--version"]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"version (\d+(?:\.\d+)*)", text)
    return found[1] if found else "unknown"

"""Which containers a runtime keeps although they do not run: `numapin.kernel.runtimes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.runtime_paths import RuntimePaths
from numapin.kernel.runtimes import RuntimeFiles
from support.cgroup_trees import ID_A, ID_B

MOVED = RuntimePaths(docker="/srv/docker/containers", storage=("/run/r/vfs-containers", "/srv/g/vfs-containers"))
USUAL_PLACES = (
    f"var/lib/docker/containers/{ID_A}",
    f"run/containers/storage/overlay-containers/{ID_A}",
    f"var/lib/containers/storage/overlay-containers/{ID_A}",
)
NERDCTL = f"var/lib/nerdctl/1935db59/containers/default/{ID_A}"


def is_kept(root: Path, paths: RuntimePaths | None = None, container_id: str = ID_A) -> bool:
    """What a fresh reader says."""
    return RuntimeFiles(root, "/sys/fs/cgroup", paths).is_kept(container_id)


@pytest.mark.parametrize("place", [*USUAL_PLACES, NERDCTL, NERDCTL.replace("default", "k8s.io")])
def test_kept(tmp_path: Path, place: str) -> None:
    """A container's directory of Docker, Podman or nerdctl keeps it, and no other container."""
    before = is_kept(tmp_path)
    (tmp_path / place).mkdir(parents=True)

    assert not before
    assert is_kept(tmp_path)
    assert not is_kept(tmp_path, container_id=ID_B)


@pytest.mark.parametrize(
    "place", [f"srv/docker/containers/{ID_A}", f"run/r/vfs-containers/{ID_A}", f"srv/g/vfs-containers/{ID_A}"]
)
def test_kept_elsewhere(tmp_path: Path, place: str) -> None:
    """Directories that were configured are looked at."""
    (tmp_path / place).mkdir(parents=True)

    assert is_kept(tmp_path, MOVED)
    assert not is_kept(tmp_path)


@pytest.mark.parametrize("place", USUAL_PLACES)
def test_the_usual_place_of_what_was_moved(tmp_path: Path, place: str) -> None:
    """What stayed behind when a runtime's directory was moved keeps nothing: the runtime does not know it."""
    (tmp_path / place).mkdir(parents=True)

    assert not is_kept(tmp_path, MOVED)


@pytest.mark.parametrize(
    "place",
    [
        f"run/containerd/io.containerd.runtime.v2.task/default/{ID_A}",
        f"run/runc/{ID_A}",
        f"var/lib/nerdctl/volumes/containers/default/{ID_A}",
        f"var/lib/nerdctl/1935db59/names/default/{ID_A}",
    ],
)
def test_no_sign(tmp_path: Path, place: str) -> None:
    """What goes with a container that ends, or is none of it, keeps nothing."""
    (tmp_path / place).mkdir(parents=True)

    assert not is_kept(tmp_path)


def test_neither_links_nor_files(tmp_path: Path) -> None:
    """A container's directory is a directory; what cannot be one is no error."""
    base = tmp_path / "var/lib/docker/containers"
    base.mkdir(parents=True)
    (base / ID_A).symlink_to(tmp_path)
    (base / ID_B).touch()

    assert not is_kept(tmp_path)
    assert not is_kept(tmp_path, container_id=ID_B)
    assert not is_kept(tmp_path, container_id="x" * 300)
    assert not is_kept(tmp_path, container_id="../containers")


def test_a_link_of_the_administrator_s(tmp_path: Path) -> None:
    """The runtime's own directory may be a link to where there is room."""
    (tmp_path / "srv/docker/containers" / ID_A).mkdir(parents=True)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/docker").symlink_to(tmp_path / "srv/docker")

    assert is_kept(tmp_path)

"""Where Docker's and Podman's configuration puts their files: `numapin.kernel.runtime_paths`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from numapin.kernel.runtime_paths import (
    RuntimePaths,
    Storage,
    parse_data_root,
    parse_storage_conf,
    read_runtime_paths,
)
from numapin.model.errors import KernelFormatError
from support.trees import write_tree

DAEMON, STORAGE, VENDOR = "etc/docker/daemon.json", "etc/containers/storage.conf", "usr/share/containers/storage.conf"
USUAL = Storage()
STRANGE = ("srv/x", "../x", "/srv/../x", "/", "$HOME/x", "/a\nb", "/srv/\0", "/srv/" + "x" * 256, "/x" * 600)
"""No directories that would be looked at."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"data-root": "/srv/docker"}', "/srv/docker"),
        ('{"data-root": "/srv//docker/./", "debug": true, "hosts": ["fd://"]}', "/srv/docker"),
        ('\ufeff{"data-root": "/srv/docker"}', "/srv/docker"),
        ('{"data-root": ""}', "/var/lib/docker"),
        ("{}", "/var/lib/docker"),
        (" \n", "/var/lib/docker"),
    ],
)
def test_data_root(text: str, expected: str) -> None:
    """Docker's directory is the one that its file names, else the usual one."""
    assert parse_data_root(text, source="daemon.json") == expected


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"data-root": 1}', "null", "[" * 100_000, *(json.dumps({"data-root": p}) for p in STRANGE)]
)
def test_a_data_root_that_is_none(text: str) -> None:
    """What is no such document, or no plain absolute path, is one typed error."""
    with pytest.raises(KernelFormatError):
        parse_data_root(text, source="daemon.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[storage]\ngraphroot = "/srv/g"\nrunroot = "/run/r"\n', Storage("/run/r", "/srv/g")),
        ('[storage]\ndriver = "vfs"\n[storage.options]\nsize = ""\n', Storage(driver="vfs")),
        ('[storage]\ndriver = "overlay2"\n', USUAL),
        ('[storage]\ngraphroot = ""\ndriver = ""\n', USUAL),
        ("# nothing\n", USUAL),
        ("", USUAL),
    ],
)
def test_storage_conf(text: str, expected: Storage) -> None:
    """What the file leaves out or empty is as usual."""
    assert parse_storage_conf(text, source="storage.conf") == expected


@pytest.mark.parametrize(
    "text",
    [
        "[storage",
        "storage = 1",
        "[storage]\ngraphroot = 1",
        '[storage]\ndriver = "../x"',
        "x = " + "[" * 5000,
        "x = " + "9" * 5000,
        "#" * (9 << 10),
        "# long\n" * (16 << 10),
        *(f"[storage]\nrunroot = {json.dumps(p)}" for p in STRANGE),
        *(f"[storage]\ngraphroot = {json.dumps(p)}" for p in STRANGE),
    ],
)
def test_a_storage_conf_that_is_none(text: str) -> None:
    """What is no such document, too long or no plain absolute path, is one typed error."""
    with pytest.raises(KernelFormatError):
        parse_storage_conf(text, source="storage.conf")


def test_nothing_is_configured(tmp_path: Path) -> None:
    """Without the files the usual directories are looked at, and nothing is wrong."""
    assert read_runtime_paths(tmp_path) == (RuntimePaths(), ())


def test_other_places(tmp_path: Path) -> None:
    """Both files are followed; what they do not speak of is as usual."""
    write_tree(
        tmp_path,
        {
            DAEMON: '{"data-root": "/srv/docker"}',
            STORAGE: '[storage]\ndriver = "btrfs"\ngraphroot = "/srv/podman"\n',
        },
    )
    paths, problems = read_runtime_paths(tmp_path)

    assert problems == ()
    assert paths.docker == "/srv/docker/containers"
    assert paths.storage == ("/run/containers/storage/btrfs-containers", "/srv/podman/btrfs-containers")
    assert (paths.tasks, paths.states) == (RuntimePaths().tasks, RuntimePaths().states)


def test_the_vendor_s_file(tmp_path: Path) -> None:
    """The administrator's storage.conf stands for the whole of the vendor's, also where it leaves something out."""
    write_tree(tmp_path, {VENDOR: '[storage]\ngraphroot = "/usr/g"\nrunroot = "/run/r"\n'})
    vendor, _ = read_runtime_paths(tmp_path)
    write_tree(tmp_path, {STORAGE: '[storage]\ngraphroot = "/etc/g"\n'})
    own, _ = read_runtime_paths(tmp_path)

    assert vendor.storage == ("/run/r/overlay-containers", "/usr/g/overlay-containers")
    assert own.storage == ("/run/containers/storage/overlay-containers", "/etc/g/overlay-containers")


@pytest.mark.parametrize("name", [DAEMON, STORAGE, VENDOR])
@pytest.mark.parametrize("kind", ["damaged", "too-long", "pipe", "directory", "link"])
def test_a_file_that_cannot_be_believed(tmp_path: Path, name: str, kind: str) -> None:
    """It is named, never waited for, and the usual directories are looked at; the other file holds all the same."""
    write_tree(tmp_path, {DAEMON: '{"data-root": "/srv/docker"}', VENDOR: '[storage]\ngraphroot = "/srv/podman"\n'})
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    match kind:
        case "damaged":
            file.write_bytes(b"\xff{")
        case "too-long":
            file.write_text("#" * (5 << 20))
        case "pipe":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case _:
            file.symlink_to("elsewhere")
    paths, problems = read_runtime_paths(tmp_path)

    (problem,) = problems
    assert f"/{name}" in problem
    assert ("is a symbolic link" in problem) == (kind == "link")
    assert problem.endswith("; the usual directories are looked at instead")
    if name == DAEMON:
        assert paths.docker == RuntimePaths().docker
        assert paths.storage[1] == "/srv/podman/overlay-containers"
    else:
        assert paths.docker == "/srv/docker/containers"
        assert paths.storage == RuntimePaths().storage

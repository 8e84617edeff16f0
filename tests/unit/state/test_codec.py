"""The text of a checkpoint: layout, checksum, what is believed and what is not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numapin.model.checkpoint import CHECKPOINT_VERSION, Checkpoint
from numapin.model.errors import CheckpointCorrupt, CheckpointError, CheckpointWrongVersion
from numapin.model.memory import Owner
from numapin.model.nodeset import NodeSet
from numapin.state.codec import CheckpointEncoder, decode, encode
from support.checkpoints import WALL_NS, checkpoints, pin, reseal, sample

PATH = "/var/lib/numapin/state.json"
DATA = Path(__file__).parents[2] / "data"


def edited(change: Callable[[dict[str, Any]], object], checkpoint: Checkpoint | None = None) -> bytes:
    """Text of a checkpoint after *change* of its JSON, with the right checksum."""
    document = json.loads(encode(checkpoint or sample()))
    del document["checksum"]
    change(document)
    return reseal(json.dumps(document)[:-1].encode() + b',\n"checksum":')


@given(checkpoints())
def test_round_trip(checkpoint: Checkpoint) -> None:
    """Decoding what was encoded gives the same value."""
    assert checkpoint == decode(encode(checkpoint), PATH)


@settings(max_examples=20)
@given(st.lists(checkpoints(), max_size=2))
def test_reused_encoder(series: list[Checkpoint]) -> None:
    """An encoder that remembers earlier records gives the same bytes as a fresh one."""
    encoder = CheckpointEncoder()
    for checkpoint in [*series, *series]:
        assert encode(checkpoint) == encoder.encode(checkpoint)


def test_changed_record_under_the_same_cgroup() -> None:
    """A record that was replaced is encoded anew, one that stayed keeps its text."""
    encoder = CheckpointEncoder()
    before = sample()
    encoder.encode(before)
    changed = replace(pin(0), message="drifted")
    after = replace(before, containers={**before.containers, changed.cgroup: changed})

    assert after == decode(encoder.encode(after), PATH)


def test_cgroups_with_cpuset_enabled() -> None:
    """They come back as they were, whatever bytes their names have; a checkpoint without any has no such key."""
    paths = ("/odd.slice", "/odd.slice/a\udcff")
    checkpoint = replace(sample(), cpuset_enabled=paths)

    assert checkpoint == decode(encode(checkpoint), PATH)
    assert b"cpusetEnabled" in encode(checkpoint)
    assert b"cpusetEnabled" not in encode(sample())


def test_insertion_order() -> None:
    """Equal checkpoints have equal bytes, whatever order their mappings were filled in."""
    there = sample()
    back = replace(
        there,
        containers={k: there.containers[k] for k in reversed(list(there.containers))},
        books=replace(
            there.books, assignments={k: there.books.assignments[k] for k in reversed(list(there.books.assignments))}
        ),
    )

    assert encode(there) == encode(back)


def test_mappings_that_are_no_dicts() -> None:
    """Read-only mappings in the model are written like dicts."""
    plain = sample()
    wrapped = replace(
        plain,
        containers=MappingProxyType(dict(plain.containers)),
        books=replace(plain.books, assignments=MappingProxyType(dict(plain.books.assignments))),
    )

    assert encode(plain) == encode(wrapped)


def test_golden_file() -> None:
    """The file of version 1 in the repository is read, and written again byte for byte."""
    data = (DATA / "checkpoint-v1.json").read_bytes()

    assert sample() == decode(data, PATH)
    assert data == encode(sample())


def test_field_names() -> None:
    """NodeMap and assignments carry the kubelet's field names, and a container stands on a line of its own."""
    text = encode(sample(containers=1)).decode()
    document = json.loads(text)
    container = pin(0)
    gib = 1 << 30

    assert list(document) == [
        "apiVersion", "kind", "version", "policyName", "bootId", "savedNs",
        "machineState", "entries", "containers", "refusals", "checksum",
    ]  # fmt: skip
    assert {
        "numberOfAssignments": 1,
        "memoryMap": {
            "hugepages-2Mi": {"total": gib, "systemReserved": 0, "allocatable": gib, "reserved": 0, "free": gib},
            "memory": {
                "total": 10 * gib, "systemReserved": 0, "allocatable": 10 * gib, "reserved": gib, "free": 9 * gib
            },
        },
        "cells": [0],
    } == document["machineState"]["0"]  # fmt: skip
    block = {"numaAffinity": [0], "type": "memory", "size": gib}
    assert {container.owner.pod: {container.owner.container: [block]}} == document["entries"]
    assert sum(line.startswith(f'"{container.cgroup}":{{') for line in text.split("\n")) == 1


def test_checksum_by_hand(tmp_path: Path) -> None:
    """The checksum is that of the whole file with its value left empty, as sed and sha256sum see it."""
    file = tmp_path / "state.json"
    file.write_bytes(encode(sample()))
    command = """sed 's/^"checksum":"sha256:[0-9a-f]*"$/"checksum":""/' "$1" | sha256sum"""
    found = subprocess.run(["sh", "-c", command, "sh", str(file)], capture_output=True, text=True, check=True)

    assert json.loads(file.read_bytes())["checksum"] == "sha256:" + found.stdout.split()[0]


def test_cut_short_anywhere() -> None:
    """A file that ends too early, at any byte, is corrupt."""
    data = encode(sample(containers=1))
    for length in range(len(data)):
        with pytest.raises(CheckpointCorrupt) as caught:
            decode(data[:length], PATH)
        assert caught.value.path == PATH


def test_one_bit_flipped_anywhere() -> None:
    """One wrong bit in any byte is noticed."""
    data = encode(sample(containers=1))
    for position in range(len(data)):
        wrong = bytearray(data)
        wrong[position] ^= 1 << (position % 8)
        with pytest.raises(CheckpointCorrupt, match="checksum"):
            decode(bytes(wrong), PATH)


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no checkpoint are corrupt, also with a right checksum."""
    with pytest.raises(CheckpointCorrupt):
        decode(data, PATH)
    with pytest.raises(CheckpointError):
        decode(reseal(data + b'\n"checksum":""\n}\n'), PATH)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = list(json.loads(encode(sample(containers=0))))[:-1]


@given(key=st.sampled_from(KEYS), value=_json_values)
def test_any_json_in_a_key(key: str, value: object) -> None:
    """A sealed file with any JSON value under any key is read or refused with a typed error, nothing else."""
    data = edited(lambda document: document.update({key: value}))
    try:
        found = decode(data, PATH)
    except CheckpointError as exc:
        assert PATH in str(exc)
    else:
        assert found == decode(encode(found), PATH)


def _first(document: dict[str, Any], section: str) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(document[section].values()))
    return found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.pop("policyName"), "policyName"),
        (lambda d: d.update(savedNs="soon"), "savedNs"),
        (lambda d: d.update(extra=1), "extra"),
        (lambda d: d["machineState"]["0"].update(cells=[0, -1]), "machineState.0"),
        (lambda d: d["machineState"]["0"].update(cells=[70_000]), "machineState.0"),
        (lambda d: d["machineState"]["0"]["memoryMap"]["memory"].update(free=None), "free"),
        (lambda d: d["machineState"].update({"first": d["machineState"]["0"]}), "machineState"),
        (lambda d: d["entries"].update(pod={"main": [{"numaAffinity": [-1], "type": "memory", "size": 1}]}), "pod."),
        (lambda d: _first(d, "containers").update(phase="maybe"), "phase"),
        (lambda d: _first(d, "containers").update(nodes="0-"), "containers./system.slice/docker-"),
        (lambda d: _first(d, "containers").pop("originalMems"), "originalMems"),
        (lambda d: _first(d, "containers")["explanation"].update(chosen="x"), "containers./system.slice/docker-"),
        (lambda d: _first(d, "refusals").update(code="because"), "code"),
        (lambda d: _first(d, "refusals")["explanation"]["nodes"][0].update(cells="3-1"), "refusals./system.slice"),
        (lambda d: d["containers"].update({"bytes:xyz": _first(d, "containers")}), "containers.bytes:xyz"),
        (lambda d: d.update(kind="Pod"), "kind"),
    ],
)  # fmt: skip
def test_wrong_key_is_named(change: Callable[[dict[str, Any]], object], named: str) -> None:
    """A sealed file with a value that cannot be is corrupt, and the error names the key."""
    with pytest.raises(CheckpointCorrupt) as caught:
        decode(edited(change), PATH)

    assert named in caught.value.detail


def test_other_version() -> None:
    """A whole file of another schema is told apart from a damaged one."""
    with pytest.raises(CheckpointWrongVersion) as caught:
        decode(edited(lambda d: d.update(version=CHECKPOINT_VERSION + 1, later={"a": 1})), PATH)

    newer = "; it was written by a newer numapin"
    assert f"version: this program reads {CHECKPOINT_VERSION}, the file has {CHECKPOINT_VERSION + 1}{newer}" == (
        caught.value.detail
    )


def test_nested_too_deeply() -> None:
    """Nesting without end is refused like any other wrong content."""
    deep = b'{\n"kind":' + b"[" * 100_000 + b',\n"checksum":""\n}\n'

    with pytest.raises(CheckpointCorrupt):
        decode(reseal(deep), PATH)


def test_cgroup_names_that_are_not_utf8() -> None:
    """A cgroup whose name holds any bytes comes back under exactly that name; other text loses them."""
    odd = "/sys\udcff/\udc80.scope"
    record = replace(
        pin(0), cgroup=odd, name="a\udcffb", owner=Owner("p\udcff", "c"), original_below={"/\udcff": NodeSet.of(1)}
    )
    found = decode(encode(replace(sample(), containers={odd: record})), PATH)

    assert [odd] == list(found.containers)
    assert odd == found.containers[odd].cgroup
    assert found.containers[odd].name == "a?b"
    assert {"/\udcff": NodeSet.of(1)} == found.containers[odd].original_below


def test_no_containers() -> None:
    """A first start, with nothing on the machine, round-trips too."""
    empty = sample(containers=0, saved_ns=WALL_NS)
    empty = replace(empty, refusals={})

    assert empty == decode(encode(empty), PATH)

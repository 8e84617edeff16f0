"""The kubelet's memory manager state, sound and damaged: `numapin.kernel.kubelet_state`."""

from __future__ import annotations

import errno
import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.kubelet_checksum import fnv1a
from numapin.kernel.kubelet_state import (
    MAX_FILE_BYTES,
    kubelet_state_stamp,
    parse_kubelet_state,
    read_kubelet_state,
)
from numapin.model.errors import KubeletStateUnusable
from numapin.model.kubelet import POD_LEVEL, KubeletState, kubelet_owner
from numapin.model.memory import MEMORY, Block, MemoryType
from numapin.model.nodeset import NodeSet
from support.cgroup_trees import GIB
from support.kubelet import STATE, Held, block, document, put, text, third

PATH = Path("/", STATE)
POD = "11111111-2222-3333-4444-555555555555"
STATIC_POD = "0123456789abcdef0123456789abcdef"
ENTRIES: dict[str, dict[str, Held]] = {POD: {"app": ((0,), 2), "side": ((0,), 1)}, STATIC_POD: {"db": ((1, 2), 15)}}
VECTORS = Path(__file__).parents[2] / "vectors"


def parse(content: str) -> KubeletState:
    """The state in a text."""
    return parse_kubelet_state(content, str(PATH))


def refused(content: str) -> str:
    """Why a text is refused."""
    with pytest.raises(KubeletStateUnusable) as caught:
        parse(content)
    return str(caught.value)


def gib(nodes: tuple[int, ...], size: float) -> tuple[Block, ...]:
    """One block of memory."""
    return (Block(NodeSet.of(*nodes), MEMORY, int(size * GIB)),)


# ---- what it says ------------------------------------------------------------------------------------------


def test_static_assignments() -> None:
    """Each container's blocks stand under a name that is none of ours, its nodes under pod and container."""
    state = parse(text(document(ENTRIES)))

    assert state.policy == "Static"
    assert state.places
    assert state.assignments == {
        kubelet_owner(POD, "app"): gib((0,), 2),
        kubelet_owner(POD, "side"): gib((0,), 1),
        kubelet_owner(STATIC_POD, "db"): gib((1, 2), 15),
    }
    assert state.placements == {
        (POD, "app"): NodeSet.of(0),
        (POD, "side"): NodeSet.of(0),
        (STATIC_POD, "db"): NodeSet.of(1, 2),
    }
    assert state.unverified == ""


def test_hugepages() -> None:
    """Memory and each size of pages are blocks of their own, also one of no bytes."""
    file = document()
    file["entries"] = {
        POD: {"app": [block([3], GIB), block([3], 0, "hugepages-2Mi"), block([3], GIB, "hugepages-1Gi")]}
    }

    state = parse(text(file))

    assert state.assignments[kubelet_owner(POD, "app")] == (
        Block(NodeSet.of(3), MEMORY, GIB),
        Block(NodeSet.of(3), MemoryType("hugepages-2Mi"), 0),
        Block(NodeSet.of(3), MemoryType("hugepages-1Gi"), GIB),
    )


@pytest.mark.parametrize("second", [False, True])
def test_nothing_assigned(second: bool) -> None:
    """A fresh file has no entries in either format, which differ in their checksums only."""
    state = parse(text(document(), second=second))

    assert state == KubeletState("Static")


def test_policy_none_places_nothing() -> None:
    """A kubelet with the policy None writes the file too."""
    assert not parse(text(document(policy="None"))).places


def test_an_unknown_policy_places() -> None:
    """A policy that nobody has heard of may place containers."""
    assert parse(text(document(policy="BestEffort"))).places


def test_memory_of_a_pod_contains_its_containers() -> None:
    """What a pod got as a whole is counted once, and its containers keep their nodes."""
    state = parse(text(document(ENTRIES, pods={POD: ((0,), 4)})))

    assert state.assignments == {
        kubelet_owner(POD, POD_LEVEL): gib((0,), 4),
        kubelet_owner(STATIC_POD, "db"): gib((1, 2), 15),
    }
    assert state.placements[POD, "app"] == NodeSet.of(0)


def test_third_format() -> None:
    """The text in ``data`` counts, not the fields for older kubelets beside it."""
    file = document(ENTRIES, pods={POD: ((0,), 4)})

    assert parse(text(file)) == parse(third(file))


def test_nodes_for_cells() -> None:
    """The group may be called ``nodes``; what has no checksum then is read all the same."""
    file = document(ENTRIES, cells="nodes")

    assert parse(text(document(ENTRIES))) == parse(json.dumps(file))


def test_recorded_files() -> None:
    """Every file that a real kubelet wrote is read, with its checksum found right (both formats)."""
    found = list(recorded())

    assert len(found) >= 7
    assert {parse(content).unverified for content in found} == {""}
    assert {"podEntries" in json.loads(content) for content in found} == {False, True}


def recorded() -> Iterator[str]:
    """Checkpoint texts of the recorded runs."""
    with lzma.open(VECTORS / "visible.jsonl.xz", "rt") as lines:
        for line in lines:
            if '"checkpoint"' in line:
                steps = json.loads(line)["expected"].get("steps", ())
                yield from (step["content"] for step in steps if step.get("content"))


# ---- checksums ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a(data: bytes, value: int) -> None:
    """The hash of the published test values."""
    assert value == fnv1a(data)


@pytest.mark.parametrize("value", [None, 0])
def test_no_checksum(value: int | None) -> None:
    """A checksum that is absent or 0 is accepted, as the kubelet does."""
    file = document(ENTRIES) if value is None else {**document(ENTRIES), "checksum": value}

    assert parse(json.dumps(file)).assignments
    assert parse(json.dumps(file)).unverified == ""


def test_wrong_checksum() -> None:
    """One byte of memory more than the checksum knows is damage."""
    content = text(document(ENTRIES))

    assert "its checksum is wrong" in refused(content.replace(str(2 * GIB), str(2 * GIB + 1)))


def test_wrong_checksum_of_data() -> None:
    """The third format's checksum is over ``data``, and the old fields do not stand in for it."""
    content = third(document(ENTRIES))

    assert "checksum of its data is wrong" in refused(content.replace("side", "s1de"))


@pytest.mark.parametrize(
    ("where", "word"),
    [((), "futureField"), (("machineState", "0"), "distances"), (("entries", POD, "app", 0), "zone")],
)
def test_unknown_field(where: tuple[Any, ...], word: str) -> None:
    """What a later kubelet adds cannot be verified, is read all the same, and is named."""
    file = document(ENTRIES)
    inner: Any = file
    for key in where:
        inner = inner[key]
    inner[word] = 1

    state = parse(json.dumps({**file, "checksum": 5}))

    assert word in state.unverified
    assert len(state.assignments) == 3


def test_nodes_for_cells_cannot_be_verified_wrong() -> None:
    """A checksum beside ``nodes`` that is not the one of ``cells`` is noted, not refused."""
    state = parse(json.dumps({**document(ENTRIES, cells="nodes"), "checksum": 5}))

    assert "'nodes'" in state.unverified


@given(
    st.dictionaries(
        st.from_regex(r"\A[a-zA-Z0-9][a-z0-9.-]{0,8}\Z"),
        st.dictionaries(
            st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,8}\Z"),
            st.tuples(st.lists(st.integers(0, 63), min_size=1, max_size=3, unique=True), st.integers(0, 64)),
            min_size=1,
            max_size=3,
        ),
        max_size=4,
    ),
    st.integers(1, 12),
    st.booleans(),
)
def test_checksum_agrees_with_another_printer(entries: dict[str, Any], nodes: int, second: bool) -> None:
    """Whatever stands in the file: names, nodes above nine, several pods (property)."""
    state = parse(text(document(entries, nodes=nodes), second=second))

    assert state.unverified == ""
    assert sum(map(len, entries.values())) == len(state.assignments)


# ---- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("\0" * 4096, "not JSON"),
        ('{"policyName":"Static","machineState":{"0":', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "Expected `object`"),
        ("null", "Expected `object`"),
        ("{}", "names no policy"),
        ('{"machineState":{}}', "names no policy"),
        ('{"policyName":5}', "Expected `str`"),
        ('{"policyName":"Static","entries":[]}', "damaged"),
        ('{"policyName":"Static","machineState":{"x":{}}}', "damaged"),
        ('{"policyName":"Static","checksum":-1}', "damaged"),
        ('{"policyName":"Static","data":5}', "damaged"),
        ('{"policyName":"Static","data":"{"}', "not JSON"),
    ],
)
def test_damaged(content: str, reason: str) -> None:
    """What is no state at all is refused with the file's name and the reason."""
    assert reason in refused(content)
    assert str(PATH) in refused(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", -1),
        ("size", 2**63),
        ("size", 1.5),
        ("size", "1Gi"),
        ("size", True),
        ("numaAffinity", []),
        ("numaAffinity", [-1]),
        ("numaAffinity", [10**9]),
        ("numaAffinity", "0-1"),
        ("type", ""),
        ("type", "memory\x1b[2J"),
    ],
)
def test_impossible_block(key: str, value: object) -> None:
    """A size, node or type that cannot be is damage, with or without a checksum."""
    file = document(ENTRIES)
    file["entries"][POD]["app"][0][key] = value

    assert "damaged" in refused(json.dumps(file))


@pytest.mark.parametrize("name", ["", "../x", "a b", "a\nb", "\x1b[2J", "x" * 300])
def test_impossible_names(name: str) -> None:
    """Names that are none of a pod or container never come further."""
    for entries in ({name: {"app": ((0,), 1)}}, {POD: {name: ((0,), 1)}}):
        assert "damaged" in refused(json.dumps(document(entries)))


@given(st.data())
def test_any_bytes_end_in_a_value_or_an_error(data: st.DataObject) -> None:
    """A file cut off or overwritten anywhere is a value or the one error (property)."""
    content = text(document(ENTRIES, pods={POD: ((0,), 4)}))
    at = data.draw(st.integers(0, len(content)))
    middle = data.draw(st.text(max_size=4))
    skip = data.draw(st.integers(0, 40))

    for broken in (content[:at], content[:at] + middle + content[at + skip :]):
        try:
            assert parse(broken).policy
        except KubeletStateUnusable as exc:
            assert exc.detail.startswith("damaged")


# ---- the file ----------------------------------------------------------------------------------------------


def test_file(tmp_path: Path) -> None:
    """The file below the root is read; its stamp changes when it is replaced."""
    put(tmp_path, text(document()))
    before = kubelet_state_stamp(tmp_path, PATH)
    put(tmp_path, text(document(ENTRIES)))

    found = read_kubelet_state(tmp_path, PATH)

    assert found is not None
    assert len(found.assignments) == 3
    assert before is not None
    assert before != kubelet_state_stamp(tmp_path, PATH)


@pytest.mark.parametrize("have", ["", "var", "var/lib/kubelet"])
def test_no_file(tmp_path: Path, have: str) -> None:
    """Neither the file nor its directories need to be there."""
    (tmp_path / have).mkdir(parents=True, exist_ok=True)

    assert read_kubelet_state(tmp_path, PATH) is None
    assert kubelet_state_stamp(tmp_path, PATH) is None


@pytest.mark.parametrize("part", ["var", "var/lib", "var/lib/kubelet", STATE])
def test_symbolic_links_are_not_followed(tmp_path: Path, part: str) -> None:
    """A link anywhere on the way is refused, with what to do, and not taken for a missing file."""
    put(tmp_path, text(document(ENTRIES)))
    (tmp_path / part).rename(tmp_path / "elsewhere")
    (tmp_path / part).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(KubeletStateUnusable, match=r"symbolic link.*kubelet\.state"):
        read_kubelet_state(tmp_path, PATH)


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    """A directory under the file's name is an error, not an empty state."""
    (tmp_path / STATE).mkdir(parents=True)

    with pytest.raises(KubeletStateUnusable, match=errno.errorcode[errno.EISDIR]):
        read_kubelet_state(tmp_path, PATH)


def test_a_pipe_in_its_place(tmp_path: Path) -> None:
    """A named pipe does not make the reader wait."""
    (tmp_path / STATE).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / STATE)

    with pytest.raises(KubeletStateUnusable, match="empty"):
        read_kubelet_state(tmp_path, PATH)


def test_too_large(tmp_path: Path) -> None:
    """A file above the limit is refused without being taken in."""
    path = put(tmp_path, text(document()))
    os.truncate(path, MAX_FILE_BYTES + 1)

    with pytest.raises(KubeletStateUnusable, match="larger than"):
        read_kubelet_state(tmp_path, PATH)

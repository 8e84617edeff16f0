"""Parsers of single values: a value, or a ValueError, for any text."""

from __future__ import annotations

import tomllib
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.config_keys import (
    KEYS,
    format_duration,
    parse_duration,
    parse_size,
    read_node_id,
    read_node_type,
    show_size,
    toml_text,
)
from numapin.kernel.names import (
    container_at,
    expand_slice,
    is_safe_id,
    may_be_claimed,
    names_cgroup,
    pod_at,
    possible_cgroups,
)
from numapin.kernel.sysfs_text import meminfo_line, parse_count, parse_cpumap, parse_distances, parse_meminfo
from numapin.kernel.systemd import decode_nodes, encode_nodes, unit_of
from numapin.model.nodeset import MAX_ID, CpuSet, NodeSet
from numapin.model.quantity import MAX_BYTES, format_page_size, parse_bytes, parse_page_size, parse_quantity
from support.hostile import fuzz, surrogates, survived, texts, values

anything = texts | surrogates
numbers_with_units = st.from_regex(
    r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?", fullmatch=True
)
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{u}i": 2 ** (10 * k) for k, u in enumerate("KMGTPE", 1)
}


@fuzz
@given(anything)
def test_id_lists(text: str) -> None:
    """A list of ids is a set within bounds that prints and parses back, or a ValueError."""
    for kind in (NodeSet, CpuSet):
        found = survived(lambda kind=kind: kind.parse(text), ValueError)  # type: ignore[misc]

        if isinstance(found, NodeSet | CpuSet):
            assert all(0 <= i <= MAX_ID for i in found)
            assert found == kind.parse(str(found))


@fuzz
@given(anything)
def test_sizes(text: str) -> None:
    """A size is a positive number the kernel can hold, or a ValueError."""
    for parse in (parse_bytes, parse_page_size):
        found = survived(lambda parse=parse: parse(text), ValueError)  # type: ignore[misc]

        assert isinstance(found, ValueError) or (isinstance(found, int) and 0 < found <= MAX_BYTES)


@fuzz
@given(numbers_with_units)
def test_quantities_are_exact(text: str) -> None:
    """However many digits, the value is the one that is written."""
    digits = text.rstrip("KkMGTPEi")
    wanted = Fraction(digits) * UNITS[text[len(digits) :]]

    assert wanted == Fraction(parse_quantity(text))


@fuzz
@given(anything)
def test_node_files(text: str) -> None:
    """Each text of the kernel's node files is a value within bounds or a ValueError."""
    online = NodeSet.of(0, 2, 5)
    memory = parse_meminfo(text, "MemTotal")
    count = survived(lambda: parse_count(text), ValueError)
    mask = survived(lambda: parse_cpumap(text), ValueError)
    distances = survived(lambda: parse_distances(text, online), ValueError)

    assert memory is None or 0 <= memory < 2**63
    assert "\n" not in meminfo_line(text, "MemTotal")
    assert isinstance(count, ValueError) or (isinstance(count, int) and 0 <= count < 10**18)
    assert isinstance(mask, ValueError) or (isinstance(mask, CpuSet) and mask.mask < 1 << (MAX_ID + 1))
    assert isinstance(distances, ValueError) or (isinstance(distances, dict) and set(distances) == {0, 2, 5})


@fuzz
@given(st.lists(anything, min_size=1, max_size=5))
def test_names_of_cgroups(parts: list[str]) -> None:
    """A path is a pod, a container or nothing; what an id is told to be can be one file name or is not believed."""
    pod = pod_at(parts)
    name = container_at(parts, pod)
    unit_of("/" + "/".join(parts))

    assert pod is None or all(c in "0123456789abcdef-" for c in pod.uid)
    assert name is None or name.id
    for part in parts:
        assert not is_safe_id(part) or (part.isprintable() and "/" not in part and part not in ("", ".", ".."))


@fuzz
@given(anything)
def test_claims_of_a_cgroup(text: str) -> None:
    """What ``cgroupsPath`` may stand for is absolute, never leads upwards, and is not much longer than the text."""
    paths = possible_cgroups(text)
    expand_slice(text)
    names_cgroup(text, "/system.slice/x.scope")

    for path in paths:
        assert path.startswith("/")
        assert ".." not in path.split("/")
        assert len(path) <= len(text) + 256 * 128
    assert not may_be_claimed("/") and not may_be_claimed("/kubepods/burstable")


@fuzz
@given(values)
def test_configuration_values(value: object) -> None:
    """Each key takes a value, which it can print and read back, or says in one line what is wrong with it."""
    for name, key in KEYS.items():
        found = survived(lambda key=key: key.read(value), ValueError)  # type: ignore[misc]

        if isinstance(found, ValueError):
            assert "\n" not in str(found), name
        elif not isinstance(found, int) or isinstance(found, bool) or "duration" not in key.show.__name__:
            shown = tomllib.loads(f"k = {key.show(found)}")["k"]
            assert found == key.read(shown), name


@fuzz
@given(anything)
def test_durations_sizes_and_node_keys(text: str) -> None:
    """Durations and sizes are non-negative and survive a round trip; node keys are ids and types we have."""
    duration = survived(lambda: parse_duration(text), ValueError)
    size = survived(lambda: parse_size(text), ValueError)
    node = survived(lambda: read_node_id(text), ValueError)
    survived(lambda: read_node_type(text), ValueError)
    survived(lambda: read_node_type(f"hugepages-{text}"), ValueError)

    assert isinstance(duration, ValueError) or duration == parse_duration(format_duration(int(str(duration))))
    if isinstance(size, int):
        assert 0 <= size <= MAX_BYTES
        assert size == parse_size(tomllib.loads(f"s = {show_size(size)}")["s"])
        assert format_page_size(size)
    assert isinstance(node, ValueError) or 0 <= int(str(node)) <= MAX_ID


@fuzz
@given(texts)
def test_toml_text(text: str) -> None:
    """Any text that is printed as TOML reads back as itself."""
    assert text == tomllib.loads(f"k = {toml_text(text)}")["k"]


@fuzz
@given(st.binary(max_size=300))
def test_bit_maps_of_units(data: bytes) -> None:
    """A unit's bit map is a set of nodes that encodes to the same bits."""
    assert data.rstrip(b"\0") == encode_nodes(decode_nodes(data))

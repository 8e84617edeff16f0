"""Formats of node files, whatever text comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.sysfs_text import parse_count, parse_cpumap, parse_distances, parse_meminfo
from numapin.model.nodeset import CpuSet, NodeSet

node_sets = st.frozensets(st.integers(0, 1023), min_size=1, max_size=64).map(NodeSet.from_ids)


@given(st.frozensets(st.integers(0, 8191)))
def test_a_mask_is_read_back(cpus: frozenset[int]) -> None:
    """Any set of CPUs printed in groups of 32 bits, as the kernel does, is read back."""
    mask = CpuSet.from_ids(cpus).mask
    groups = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, 8192, 32)]

    assert CpuSet(mask) == parse_cpumap(",".join(reversed(groups)) + "\n")


@pytest.mark.parametrize("text", ["", "\n", "0x1", "g", "1,1", "000000001", "1 2", ",", "f" + ",00000000" * 2048])
def test_other_masks_are_refused(text: str) -> None:
    """Short groups, foreign characters, nothing at all, and CPUs beyond any machine are not masks."""
    with pytest.raises(ValueError, match="CPU"):
        parse_cpumap(text)


@given(node_sets, st.data())
def test_a_row_is_keyed_by_online_id(online: NodeSet, data: st.DataObject) -> None:
    """Each value goes to the online id of its position, for any ids."""
    row = data.draw(st.lists(st.integers(0, 255), min_size=len(online), max_size=len(online)))

    distances = parse_distances(" ".join(map(str, row)) + "\n", online)

    assert list(online) == list(distances)
    assert row == list(distances.values())


@given(st.text(), node_sets)
def test_any_text_is_a_value_or_a_refusal(text: str, online: NodeSet) -> None:
    """No text makes a parser fail in another way than it says; what is accepted is never negative."""
    for parse in (parse_cpumap, parse_count, lambda t: sum(parse_distances(t, online).values())):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert isinstance(value, CpuSet) or value >= 0
    total = parse_meminfo(text, "MemTotal")
    assert total is None or total >= 0


@given(st.integers(0, 10**15 - 1), st.text(alphabet="abM:() kB\n0"))
def test_the_field_is_found_among_others(kilobytes: int, noise: str) -> None:
    """A field is found between any other lines, in bytes."""
    text = f"{noise}\nNode 3 MemTotal: {kilobytes} kB\n{noise}"

    assert parse_meminfo(text, "MemTotal") == kilobytes * 1024
    assert parse_meminfo("Node 3 Mem(Total): 3 kB", "Mem(Total)") == 3072

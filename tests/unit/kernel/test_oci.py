"""OCI runtime specifications: `numapin.kernel.oci` and `numapin.kernel.oci_values`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.oci import parse_config
from numapin.model.container import Device, Limits
from numapin.model.errors import KernelFormatError
from numapin.model.nodeset import CpuSet, NodeSet
from support.cgroup_trees import GIB, MIB, oci


def facts(document: object):  # type: ignore[no-untyped-def]
    """Facts of a config.json given as a Python value."""
    return parse_config(json.dumps(document), source="config.json")


def test_every_fact_of_a_config() -> None:
    """Limits, foreign nodes, annotations, the cgroup's name and devices are read; shares stay shares."""
    found = facts(
        oci(
            memory=4 * GIB,
            reservation=GIB,
            quota=200_000,
            shares=2048,
            cpus="0-3,8",
            mems="1",
            hugepages={"2MB": 64 * MIB, "1GB": GIB, "64KB": 65536},
            cgroups_path="system.slice:docker:x",
            annotations={"numapin.guaranteed": "true"},
            devices=("/dev/null", "relative"),
        )
    )

    assert found.limits == Limits(
        4 * GIB, GIB, 200_000, 100_000, 2048, CpuSet.parse("0-3,8"), {2 * MIB: 64 * MIB, GIB: GIB, 65536: 65536}
    )
    assert (found.mems, found.devices) == (
        NodeSet.of(1),
        (Device("/dev/null", False, 1, 3), Device("relative", False, 1, 3)),
    )
    assert found.annotations == {"numapin.guaranteed": "true"}


@pytest.mark.parametrize(
    "document", [{}, {"linux": None}, {"linux": {"resources": None}, "annotations": None}, oci()]
)
def test_nothing_limited(document: dict[str, object]) -> None:
    """Absent and null keys mean no limit; Docker's annotations are null."""
    found = facts(document)

    assert replace(found.limits, cpu_period_us=None) == Limits()
    assert (found.mems, dict(found.annotations)) == (None, {})


@pytest.mark.parametrize("number", [0, -1, 2**62, 2**63 - 1])
def test_numbers_that_mean_unlimited(number: int) -> None:
    """0, -1 and what no kernel can hold are no limits."""
    assert facts(oci(memory=number, quota=number)).limits.memory_bytes is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"linux": 7}',
        '{"linux": {"resources": {"memory": {"limit": "4G"}}}}',
        '{"annotations": {"a": 1}}',
        '{"linux": {"resources": {"cpu": {"mems": "0-x"}}}}',
        '{"linux": {"resources": {"cpu": {"cpus": "9999999999"}}}}',
        '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"linux": {"resources": {"memory": {"limit": 1e400}}}}',
    ],
)
def test_damaged_documents_are_one_typed_error(text: str) -> None:
    """Not JSON, another shape, nested without end: an error that names the file (B130)."""
    with pytest.raises(KernelFormatError) as caught:
        parse_config(text, source="/run/x/config.json")

    assert caught.value.path == "/run/x/config.json"
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    """Whatever the bytes, the answer is a value or the typed error."""
    try:
        parse_config(data.decode("utf-8", "replace"), source="x")
    except KernelFormatError as exc:
        assert exc.path == "x"

"""Sets of nodes in sentences; the format itself is tested with its readers and by the fuzzers."""

from __future__ import annotations

import pytest

from numapin.model.nodeset import NodeSet


@pytest.mark.parametrize(("ids", "said"), [((), "no node"), ((3,), "node 3"), ((0, 1), "nodes 0-1")])
def test_named(ids: tuple[int, ...], said: str) -> None:
    """In sentences the word follows the number of nodes."""
    assert said == NodeSet.of(*ids).named

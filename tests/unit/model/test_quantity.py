"""Sizes in another spelling are answered with the right one."""

from __future__ import annotations

import pytest

from numapin.model.quantity import NotAQuantity, parse_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("64MB", "64M, or 64Mi for units of 1024"),
        ("64kB", "64k, or 64Ki for units of 1024"),
        ("12Gb", "12Gi"),
        ("4g", "4Gi"),
        ("1.5 GiB", "1.5Gi"),
        ("1Gib", "1Gi"),
    ],
)
def test_the_right_spelling_is_named(text: str, meant: str) -> None:
    """And what is named can be read."""
    with pytest.raises(NotAQuantity) as raised:
        parse_quantity(text)

    assert str(raised.value) == f"{text!r} is not a size; write {meant}"
    assert parse_bytes(meant.split(",")[0].split()[0]) > 0


@pytest.mark.parametrize("text", ["lots", "12XB", "", "1" * 60, "GiB", "1G i"])
def test_what_is_like_no_size(text: str) -> None:
    """Anything else gets examples, and never more of the text than a line holds."""
    with pytest.raises(NotAQuantity) as raised:
        parse_quantity(text)

    assert str(raised.value) == f"{text[:60]!r} is not a size; write for example 15Gi, 512Mi, 2G or plain bytes"

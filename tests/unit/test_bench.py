"""What ``make bench`` makes of its sections; the figures themselves are not measured here."""

from __future__ import annotations

import pytest

from bench.harness import Unsuitable, judge
from bench.run import SECTIONS, main


def held() -> int:
    """A section whose limits are held."""
    print("held")
    return 0


def broken() -> int:
    """A section with a figure above its limit."""
    return judge(("to READY, s", 2.5, 2), ("cgroups written", 0, 1))


def unsuitable() -> int:
    """A section that this machine cannot measure."""
    raise Unsuitable("no cpuset here")


@pytest.mark.parametrize(
    ("chosen", "status"),
    [(["good"], 0), (["bad"], 1), (["bad", "good"], 1), (["good", "bad"], 1), ([], 1), (["odd"], 1), (["none"], 2)],
)
def test_a_limit_that_is_not_held_fails_the_run(chosen: list[str], status: int) -> None:
    """Exit 1 when any section says so, wherever it stands, or cannot be measured; 2 for a name that is none."""
    assert main(chosen, {"good": held, "bad": broken, "odd": unsuitable}) == status


def test_every_section_goes_on_after_one_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """The others are measured all the same, and what is not held is named with figure and limit."""
    main(["bad", "odd", "good"], {"good": held, "bad": broken, "odd": unsuitable})
    said = capsys.readouterr()

    assert "not held: to READY, s: 2.500 is not below 2\n" in said.out
    assert "cgroups written" not in said.out
    assert "odd: not measured: no cpuset here\n" in said.err
    assert said.out.endswith("held\n\n")


def test_a_figure_at_its_limit_is_not_held(capsys: pytest.CaptureFixture[str]) -> None:
    """The limits are "below", and what is no number is not below anything."""
    assert [judge(("x", figure, 3)) for figure in (2.999, 3, float("nan"))] == [0, 1, 1]
    capsys.readouterr()


def test_no_section_keeps_its_verdict_to_itself() -> None:
    """Each section returns a status, which its signature tells."""
    assert {name: section.__annotations__["return"] for name, section in SECTIONS.items()} == dict.fromkeys(
        SECTIONS, "int"
    )

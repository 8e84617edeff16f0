"""What ARCHITECTURE.md says about the service's rights is what the unit has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
UNIT = CHECKOUT / "systemd/numapin.service"
NOTES = (CHECKOUT / "ARCHITECTURE.md").read_text().partition("\n## Security\n")[2].partition("\n## ")[0]


def test_each_capability_has_its_reason() -> None:
    """The table of capabilities is the unit's bounding set."""
    granted = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    explained = re.findall(r"^\| `(CAP_\w+)` \| .{20,} \|$", NOTES, re.MULTILINE)

    assert granted == [" ".join(explained)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_the_exposure_is_the_one_that_is_written(tmp_path: Path) -> None:
    """systemd's score of the unit is not above the figure in the notes."""
    (written,) = re.findall(r"scores the unit at \*\*([0-9.]+)\*\* of 10", NOTES)
    unit = shutil.copy(UNIT, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    (scored,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)

    assert float(scored) <= float(written)

"""How a host is told to start the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.cli.doctor import _how
from numapin.cli.main import main
from numapin.cli.starting import how_to_start, not_running
from numapin.daemon.doctor import Check, Verdict
from numapin.model.errors import NotRunning
from support.trees import write_tree

UNIT = "lib/systemd/system/numapin.service"
BOOTED = "run/systemd/system/x"


@pytest.mark.parametrize(
    ("files", "now", "at_boot"),
    [
        ((UNIT, BOOTED), "systemctl start numapin", "systemctl enable --now numapin"),
        ((f"usr/{UNIT}", BOOTED), "systemctl start numapin", "systemctl enable --now numapin"),
        ((UNIT,), *["numapin run (as root; there is no systemd here)"] * 2),
        ((BOOTED,), *["make run (in the clone, as root)"] * 2),
        ((), *["make run (in the clone, as root)"] * 2),
    ],
)
def test_one_advice_that_fits(tmp_path: Path, files: tuple[str, ...], now: str, at_boot: str) -> None:
    """systemctl only where there are systemd and the package's unit, and a clone is named only without that unit."""
    write_tree(tmp_path, dict.fromkeys(files, ""))

    assert (how_to_start(tmp_path), how_to_start(tmp_path, at_boot=True)) == (now, at_boot)


def test_a_wrong_configuration_comes_first() -> None:
    """The service does not start with it, so the advice points to what doctor said above."""
    wrong = Check("configuration", Verdict.PROBLEM, "policy: must be …")

    assert _how([]) == f"start it with: {how_to_start(at_boot=True)}"
    assert _how([wrong]).startswith("with this configuration it cannot start: mend the problems named above first, ")


def test_every_verb_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence with the socket and the advice, whichever verb asked."""
    socket = tmp_path / "none.sock"
    for words in (["status"], ["containers"], ["plan", "--memory", "1Gi"], ["explain", "x"]):
        main(
            [*words, "--socket", str(socket)]
            + (["--state", str(socket)] if words[0] in ("status", "explain") else [])
        )
        said = capsys.readouterr()

        assert f"start it with: {how_to_start()}" in said.out + said.err, words
    assert not_running(NotRunning("/x", "gone")).startswith("no numapin daemon answers on /x (gone); start it with: ")

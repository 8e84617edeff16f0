"""What is named for those who are not root, asked on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.cli.main import main
from numapin.daemon.suitability import LOOKING
from support.privilege import public_directory, unprivileged

CHECKPOINT = Path(__file__).parents[1] / "data/checkpoint-v1.json"


@pytest.mark.parametrize("command", LOOKING.split(", "))
def test_what_works_without_root(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Each command that is named answers somebody who is not root, on this machine as it is."""
    with public_directory() as directory:
        file = directory / "state.json"
        file.write_bytes(CHECKPOINT.read_bytes())
        program, verb, *words = command.replace("FILE", str(file)).split()
        main([verb, *words])  # all modules are there then, for nobody may not read every interpreter's
        capsys.readouterr()
        with unprivileged():
            status = main([verb, *words])
    said = capsys.readouterr()

    assert program == "numapin"
    assert status in {"doctor": (0, 1), "plan": (0, 5)}.get(verb, (0,)), said.err  # they may find something
    assert said.out

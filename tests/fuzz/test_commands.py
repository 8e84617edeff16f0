"""Command lines that nobody would type: an exit status and a sentence, never a trace."""

from __future__ import annotations

import argparse
import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.cli.main import main
from numapin.cli.parser import build_parser
from numapin.model.errors import ExitStatus
from numapin.state.codec import encode
from support.cgroup_trees import GIB, CgroupTree
from support.checkpoints import sample
from support.hostile import fuzz, mangled, surrogates, texts
from support.machines import even, write_machine

words = texts | surrogates
options = st.sampled_from(
    [
        "--memory",
        "--hugepages",
        "--cpus",
        "--nodes",
        "--policy",
        "--count",
        "--pod",
        "-o",
        "--output",
        "--state",
        "--all",
    ]
)


def plan_options() -> list[str]:
    """The long options of ``plan`` that take a value, but for the one that says on which machine."""
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = [a for a in action.choices["plan"]._actions if a.option_strings and a.nargs != 0]
            return [a.option_strings[-1] for a in found if "--root" not in a.option_strings]
    raise AssertionError("there is no verb plan")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine without a daemon, with a checkpoint."""
    root = tmp_path_factory.mktemp("root")
    write_machine(root, even(2, memory=10 * GIB))
    CgroupTree(root, nodes="0-1")
    (root / "state.json").write_bytes(encode(sample()))
    return root


def told(argv: list[str]) -> tuple[int, str]:
    """Exit status and everything printed."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        status = main(argv)
    return status, text.getvalue()


@fuzz
@given(data=st.data())
def test_any_command_line(root: Path, data: st.DataObject) -> None:
    """Each verb that only reads takes any words after it."""
    verb = data.draw(
        st.sampled_from(["status", "containers", "topology", "explain", "plan", "doctor", "checkpoint", "x"])
    )
    more = data.draw(st.lists(options | words, max_size=4))
    status, text = told([verb, *more, "--root", str(root)])

    assert status in {*map(int, ExitStatus)}
    assert "internal error" not in text, text
    assert "Traceback" not in text


@fuzz
@given(option=st.sampled_from(plan_options()), word=words)
def test_any_value_of_a_plan(root: Path, option: str, word: str) -> None:
    """Each option of ``plan`` takes any value: an answer, or a sentence."""
    status, text = told(["plan", "--root", str(root), "--memory=1Gi", f"{option}={word}"])

    assert status in {*map(int, ExitStatus)}
    assert "internal error" not in text, text


@fuzz
@given(text=st.just(encode(sample()).decode()).flatmap(mangled) | texts, verb=st.sampled_from(["show", "verify"]))
def test_any_checkpoint_named_by_hand(root: Path, text: str, verb: str) -> None:
    """A file that is no checkpoint is told to be none."""
    path = root / "other.json"
    path.write_text(text, errors="replace")
    status, said = told(["checkpoint", verb, str(path)])

    assert status in (0, 1)
    assert "internal error" not in said, said

"""Every stable code in the source has its paragraph, and there is no paragraph without a code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numapin.daemon.logs
from numapin.cli import codes
from numapin.daemon import nested
from numapin.daemon.tracked import ContainerState
from numapin.model.errors import NumapinError
from numapin.model.plan import Exclusion, RefusalCode
from numapin.planner.explain import TIE_BREAKS

PACKAGE = Path(numapin.daemon.logs.__file__).parents[1]
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package: its name, its tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts), ast.parse(path.read_text())


def text(node: ast.expr | None) -> str | None:
    """The constant text of an expression, if it is one that looks like a code."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        return node.value
    return None


def first_of_calls(name: str, position: int) -> set[str]:
    """Constant texts given at one position to every call of *name*, and to ``super().__init__`` of its subclasses."""
    found = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name and len(node.args) > position:
                found.add(text(node.args[position]))
            if isinstance(node, ast.ClassDef) and any(getattr(base, "id", None) == name for base in node.bases):
                inner = [
                    n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == "super().__init__"
                ]
                found |= {text(call.args[0]) for call in inner if call.args}
    return {code for code in found if code is not None}


def error_classes(base: type[NumapinError] = NumapinError) -> set[str]:
    """Codes of the whole error tree."""
    return {base.code}.union(*(error_classes(sub) for sub in base.__subclasses__() if "code" in vars(sub)))


def finding_codes() -> set[str]:
    """First members of the pairs of code and sentence in the daemon's findings."""
    found = set()
    for name, tree in trees():
        if name.startswith("daemon."):
            for node in ast.walk(tree):
                if isinstance(node, ast.Tuple) and len(node.elts) == 2 and not isinstance(node.elts[1], ast.Constant):
                    found.add(text(node.elts[0]))
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("_troubles.add"):
                    found.add(text(node.args[0]))
    return {code for code in found if code is not None and "-" in code} | {"topology", "unreadable"}


def test_refusals_and_exclusions() -> None:
    """Every refusal code and every reason why a node is left out."""
    assert set(RefusalCode) == set(codes.REFUSALS)
    assert set(Exclusion) == set(codes.EXCLUSIONS)


def test_tie_breaks() -> None:
    """Every word for what chose among equals."""
    assert set(TIE_BREAKS) == set(codes.TIE_BREAKS)


def test_rules_of_the_class() -> None:
    """Every rule that `classify` gives as the reason of a class, and the one of what has no class of its own."""
    assert first_of_calls("_Verdict", 1) | {nested.RULE} == set(codes.RULES)


def test_states() -> None:
    """Every state of a container, of an ended one whose memory waits, and of one inside another."""
    assert {*ContainerState, "ended", nested.STATE} == set(codes.STATES)


def test_errors() -> None:
    """Every code of the error tree and of the API's errors."""
    every = error_classes() | first_of_calls("RequestFailed", 0)

    assert every == set(codes.ERRORS)


def test_findings() -> None:
    """Every code that a finding in the status can have; one that is an error too has its paragraph there."""
    assert finding_codes() - set(codes.ERRORS) == set(codes.FINDINGS)


def test_a_code_means_one_thing() -> None:
    """No code stands in two tables, and every paragraph is whole sentences on one line."""
    tables = [getattr(codes, name) for name in dir(codes) if name.isupper() and name != "CODES"]

    assert sum(len(table) for table in tables) == len(codes.CODES)
    assert all(p.endswith(".") and "\n" not in p and "  " not in p and len(p) > 40 for p in codes.CODES.values())

"""The layers of ARCHITECTURE.md, read from the imports themselves."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.trees import write_tree

PACKAGE = Path(__file__).parents[2] / "agent" / "numapin"

LAYERS = {
    "model": {"model"},
    "planner": {"planner", "model"},
    "kernel": {"kernel", "model"},
    "state": {"state", "model"},
    "daemon": {"daemon", "planner", "kernel", "state", "model"},
    "cli": {"cli", "daemon", "planner", "kernel", "state", "model"},
}
PURE = ("model", "planner")
EFFECTS = {"os", "time", "socket", "pathlib", "random", "logging", "subprocess", "threading", "datetime", "sys", "io"}
HOMES = {  # where a library may be imported: prefixes of module names
    "time": ("kernel.clock",),
    "inotify_simple": ("kernel.inotify",),
    "pyroute2": ("kernel.",),
    "psutil": ("kernel.",),
    "jeepney": ("kernel.",),
    "structlog": ("daemon.", "cli."),
    "rich": ("cli.",),
    "msgspec": ("state.", "kernel.", "daemon.", "cli."),
}
PURE_TABLES = {("model.errors", "os"): {"strerror"}}
"""Lookups that touch nothing, although their module could: only these names of it may be used."""
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its name below the package (``kernel.sysfs``), its tree, and what it imports."""

    name: str
    tree: ast.Module
    imports: frozenset[str]

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]


def read_modules(package: Path) -> dict[str, Module]:
    """Every module of the package by name; ``__init__`` under its folder's name, the root's as ``''``."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    modules = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(), str(path))
        modules[name] = Module(name, tree, frozenset(_imports(tree, paths)))
    return modules


def _imports(tree: ast.Module, ours: Mapping[str, Path]) -> Iterator[str]:
    """Full names, ours as far as a module of that name exists; relative imports stand out as ``.``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "."
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full.removeprefix("numapin.") in ours else node.module or ""


def _ours(module: Module) -> set[str]:
    return {name.removeprefix("numapin.") for name in module.imports if name.startswith("numapin.")}


def find_faults(modules: Mapping[str, Module]) -> list[str]:
    """One sentence for each import, name or cycle that breaks a rule."""
    return sorted(fault for module in modules.values() for fault in _faults(module)) + _cycles(modules)


def _faults(module: Module) -> Iterator[str]:
    if module.name.rsplit(".", 1)[-1] in VAGUE:
        yield f"{module.name}: a name that says nothing"
    if "." in module.imports:
        yield f"{module.name}: relative import"
    allowed = LAYERS.get(module.layer, {"cli"} if module.name == "__main__" else set())
    for target in _ours(module):
        if target.split(".")[0] not in allowed:
            yield f"{module.name}: imports {target} of another layer"
    for outside in {name.split(".")[0] for name in module.imports} - {"numapin", ".", "__future__"}:
        yield from _outside_faults(module, outside)
    for node in ast.walk(module.tree):
        named = getattr(node, "id", getattr(node, "attr", None))
        if named == "TYPE_CHECKING":
            yield f"{module.name}: TYPE_CHECKING hides an import"
        leaves = (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.exit") or named == "SystemExit"
        if leaves and module.name != "cli.main":
            yield f"{module.name}: only cli.main ends the process"


def _outside_faults(module: Module, library: str) -> Iterator[str]:
    if module.layer in PURE:
        used = PURE_TABLES.get((module.name, library))
        if used is not None:
            if extra := _attributes(module.tree, library) - used:
                yield f"{module.name}: uses {library}.{min(extra)}"
        elif library in EFFECTS or library not in sys.stdlib_module_names:
            yield f"{module.name}: imports {library}, but {module.layer} is pure"
    elif (homes := HOMES.get(library)) and not module.name.startswith(homes):
        yield f"{module.name}: imports {library}, which lives in {' and '.join(homes)}"


def _attributes(tree: ast.Module, library: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == library
    }


def _cycles(modules: Mapping[str, Module]) -> list[str]:
    try:
        TopologicalSorter({m.name: _ours(m) - {m.name} for m in modules.values()}).prepare()
    except CycleError as exc:
        return ["cycle: " + " -> ".join(exc.args[1])]
    return []


def test_the_package_keeps_its_layers() -> None:
    """No module imports upwards, sideways or in a circle, and every library stays in its layer."""
    modules = read_modules(PACKAGE)

    assert {"model", "planner", "kernel", "state", "daemon", "cli"} <= {m.layer for m in modules.values()}
    assert "\n".join(find_faults(modules)) == ""


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("planner/a.py", "import numapin.kernel.b", "planner.a: imports kernel.b of another layer"),
        ("planner/a.py", "from numapin.kernel import b", "planner.a: imports kernel.b of another layer"),
        ("state/a.py", "def f():\n  from numapin.daemon.c import x", "state.a: imports daemon.c of another layer"),
        ("planner/a.py", "import os.path", "planner.a: imports os, but planner is pure"),
        ("model/a.py", "import msgspec", "model.a: imports msgspec, but model is pure"),
        ("daemon/a.py", "from time import sleep", "daemon.a: imports time, which lives in kernel.clock"),
        ("daemon/a.py", "import psutil", "daemon.a: imports psutil, which lives in kernel."),
        ("kernel/a.py", "from . import b", "kernel.a: relative import"),
        ("kernel/a.py", "import sys\nsys.exit(1)", "kernel.a: only cli.main ends the process"),
        ("kernel/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING: pass", "kernel.a: TYPE_CHECKING hides"),
        ("kernel/utils.py", "", "kernel.utils: a name that says nothing"),
        ("model/errors.py", "import os\nos.getpid()", "model.errors: uses os.getpid"),
        ("kernel/b.py", "from numapin.kernel.a import x", "cycle: "),
    ],
)
def test_each_fault_is_found(tmp_path: Path, path: str, text: str, fault: str) -> None:
    """The reader of imports notices every kind of breach, so its silence means something."""
    write_tree(
        tmp_path,
        {
            "kernel/a.py": "import numapin.kernel.b",
            "kernel/b.py": "",
            "daemon/c.py": "",
            path: text,
        },
    )

    faults = find_faults(read_modules(tmp_path))

    assert len(faults) == 1
    assert faults[0].startswith(fault)

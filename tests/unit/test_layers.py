"""The layers of ARCHITECTURE.md, read from the imports themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
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
CALCULATION = {
    "__future__", "bisect", "collections", "dataclasses", "decimal", "enum", "errno", "functools", "heapq",
    "itertools", "math", "operator", "re", "reprlib", "typing",
}  # fmt: skip
"""What the pure layers may take from the standard library: nothing in it reads, writes, waits or draws lots."""
SPEAKING = {"open", "print", "input", "exec", "eval", "__import__"}
HOMES = {  # where a library may be imported: a module's name, or a layer with its dot
    "time": ("kernel.clock",),
    "inotify_simple": ("kernel.inotify",),
    "pyroute2": ("kernel.",),
    "psutil": ("kernel.",),
    "jeepney": ("kernel.",),
    "structlog": ("daemon.logs",),
    "importlib": ("kernel.uevents", "cli.main"),  # whoever else had it could import behind this test's back
    "rich": ("cli.",),
    "msgspec": ("state.", "kernel.", "daemon.", "cli."),
}
PURE_TABLES = {("model.errors", "os"): {"strerror"}}
"""Lookups that touch nothing, although their module could: only these names of it may be used."""
KERNEL_IN_CLI = {
    "cli.topology": {"kernel.sysfs"},
    "cli.check_config": {"kernel.cgroup_mounts", "kernel.discovery"},
    "cli.explain": {"kernel.clock"},
    "cli.release": {"kernel.clock"},
    "cli.status": {"kernel.clock"},
}
"""What commands ask of the kernel's readers themselves; all else goes through `daemon`."""
FILES_IN_CLI = {"cli.main", "cli.plan"}
"""Who opens a file: nowhere (``/dev/null``), and the Pod that is named."""
OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "iterdir",
    "scandir",
    "listdir",
    "readlink",
}
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


@dataclass(frozen=True, slots=True)
class Module:
    """
    One source file: its name below the package (``kernel.sysfs``), its tree, and what it imports.

    ``at_once`` are the imports that loading it brings, which those inside functions are not.
    """

    name: str
    tree: ast.Module
    imports: frozenset[str]
    at_once: frozenset[str]

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
        at_once = frozenset(_imports(_outside_functions(tree), paths))
        modules[name] = Module(name, tree, frozenset(_imports(ast.walk(tree), paths)), at_once)
    return modules


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _outside_functions(child)


def _imports(nodes: Iterable[ast.AST], ours: Mapping[str, Path]) -> Iterator[str]:
    """Full names, ours as far as a module of that name exists; relative imports stand out as ``.``."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "."
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full.removeprefix("numapin.") in ours else node.module or ""


def _ours(names: Iterable[str]) -> set[str]:
    return {name.removeprefix("numapin.") for name in names if name.startswith("numapin.")}


def find_faults(modules: Mapping[str, Module]) -> list[str]:
    """One sentence for each import, name or cycle that breaks a rule."""
    return sorted(fault for module in modules.values() for fault in _faults(module)) + _cycles(modules)


def _faults(module: Module) -> Iterator[str]:
    if module.name.rsplit(".", 1)[-1] in VAGUE:
        yield f"{module.name}: a name that says nothing"
    if "." in module.imports:
        yield f"{module.name}: relative import"
    allowed = LAYERS.get(module.layer, {"cli"} if module.name == "__main__" else set())
    for target in _ours(module.imports):
        if target.split(".")[0] not in allowed:
            yield f"{module.name}: imports {target} of another layer"
    for outside in {name.split(".")[0] for name in module.imports} - {"numapin", ".", "__future__"}:
        yield from _outside_faults(module, outside)
    yield from _cli_faults(module)
    for node in ast.walk(module.tree):
        if module.layer in PURE and isinstance(node, ast.Call) and _called(node) in SPEAKING:
            yield f"{module.name}: calls {_called(node)}, but {module.layer} is pure"
        named = getattr(node, "id", getattr(node, "attr", None))
        if named == "TYPE_CHECKING":
            yield f"{module.name}: TYPE_CHECKING hides an import"
        leaves = (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.exit") or named == "SystemExit"
        if leaves and module.name != "cli.main":
            yield f"{module.name}: only cli.main ends the process"


def _cli_faults(module: Module) -> Iterator[str]:
    """What only the commands are asked: no kernel file of their own, and tables only once one is printed."""
    if module.layer != "cli":
        return
    direct = {target for target in _ours(module.imports) if target.split(".")[0] == "kernel"}
    for target in sorted(direct - KERNEL_IN_CLI.get(module.name, set())):
        yield f"{module.name}: asks {target} itself"
    opens = {called for node in ast.walk(module.tree) if isinstance(node, ast.Call) and (called := _called(node))}
    if opens & OPENING and module.name not in FILES_IN_CLI:
        yield f"{module.name}: opens a file ({min(opens & OPENING)})"
    if not _is_table(module.name):
        for name in sorted(module.at_once):
            if name.split(".")[0] == "rich" or _is_table(name.removeprefix("numapin.")):
                yield f"{module.name}: loads {name} before a table is printed"


def _is_table(name: str) -> bool:
    return name == "cli.table" or name.startswith("cli.render_")


def _called(node: ast.Call) -> str:
    """``open`` of ``open(…)``, ``os.open(…)`` and ``path.open(…)``."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _outside_faults(module: Module, library: str) -> Iterator[str]:
    if module.layer in PURE:
        used = PURE_TABLES.get((module.name, library))
        if used is not None:
            if extra := _attributes(module.tree, library) - used:
                yield f"{module.name}: uses {library}.{min(extra)}"
        elif library not in CALCULATION:
            yield f"{module.name}: imports {library}, but {module.layer} is pure"
    elif (homes := HOMES.get(library)) and not any(_is_in(module.name, home) for home in homes):
        yield f"{module.name}: imports {library}, which lives in {' and '.join(homes)}"


def _is_in(name: str, home: str) -> bool:
    return name.startswith(home) if home.endswith(".") else name == home


def _attributes(tree: ast.Module, library: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == library
    }


def _cycles(modules: Mapping[str, Module]) -> list[str]:
    try:
        TopologicalSorter({m.name: _ours(m.imports) - {m.name} for m in modules.values()}).prepare()
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
        ("cli/a.py", "import structlog", "cli.a: imports structlog, which lives in daemon.logs"),
        ("daemon/a.py", "def f():\n  import structlog", "daemon.a: imports structlog, which lives in daemon.logs"),
        (
            "daemon/logs_more.py",
            "import structlog",
            "daemon.logs_more: imports structlog, which lives in daemon.logs",
        ),
        (
            "daemon/a.py",
            "import importlib",
            "daemon.a: imports importlib, which lives in kernel.uevents and cli.main",
        ),
        ("model/a.py", "import shutil", "model.a: imports shutil, but model is pure"),
        ("model/a.py", "x = open('y')", "model.a: calls open, but model is pure"),
        ("planner/a.py", "def f():\n  print(1)", "planner.a: calls print, but planner is pure"),
        ("cli/a.py", "from numapin.kernel.b import x", "cli.a: asks kernel.b itself"),
        ("cli/topology.py", "def f():\n  from numapin.kernel import b", "cli.topology: asks kernel.b itself"),
        ("cli/a.py", "open('/proc/meminfo')", "cli.a: opens a file (open)"),
        ("cli/a.py", "def f(root):\n  return (root / 'sys').read_text()", "cli.a: opens a file (read_text)"),
        ("cli/a.py", "import os\nos.listdir('/sys')", "cli.a: opens a file (listdir)"),
        ("cli/a.py", "from rich.table import Table", "cli.a: loads rich.table before a table is printed"),
        ("cli/a.py", "from numapin.cli.table import x", "cli.a: loads numapin.cli.table before a table is printed"),
        ("daemon/a.py", "def f():\n  import rich", "daemon.a: imports rich, which lives in cli."),
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
            "cli/table.py": "",
            path: text,
        },
    )

    faults = find_faults(read_modules(tmp_path))

    assert len(faults) == 1
    assert faults[0].startswith(fault)

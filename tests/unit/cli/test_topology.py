"""``numapin topology``: its JSON, its errors, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.main import main
from support.machines import GIB, NODES, PAGE_1G, PAGE_2M, Node, Pool, even, write_flat_machine, write_machine
from support.trees import write_tree

HEAVY = ("rich", "structlog", "psutil", "pyroute2", "inotify_simple", "jeepney", "msgspec")


def _json(root: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["topology", "-o", "json", "--root", str(root)]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The document has every node with bytes as integers, pools by size and distances by id."""
    nodes = [Node(0, "0-31", 8 * GIB, free=GIB, pools={PAGE_2M: Pool(512, 100, 3), PAGE_1G: 2}), Node(2, "", 4 * GIB)]
    write_machine(tmp_path, nodes, distances=[[10, 40], [41, 10]])

    document = _json(tmp_path, capsys)

    expected = {
        "apiVersion": "numapin/v1",
        "kind": "Topology",
        "online": "0,2",
        "synthetic": False,
        "warnings": [],
        "nodes": [
            {
                "id": 0,
                "cpus": "0-31",
                "kind": "memory",
                "memory_bytes": 8 * GIB,
                "free_bytes": GIB,
                "hugepages": {
                    "2Mi": {"pages": 512, "free": 100, "surplus": 3},
                    "1Gi": {"pages": 2, "free": 2, "surplus": 0},
                },
                "distances": {"0": 10, "2": 40},
            },
            {
                "id": 2,
                "cpus": "",
                "kind": "cpu-less",
                "memory_bytes": 4 * GIB,
                "free_bytes": 4 * GIB,
                "hugepages": {},
                "distances": {"0": 41, "2": 10},
            },
        ],
    }
    assert expected == document


def test_json_keys_are_sorted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two readings of the same machine are the same text, with sorted keys, for diff."""
    write_machine(tmp_path, even(2))
    main(["topology", "-o", "json", "--root", str(tmp_path)])
    first = capsys.readouterr().out
    main(["topology", "-o", "json", "--root", str(tmp_path)])

    assert first == capsys.readouterr().out
    assert json.dumps(json.loads(first), sort_keys=True, indent=2) + "\n" == first


def test_json_without_numa(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A made-up node is marked, and unknown distances are null, not an empty table."""
    write_flat_machine(tmp_path)

    document = _json(tmp_path, capsys)

    assert document["synthetic"] is True
    assert document["nodes"][0]["distances"] is None


def test_warnings_are_in_the_json_and_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is a member of the document, and beside a table a line on standard error."""
    write_machine(tmp_path, even(2), with_distances=False)

    warnings = _json(tmp_path, capsys)["warnings"]
    status = main(["topology", "--root", str(tmp_path)])
    captured = capsys.readouterr()

    assert len(warnings) == 1
    assert status == 0
    assert captured.err == f"numapin: warning: {warnings[0]}\n"
    assert "warning" not in captured.out


@pytest.mark.parametrize("output", ["json", "table"])
def test_garbled_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    """A garbled file is exit 1, its path and what was expected, with nothing on standard output and no trace."""
    write_machine(tmp_path, even(2))
    write_tree(tmp_path, {f"{NODES}/node1/cpulist": "0-\x1b[2J\n"})

    status = main(["topology", "-o", output, "--root", str(tmp_path)])

    captured = capsys.readouterr()
    assert (status, captured.out) == (1, "")
    assert captured.err.startswith(f"numapin: {tmp_path}/{NODES}/node1/cpulist: expected a list of ids")
    assert "\x1b" not in captured.err


def test_a_root_without_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped root is exit 1 and the place where nodes were looked for."""
    status = main(["topology", "--root", str(tmp_path / "typo")])

    assert status == 1
    assert str(tmp_path / "typo" / NODES) in capsys.readouterr().err


def test_json_imports_nothing_heavy(tmp_path: Path) -> None:
    """The JSON path loads no library but the standard one, so scripts do not wait for rich."""
    write_machine(tmp_path, even(2))
    code = (
        "import sys\n"
        "from numapin.cli.main import main\n"
        f"status = main(['topology', '-o', 'json', '--root', {str(tmp_path)!r}])\n"
        f"loaded = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "print(status, loaded, file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "0 []\n"
    assert json.loads(done.stdout)["online"] == "0-1"

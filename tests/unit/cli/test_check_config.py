"""``numapin check-config`` as a user sees it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from numapin.cli.check_config import run
from numapin.cli.main import main
from numapin.daemon.config import Config, load_config
from numapin.model.errors import ConfigError, ExitStatus
from support.cgroup_trees import CgroupTree
from support.machines import even, write_machine
from support.trees import write_tree

MAIN = "etc/numapin/numapin.toml"
CHANGED = """
policy = "best-effort"
release_grace = "1500ms"
state_dir = '/srv/a "b"\\c'
nodes.cpu_less = [2, 3]
[reserved]
fraction = "2.5%"
minimum = "1000"
node.0 = { memory = "1Gi", hugepages-2Mi = "10Mi" }
"""

GIB = 1 << 30


def arguments(root: Path, output: str = "table", config: Path | None = None) -> argparse.Namespace:
    """The parsed command line."""
    return argparse.Namespace(root=root, config=config, output=output)


def test_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file the command says OK and shows the defaults as such."""
    assert run(arguments(tmp_path)) == ExitStatus.OK
    shown = capsys.readouterr().out

    assert shown.startswith(f"# OK: nothing set in {tmp_path / MAIN}; defaults:\n# Not tried on a machine: ")
    assert 'policy = "restricted"                    # default\n' in shown


def test_every_problem_at_once(tmp_path: Path) -> None:
    """Mistakes in the files and reservations that this machine cannot keep are told together."""
    write_machine(tmp_path, even(2, memory=2 * GIB))
    text = 'policy = "fastest"\n[reserved.node.0]\nmemory = "200Gi"\n[reserved.node.7]\nmemory = "1Gi"\n'
    write_tree(tmp_path, {MAIN: text})

    with pytest.raises(ConfigError) as caught:
        run(arguments(tmp_path))

    assert [key for _, key, _ in caught.value.problems] == [
        "policy",
        "reserved.node.0.memory",
        "reserved.node.7.memory",
    ]
    assert {file for file, _, _ in caught.value.problems} == {str(tmp_path / MAIN)}


@pytest.mark.parametrize("text", ["", CHANGED])
def test_table_is_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """What is printed is TOML that reads back to the same configuration."""
    root = write_tree(tmp_path, {MAIN: text})
    run(arguments(root))
    printed = tmp_path / "printed.toml"
    printed.write_text(capsys.readouterr().out)

    assert load_config(root) == load_config(root, printed)
    assert (load_config(root) == Config()) is (text == "")


def test_sources_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value that was set is shown with its file."""
    root = write_tree(tmp_path, {MAIN: CHANGED, "etc/numapin/conf.d/50-site.toml": 'scope = "pod"\n'})
    run(arguments(root))
    lines = capsys.readouterr().out.splitlines()

    assert f'scope = "pod"                            # {root}/etc/numapin/conf.d/50-site.toml' in lines
    assert f'memory = "1Gi"                           # {root}/{MAIN}' in lines


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has every value under its table, sizes in bytes, and the file of each that was set."""
    root = write_tree(tmp_path, {MAIN: CHANGED})
    assert run(arguments(root, "json")) == ExitStatus.OK
    document = json.loads(capsys.readouterr().out)
    values = document["values"]

    assert (document["apiVersion"], document["kind"]) == ("numapin/v1", "Config")
    assert values["policy"] == "best-effort"
    assert values["release_grace"] == "1s500ms"
    assert values["state_dir"] == '/srv/a "b"\\c'
    assert values["nodes"] == {"cpu_less": [2, 3]}
    assert values["cgroup"] == {"root": "/", "v1_memory_migrate": True, "enable_cpuset": False}
    assert values["providers"] == {"cpus": True, "devices": True}
    assert values["reserved"] == {
        "fraction": "2.5%",
        "minimum": 1000,
        "node": {"0": {"memory": 1 << 30, "hugepages-2Mi": 10 << 20}},
    }
    assert document["sources"]["reserved.node.0.memory"] == str(root / MAIN)
    assert "scope" not in document["sources"]


def test_problems(tmp_path: Path) -> None:
    """Everything wrong comes in one error with exit status 6, a line each."""
    root = write_tree(tmp_path, {MAIN: "scope = 1\nfoo = 2\n"})
    with pytest.raises(ConfigError) as caught:
        run(arguments(root))

    assert caught.value.exit_status == ExitStatus.CONFIG
    assert str(caught.value).splitlines() == [
        "configuration wrong:",
        f'  {root / MAIN}: scope: must be "container" or "pod", not 1',
        f"  {root / MAIN}: foo: unknown key",
    ]


def test_given_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file given with --config is the one that is checked."""
    file = tmp_path / "mine.toml"
    file.write_text('scope = "pod"\n')
    run(arguments(tmp_path, config=file))

    assert capsys.readouterr().out.startswith(f"# OK: {file};")


def test_a_file_without_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    """A file named by mistake as an argument is a usage error that says how to name it."""
    status = main(["check-config", "/etc/numapin/other.toml"])
    captured = capsys.readouterr()

    assert (status, captured.out) == (ExitStatus.USAGE, "")
    assert "usage: numapin check-config [-h] [--config FILE]" in captured.err
    assert "with --config: --config /etc/numapin/other.toml" in captured.err


@pytest.mark.parametrize(
    "words", [["--root", "/srv/a"], ["--root=/srv/a"], ["--root"], ["--root", "/srv/a", "-o", "json"]]
)
def test_it_has_no_root(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The option of other verbs is a usage error that says there is none, and what does it instead."""
    status = main(["check-config", *words])
    captured = capsys.readouterr()

    assert (status, captured.out) == (ExitStatus.USAGE, "")
    assert "argument --root: check-config has none" in captured.err
    assert f"numapin doctor --root {'/srv/a' if len(words) > 1 or '=' in words[0] else 'DIR'} looks" in captured.err
    assert "name the configuration file with --config" not in captured.err


def test_what_the_machine_cannot_keep(tmp_path: Path) -> None:
    """A reservation above a node's memory, or on a node that is not there, is named as the daemon would name it."""
    write_machine(tmp_path, even(2, memory=GIB))
    file = tmp_path / "mine.toml"
    file.write_text('[reserved.node.0]\nmemory = "2Gi"\n[reserved.node.5]\nmemory = "1Gi"\n')
    with pytest.raises(ConfigError) as caught:
        run(arguments(tmp_path, config=file))

    assert [key for _, key, _ in caught.value.problems] == ["reserved.node.0.memory", "reserved.node.5.memory"]
    assert {where for where, _, _ in caught.value.problems} == {str(file)}


def test_what_fits_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine that was asked is named, and so is a CPU-less node that is not there."""
    write_machine(tmp_path, even(2, memory=GIB))
    file = tmp_path / "mine.toml"
    file.write_text("nodes.cpu_less = [5]\n")
    run(arguments(tmp_path, config=file))

    told = "# Every reservation fits this machine (nodes 0-1); nodes.cpu_less names node 5, which is not there."
    assert told in capsys.readouterr().out.splitlines()


def test_a_root_that_is_not_there_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no fault, for its container may be started later; it is named until it is there."""
    write_machine(tmp_path, even(2, memory=GIB))
    tree = CgroupTree(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text('cgroup.root = "/odd.slice/box"\n')
    run(arguments(tmp_path, config=file))
    missing = capsys.readouterr().out
    tree.add("/odd.slice/box")
    run(arguments(tmp_path, config=file))

    assert "(nodes 0-1). But cgroup.root names /odd.slice/box, and /sys/fs/cgroup has no such cgroup now" in missing
    assert "names /odd.slice/box" not in capsys.readouterr().out


def test_wrong_values_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script gets every problem with file and key, and the error all the same."""
    file = tmp_path / "numapin.toml"
    file.write_text('colour = "red"\npolicy = "best"\n')

    with pytest.raises(ConfigError):
        run(arguments(tmp_path, "json", file))
    document = json.loads(capsys.readouterr().out)

    assert (document["kind"], document["values"]) == ("Config", None)
    assert {(p["file"], p["key"]) for p in document["problems"]} == {(str(file), "colour"), (str(file), "policy")}
    assert all(p["message"] for p in document["problems"])

"""Exit statuses and messages of the command itself."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from numapin import __version__
from numapin.cli.main import main
from numapin.cli.parser import DEFAULT_STATE, VERBS, Verb, build_parser
from support.machines import NODES, even, write_machine

CHECKOUT = Path(__file__).parents[3]


def _what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what")


TROUBLE = {"trouble": Verb("support.trouble", "end in the way asked for", _what)}


def numapin(*args: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own; *shell* is what follows it (a pipe or a redirection)."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONUNBUFFERED", "NUMAPIN_DEBUG")
    }
    quoted = " ".join(f"'{word}'" for word in (sys.executable, "-m", "numapin", *args))
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{quoted} {shell}"],
        env=inherited | {"PYTHONPATH": str(CHECKOUT / "agent")} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_verb_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """``numapin`` alone is a usage error that shows every verb and the exit codes."""
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(verb in captured.err for verb in VERBS)
    assert "6 configuration wrong" in captured.err


@pytest.mark.parametrize("words", [["release", "a", "b"], ["checkpoint", "show", "a", "b"]])
def test_a_word_too_many_shows_the_verb_s_usage(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """The usage above the complaint is that of the verb that was asked for."""
    assert main(words) == 2
    usage, *_, complaint = capsys.readouterr().err.splitlines()

    assert usage.startswith(f"usage: numapin {' '.join(words[:-2])} ")
    assert complaint.endswith("unrecognized arguments: b")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for, version and help go to standard output with exit 0."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"numapin {__version__}\n"
    assert main(["topology", "--help"]) == 0
    assert "--root DIR" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [["tpology"], ["topology", "--rot", "/"], ["topology", "-o", "xml"], ["checkpoint"], ["topology", "extra"]],
)
def test_usage_errors(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A verb, option or value that does not exist, or is missing, is exit 2 with the usage, never a trace."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: numapin")


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "--memory=--"],
        ["plan", "--memory", "1Gi", "--root=--"],
        ["plan", "--hugepages-2Mi=--", "--memory", "1Gi"],
        ["doctor", "--config=--"],
        ["status", "-o--"],
        ["status", "-o=--"],
        ["release", "--all", "--state=--"],
    ],
)
def test_two_dashes_are_no_value(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What argparse would take for nothing at all is a usage error, and no default is used instead."""
    assert main(argv) == 2
    assert "-- is no value" in capsys.readouterr().err


def test_every_verb_has_options_of_its_own() -> None:
    """The options each verb is documented with are understood, with their defaults."""
    parse = build_parser().parse_args

    assert vars(parse(["run"])) == {"verb": "run", "root": Path("/"), "config": None, "dry_run": False}
    assert parse(["run", "--root", "/r", "--config", "/c", "--dry-run"]).dry_run
    status = parse(["status", "-o", "json"])
    assert (status.socket, status.state) == (None, None)
    assert parse(["containers"]).root is None
    assert parse(["containers", "--root", "/"]).root == Path("/")
    checkpoint = parse(["checkpoint", "verify"])
    assert (checkpoint.action, str(checkpoint.file), checkpoint.output) == ("verify", DEFAULT_STATE, "table")
    assert parse(["checkpoint", "show", "/f", "-o", "json"]).file == Path("/f")
    assert parse(["check-config", "--config", "/c"]).config == Path("/c")


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("read", 1),
        ("config", 6),
        ("not-running", 3),
        ("permission", 4),
        ("fits-not", 5),
        ("interrupt", 130),
        ("ok", 0),
    ],
)
def test_each_ending_has_its_status(what: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors become their exit status, and what a verb returns is passed on."""
    assert status == main(["trouble", what], TROUBLE)
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_is_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The message is the error's own, on standard error, with every line of it and no control character."""
    main(["trouble", "read"], TROUBLE)
    main(["trouble", "config"], TROUBLE)

    assert capsys.readouterr().err == (
        "numapin: cannot read /sys/x?[2J: Permission denied (EACCES)\n"
        "numapin: configuration wrong:\n  /etc/a.toml: policy: unknown\n  /etc/b.toml: not TOML\n"
    )


def test_an_unexpected_error_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours is exit 1 and one line to report; the trace comes only when asked for."""
    monkeypatch.delenv("NUMAPIN_DEBUG", raising=False)
    assert main(["trouble", "bug"], TROUBLE) == 1
    assert capsys.readouterr().err == (
        "numapin: internal error, please report: RuntimeError: a bug (NUMAPIN_DEBUG=1 shows where)\n"
    )

    monkeypatch.setenv("NUMAPIN_DEBUG", "1")
    assert main(["trouble", "bug"], TROUBLE) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """``numapin topology | head`` ends quietly, as other tools do, for any amount of output."""
    write_machine(tmp_path, even(200))

    done = numapin("topology", "-o", "json", "--root", str(tmp_path), shell="| head -c 1")
    table = numapin("topology", "--root", str(tmp_path), shell="| head -c 1")

    assert (done.returncode, done.stdout, done.stderr) == (141, "{", "")
    assert (table.returncode, table.stdout, table.stderr) == (141, "2", "")


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    """Output that cannot be written is exit 1 and says why, whether little or much."""
    for count in (1, 200):
        write_machine(tmp_path, even(count))
        for output in ("json", "table"):
            done = numapin("topology", "-o", output, "--root", str(tmp_path), shell="> /dev/full")

            assert done.returncode == 1
            assert done.stderr == "numapin: cannot write the output: No space left on device\n"


def test_closed_output_is_not_a_trace(tmp_path: Path) -> None:
    """Even without a standard output or error the command ends with a status and no trace."""
    write_machine(tmp_path, even(1))

    silent = numapin("topology", "--root", str(tmp_path), shell=">&-")

    assert (silent.returncode, silent.stderr) == (0, "")
    assert numapin("topology", "--root", "/nowhere", shell="2>&-").returncode == 1


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    """A path with letters the terminal cannot show is escaped, not a trace."""
    root = tmp_path / "größe"
    write_machine(root, even(2))
    (root / NODES / "node0/cpulist").write_text("x")

    done = numapin("topology", "--root", str(root), PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert done.returncode == 1
    assert "gr\\xf6\\xdfe" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_starts_with_little() -> None:
    """What ``status -o json`` imports before it asks the daemon leaves out the costly parts of the library."""
    costly = ["dataclasses", "inspect", "pathlib", "typing", "shutil", "msgspec", "rich", "structlog"]
    code = f"import sys, numapin.cli.main, numapin.cli.status; print([m for m in {costly} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip

    assert done.stdout.strip() == "[]"

"""What is installed beside the package agrees with it: unit, manual pages, completion, Debian package."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from numapin import __version__
from numapin.cli.main import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED
from numapin.cli.parser import VERBS, build_parser
from numapin.daemon.config import Config
from numapin.daemon.config_keys import KEYS
from numapin.model.errors import ExitStatus

CHECKOUT = Path(__file__).parents[2]
MANUAL = CHECKOUT / "packaging/man"
UNIT = CHECKOUT / "systemd/numapin.service"

on_debian = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb exists on Debian only")
with_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")


def unit_values(key: str) -> list[str]:
    """Words of every ``key=`` line of the unit, in order."""
    return [
        word
        for line in UNIT.read_text().splitlines()
        if line.startswith(f"{key}=")
        for word in line.split("=", 1)[1].split()
    ]


def command_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of each verb."""
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def option_strings() -> set[str]:
    """Every option of every command."""
    parsers = [build_parser(), *(parser for _, parser in command_parsers())]
    return {text for parser in parsers for action in parser._actions for text in action.option_strings}


# ---- the unit ----------------------------------------------------------------------------------------------


def test_make_run_reads_yaml() -> None:
    """The environment that ``make run`` sets up has what ``plan --pod`` needs for YAML."""
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert "run) what='.[pods]'" in (CHECKOUT / "scripts/venv").read_text()
    assert any(name.startswith("PyYAML") for name in extras["pods"])


def test_unit_starts_a_verb_we_have() -> None:
    """The unit's command line is one our parser takes."""
    command, *arguments = unit_values("ExecStart")

    assert command == "/usr/bin/numapin"
    assert build_parser().parse_args(arguments).verb == "run"


def test_unit_gives_the_directories_the_configuration_names() -> None:
    """Socket and checkpoint lie in the directories that the unit makes writable."""
    config = Config()

    assert [config.socket.parent] == [Path("/run", name) for name in unit_values("RuntimeDirectory")]
    assert [config.state_dir] == [Path("/var/lib", name) for name in unit_values("StateDirectory")]


def test_unit_does_not_retry_what_only_a_person_can_change() -> None:
    """Usage, permission and configuration errors stay failed; a plain failure is retried without end."""
    final = {str(int(code)) for code in (ExitStatus.USAGE, ExitStatus.NO_PERMISSION, ExitStatus.CONFIG)}

    assert final == set(unit_values("RestartPreventExitStatus"))
    assert unit_values("StartLimitIntervalSec") == ["0"]


def test_unit_says_why_for_each_capability() -> None:
    """A capability stands in the unit only with its reason above it."""
    granted = unit_values("CapabilityBoundingSet")
    explained = re.findall(r"^#   (CAP_\w+) +\w+", UNIT.read_text().partition("# Not here")[0], re.MULTILINE)

    assert granted == explained


@with_systemd
def test_unit_exposure(tmp_path: Path) -> None:
    """systemd scores the unit's exposure at 1.5 of 10 or less."""
    unit = shutil.copy(UNIT, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=15", unit],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "Overall exposure level" in done.stdout) == (0, True), done.stdout[-600:]


# ---- manual pages ------------------------------------------------------------------------------------------


def test_manual_has_every_verb() -> None:
    """numapin(8) describes each verb, and no other."""
    text = (MANUAL / "numapin.8").read_text()
    described = set(re.findall(r"^\.It Cm ([a-z-]+)", text, re.MULTILINE))
    in_synopsis = set(re.findall(r"^\.Nm\n\.Cm ([a-z-]+)$", text, re.MULTILINE))

    assert set(VERBS) == described
    assert set(VERBS) == in_synopsis


def test_manual_has_every_option() -> None:
    """numapin(8) describes each option, and no other."""
    text = (MANUAL / "numapin.8").read_text().partition(".Ss Options")[2].partition(".Sh ")[0]
    lines = re.findall(r"^\.It Fl (.+)$", text, re.MULTILINE)
    described = {"-" + word for line in lines for word in re.findall(r"(?:^|, )(-?[A-Za-z0-9-]+)", line)}

    assert option_strings() == described


def test_manual_has_every_exit_status() -> None:
    """numapin(8) lists each exit status, and no other."""
    section = (MANUAL / "numapin.8").read_text().partition(".Sh EXIT STATUS")[2].partition(".Sh ")[0]
    described = [int(number) for number in re.findall(r"^\.It (\d+)$", section, re.MULTILINE)]

    assert [*map(int, ExitStatus), EXIT_INTERRUPTED, EXIT_BROKEN_PIPE] == described


def test_manual_has_every_configuration_key_with_its_default() -> None:
    """numapin.toml(5) lists each key with the default that the program has, and no other."""
    text = (MANUAL / "numapin.toml.5").read_text()
    described = {
        key: f'"{value.removeprefix("Qq ")}"' if value.startswith("Qq ") else value
        for key, value in re.findall(r"^\.It Sy (\S+) No = (.+)$", text, re.MULTILINE)
    }
    config = Config()
    defaults = {}
    for name, key in KEYS.items():
        holder, _, field = key.field.rpartition(".")
        defaults[name] = key.show(getattr(getattr(config, holder) if holder else config, field))

    assert defaults == described


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed here")
@pytest.mark.parametrize("page", ["numapin.8", "numapin.toml.5"])
def test_manual_is_formatted_without_warnings(page: str) -> None:
    """The manual pages are clean mdoc."""
    done = subprocess.run(
        ["groff", "-z", "-ww", "-mandoc", MANUAL / page], capture_output=True, text=True, check=True
    )

    assert done.stderr == ""


# ---- completion --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The completion script as the package installs it."""
    script = tmp_path_factory.mktemp("completion") / "numapin"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "agent")}
    generator = [sys.executable, str(CHECKOUT / "scripts/bash_completion.py")]
    script.write_text(subprocess.run(generator, env=environment, capture_output=True, text=True, check=True).stdout)
    return script


def complete(script: Path, *words: str, cwd: Path | None = None) -> list[str]:
    """What bash offers for the last of *words*, typed after ``numapin``."""
    program = 'source "$0"; COMP_WORDS=(numapin "$@"); COMP_CWORD=$#; _numapin; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", program, script, *words], capture_output=True, text=True, check=True, cwd=cwd
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_completion_offers_the_verbs(completion: Path) -> None:
    """The first word is a verb."""
    assert list(VERBS) == complete(completion, "")
    assert complete(completion, "ch") == ["checkpoint", "check-config"]


def test_completion_offers_each_verbs_options(completion: Path) -> None:
    """After a verb come the options that this verb takes, without those that only lead to a sentence."""
    offered = {verb: complete(completion, verb, "-") for verb in VERBS}
    taken = {
        verb: [
            text for action in parser._actions if action.help != argparse.SUPPRESS for text in action.option_strings
        ]
        for verb, parser in command_parsers()
    }

    assert taken == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["status", "-o", ""], ["table", "json"]),
        (["status", "--output", "=", "j"], ["json"]),
        (["status", "--output", "="], ["table", "json"]),
        (["checkpoint", "show", "-o", "json", "st"], ["state.json"]),
        (["checkpoint", "show", "st"], ["state.json"]),
        (["topology", "--root", "st"], ["state.json"]),
        (["topology", "--unknown", ""], []),
        (["no-such-verb", "x"], []),
    ],
)
def test_completion_of_values(completion: Path, tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """Choices and file names are offered where the parser takes them, nothing elsewhere."""
    (tmp_path / "state.json").touch()

    assert offered == complete(completion, *words, cwd=tmp_path)


# ---- the Debian package ------------------------------------------------------------------------------------


def test_package_depends_on_what_the_project_depends_on() -> None:
    """Each dependency is Debian's, with the project's minimum, or carried inside at a version that will do."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    control = (CHECKOUT / "packaging/debian/control.in").read_text()
    debian = dict(re.findall(r"python3-([a-z0-9]+) \(>= ([\d.]+)\)", control))
    carried = dict(
        re.findall(r"^([a-z-]+)==([\d.]+) ", (CHECKOUT / "packaging/vendor.txt").read_text(), re.MULTILINE)
    )
    minimum = dict(dependency.split(">=") for dependency in project["dependencies"])

    assert minimum == debian | {name: minimum[name] for name in carried}
    assert all(_numbers(minimum[name]) <= _numbers(version) for name, version in carried.items())
    assert f"python3 ({project['requires-python'].replace('>=', '>= ')})" in control


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def build(out: Path) -> Path:
    """A package built into *out*."""
    environment = {**os.environ, "BUILD_PYTHON": sys.executable}
    done = subprocess.run(
        [CHECKOUT / "packaging/build-deb", out], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out / f"numapin_{__version__}_all.deb"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of this tree."""
    return build(tmp_path_factory.mktemp("package"))


@on_debian
def test_package_is_reproducible(package: Path, tmp_path: Path) -> None:
    """Two builds of one tree are the same bytes."""
    assert hashlib.sha256(package.read_bytes()).digest() == hashlib.sha256(build(tmp_path).read_bytes()).digest()


@on_debian
def test_package_is_complete(package: Path, tmp_path: Path) -> None:
    """The package holds every module, the service and its configuration, and a checksum of each file."""
    listing = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    modes = {fields[5].removeprefix("."): fields[0] for fields in map(str.split, listing.splitlines())}
    modules = {f"/usr/lib/python3/dist-packages/{p.relative_to(CHECKOUT / 'agent')}" for p in _modules()}
    subprocess.run(["dpkg-deb", "-e", package, tmp_path / "control"], check=True)

    assert modules == {
        path for path in modes if path.endswith((".py", "py.typed")) and "/numapin/python/" not in path
    }
    assert modes["/usr/bin/numapin"] == "-rwxr-xr-x"
    assert modes["/var/lib/numapin/"] == "drwxr-x---"
    assert {"/usr/lib/systemd/system/numapin.service", "/etc/numapin/conf.d/"} <= modes.keys()
    assert (tmp_path / "control/conffiles").read_text() == "/etc/numapin/numapin.toml\n"
    assert sum(mode.startswith("-") for mode in modes.values()) == len(
        (tmp_path / "control/md5sums").read_text().splitlines()
    )


def _modules() -> Iterator[Path]:
    for path in (CHECKOUT / "agent/numapin").rglob("*"):
        if path.name.endswith(".py") or path.name == "py.typed":
            yield path


@on_debian
def test_command_finds_the_carried_library_last(package: Path, tmp_path: Path) -> None:
    """The installed command looks for inotify_simple in the directory that the package fills, after all others."""
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True)
    directory = re.findall(r'^sys\.path\.append\("(.+)"\)$', (tmp_path / "root/usr/bin/numapin").read_text(), re.M)

    assert [p.name for d in directory for p in (tmp_path / "root" / d[1:]).iterdir()] == ["inotify_simple.py"]

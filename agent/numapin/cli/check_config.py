"""``numapin check-config``: what the configuration says, or everything that is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from numapin.cli.json_output import print_json
from numapin.daemon.config import CONFIG_FILE, Config, under
from numapin.daemon.config_keys import KEYS, Key, show_size
from numapin.daemon.machine import Machine, load_for_machine
from numapin.model.errors import ConfigError, ExitStatus, KernelError
from numapin.model.nodeset import NodeSet


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Read the files as the daemon would, try them on this machine, and print every effective value.

    Raises:
        ConfigError: Every problem of the files, and every reservation that this machine cannot keep.
    """
    root = Path(getattr(args, "root", None) or "/")
    file: Path | None = args.config
    try:
        config = load_for_machine(root, file)
        tried = _try_on_machine(root, config)
    except ConfigError as exc:
        if args.output == "json":
            print_json("Config", {"values": None, "sources": {}, "problems": problem_rows(exc)})
        raise
    if args.output == "json":
        print_json("Config", {**document(config), "problems": []})
    else:
        place = file or under(root, CONFIG_FILE)
        files = ", ".join(sorted(set(config.sources.values())))
        said = f"{files}; what a start or a reload takes:" if files else f"nothing set in {place}; defaults:"
        print(f"# OK: {said}")
        print(f"# {tried}")
        print("\n".join(lines(config)))
    return ExitStatus.OK


def _try_on_machine(root: Path, config: Config) -> str:
    """
    What came of it, as a sentence; a machine that cannot be read is no fault of the configuration.

    Raises:
        ConfigError: A reservation does not fit.
    """
    try:
        machine = Machine.read(root, config)
    except KernelError as exc:
        return f"Not tried on a machine: {exc}"
    absent = config.cpu_less_nodes - machine.topology.online
    note = (
        f"; nodes.cpu_less names {absent.named}, which {'is' if len(absent) == 1 else 'are'} not there"
        if absent
        else ""
    )
    return f"Every reservation fits this machine ({machine.topology.online.named}){note}.{_root_note(root, config)}"


def _root_note(root: Path, config: Config) -> str:
    """A sentence when ``cgroup.root`` is not there now, which is no fault: its container may be started later."""
    if config.cgroup_root == "/":
        return ""
    from numapin.kernel.cgroup_mounts import find_hierarchy
    from numapin.kernel.discovery import Discovery

    try:
        problem = Discovery(find_hierarchy(root), root, top=config.cgroup_root).top_problem()
    except KernelError as exc:
        problem = str(exc)
    return f" But {problem}." if problem else ""


def problem_rows(error: ConfigError) -> list[dict[str, str]]:
    """One mapping per problem; the key is empty where a file as a whole is wrong."""
    return [{"file": file, "key": key, "message": what} for file, key, what in error.problems]


def document(config: Config) -> dict[str, object]:
    """
    Every value by table and key; sizes in bytes, times in the form of the file.

    ``sources`` is the file of each dotted key that is set; other keys have their default.
    """
    found: dict[str, object] = {}
    for name, key in KEYS.items():
        table, _, last = name.rpartition(".")
        inside = found.setdefault(table, {}) if table else found
        assert isinstance(inside, dict)
        inside[last] = _plain(config, key)
    reserved = found["reserved"]
    assert isinstance(reserved, dict)
    reserved["node"] = {str(n): dict(sizes) for n, sizes in config.reserved.nodes.items()}
    return {"values": found, "sources": dict(config.sources)}


def lines(config: Config) -> Iterator[str]:
    """The configuration as TOML that reads back to the same; each line says where its value is from."""
    table = ""
    for name, key in KEYS.items():
        found, _, last = name.rpartition(".")
        if found != table:
            table = found
            yield f"\n[{table}]"
        yield _commented(f"{last} = {key.show(_value(config, key))}", config.sources.get(name, "default"))
    for node, sizes in sorted(config.reserved.nodes.items()):
        yield f"\n[reserved.node.{node}]"
        for memory_type, size in sorted(sizes.items()):
            source = config.sources[f"reserved.node.{node}.{memory_type}"]
            yield _commented(f"{memory_type} = {show_size(size)}", source)


def _commented(text: str, source: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in source)
    return f"{text:<40} # {shown}"


def _value(config: Config, key: Key) -> object:
    section, _, name = key.field.rpartition(".")
    return getattr(config.reserved if section else config, name)


def _plain(config: Config, key: Key) -> object:
    """One value as JSON has it."""
    value = _value(config, key)
    if isinstance(value, NodeSet):
        return list(value.ids())
    if isinstance(value, bool) or key.show is show_size:
        return value
    return key.show(value).strip('"') if isinstance(value, int) else str(value)

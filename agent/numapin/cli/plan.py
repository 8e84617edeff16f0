"""``numapin plan``: what would happen to a container or a pod, on the daemon's books, a checkpoint or a machine."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from numapin.cli.checkpoint_file import read_named
from numapin.cli.client import ask
from numapin.cli.options import DEFAULT_STATE
from numapin.daemon.basis import Basis, checkpoint_basis, machine_basis, read_basis
from numapin.daemon.what_if import Question, container_plan, pod_plan
from numapin.model.errors import (
    ExitStatus,
    NotPermitted,
    NotRunning,
    NumapinError,
    RequestFailed,
)
from numapin.model.memory import MEMORY, hugepages
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.quantity import NotAQuantity
from numapin.planner.kubelet.manifest import Manifest, ManifestError, parse_pod

MAX_MANIFEST_BYTES = 4 << 20
MOST_MERGED_KEYS = 100_000
"""Keys that YAML's ``<<`` may bring in: each level of merges of merges multiplies them."""
POD_UID = "numapin-plan"
"""Whatever uid a manifest has: the question is about a new pod."""


def run(args: argparse.Namespace) -> ExitStatus:
    """
    Answer and return OK, or DOES_NOT_FIT when it, or part of it, would not be placed now; nothing is written.

    That is so too where it fits and the daemon promises nothing at present (a note in the answer's source says why):
    who asks by the exit status wants to know what would happen.

    Raises:
        RequestFailed: Options that do not go together, nodes or CPUs that are not there, a manifest that is no Pod
            (exit 2), a manifest that cannot be read (exit 1), no daemon (exit 3).
        NotPermitted, CheckpointError, KernelError, ConfigError: As the place that is asked.
    """
    _check_options(args)
    manifest = None if args.pod is None else read_manifest(args.pod)
    basis = _basis(args)
    policy = None if args.policy is None else TopologyPolicy(args.policy)
    if manifest is not None:
        scope = None if args.scope is None else Scope(args.scope)
        document = pod_plan(basis, manifest, policy=policy, scope=scope)
    else:
        sizes = {MEMORY: args.memory, **{hugepages(page): size for page, size in (args.hugepages or {}).items()}}
        question = Question(sizes, args.count, policy, args.cpus, args.nodes_allowed)
        document = container_plan(basis, question)
    show(document, args.output)
    placed = document["admitted"] and not basis.source.get("note")
    return ExitStatus.OK if placed else ExitStatus.DOES_NOT_FIT


def show(document: Mapping[str, object], output: str) -> None:
    """Print an answer in the chosen form."""
    if output == "json":
        print(json.dumps(document, sort_keys=True, indent=2))
        return
    from numapin.cli.render_plan import render_plan, render_pod_plan

    if document["kind"] == "Plan":
        render_plan(document)
    else:
        render_pod_plan(document)


def read_manifest(path: Path) -> Manifest:
    """
    The pod in a file, JSON or YAML; ``-`` is standard input.

    Raises:
        RequestFailed: It cannot be read (``pod-unreadable``), stdin is closed, or it is no Pod (``bad-pod``).
    """
    data = _read_file(path)
    try:
        return parse_pod(_parse(data, path), uid=POD_UID)
    except (ManifestError, RecursionError) as exc:
        raise RequestFailed("bad-pod", f"{path}: {_told(exc)}", ExitStatus.USAGE) from exc


def _told(exc: Exception) -> str:
    """What is wrong with a manifest; an amount of CPU is not told how to write a size."""
    if isinstance(exc, ManifestError) and isinstance(exc.__cause__, NotAQuantity) and exc.key.endswith(".cpu"):
        return f"{exc.key}: {exc.__cause__.text[:60]!r} is not an amount of CPU; write for example 2, 0.5 or 500m"
    return str(exc)


def _check_options(args: argparse.Namespace) -> None:
    container_only = {
        "--memory": args.memory,
        "--hugepages-<size>": args.hugepages,
        "--cpus": args.cpus,
        "--nodes-allowed": args.nodes_allowed,
        "--count": None if args.count == 1 else args.count,
    }
    given = [name for name, value in container_only.items() if value is not None]
    if args.pod is not None and given:
        _usage(f"{given[0]} does not go with --pod, whose manifest says what is asked")
    if args.socket is not None and (args.root is not None or args.checkpoint is not None):
        where = "--root" if args.root is not None else "--checkpoint"
        _usage(f"--socket does not go with {where}, which asks no daemon")
    if args.pod is None and args.scope is not None:
        _usage("--scope goes with --pod only")
    if args.pod is None and args.memory is None:
        _usage("say what to place: --memory SIZE, with --hugepages-2Mi SIZE and the like beside it, or --pod FILE")


def _usage(sentence: str) -> None:
    raise RequestFailed("bad-plan", sentence, ExitStatus.USAGE)


def _basis(args: argparse.Namespace) -> Basis:
    if args.root is not None:
        return machine_basis(args.root)
    if args.checkpoint is not None:
        return checkpoint_basis(read_named(args.checkpoint), args.checkpoint)
    try:
        return read_basis(ask(args, "plan"), str(args.socket))
    except NotRunning as exc:
        from numapin.cli.starting import not_running

        raise RequestFailed(
            exc.code,
            f"{not_running(exc)}; or plan without it: --checkpoint {DEFAULT_STATE} is what it last saved, --root / "
            "this machine with nothing on it",
            ExitStatus.NOT_RUNNING,
        ) from exc


def _read_file(path: Path) -> bytes:
    try:
        if str(path) == "-":
            if sys.stdin is None:  # closed by the caller, as some daemons' children are started
                _usage("--pod -: standard input is closed; name a file, or give the manifest on standard input")
            return _bounded(sys.stdin.buffer, path)
        with path.open("rb") as stream:
            return _bounded(stream, path)
    except OSError as exc:
        error: NumapinError = RequestFailed("pod-unreadable", f"cannot read {path}: {_reason(exc)}")
        if exc.errno in (errno.EACCES, errno.EPERM):
            error = NotPermitted(f"cannot read {path}: {_reason(exc)}")
        raise error from exc


def _bounded(stream: BinaryIO, path: Path) -> bytes:
    data = stream.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise RequestFailed("bad-pod", f"{path}: a manifest is at most {MAX_MANIFEST_BYTES} bytes", ExitStatus.USAGE)
    return data


def _parse(data: bytes, path: Path) -> object:
    """What JSON or YAML says; numbers of JSON keep their digits."""
    try:
        text = data.decode()
        if path.suffix == ".json" or text.lstrip().startswith("{"):
            return json.loads(text, parse_float=str)
    except UnicodeDecodeError as exc:
        raise ManifestError("", "not UTF-8 text") from exc
    except ValueError as exc:
        if path.suffix == ".json":
            raise ManifestError("", f"not JSON: {exc}") from exc
    return _parse_yaml(text, path)


def _parse_yaml(text: str, path: Path) -> object:
    try:
        import yaml
    except ImportError as exc:
        raise RequestFailed(
            "pod-unreadable",
            f"reading {path} as YAML needs PyYAML: {_how_to_install_yaml()}; "
            "JSON needs nothing: kubectl get pod NAME -o json",
        ) from exc
    try:
        documents = [d for d in yaml.load_all(text, Loader=_bounded_loader()) if d is not None]
    except (yaml.YAMLError, ValueError) as exc:
        raise ManifestError("", f"not YAML: {_yaml_problem(exc)}") from exc
    if len(documents) != 1:
        raise ManifestError("", f"holds {len(documents)} documents; give one Pod")
    return documents[0]


def _yaml_problem(exc: Exception) -> str:
    """What PyYAML says of a place, in one line: ``found character '\\t' that cannot start any token (line 3)``."""
    problem, mark = getattr(exc, "problem", None), getattr(exc, "problem_mark", None)
    if problem is None or mark is None:
        return " ".join(str(exc).split())
    return f"{' '.join(str(problem).split())} (line {mark.line + 1}, column {mark.column + 1})"


def _how_to_install_yaml() -> str:
    """A command for the Python that runs: a virtual environment does not see Debian's packages."""
    if sys.prefix != sys.base_prefix:
        return f"{sys.prefix}/bin/python -m pip install PyYAML"
    return "apt install python3-yaml (or, where numapin came with pip: pip install PyYAML)"


def _bounded_loader() -> type[Any]:
    """
    PyYAML's safe loader, with a bound on what merge keys bring in.

    Aliases share one value and cost nothing here; a merge copies, so merges of merges grow with a power of the file.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._flat: set[int] = set()
            self._merged = 0

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            if id(node) in self._flat:
                return
            self._flat.add(id(node))
            for key, value in node.value:
                if key.tag != "tag:yaml.org,2002:merge":
                    continue
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(part, yaml.MappingNode):
                        self.flatten_mapping(part)
                        self._merged += 1 + len(part.value)
                    if self._merged > MOST_MERGED_KEYS:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"merge keys bring in more than {MOST_MERGED_KEYS} keys", node.start_mark
                        )
            super().flatten_mapping(node)

    return Loader


def _reason(exc: OSError) -> str:
    code = exc.errno or 0
    return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"

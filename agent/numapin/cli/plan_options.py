"""
The options of ``numapin plan``, apart from the other verbs' because there are many and their values need checking.

Owns: names, help, and the sentence about each wrong value. Must never: be imported for another verb.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from numapin.cli.options import add_output, add_socket, path
from numapin.model.nodeset import CpuSet, NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.quantity import format_page_size, parse_bytes, parse_page_size

PAGES = "--hugepages-"
"""What an option for hugepages begins with; the page size follows."""
MAX_COUNT = 1_000
"""Most containers that one ``plan`` places; a thousand on a thousand nodes take a minute."""
_USUAL_SIZES = ("2Mi", "1Gi")

_T = TypeVar("_T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; ``hugepages`` becomes bytes by page size in bytes, ``None`` without any."""
    # A size such as -5Gi is a value and gets its sentence; newer Pythons see it so by themselves.
    parser._negative_number_matcher = re.compile(r"-\.?\d")
    ask = parser.add_argument_group("what to place")
    ask.add_argument("--memory", type=_bytes, metavar="SIZE", help="memory of one container: 15Gi, 512Mi, 2G, bytes")
    for size in _USUAL_SIZES:
        _pages(ask, PAGES + size)
    ask.add_argument(
        "--cpus", type=_cpus, metavar="LIST", help="CPUs it is confined to (0-3): their nodes are wanted"
    )
    ask.add_argument(
        "--nodes-allowed", type=_nodes, metavar="LIST", help="only these nodes, as a parent cgroup would"
    )
    ask.add_argument("--count", type=_count, default=1, metavar="N", help="so many of them, one after the other (1)")
    ask.add_argument(
        "--pod",
        type=path,
        metavar="FILE",
        help="a Kubernetes Pod (JSON or YAML; - is standard input), as the kubelet",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--policy", choices=[p.value for p in TopologyPolicy], help="(default: the configured one)")
    how.add_argument("--scope", choices=[s.value for s in Scope], help="of --pod (default: the configured one)")
    add_output(parser)
    where = parser.add_argument_group("where (default: on what the daemon has now)").add_mutually_exclusive_group()
    where.add_argument("--checkpoint", type=path, metavar="FILE", help="on the books in this checkpoint")
    where.add_argument("--root", type=path, metavar="DIR", help="on the machine below DIR, as if it were empty")
    add_socket(parser)


def add_page_sizes(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add ``--hugepages-<size>`` for every other size that *words* name."""
    usual = {PAGES + size for size in _USUAL_SIZES}
    for name in dict.fromkeys(word.partition("=")[0] for word in words):
        if name.startswith(PAGES) and name not in usual:
            _pages(parser, name)


class _Pages(argparse.Action):
    """Collects ``--hugepages-<size> SIZE``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        assert option_string is not None
        assert isinstance(values, int)
        try:
            page = parse_page_size(option_string.removeprefix(PAGES))
        except ValueError as exc:
            raise argparse.ArgumentError(self, str(exc)) from exc
        found: dict[int, int] = dict(namespace.hugepages or {})
        if values % page:
            raise argparse.ArgumentError(self, f"{values} bytes are not whole pages of {format_page_size(page)}")
        if page in found:
            raise argparse.ArgumentError(self, f"pages of {format_page_size(page)} are asked for twice")
        namespace.hugepages = {**found, page: values}


def _pages(parser: argparse._ActionsContainer, option: str) -> None:
    parser.add_argument(
        option,
        action=_Pages,
        type=_bytes,
        dest="hugepages",
        metavar="SIZE",
        help="of these pages; any page size may stand in the option's name",
    )


def _bytes(text: str) -> int:
    return _checked(parse_bytes, text)


def _cpus(text: str) -> CpuSet:
    return _some(_checked(CpuSet.parse, text), text)


def _nodes(text: str) -> NodeSet:
    return _some(_checked(NodeSet.parse, text), text)


def _count(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= MAX_COUNT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 1 to {MAX_COUNT}")


def _checked(parse: Callable[[str], _T], text: str) -> _T:
    """What *parse* makes of *text*; its sentence about a wrong value becomes argparse's."""
    try:
        return parse(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _some(found: _T, text: str) -> _T:
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found

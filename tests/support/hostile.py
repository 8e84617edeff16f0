"""Input that somebody made to do harm: text, JSON documents, bytes, and how much of it a fuzzing test tries."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("NUMAPIN_FUZZ_EXAMPLES", "30"))
"""Of each property; `fuzz.long` asks for more."""

fuzz = settings(
    max_examples=EXAMPLES,
    # of one example: far above what any takes on a machine with other work, far below what a blow-up would
    deadline=timedelta(seconds=120),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""Decorates the quick properties."""

fuzz_trees = settings(fuzz, max_examples=max(1, EXAMPLES // 2), phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""Decorates properties that build a whole machine for each example; to make one smaller takes minutes."""

ESCAPE = "\x1b[2J\x1b[31m\x1b]0;owned\x07"
NASTY = (
    "",
    "\0",
    "\n",
    "a\nb",
    "x\r\nforged=1",
    ESCAPE,
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066\u2069\u200b\ufeff",
    "\u2028\u2029\x85\x0b\x0c",
    "[red]x[/red][link=file:///etc/passwd]y[/link]",
    ":skull: {0} %s %n $(id) `id`",
    "../../../etc/passwd",
    "/../..",
    "/",
    ".",
    "..",
    "-",
    "--help",
    "a" * 4096,
    "../" * 1365,
    "a-" * 500,
    "-1",
    "0-65535",
    "65536",
    "0-",
    "9" * 5000,
    "1" + "0" * 400,
    "1e999",
    "-1e-999",
    "0x10",
    "1_000",
    "\u0661\u0662",
    "\u00b2",
    "max",
    "NaN",
    "Infinity",
    "true",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "system.slice:docker:x",
    "a.slice:b:c",
    "::",
    "x" * 300 + ".slice",
    "e\u0301" * 40,
    "\u5bb9\u5668" * 30,
    "\ufffd",
)

texts = st.sampled_from(NASTY) | st.text(max_size=40) | st.text(st.sampled_from("0123456789-, \n\0KkMGiNx=:./e+"))
"""Any text that reading a file can give; lone surrogates come only from names of files."""

surrogates = st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), min_size=1, max_size=3)

numbers = st.integers() | st.sampled_from(
    [-(2**63), 2**63 - 1, 2**63, 2**64, 10**30, -1, 0, 1, 2**62, 2**62 - 1, 10**4000]
)

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Anything JSON, TOML or YAML can hold."""


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """*document* (plain data) with up to three places replaced, removed or given another key."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = document
        key: Any = None
        for _ in range(draw(st.integers(1, 6))):
            inner = holder if key is None else holder[key]
            keys = (
                list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
            )
            if not keys:
                break
            holder, key = inner, draw(st.sampled_from(keys))
        if key is None:
            return draw(values)
        match draw(st.integers(0, 4)):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw(texts)] = draw(values)
            case _:
                holder[key] = draw(values)
    return document


def as_json(value: Any) -> str:
    """JSON of *value* as a writer without scruples makes it: NaN, huge numbers, raw text."""
    # the interpreter refuses to print the longest integers, an attacker's program does not
    return json.dumps(_printable(value), ensure_ascii=False)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _printable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_printable(v) for v in value]
    return value


def mangled(text: str) -> st.SearchStrategy[str]:
    """*text* cut, doubled or with something in the middle."""
    places = st.integers(0, len(text))
    return (
        st.builds(lambda a, b, t: text[: min(a, b)] + t + text[max(a, b) :], places, places, texts)
        | places.map(lambda a: text[:a])
        | st.just(text * 2)
    )


def documents(*good: Any) -> st.SearchStrategy[str]:
    """JSON texts: sound documents as they are, damaged forms of them, any JSON at all, and what is none."""
    sound = st.sampled_from(good)
    bent = sound.flatmap(damaged).map(as_json)
    return sound.map(as_json) | bent | sound.map(as_json).flatmap(mangled) | values.map(as_json) | texts


def survived(call: Callable[[], object], *allowed: type[Exception]) -> object:
    """What *call* gives, or the error of an *allowed* kind, whose sentence must be one that can be printed."""
    try:
        return call()
    except allowed as exc:
        assert str(exc)
        return exc

"""The one form of every ``-o json`` answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

from numapin import API_VERSION


def print_json(kind: str, body: Mapping[str, object]) -> None:
    """
    Print *body* as one JSON document with ``apiVersion`` and ``kind``: keys sorted, pure ASCII, bytes as integers.

    *body* holds only what JSON has: text, integers, booleans, ``None``, lists and mappings with text keys.
    """
    print(json.dumps({"apiVersion": API_VERSION, "kind": kind, **body}, sort_keys=True, indent=2))

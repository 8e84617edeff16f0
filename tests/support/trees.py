"""Small file trees, written next to the assertion that needs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    """
    Write *files* (path below *root* → text) and return *root*; a path that ends in ``/`` is an empty directory.

    Existing files are overwritten, others left alone, so a test writes a whole machine and then its one oddity.
    """
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root

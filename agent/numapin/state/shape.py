"""What all shapes of a checkpoint have in common.

Owns: that no key may be unknown, and how a node set is read. Must never: have a shape of its own.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from numapin.model.nodeset import NodeSet


class Strict(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """Every object of the file: an unknown key is an error, for a changed shape is another version."""


@lru_cache(maxsize=4096)
def node_set(text: str) -> NodeSet:
    """
    The set in list format; texts come again and again, so a set is made once.

    Raises:
        ValueError: It is none.
    """
    return NodeSet.parse(text)

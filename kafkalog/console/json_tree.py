"""A JSON text as a tree that a template can draw with folding. Pure.

Numbers keep their text, and an object all its members in order, also those of one name. What is no
JSON object or array, or is too large or too deep to be drawn, has no tree.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from kafkalog.console.formatting import UNPRINTABLE

NODES_MAX = 3_000
DEPTH_MAX = 40


class Node(NamedTuple):
    """A value. ``kind``: object, array, string, number or word; ``text``: of the last three.

    members     of an object or array, with the name in an object
    """

    kind: str
    text: str
    members: list[tuple[str, Node]]


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def json_tree(text: str) -> Node | None:
    """The tree of an object or array; None of anything else."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_Members,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse,
        )
        return _Builder().node(value, 0)
    except (ValueError, RecursionError):
        return None


class _Members(list[tuple[str, object]]):
    """Of an object."""


def _refuse(text: str) -> object:
    """NaN and infinities, which JSON does not have."""
    raise ValueError(text)


class _Builder:
    """Counts the nodes."""

    def __init__(self) -> None:
        self._nodes = 0

    def node(self, value: object, depth: int) -> Node:
        """ValueError when the tree is too large or too deep."""
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise ValueError("too large to be drawn")
        if isinstance(value, _Members):
            members = [(_quoted(name), self.node(each, depth + 1)) for name, each in value]
            return Node("object", "", members)
        if isinstance(value, list):
            return Node("array", "", [("", self.node(each, depth + 1)) for each in value])
        if isinstance(value, _Number):
            return Node("number", value, [])
        if isinstance(value, str):
            return Node("string", _quoted(value), [])
        return Node("word", {None: "null", True: "true", False: "false"}[value], [])  # type: ignore[index] # nothing else is JSON


def _quoted(text: str) -> str:
    """As JSON has it, with escapes for what is not printable."""
    quoted = json.dumps(text, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], quoted)

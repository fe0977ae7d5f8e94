"""Suggests a known name in the error about an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKENESS_MIN = 0.7
_MISTYPED_MAX = 2


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean x?``, or nothing when no known name is like it."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=_LIKENESS_MIN)
    return f"; did you mean {close[0]}?" if close else ""


def mistyped(name: str, known: Iterable[str]) -> str | None:
    """The nearest known name, at most two inserted, deleted or replaced characters away."""
    near = [(_distance(name, each), each) for each in known]
    distance, nearest = min(near, default=(_MISTYPED_MAX + 1, ""))
    return nearest if distance <= _MISTYPED_MAX else None


def _distance(name: str, other: str) -> int:
    """Levenshtein's; more than _MISTYPED_MAX as soon as it is certain to be more."""
    if abs(len(name) - len(other)) > _MISTYPED_MAX:
        return _MISTYPED_MAX + 1
    above = list(range(len(other) + 1))
    for row, character in enumerate(name, 1):
        current = [row]
        for column, theirs in enumerate(other):
            replaced = above[column] + (character != theirs)
            current.append(min(replaced, above[column + 1] + 1, current[column] + 1))
        above = current
        if min(above) > _MISTYPED_MAX:
            return _MISTYPED_MAX + 1
    return above[-1]

"""Suggests a known name in the error about an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKENESS_MIN = 0.7


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean x?``, or nothing when no known name is like it."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=_LIKENESS_MIN)
    return f"; did you mean {close[0]}?" if close else ""

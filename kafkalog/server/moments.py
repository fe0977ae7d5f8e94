"""Moments in queries: milliseconds since 1970, or ISO-8601 with a zone."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT64_MAX
from kafkalog.server.parameters import wrong_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def parse_timestamp(text: str, name: str = "timestamp", others: Iterable[str] = ()) -> int:
    """Milliseconds; ApiError 40005 with the name of what held the text, and what else it may be."""
    value = int(text) if _MILLISECONDS.fullmatch(text) else iso_ms(text)
    if value is None or value > INT64_MAX:
        kinds = ", ".join((*others, "milliseconds since 1970 or ISO-8601 with a zone"))
        raise wrong_parameter(name, f"{name} is {kinds}, as 2026-01-31T12:00:00Z.")
    return value


def iso_ms(text: str) -> int | None:
    """Milliseconds since 1970 of ISO-8601 with a zone; None for all else and for what was before.

    By integers: by floating point one in two hundred would be a millisecond early.
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None or moment < _EPOCH:
        return None
    return (moment - _EPOCH) // _MILLISECOND

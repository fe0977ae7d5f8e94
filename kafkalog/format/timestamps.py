"""Timestamps as people write them: milliseconds since 1970, or ISO-8601 with a time zone. Pure.

A time may also end in `` UTC``, because people copy it from the console, which writes it so.
"""

from __future__ import annotations

import datetime
import re

from kafkalog.format.integers import INT64_MAX

_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_UTC = " UTC"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def timestamp_ms(text: str) -> int | None:
    """Milliseconds since 1970; None for any other text and for earlier times."""
    value = int(text) if _MILLISECONDS.fullmatch(text) else iso_ms(_with_offset(text))
    return None if value is None or value > INT64_MAX else value


def iso_ms(text: str) -> int | None:
    """Milliseconds since 1970 of ISO-8601 with a zone; None for any other text and earlier times.

    Computed in integers: in floating point one of two hundred would be a millisecond early.
    """
    parsed = _parsed(text)
    if parsed is None or parsed < _EPOCH:
        return None
    return (parsed - _EPOCH) // _MILLISECOND


def is_before_1970(text: str) -> bool:
    """Whether ``timestamp_ms`` refuses it only because it is earlier than 1970."""
    parsed = _parsed(_with_offset(text))
    return parsed is not None and parsed < _EPOCH


def _with_offset(text: str) -> str:
    return text.removesuffix(_UTC) + "Z" if text.endswith(_UTC) else text


def _parsed(text: str) -> datetime.datetime | None:
    """ISO-8601 with a zone; None for any other text."""
    try:
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if parsed.tzinfo is None else parsed

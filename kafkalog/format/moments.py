"""Moments as people write them: milliseconds since 1970, or ISO-8601 with a zone. Pure.

``UTC`` behind a blank is a zone of moments, too: pages of the console write it, and people copy.
"""

from __future__ import annotations

import datetime
import re

from kafkalog.format.integers import INT64_MAX

_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_UTC = " UTC"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970; None for what is neither form, and for what was before."""
    if text.endswith(_UTC):
        text = text.removesuffix(_UTC) + "Z"
    value = int(text) if _MILLISECONDS.fullmatch(text) else iso_ms(text)
    return None if value is None or value > INT64_MAX else value


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

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
    value = int(text) if _MILLISECONDS.fullmatch(text) else iso_ms(_with_offset(text))
    return None if value is None or value > INT64_MAX else value


def iso_ms(text: str) -> int | None:
    """Milliseconds since 1970 of ISO-8601 with a zone; None for all else and for what was before.

    By integers: by floating point one in two hundred would be a millisecond early.
    """
    moment = _moment(text)
    if moment is None or moment < _EPOCH:
        return None
    return (moment - _EPOCH) // _MILLISECOND


def is_before_1970(text: str) -> bool:
    """Whether ``moment_ms`` refuses it for that alone."""
    moment = _moment(_with_offset(text))
    return moment is not None and moment < _EPOCH


def _with_offset(text: str) -> str:
    return text.removesuffix(_UTC) + "Z" if text.endswith(_UTC) else text


def _moment(text: str) -> datetime.datetime | None:
    """ISO-8601 with a zone; None for all else."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment

"""Moments in queries: milliseconds since 1970, or ISO-8601 with a zone."""

from __future__ import annotations

import datetime
import re

from kafkalog.format.integers import INT64_MAX
from kafkalog.server.error_map import ApiError

_MILLISECONDS = re.compile(r"[0-9]{1,19}")


def parse_timestamp(text: str) -> int:
    """Milliseconds, or ISO-8601 with a zone; 40005 otherwise."""
    if _MILLISECONDS.fullmatch(text):
        value = int(text)
        if value <= INT64_MAX:
            return value
    else:
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None and moment.year >= 1970:
            return int(moment.timestamp() * 1000)
    raise ApiError(40005, "A time is milliseconds since 1970 or ISO-8601 with a zone.")

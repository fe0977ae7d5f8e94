"""Moments in queries, refused in the API's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.timestamps import is_before_1970, moment_ms
from kafkalog.server.parameters import wrong_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_timestamp(text: str, name: str = "timestamp", others: Iterable[str] = ()) -> int:
    """Milliseconds; ApiError 40005 with the name of what held the text, and what else it may be."""
    value = moment_ms(text)
    if value is None and is_before_1970(text):
        raise wrong_parameter(name, f"{name} lies before 1970, where timestamps begin.")
    if value is None:
        kinds = ", ".join((*others, "milliseconds since 1970 or ISO-8601 with a zone"))
        raise wrong_parameter(name, f"{name} is {kinds}, as 2026-01-31T12:00:00Z.")
    return value

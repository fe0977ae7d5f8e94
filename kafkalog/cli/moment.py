"""A moment as the value of an option, and as text."""

from __future__ import annotations

import datetime
from typing import Any

import click

from kafkalog.format.timestamps import is_before_1970, moment_ms


class Moment(click.ParamType[int]):
    """Milliseconds since 1970, or ISO-8601 with a zone; gives milliseconds."""

    name = "moment"
    kinds = "ms since 1970 or ISO-8601 with a zone, as 2026-01-31T12:00:00Z"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Usage error for anything else."""
        if isinstance(value, int):
            return value
        found = moment_ms(value)
        if found is None and is_before_1970(value):
            self.fail(f"'{value}' lies before 1970, where timestamps begin", param, ctx)
        if found is None:
            self.fail(f"'{value}' is not {self.kinds}", param, ctx)
        return found


def moment_text(moment_ms: int | None) -> str:
    """ISO-8601 in UTC; milliseconds where the calendar ends; - without."""
    if moment_ms is None:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(moment_ms // 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{moment_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment_ms % 1000:03}Z"

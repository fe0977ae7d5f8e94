"""A moment as the value of an option."""

from __future__ import annotations

from typing import Any

import click

from kafkalog.format.moments import moment_ms


class Moment(click.ParamType[int]):
    """Milliseconds since 1970, or ISO-8601 with a zone; gives milliseconds."""

    name = "moment"

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
        if found is None:
            kinds = "ms since 1970 or ISO-8601 with a zone, as 2026-01-31T12:00:00Z"
            self.fail(f"'{value}' is not {kinds}", param, ctx)
        return found

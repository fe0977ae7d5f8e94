"""The argument that names a partition directory: anything else must not pass for a sound one.

A moment as the value of an option, and as text.

Configs on the command line: ``--config key=value`` and its like.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import click

from kafkalog.format.disk.file_names import LOG_SUFFIX
from kafkalog.format.timestamps import is_before_1970, moment_ms

if TYPE_CHECKING:
    from collections.abc import Iterable


def require_partition_directory(directory: str) -> None:
    """Usage error when nothing in the directory is a segment; says where segments are, if below."""
    names = os.listdir(directory)
    if any(name.endswith(LOG_SUFFIX) for name in names):
        return
    inside = sorted(
        name
        for name in names
        if os.path.isdir(os.path.join(directory, name))
        and any(entry.endswith(LOG_SUFFIX) for entry in os.listdir(os.path.join(directory, name)))
    )
    hint = f"; it holds partitions, for example {inside[0]}" if inside else ""
    raise click.UsageError(f"{directory} is no partition directory: no {LOG_SUFFIX} file{hint}")


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


def config_pairs(
    texts: Iterable[str], option: str = "--config", hint: str = ""
) -> list[tuple[str, str]]:
    """Names and values in the order given; usage error for what is no key=value."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes key=value, not '{text}'{hint}")
        pairs.append((name.strip(), value.strip()))
    return pairs

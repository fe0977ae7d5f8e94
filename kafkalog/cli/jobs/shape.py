"""The options for the shape of a new Iceberg table: its partitions, and the order in its files."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.jobs.archive.iceberg.partition_spec import PartitionField, SortField


@dataclass(frozen=True, slots=True)
class WantedShape:
    """What the options say; None: nothing."""

    partition_by: tuple[PartitionField, ...] | None = None
    sort_by: tuple[SortField, ...] | None = None
    is_upsert: bool = False


def with_shape(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets ``shape``."""

    @functools.wraps(command)
    def with_options(
        *args: object,
        partition_by: tuple[str, ...],
        sort_by: tuple[str, ...],
        is_upsert: bool,
        **options: object,
    ) -> None:
        if is_upsert and sort_by:
            raise click.UsageError("--upsert sorts files by key: leave out --sort-by")
        command(*args, shape=_wanted(partition_by, sort_by, is_upsert=is_upsert), **options)

    partition_option = click.option(
        "--partition-by",
        multiple=True,
        metavar="FIELD",
        help="Partition of a new Iceberg table: topic (the default), day(timestamp), hour(...), "
        "month(...), year(...), bucket(16, key), truncate(4, key), a column. Repeatable.",
    )
    sort_option = click.option(
        "--sort-by",
        multiple=True,
        metavar="COLUMN [desc]",
        help="Order in the files of a new Iceberg table; default: offsets. Repeatable.",
    )
    upsert_option = click.option(
        "--upsert",
        "is_upsert",
        is_flag=True,
        help="An Iceberg table with the last record of each key of a compacted topic; tombstones "
        "delete. Partitioned by bucket(16, key), or as --partition-by bucket(N, key) says.",
    )
    return partition_option(sort_option(upsert_option(with_options)))


def _wanted(
    partition_by: tuple[str, ...], sort_by: tuple[str, ...], *, is_upsert: bool
) -> WantedShape:
    if not partition_by and not sort_by:
        return WantedShape(is_upsert=is_upsert)
    from kafkalog.jobs.archive.iceberg.partition_spec import WrongSpec, partition_field, sort_field

    try:
        return WantedShape(
            tuple(map(partition_field, partition_by)) or None,
            tuple(map(sort_field, sort_by)) or None,
            is_upsert,
        )
    except WrongSpec as error:
        raise click.UsageError(str(error)) from error

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


def with_shape(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets ``shape``."""

    @functools.wraps(command)
    def with_options(
        *args: object, partition_by: tuple[str, ...], sort_by: tuple[str, ...], **options: object
    ) -> None:
        command(*args, shape=_wanted(partition_by, sort_by), **options)

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
    return partition_option(sort_option(with_options))


def _wanted(partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> WantedShape:
    if not partition_by and not sort_by:
        return WantedShape()
    from kafkalog.jobs.archive.iceberg.partition_spec import WrongSpec, partition_field, sort_field

    try:
        return WantedShape(
            tuple(map(partition_field, partition_by)) or None,
            tuple(map(sort_field, sort_by)) or None,
        )
    except WrongSpec as error:
        raise click.UsageError(str(error)) from error

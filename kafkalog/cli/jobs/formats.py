"""The options that say what keys and values are made of, for an archive with typed columns."""

from __future__ import annotations

import functools
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalog.jobs.archive.archive_table import ArchiveTable, Position
    from kafkalog.jobs.archive.formats.records import RecordDecoder
    from kafkalog.jobs.archive.iceberg_table import IcebergTable
    from kafkalog.spark.logs.open import OpenedLogs

    Command = Callable[..., None]

_FORMATS = click.Choice(["bytes", "json", "avro", "protobuf"])


@dataclass(frozen=True, slots=True)
class PartFormat:
    """What the options say of keys, or of values."""

    name: str = "bytes"
    schema: str | None = None
    ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class WantedFormats:
    """What the options say."""

    key: PartFormat = PartFormat()
    value: PartFormat = PartFormat()
    infer: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError if the options do not go together."""
        for part, option, given in (
            ("key", "--key-schema", self.key),
            ("value", "--schema", self.value),
        ):
            if given.name == "bytes":
                if given.schema is not None or given.ids:
                    raise click.UsageError(f"{option} and its ids need --{part}-format")
            elif given.schema is None and not (self.infer and given.name == "json"):
                or_infer = " or --infer" if given.name == "json" else ""
                raise click.UsageError(f"--{part}-format {given.name} needs {option}{or_infer}")
        if self.infer and not any(
            each.name == "json" and each.schema is None for each in (self.key, self.value)
        ):
            raise click.UsageError("--infer is for JSON keys or values without a schema")

    @property
    def are_typed(self) -> bool:
        """Whether a column is not bytes."""
        return (self.key.name, self.value.name) != ("bytes", "bytes")

    def open(
        self,
        open_table: Callable[..., IcebergTable],
        identifier: str,
        open_logs: Callable[[], OpenedLogs],
        topics: Collection[str] | None,
        of_rows: Mapping[str, Any],
    ) -> ArchiveTable:
        """The table and that of its dead letters; without types the table alone.

        open_table  opens the Iceberg table of a name
        open_logs   for a schema that is inferred
        of_rows     arguments of ``open_table`` for the table of the rows

        Raises UnusableSchema, and the errors of tables and logs.
        """
        if not self.are_typed:
            return open_table(identifier, **of_rows)
        from kafkalog.jobs.archive.dead_letters import SUFFIX, WithDeadLetters
        from kafkalog.jobs.archive.formats.records import DEAD_SCHEMA

        decoder_of = functools.partial(self._decoder, open_logs, topics)
        rows = open_table(identifier, decoder_of=decoder_of, **of_rows)
        try:
            dead = open_table(identifier + SUFFIX, schema=DEAD_SCHEMA, partition_by=())
            return WithDeadLetters(rows, dead)
        except BaseException:
            rows.close()
            raise

    def _decoder(
        self,
        open_logs: Callable[[], OpenedLogs],
        topics: Collection[str] | None,
        position: Position,
        types: Mapping[str, Any],
    ) -> RecordDecoder:
        from kafkalog.jobs.archive.formats.chosen import ChosenFormat
        from kafkalog.jobs.archive.formats.records import RecordDecoder
        from kafkalog.jobs.archive.formats.sample import sampled

        decoders = []
        for part, given in (("key", self.key), ("value", self.value)):
            chosen = ChosenFormat(part, given.name, given.schema, given.ids)
            sample: Sequence[Any] = ()
            if chosen.is_inferred:
                with closing(open_logs()) as logs:
                    sample = tuple(sampled(logs, position, topics, part))
            decoders.append(chosen.decoder(sample, types.get(part)))
        return RecordDecoder(*decoders)


def _ids(ctx: click.Context, parameter: click.Parameter, value: str | None) -> frozenset[int]:
    try:
        return frozenset(int(each) for each in (value or "").split(",") if each)
    except ValueError as error:
        raise click.BadParameter("takes numbers: 7 or 7,9", ctx, parameter) from error


_options = (
    click.option(
        "--value-format",
        type=_FORMATS,
        default="bytes",
        help="What values are: the column is typed, and what does not decode is a dead letter.",
    ),
    click.option(
        "--schema",
        metavar="FILE",
        help="Schema of values: JSON Schema or Avro; for protobuf DESCRIPTORS:MESSAGE.",
    ),
    click.option(
        "--value-schema-ids",
        callback=_ids,
        metavar="N,...",
        help="Values are in Confluent's framing with one of these schema ids.",
    ),
    click.option("--key-format", type=_FORMATS, default="bytes", help="What keys are."),
    click.option("--key-schema", metavar="FILE", help="Schema of keys, as --schema."),
    click.option(
        "--key-schema-ids",
        callback=_ids,
        metavar="N,...",
        help="Keys are in Confluent's framing with one of these schema ids.",
    ),
    click.option(
        "--infer",
        is_flag=True,
        help="Infer a JSON schema from the first new records of each partition.",
    ),
)


def with_formats(command: Command) -> Command:
    """Add the options; the command gets ``formats``."""

    @functools.wraps(command)
    def body(
        *args: object,
        value_format: str,
        schema: str | None,
        value_schema_ids: frozenset[int],
        key_format: str,
        key_schema: str | None,
        key_schema_ids: frozenset[int],
        infer: bool,
        **options: object,
    ) -> None:
        key = PartFormat(key_format, key_schema, key_schema_ids)
        value = PartFormat(value_format, schema, value_schema_ids)
        command(*args, formats=WantedFormats(key, value, infer), **options)

    for option in reversed(_options):
        body = option(body)
    return body

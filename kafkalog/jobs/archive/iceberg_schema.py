"""Typed columns of an Iceberg table: how they follow the schema of keys and values.

A change is one of those that Iceberg allows and every reader of old files understands: a new
optional field, int to long, float to double, more digits of a decimal. Any other is refused with
the name of the field. A table may be wider than the schema: a field that only older schemas had
stays, and is null. Nothing is ever removed.

A change of the schema is a commit of its own without data. It is made when a table is opened,
before the first commit that needs it, and again if another job was faster: two jobs may add fields
at the same time. A run that ends behind it leaves a table with fields that are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_table import UnusableTable
from kafkalog.jobs.archive.file_layout import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

IcebergType = Any
LoadedTable = Any
"""pyiceberg's classes ``IcebergType`` and ``Table``."""
_TRIES = 5


class SchemaRefused(KafkalogError):
    """Iceberg has no such change of a field; the message names the field."""


class SchemaChange(NamedTuple):
    """A field to add, or to widen; ``path`` has the names of the fields around it."""

    path: tuple[str, ...]
    type: IcebergType
    is_new: bool


def column_type(table: LoadedTable, name: str) -> pa.DataType | None:
    """The type of a column in Arrow; None: there is no such column."""
    for each in table.schema().fields:
        if each.name == name:
            return _arrow_type(each.field_type)
    return None


def layout_schema(table: LoadedTable) -> pa.Schema:
    """The columns of a table's files: those of records, keys and values as in the table."""
    fields = []
    for each in SCHEMA:
        found = column_type(table, each.name) if each.name in ("key", "value") else each.type
        assert found is not None, "checked before"
        fields.append(each.with_type(found))
    return pa.schema(fields)


def evolve(table: LoadedTable, wanted: pa.Schema, name: str) -> None:
    """Give a table the fields of a schema. Raises UnusableTable if it cannot have them.

    name  of the table, for messages
    """
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(_TRIES):
        try:
            changes = schema_changes(table.schema(), wanted)
        except SchemaRefused as error:
            raise UnusableTable(f"{name}: {error.message}") from error
        if not changes:
            return
        try:
            with table.update_schema() as update:
                for each in changes:
                    if each.is_new:
                        update.add_column(each.path, each.type)
                    else:
                        update.update_column(each.path, field_type=each.type)
        except CommitFailedException:
            table.refresh()  # another job was faster
        else:
            return
    raise UnusableTable(f"The schema of {name} was changed during each of {_TRIES} changes")


def schema_changes(
    has: Any,  # noqa: ANN401 - pyiceberg's Schema
    wanted: pa.Schema,
) -> list[SchemaChange]:
    """The changes that give the columns of a table those of a schema. Raises SchemaRefused."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    wants = _pyarrow_to_schema_without_ids(wanted)
    named = {each.name: each.field_type for each in has.fields}
    return [
        change
        for each in wants.fields
        for change in _changes(named[each.name], each.field_type, (each.name,))
    ]


def _changes(has: IcebergType, wants: IcebergType, path: tuple[str, ...]) -> Iterator[SchemaChange]:
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(has, StructType) and isinstance(wants, StructType):
        named = {each.name: each.field_type for each in has.fields}
        for each in wants.fields:
            inner = (*path, each.name)
            if each.name in named:
                yield from _changes(named[each.name], each.field_type, inner)
            else:
                yield SchemaChange(inner, each.field_type, is_new=True)
    elif isinstance(has, ListType) and isinstance(wants, ListType):
        yield from _changes(has.element_type, wants.element_type, (*path, "element"))
    elif isinstance(has, MapType) and isinstance(wants, MapType) and has.key_type == wants.key_type:
        yield from _changes(has.value_type, wants.value_type, (*path, "value"))
    elif has != wants and not _is_wider(wants, has):
        if "binary" in (str(has), str(wants)) and len(path) == 1:
            raise SchemaRefused(
                f"field {path[0]} is {_told(has)} in the table: give the --{path[0]}-format that "
                "it was archived with, or archive into another table"
            )
        if not _is_wider(has, wants):
            raise SchemaRefused(
                f"field {'.'.join(path)} is {_told(has)} in the table and {_told(wants)} by the "
                "schema. A table can only get new fields, and int become long, float double and "
                "decimals longer: archive into another table, or give the field another name"
            )
        yield SchemaChange(path, wants, is_new=False)


def _is_wider(narrow: IcebergType, wide: IcebergType) -> bool:
    from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return bool(narrow.scale == wide.scale and narrow.precision < wide.precision)
    return any(
        isinstance(narrow, small) and isinstance(wide, large)
        for small, large in ((IntegerType, LongType), (FloatType, DoubleType))
    )


def _told(given: IcebergType) -> str:
    return str(given) if given.is_primitive else type(given).__name__.removesuffix("Type").lower()


def _arrow_type(given: IcebergType) -> pa.DataType:
    """The type of Arrow that ``formats.decoder.table_type`` has for a type of Iceberg."""
    from pyiceberg import types

    if isinstance(given, types.StructType):
        return pa.struct(
            [pa.field(each.name, _arrow_type(each.field_type)) for each in given.fields]
        )
    if isinstance(given, types.ListType):
        return pa.list_(pa.field("element", _arrow_type(given.element_type)))
    if isinstance(given, types.MapType):
        return pa.map_(_arrow_type(given.key_type), _arrow_type(given.value_type))
    if isinstance(given, types.DecimalType):
        return pa.decimal128(given.precision, given.scale)
    if isinstance(given, types.FixedType):
        return pa.binary(len(given))
    for iceberg, arrow in (
        (types.BooleanType, pa.bool_()),
        (types.IntegerType, pa.int32()),
        (types.LongType, pa.int64()),
        (types.FloatType, pa.float32()),
        (types.DoubleType, pa.float64()),
        (types.DateType, pa.date32()),
        (types.TimeType, pa.time64("us")),
        (types.TimestampType, pa.timestamp("us")),
        (types.TimestamptzType, pa.timestamp("us", tz="UTC")),
        (types.StringType, pa.utf8()),
        (types.BinaryType, pa.binary()),
    ):
        if isinstance(given, iceberg):
            return arrow
    raise SchemaRefused(f"a field of type {given} cannot be written: archive into another table")

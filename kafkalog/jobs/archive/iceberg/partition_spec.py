"""How the rows of a table are partitioned and sorted: Iceberg's transforms over Arrow columns.

pyiceberg has them for single values, and for columns only with a package of its own. Here they
work on whole columns; tests compare them with pyiceberg's. Values have Iceberg's form for
partitions: days and hours since 1970, times in microseconds. Picklable: travels with tasks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.jobs.archive.iceberg.murmur3 import murmur3

_SAME = ("topic", "partition")
"""Columns with one value in all rows of a piece of log."""
TIMES = ("year", "month", "day", "hour")
WITH_WIDTH = ("bucket", "truncate")
_US = {"day": 86_400_000_000, "hour": 3_600_000_000}
_FIELD = re.compile(
    r"(?P<transform>\w+)\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<of>[^\s(),]+)\s*\)"
    r"|(?P<plain>[^\s(),]+)"
)
_INT32_MAX = 2**31 - 1


class WrongSpec(ValueError):
    """A partition or sort field cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec.

    source  a column; ``value.city`` is in a struct
    width   of ``bucket`` and ``truncate``
    """

    source: str
    transform: str = "identity"
    width: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.source
        width = "" if self.width is None else f"{self.width}, "
        return f"{self.transform}({width}{self.source})"

    @property
    def name(self) -> str:
        """The name of the partition column."""
        plain = self.source.replace(".", "_")
        if self.transform == "identity":
            return plain
        return f"{plain}_{'trunc' if self.transform == 'truncate' else self.transform}"

    def check(self, schema: pa.Schema) -> None:
        """Raise WrongSpec unless rows of this schema have such values."""
        kind = _type_of(schema, self.source)
        is_time = pa.types.is_timestamp(kind)
        is_date = pa.types.is_date32(kind)
        is_whole = pa.types.is_int32(kind) or pa.types.is_int64(kind)
        match self.transform:
            case "bucket":
                is_right = is_time or is_date or is_whole or _is_bytes(kind)
            case "truncate":
                is_right = is_whole or _is_bytes(kind)
            case "hour":
                is_right = is_time
            case "identity":
                is_right = not pa.types.is_nested(kind)
            case _:
                is_right = is_time or is_date
        if not is_right:
            raise WrongSpec(f"{self} cannot be used: {self.source} is of type {kind}")

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """The value of each row."""
        column = _plain(_column(rows, self.source))
        match self.transform:
            case "void":
                return pa.nulls(len(column), pa.int32())
            case "identity":
                return column
            case "bucket":
                assert self.width is not None
                hashes = murmur3(column) & np.uint32(_INT32_MAX)
                buckets = (hashes % np.uint32(self.width)).astype(np.int32)
                return pa.array(buckets, mask=np.asarray(column.is_null()))
            case "truncate":
                assert self.width is not None
                return _truncated(column, self.width)
        return _times(_column(rows, self.source), self.transform)


@dataclass(frozen=True, slots=True)
class SortField:
    """A column by which the rows of a file are sorted; null comes first."""

    source: str
    is_descending: bool = False

    def __str__(self) -> str:
        return f"{self.source} desc" if self.is_descending else self.source


@dataclass(frozen=True, slots=True)
class TableShape:
    """The partitions of a table, and the order of the rows in its files; by default offset order.

    Rows that are equal in all sort fields stay in offset order.
    """

    partition_by: tuple[PartitionField, ...] = ()
    sort_by: tuple[SortField, ...] = ()

    def split(self, rows: pa.RecordBatch) -> list[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """The rows of each partition with its values, in the order of their first rows.

        All rows are of one partition of a topic. Parts share no memory, so that each can be freed.
        """
        if not rows.num_rows:
            return []
        columns = [
            each.values(rows.slice(0, 1) if each.source in _SAME else rows)
            for each in self.partition_by
        ]
        codes = np.zeros(rows.num_rows, np.int64)
        for column in columns:
            if len(column) < rows.num_rows:  # the same everywhere
                continue
            found = column.dictionary_encode(null_encoding="encode")
            numbers = found.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes * len(found.dictionary) + numbers, return_inverse=True)[1]
        _, first = np.unique(codes, return_index=True)
        values = [
            tuple(column[at if len(column) > 1 else 0].as_py() for column in columns)
            for at in first.tolist()
        ]
        if len(first) == 1:
            return [(values[0], rows)]
        parts = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        return [(values[at], rows.take(pa.array(parts[at]))) for at in np.argsort(first).tolist()]

    def sorted(self, rows: pa.Table) -> pa.Table:
        """The rows in the order of a file."""
        if not self.sort_by:
            return rows
        batch = rows.combine_chunks()
        keys = pa.table(
            {str(at): _column(batch, each.source) for at, each in enumerate(self.sort_by)}
        )
        order = pc.sort_indices(
            keys,
            sort_keys=[
                (str(at), "descending" if each.is_descending else "ascending", "at_start")
                for at, each in enumerate(self.sort_by)
            ],
        )
        return batch.take(order)

    def unsorted(self) -> TableShape:
        """The same partitions, and offset order."""
        return TableShape(self.partition_by)

    def check(self, schema: pa.Schema) -> None:
        """Raise WrongSpec unless rows of this schema can have this shape."""
        for field in self.partition_by:
            field.check(schema)
        for each in self.sort_by:
            if pa.types.is_nested(_type_of(schema, each.source)):
                raise WrongSpec(f"Rows cannot be sorted by {each.source}: it is no single value")


WITHOUT_SHAPE = TableShape()
BY_TOPIC = TableShape((PartitionField("topic"),))


def partition_field(text: str) -> PartitionField:
    """The field of ``day(timestamp)``, ``bucket(16, key)`` or ``topic``. Raises WrongSpec."""
    found = _FIELD.fullmatch(text.strip())
    if found is None:
        raise WrongSpec(f"'{text}' is not like topic, day(timestamp) or bucket(16, key)")
    if found["plain"] is not None:
        return PartitionField(found["plain"])
    transform = found["transform"].lower()
    transform = transform.removesuffix("s")  # as Spark's SQL has them: days(timestamp)
    width = None if found["width"] is None else int(found["width"])
    if transform in WITH_WIDTH:
        if width is None or not 0 < width <= _INT32_MAX:
            raise WrongSpec(f"'{text}' needs a width: {transform}(16, {found['of']})")
    elif transform not in TIMES or width is not None:
        raise WrongSpec(
            f"'{text}': there are {', '.join(f'{each}(COLUMN)' for each in TIMES)}, "
            f"{', '.join(f'{each}(N, COLUMN)' for each in WITH_WIDTH)} and COLUMN"
        )
    return PartitionField(found["of"], transform, width)


def sort_field(text: str) -> SortField:
    """The field of ``value.city`` or ``timestamp desc``. Raises WrongSpec."""
    source, _, direction = text.strip().partition(" ")
    if not source or direction.strip().lower() not in ("", "asc", "desc"):
        raise WrongSpec(f"'{text}' is not like timestamp or 'timestamp desc'")
    return SortField(source, direction.strip().lower() == "desc")


def _type_of(schema: pa.Schema, path: str) -> pa.DataType:
    """The type of a column. Raises WrongSpec if there is none."""
    first, *others = path.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for name in others:
        if kind is not None and pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            kind = kind.field(name).type
        else:
            kind = None
    if kind is None:
        names = ", ".join(schema.names)
        raise WrongSpec(f"There is no column {path}. The table has {names}")
    return kind


def _column(rows: pa.RecordBatch | pa.Table, path: str) -> Any:  # noqa: ANN401 - an array, chunked or not
    first, *others = path.split(".")
    column = rows.column(first)
    return pc.struct_field(column, others) if others else column


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)
    return any(is_kind(kind) for is_kind in (*tests, pa.types.is_large_binary))


def _plain(column: pa.Array) -> pa.Array:
    """Times and dates as the numbers that Iceberg has for them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    return column


def _times(column: pa.Array, unit: str) -> pa.Array:
    """Years, months, days or hours since 1970."""
    if unit in ("year", "month"):
        years = pc.subtract(pc.year(column), 1970)
        if unit == "year":
            return years.cast(pa.int32())
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1)).cast(pa.int32())
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return _floor_divided(_plain(column), _US[unit]).cast(pa.int32())


def _floor_divided(numbers: pa.Array, by: int) -> pa.Array:
    quotients = pc.divide(numbers, by)  # towards zero
    is_above = pc.and_(pc.less(numbers, 0), pc.not_equal(pc.multiply(quotients, by), numbers))
    return pc.subtract(quotients, is_above.cast(numbers.type))


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if _is_bytes(column.type):
        return pc.binary_slice(column, 0, width)
    numbers = column.cast(pa.int64())
    return pc.multiply(_floor_divided(numbers, width), width).cast(column.type)

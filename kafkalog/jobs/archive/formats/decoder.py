"""The interface of a format, and what all formats share: types of tables, rows that fail, framing.

A decoder has an Arrow type. A field of it that is not nullable is one that the format requires; in
a table every field is optional. `table_type` is the type that a table has for it, and `conform`
makes values of one type those of another that has the same or wider fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FRAME_BYTES = 5
"""Confluent's framing: a zero byte and the schema id, 4 bytes in network order."""
REASON_MAX = 300


class UnusableSchema(KafkalogError):
    """A schema cannot be read, or has what no column can hold; the message names the field."""


class RowFault(ValueError):
    """A value cannot be decoded; ``row``: probably this one."""

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason)
        self.row = row


class SchemaOutgrown(KafkalogError):
    """Values have fields that an inferred schema lacks.

    type  the schema with these fields
    name  of one of them
    """

    def __init__(self, wider: pa.DataType, name: str) -> None:
        super().__init__(f"field {name} has no column")
        self.type, self.name = wider, name


class Decoded(NamedTuple):
    """The values of a column of bytes.

    values  null for null bytes and for rows that fail
    faults  why rows fail, by row, ascending
    """

    values: pa.Array
    faults: dict[int, str]


class Decoder(Protocol):
    """A format with its schema. Picklable and immutable: it travels with tasks."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values: one of Iceberg's, see `table_type`."""

    def decode(self, column: pa.Array) -> Decoded:
        """The values of a column of binary or null values.

        Raises SchemaOutgrown if its schema is inferred, and nothing else for what is in them.
        """


def decoded_by_halves(
    column: pa.Array, some: Callable[[pa.Array], pa.Array], value_type: pa.DataType
) -> Decoded:
    """Decode all values at once; where that fails, parts of them, down to the rows that fail.

    some  the values of a column without nulls; raises ValueError with the reason, best a RowFault

    The parts are what is before the row of the fault, the row, and halves of the rest; without a
    row two halves. So all is well also where every row fails.
    """
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    given = column if len(there) == len(column) else column.take(pa.array(there))
    parts: list[pa.Array] = []
    faults: dict[int, str] = {}
    todo = [(0, len(given))] if len(given) else []
    while todo:  # a stack: parts are in order
        begin, end = todo.pop()
        try:
            parts.append(some(given.slice(begin, end - begin)))
        except ValueError as error:
            if end - begin == 1:
                faults[int(there[begin])] = str(error)
                parts.append(pa.nulls(1, value_type))
                continue
            cuts = {begin, (begin + end) // 2, end}
            if isinstance(error, RowFault):
                row = min(begin + error.row, end - 1)
                cuts = {begin, row, row + 1, (row + 1 + end) // 2, end}
            todo += reversed([*pairwise(sorted(cuts))])
    values = pa.concat_arrays(parts) if parts else pa.nulls(0, value_type)
    return Decoded(expanded(values, there, len(column)), faults)


def expanded(values: pa.Array, rows: np.ndarray, count: int) -> pa.Array:
    """Values in these rows of a column with ``count`` of them; the others are null."""
    if len(values) == count:
        return values
    at = np.zeros(count, np.int64)
    at[rows] = np.arange(len(values))
    is_null = np.ones(count, np.bool_)
    is_null[rows] = False
    return values.take(pa.array(at, mask=is_null))


@dataclass(frozen=True, slots=True)
class Framed:
    """Values in Confluent's framing, of these schema ids; a decoder has what is behind it.

    place  what is behind the id of every value: that of protobuf's message in its schema
    """

    decoder: Decoder
    ids: frozenset[int]
    place: bytes = b""

    @property
    def type(self) -> pa.DataType:
        """See Decoder."""
        return self.decoder.type

    def decode(self, column: pa.Array) -> Decoded:
        """See Decoder."""
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        ids = _schema_ids(column, rows)
        is_known = np.isin(ids, np.fromiter(self.ids, np.int64))
        known = rows[is_known]
        framed = column.take(pa.array(known))  # binary_slice fails where no byte is left
        bodies = pc.binary_replace_slice(framed, 0, FRAME_BYTES, b"")
        others: list[int] = []
        if self.place:
            is_it = pc.starts_with(bodies, self.place).to_numpy(zero_copy_only=False)
            others, known = known[~is_it].tolist(), known[is_it]
            bodies = pc.binary_replace_slice(bodies.filter(is_it), 0, len(self.place), b"")
        values, faults = self.decoder.decode(bodies)
        found = {int(known[row]): reason for row, reason in faults.items()}
        found |= dict.fromkeys(others, "its schema id is followed by the place of another message")
        for row, number in zip(rows[~is_known].tolist(), ids[~is_known].tolist(), strict=True):
            found[row] = (
                "it does not begin as in Confluent's framing, with a zero byte and a schema id"
                if number < 0
                else f"it has schema id {number}, which is not among those that were given"
            )
        return Decoded(expanded(values, known, len(column)), dict(sorted(found.items())))


def hinted(column: pa.Array, decoded: Decoded) -> Decoded:
    """Reasons that say so where a value begins as in Confluent's framing."""
    if not decoded.faults:
        return decoded
    rows = np.fromiter(decoded.faults, np.int64)
    faults = dict(decoded.faults)
    for row, number in zip(rows.tolist(), _schema_ids(column, rows).tolist(), strict=True):
        if number >= 0:
            faults[row] += (
                f"; it begins as in Confluent's framing, with schema id {number}: give that id"
            )
    return Decoded(decoded.values, faults)


def _schema_ids(column: pa.Array, rows: np.ndarray) -> np.ndarray:
    """The schema ids of values that are not null; -1: it does not begin with the framing."""
    if not len(rows):
        return np.empty(0, np.int64)
    taken = column.take(pa.array(rows))
    lengths = pc.binary_length(taken).to_numpy()
    ids = np.full(len(rows), -1, np.int64)
    long = np.flatnonzero(lengths >= FRAME_BYTES)
    if len(long):
        heads = pc.binary_slice(taken.take(pa.array(long)), 0, FRAME_BYTES)
        data = np.frombuffer(b"".join(heads.to_pylist()), np.uint8).reshape(-1, FRAME_BYTES)
        numbers = data[:, 1:].copy().view(">u4").ravel().astype(np.int64)
        ids[long] = np.where(data[:, 0] == 0, numbers, -1)
    return ids


def missing_field(values: pa.Array, path: str = "") -> str | None:
    """The first field that its type requires and that a value lacks."""
    if pa.types.is_list(values.type):
        return missing_field(values.flatten(), path)
    if not pa.types.is_struct(values.type):
        return None
    is_valid = values.is_valid()
    for field in values.type:
        inner, name = values.field(field.name), f"{path}{field.name}"
        if not field.nullable and pc.any(pc.and_(is_valid, inner.is_null())).as_py():
            return name
        deeper = missing_field(inner, f"{name}.")
        if deeper is not None:
            return deeper
    return None


def table_type(given: pa.DataType) -> pa.DataType:
    """The type of a table for values of a type: one of Iceberg's, all fields optional."""
    if pa.types.is_struct(given):
        return pa.struct([pa.field(each.name, table_type(each.type)) for each in given])
    if pa.types.is_map(given):
        return pa.map_(table_type(given.key_type), table_type(given.item_type))
    if pa.types.is_list(given):
        return pa.list_(pa.field("element", table_type(given.value_type)))
    if pa.types.is_timestamp(given):
        return pa.timestamp("us", tz=given.tz)
    if pa.types.is_time(given):
        return pa.time64("us")
    for narrow, wide in (
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.uint32(), pa.int64()),
        *((each, pa.int32()) for each in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())),
    ):
        if given == narrow:
            return wide
    return given


def conform(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values in another type: fields by name, missing ones null, numbers wider.

    Raises ValueError if a value is not in the range of the type.
    """
    if values.type == wanted:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), wanted)
    if pa.types.is_struct(wanted):
        has = {each.name for each in values.type}
        children = [
            conform(values.field(each.name), each.type)
            if each.name in has
            else pa.nulls(len(values), each.type)
            for each in wanted
        ]
        if not children:
            return pa.nulls(len(values), wanted)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=values.is_null())
    if pa.types.is_map(wanted):
        keys, items = conform(values.keys, wanted.key_type), conform(values.items, wanted.item_type)
        offsets = _own_offsets(values.offsets)
        keys, items = (_of_offsets(values, each) for each in (keys, items))
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=values.is_null())
    if pa.types.is_list(wanted):
        inner = conform(values.flatten(), wanted.value_type)
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, inner, type=wanted, mask=values.is_null())
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        nanos = values.cast(pa.int64()).fill_null(0).to_numpy()
        return pa.array(nanos // 1000, mask=is_null).cast(wanted)  # cut towards the past
    return values.cast(wanted)


def _own_offsets(offsets: pa.Array) -> pa.Array:
    """Offsets from 0 on."""
    return pc.subtract(offsets, offsets[0])


def _of_offsets(values: pa.MapArray, inner: pa.Array) -> pa.Array:
    """The keys or items of the rows of a slice."""
    first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return inner.slice(first, end - first)


def short(reasons: Sequence[str]) -> list[str]:
    """Reasons of bounded length."""
    return [each if len(each) <= REASON_MAX else f"{each[:REASON_MAX]}..." for each in reasons]

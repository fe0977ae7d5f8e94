"""JSON: values are parsed by pyarrow's reader, all of a batch in one call.

The values of a batch are joined with newlines to one buffer. Each must begin with ``{`` and end
with ``}``. Then none can continue in the next one: behind ``}`` only a comma could follow, and the
next begins with ``{``. So there are as many objects as values exactly if each value is one object,
which the count shows. Keys that are no objects are wrapped as ``{"v":KEY}`` before that.

A field that the schema does not name is left out, or is a fault if the schema is closed. Fields are
of exactly their type: ``"1"`` is no number, ``1.0`` no integer, ``1`` no text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kafkalog.jobs.archive.formats.decoder import (
    RowFault,
    conform,
    decoded_by_halves,
    missing_field,
    table_type,
)

if TYPE_CHECKING:
    from kafkalog.jobs.archive.formats.decoder import Decoded

_SPACE = " \t\r\n"
_ROW = re.compile(r"\s*in row (\d+)$")
_WRAPPED = "v"


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """See the module.

    given      the type of an object, or of a text, number or boolean
    is_closed  a field that the schema does not name is a fault
    """

    given: pa.DataType
    is_closed: bool = False

    @property
    def type(self) -> pa.DataType:
        """See Decoder."""
        return table_type(self.given)

    def decode(self, column: pa.Array) -> Decoded:
        """See Decoder."""
        return decoded_by_halves(column, partial(_parsed, decoder=self), self.type)


def _parsed(column: pa.Array, decoder: JsonDecoder) -> pa.Array:
    """The objects of a column without nulls. Raises ValueError: one cannot be parsed."""
    try:
        texts = column.cast(pa.utf8())
    except pa.ArrowInvalid as error:
        raise ValueError("it is not UTF-8") from error
    is_object = pa.types.is_struct(decoder.given)
    if is_object:
        fields, lines = list(decoder.given), _lines(texts)
    else:
        fields = [pa.field(_WRAPPED, decoder.given)]
        lines = pc.binary_join_element_wise(f'{{"{_WRAPPED}":', texts, "}\n", "")
    try:
        read = _read(lines, fields, "us", is_closed=decoder.is_closed or not is_object)
    except ValueError:
        if not _has_timestamps(decoder.given):
            raise
        read = _read(lines, fields, "ns", is_closed=decoder.is_closed or not is_object)
    if read.num_rows != len(column):
        raise ValueError("it is more than one JSON value")
    parts = [read.column(each.name).combine_chunks() for each in fields]
    parts = [conform(part, each.type) for part, each in zip(parts, fields, strict=True)]
    if not is_object:
        return conform(parts[0], decoder.type)
    values = pa.StructArray.from_arrays(parts, fields=fields)
    missing = missing_field(values)
    if missing is not None:
        raise ValueError(f"field {missing} is missing, or null")
    return conform(values, decoder.type)


def _lines(texts: pa.Array) -> pa.Array:
    """Each text with a newline. Raises ValueError unless each begins and ends as an object."""
    if not _are_objects(texts):
        texts = pc.utf8_trim(texts, characters=_SPACE)
        if not _are_objects(texts):
            raise ValueError("it is not a JSON object")
    return pc.binary_join_element_wise(texts, "", "\n")


def _are_objects(texts: pa.Array) -> bool:
    _, offsets, data = texts.buffers()
    at = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if data is None or bool((np.diff(at) < 2).any()):
        return False
    held = np.frombuffer(data, np.uint8)
    return bool((held[at[:-1]] == ord("{")).all() and (held[at[1:] - 1] == ord("}")).all())


def _read(lines: pa.Array, fields: list[pa.Field], unit: str, *, is_closed: bool) -> pa.Table:
    _, offsets, data = lines.buffers()
    first, end = np.frombuffer(offsets, np.int32)[[lines.offset, lines.offset + len(lines)]]
    schema = pa.schema([pa.field(each.name, _wire_type(each.type, unit)) for each in fields])
    try:
        return pj.read_json(
            pa.BufferReader(data.slice(int(first), int(end - first))),
            read_options=pj.ReadOptions(use_threads=False, block_size=int(end - first) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error" if is_closed else "ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        row = _ROW.search(str(error))
        if row is None:
            raise
        raise RowFault(_ROW.sub("", str(error)), int(row[1])) from error


def _wire_type(given: pa.DataType, unit: str) -> pa.DataType:
    """What pyarrow's reader takes: dates are texts there."""
    if pa.types.is_struct(given):
        return pa.struct([pa.field(each.name, _wire_type(each.type, unit)) for each in given])
    if pa.types.is_list(given):
        return pa.list_(_wire_type(given.value_type, unit))
    if pa.types.is_timestamp(given):
        return pa.timestamp(unit, tz=given.tz)
    if pa.types.is_date(given):
        return pa.utf8()
    return given


def _has_timestamps(given: pa.DataType) -> bool:
    if pa.types.is_timestamp(given):
        return True
    if pa.types.is_list(given):
        return _has_timestamps(given.value_type)
    return pa.types.is_struct(given) and any(_has_timestamps(each.type) for each in given)

"""JSON: values are parsed by pyarrow's reader, all of a batch in one call.

The values of a batch are joined with newlines to one buffer. Each must begin with ``{`` and end
with ``}``. Then none can continue in the next one: behind ``}`` only a comma could follow, and the
next begins with ``{``. So there are as many objects as values exactly if each value is one object,
which the count shows. Keys that are no objects are wrapped as ``{"v":KEY}`` before that.

A field that the schema does not name is left out, or is a fault if the schema is closed. If it is
inferred, it gets the field (SchemaOutgrown), unless that is null or empty. Fields are of exactly
their type: ``"1"`` is no number, ``1.0`` no integer, ``1`` no text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kafkalog.jobs.archive.formats.decoder import (
    RowFault,
    SchemaOutgrown,
    UnusableSchema,
    conform,
    decoded_by_halves,
    missing_field,
    table_type,
)
from kafkalog.jobs.archive.formats.json_types import SAMPLE_RECORDS, inferred_type, united_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.jobs.archive.formats.decoder import Decoded

_SPACE = " \t\r\n"
_ROW = re.compile(r"\s*in row (\d+)$")
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|Inf)', re.DOTALL)
"""A string, or outside of all strings a constant."""
_WRAPPED = "v"
_FIELDS_MAX = 1000
"""Objects with names that are data would give a table ever more fields."""


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """See the module.

    given      the type of an object, or of a text, number or boolean
    is_closed  a field that the schema does not name is a fault
    is_inferred  the schema grows by such fields
    """

    given: pa.DataType
    is_closed: bool = False
    is_inferred: bool = False

    def __post_init__(self) -> None:
        """Raises UnusableSchema for what only Avro's schemas have."""
        _check(self.given, "")

    @property
    def type(self) -> pa.DataType:
        """See Decoder."""
        return table_type(self.given)

    def decode(self, column: pa.Array) -> Decoded:
        """See Decoder."""
        try:
            return decoded_by_halves(column, partial(_parsed, decoder=self), self.type)
        except SchemaOutgrown as error:  # a part of the column may be too few to tell the type
            have_it = column.filter(pc.match_substring(column, error.name)).drop_null()
            found = inferred_type(have_it[:SAMPLE_RECORDS].to_pylist())
            more = self.given if found is None else united_type(self.given, found)
            raise SchemaOutgrown(united_type(more, error.type), error.name) from error


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
    if is_object and not decoder.is_closed:  # else each number is in a column
        _check_constants(texts, lines)
    others = "error" if decoder.is_closed or not is_object else "ignore"
    if decoder.is_inferred and is_object:
        others = "infer"
    try:
        read = _read(lines, fields, "us", others)
    except ValueError:
        if not _has(decoder.given, pa.types.is_timestamp):
            raise
        read = _read(lines, fields, "ns", others)
    if read.num_rows != len(column):
        raise ValueError("it is more than one JSON value")
    if others == "infer":
        _check_new_fields(column, read, decoder.given)
    parts = [read.column(each.name).combine_chunks() for each in fields]
    for leaf in chain.from_iterable(map(_leaves, parts)):
        if pa.types.is_floating(leaf.type) and pc.any(pc.invert(pc.is_finite(leaf))).as_py():
            raise ValueError("a number is not finite, or too large for its column")
        if pa.types.is_time(leaf.type):
            leaf.validate(full=True)
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


def _check_constants(texts: pa.Array, lines: pa.Array) -> None:
    """Raise RowFault for NaN or an infinity, which pyarrow's reader takes, in any field."""
    held = lines.buffers()[2].to_pybytes()
    if b"NaN" not in held and b"Inf" not in held:
        return
    for row in np.flatnonzero(pc.match_substring_regex(texts, "NaN|Inf")).tolist():
        if any(found[1] for found in _CONSTANT.finditer(texts[row].as_py())):
            raise RowFault("it has NaN or Infinity, which JSON does not have", row)


def _are_objects(texts: pa.Array) -> bool:
    _, offsets, data = texts.buffers()
    at = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if data is None or bool((np.diff(at) < 2).any()):
        return False
    held = np.frombuffer(data, np.uint8)
    return bool((held[at[:-1]] == ord("{")).all() and (held[at[1:] - 1] == ord("}")).all())


def _check_new_fields(column: pa.Array, read: pa.Table, given: pa.DataType) -> None:
    """Raise SchemaOutgrown for new fields, RowFault if there cannot be so many."""
    names = list(_new_fields(given, pa.struct(list(read.schema))))
    if not names:
        return
    is_there = [read.column(name).is_valid() for name in {each[0] for each in names}]
    rows = np.flatnonzero(reduce(pc.or_, is_there).to_numpy())
    found = inferred_type(column.take(pa.array(rows[:SAMPLE_RECORDS])).to_pylist())
    wider = given if found is None else united_type(given, found)
    count = sum(1 for _ in _leaves(pa.nulls(0, wider)))
    if wider == given or count > _FIELDS_MAX:
        raise RowFault(
            f"field {'.'.join(names[0])} has no column, and an inferred schema gets at most "
            f"{_FIELDS_MAX} fields: give a schema",
            int(rows[0]),
        )
    raise SchemaOutgrown(wider, names[0][-1])


def _new_fields(
    has: pa.DataType | None, found: pa.DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The fields that only the second type has, and that are not null or empty in all values."""
    if pa.types.is_struct(found):
        known = {} if has is None else {each.name: each.type for each in has}
        for each in found:
            yield from _new_fields(known.get(each.name), each.type, (*path, each.name))
    elif pa.types.is_list(found):
        yield from _new_fields(None if has is None else has.value_type, found.value_type, path)
    elif has is None and not pa.types.is_null(found):
        yield path


def _read(lines: pa.Array, fields: list[pa.Field], unit: str, others: str) -> pa.Table:
    """``others``: what becomes of other fields, in pyarrow's words."""
    _, offsets, data = lines.buffers()
    first, end = np.frombuffer(offsets, np.int32)[[lines.offset, lines.offset + len(lines)]]
    schema = pa.schema([pa.field(each.name, _wire_type(each.type, unit)) for each in fields])
    try:
        return pj.read_json(
            pa.BufferReader(data.slice(int(first), int(end - first))),
            read_options=pj.ReadOptions(use_threads=False, block_size=int(end - first) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
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


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """The columns of values that are no objects and no arrays."""
    if pa.types.is_struct(values.type):
        for each in values.flatten():  # null where the object is
            yield from _leaves(each)
    elif pa.types.is_list(values.type):
        yield from _leaves(values.flatten())
    else:
        yield values


def _has(given: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    return any(is_kind(each.type) for each in _leaves(pa.nulls(0, given)))


def _check(given: pa.DataType, path: str) -> None:
    """Raise UnusableSchema for a type that JSON has no values of."""
    for each in given if pa.types.is_struct(given) else ():
        _check(each.type, f"{path}.{each.name}" if path else each.name)
    if pa.types.is_list(given):
        _check(given.value_type, f"{path}[]")
    if pa.types.is_map(given):
        raise UnusableSchema(
            f"Field {path} is a map: JSON is archived as objects with fields that have names. Make "
            "it a record, or leave it out"
        )
    if pa.types.is_binary(given) or pa.types.is_fixed_size_binary(given):
        raise UnusableSchema(f"Field {path} has bytes, which JSON has no form of: make it a string")

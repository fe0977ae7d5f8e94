"""Avro: records without a container, one a value, by fastavro.

Logical types but decimals are decoded as what they are made of, because fastavro would make an
object for each; Arrow then takes them as what they are. A value must end where its record ends.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.jobs.archive.formats.decoder import (
    RowFault,
    UnusableSchema,
    conform,
    decoded_by_halves,
    table_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.jobs.archive.formats.decoder import Decoded

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.utf8(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""What a logical type is made of, and its name: on any other type it is ignored."""


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """See the module.

    schema  the JSON of the writer's schema
    given   its type
    """

    schema: str
    given: pa.DataType

    @property
    def type(self) -> pa.DataType:
        """See Decoder."""
        return table_type(self.given)

    @classmethod
    def of(cls, schema: str) -> AvroDecoder:
        """Raises UnusableSchema."""
        decoder = cls(schema, avro_type(json.loads(schema)))
        _parsed_schema(schema)
        return decoder

    def decode(self, column: pa.Array) -> Decoded:
        """See Decoder."""
        return decoded_by_halves(column, partial(_read, decoder=self), self.type)


def _read(column: pa.Array, decoder: AvroDecoder) -> pa.Array:
    """The records of a column without nulls. Raises ValueError: one cannot be decoded."""
    from fastavro import schemaless_reader

    schema = _parsed_schema(decoder.schema)
    rows = []
    for row, value in enumerate(column.to_pylist()):
        stream = io.BytesIO(value)
        try:
            rows.append(schemaless_reader(stream, schema, None))
        except EOFError as error:
            raise RowFault("it ends within a record of the schema", row) from error
        except Exception as error:  # fastavro raises whatever garbage leads to
            raise RowFault(f"it is not a record of the schema: {error}", row) from error
        if stream.tell() != len(value):
            raise RowFault(
                f"{len(value) - stream.tell()} bytes follow the record: it has another schema", row
            )
    try:
        found = pa.array(rows, decoder.given)
        found.validate(full=True)  # a time may be outside a day
        return conform(found, decoder.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ValueError(f"it does not fit the columns: {error}") from error


@lru_cache(maxsize=16)
def _parsed_schema(schema: str) -> Any:  # noqa: ANN401 - fastavro's
    """A schema for the reader. Raises UnusableSchema."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(_without_logical(json.loads(schema)))
    except (SchemaParseException, UnknownType) as error:
        raise UnusableSchema(f"The Avro schema is not valid: {error}") from error


def _without_logical(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema whose logical types are decoded as what they are made of."""
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: value for name, value in schema.items() if name != "logicalType" or value == "decimal"
    }
    return {
        name: _without_logical(value)
        if name in ("type", "items", "values") and not isinstance(value, str)
        else [{**each, **_without_logical({"type": each["type"]})} for each in value]
        if name == "fields"
        else value
        for name, value in kept.items()
    }


def avro_type(schema: Any) -> pa.DataType:  # noqa: ANN401 - JSON
    """The type of a schema. Raises UnusableSchema for what no column can hold."""
    try:
        found, may_be_null = _SchemaReader().type_of(schema, "", "", ())
    except KeyError as error:
        raise UnusableSchema(f"The Avro schema is not valid: a type lacks {error}") from error
    if may_be_null:
        raise UnusableSchema("The Avro schema is a union with null: give the schema in it")
    return found


class _SchemaReader:
    """One reading of a schema; types have names."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def type_of(
        self,
        schema: Any,  # noqa: ANN401 - JSON
        path: str,
        namespace: str,
        around: tuple[str, ...],
    ) -> tuple[pa.DataType, bool]:
        """The type of a part and whether it may be null; ``around``: the records that it is in."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if not others:
                raise _unusable(path, "is null alone: no column can hold it")
            if len(others) != 1:
                raise _unusable(path, "is a union of several types, which no column can hold")
            found, _ = self.type_of(others[0], path, namespace, around)
            return found, len(others) < len(schema)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], False
            if schema == "null":
                raise _unusable(path, "is null alone: no column can hold it")
            name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            name = name if name in self._named else schema
            if name in around:
                raise _unusable(path, "is recursive: no column can hold it")
            if name not in self._named:
                raise _unusable(path, f"has the unknown type {schema!r}")
            return self._of_named(name, path, around), False
        if not isinstance(schema, dict) or "type" not in schema:
            raise _unusable(path, "has no type")
        return self._of_object(schema, path, namespace, around), False

    def _of_object(
        self, schema: Mapping[str, Any], path: str, namespace: str, around: tuple[str, ...]
    ) -> pa.DataType:
        kind = schema["type"]
        if not isinstance(kind, str):
            raise _unusable(path, f"has no name of a type, but {kind!r}")
        if (kind, schema.get("logicalType")) in _LOGICAL:
            return _LOGICAL[kind, schema["logicalType"]]
        if kind == "bytes" and schema.get("logicalType") == "decimal":
            return _decimal(schema, path)
        if kind == "array":
            return pa.list_(self.type_of(schema["items"], f"{path}[]", namespace, around)[0])
        if kind == "map":
            inner, _ = self.type_of(schema["values"], f"{path}{{}}", namespace, around)
            return pa.map_(pa.utf8(), inner)
        if kind in ("record", "enum", "fixed"):
            name = schema.get("name", "")
            space = schema.get("namespace", namespace)
            full = name if "." in name or not space else f"{space}.{name}"
            self._named[full] = {**schema, "namespace": full.rpartition(".")[0]}
            return self._of_named(full, path, around)
        return self.type_of(kind, path, namespace, around)[0]

    def _of_named(self, name: str, path: str, around: tuple[str, ...]) -> pa.DataType:
        schema = self._named[name]
        if schema["type"] == "enum":
            return pa.utf8()
        if schema["type"] == "fixed":
            is_decimal = schema.get("logicalType") == "decimal"
            return _decimal(schema, path) if is_decimal else pa.binary(int(schema["size"]))
        fields = []
        for each in schema["fields"]:
            at = f"{path}.{each['name']}" if path else each["name"]
            inner, may_be_null = self.type_of(
                each["type"], at, schema["namespace"], (*around, name)
            )
            fields.append(pa.field(each["name"], inner, nullable=may_be_null))
        if not fields:
            raise _unusable(path, "is a record without fields, which no column can hold")
        return pa.struct(fields)


def _decimal(schema: Mapping[str, Any], path: str) -> pa.DataType:
    precision = int(schema.get("precision", 0))
    if not 0 < precision <= 38:
        raise _unusable(path, f"has {precision} digits: a column has 1 to 38")
    return pa.decimal128(precision, int(schema.get("scale", 0)))


def _unusable(path: str, what: str) -> UnusableSchema:
    return UnusableSchema(f"Field {path or '(the value)'} of the Avro schema {what}")

"""Goal: an Avro value is the row that fastavro reads, and what is not of its schema a dead letter.
Method: schemas and records by chance, with logical types and Confluent's framing; the twin has
fastavro's own logical types, one record at a time. Examples of what a specification says.
"""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafkalog.jobs.archive.formats.avro_values import AvroDecoder
from kafkalog.jobs.archive.formats.decoder import Decoder, Framed, UnusableSchema, table_type

fastavro = pytest.importorskip("fastavro")

DAY_MS = 24 * 60 * 60 * 1000
FRAME = b"\0\0\0\0\x07"
Typed = tuple[Any, Any]
"""A schema, and a strategy of its values; these have their logical types as numbers."""

SECONDS = (-62135596800, 253402300799)  # of Python's dates
PLAIN: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=4)),
    ("string", st.text(max_size=4)),
]
LOGICAL: list[Typed] = [
    ({"type": kind, "logicalType": name}, st.integers(*bounds))
    for kind, name, bounds in (
        ("int", "date", (-719162, 2932896)),
        ("int", "time-millis", (0, DAY_MS - 1)),
        ("long", "time-micros", (0, DAY_MS * 1000 - 1)),
        *(
            ("long", f"{local}timestamp-{unit}", (SECONDS[0] * a_second, SECONDS[1] * a_second))
            for local in ("", "local-")
            for unit, a_second in (("millis", 1000), ("micros", 1_000_000))
        ),
    )
]
UUID = ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str))


def decimals(name: str | None) -> Typed:
    """Of bytes, or of a fixed type with a name."""
    kind = {"type": "bytes"} if name is None else {"type": "fixed", "name": name, "size": 8}
    values = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda each: Decimal(each).scaleb(-3))
    return {**kind, "logicalType": "decimal", "precision": 9, "scale": 3}, values


@st.composite
def types(draw: st.DrawFn, depth: int, names: list[str]) -> Typed:
    """A type; named ones come again by their names."""
    kinds = ["plain", "logical", "uuid", "decimal", "fixed decimal", "enum", "fixed"]
    kind = draw(st.sampled_from(kinds + ["array", "map", "union", "record"] * 2 * (depth > 0)))
    name = f"N{len(names)}"
    if kind in ("plain", "logical"):
        return draw(st.sampled_from(PLAIN if kind == "plain" else LOGICAL))
    if kind == "uuid":
        return UUID
    if kind in ("decimal", "fixed decimal"):
        if kind == "fixed decimal":
            names.append(name)
        return decimals(None if kind == "decimal" else name)
    if kind in ("enum", "fixed"):
        names.append(name)
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
    if kind == "record":
        names.append(name)
        return draw(records(depth - 1, names, name))
    inner, values = draw(types(depth - 1, names))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(
            st.text(max_size=2), values, max_size=2
        )
    if isinstance(inner, list):
        return inner, values
    return draw(st.sampled_from([["null", inner], [inner, "null"]])), st.none() | values


@st.composite
def records(draw: st.DrawFn, depth: int, names: list[str], name: str) -> Typed:
    fields, values = [], {}
    for number in range(draw(st.integers(1, 4))):
        inner, values[f"f{number}"] = draw(types(depth, names))
        fields.append({"name": f"f{number}", "type": inner})
        if isinstance(inner, dict) and "name" in inner and draw(st.booleans()):
            again = f"again{number}"
            fields.append({"name": again, "type": ["null", inner["name"]]})
            values[again] = st.none() | values[f"f{number}"]
    return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(values)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decoded(decoder: Decoder, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.type == table_type(decoder.type)
    return found.values.to_pylist(), found.faults


def plain(value: Any) -> Any:
    """A value of fastavro's as ``to_pylist`` has it; which dicts are maps is in their names."""
    if isinstance(value, dict):
        if value and set(value) <= {f"{each}{n}" for each in ("f", "again") for n in range(4)}:
            return {name: plain(each) for name, each in value.items()}
        return [(name, plain(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if type(value).__name__ == "UUID" else value


@given(st.data())
def test_as_fastavro_reads_them(data: st.DataObject) -> None:
    schema, values = data.draw(records(2, ["R"], "R"))
    is_framed = data.draw(st.booleans())
    decoder: Decoder = AvroDecoder.of(json.dumps(schema))
    frame = FRAME if is_framed else b""
    if is_framed:
        decoder = Framed(decoder, frozenset({7}))
    column: list[bytes | None] = []
    rows: list[Any] = []
    faults = []
    for at in range(data.draw(st.integers(0, 6))):
        what = data.draw(st.sampled_from(["whole", "whole", "null", "truncated", "trailing"]))
        raw = written(schema, data.draw(values))
        rows.append(None)
        if what == "whole":
            stream = io.BytesIO(raw)
            rows[-1] = plain(
                fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
            )
        elif what == "truncated" and raw:
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
            faults.append(at)
        elif what != "null":
            raw += b"\0"
            faults.append(at)
        column.append(None if what == "null" else frame + raw)
    found, reasons = decoded(decoder, *column)
    assert list(reasons) == faults
    assert found == rows


# ---- as the specification says


def of(kind: Any, *more: dict[str, Any]) -> AvroDecoder:
    fields = [{"name": "f", "type": kind}, *more]
    return AvroDecoder.of(json.dumps({"type": "record", "name": "R", "fields": fields}))


MONEY = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal"}
MONEY |= {"precision": 6, "scale": 2}


def test_a_named_decimal_comes_again_by_its_name() -> None:
    decoder = of(MONEY, {"name": "g", "type": ["null", "Money"]})
    rows, faults = decoded(decoder, b"\0\0\x01\x02" + b"\x02" + b"\xff\xff\xff\xff")
    assert not faults
    assert rows == [{"f": Decimal("2.58"), "g": Decimal("-0.01")}]


@pytest.mark.parametrize(
    ("kind", "logical", "data", "value"),
    [
        ("string", "date", b"\x02a", "a"),
        ("int", "timestamp-millis", b"\x0a", 5),
        ("long", "time-millis", b"\x0a", 5),
        ("int", "no-such-type", b"\x0a", 5),
        ("string", "decimal", b"\x02a", "a"),
    ],
)
def test_a_logical_type_of_another_type_is_ignored(
    kind: str, logical: str, data: bytes, value: Any
) -> None:
    """A reader takes what the logical type is made of."""
    decoder = of({"type": kind, "logicalType": logical, "precision": 4})
    assert decoded(decoder, data) == ([{"f": value}], {})


@pytest.mark.parametrize(("kind", "name"), [("int", "time-millis"), ("long", "time-micros")])
@pytest.mark.parametrize("data", [b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x80\xe0\xba\x84\xbf\x05"])
def test_a_time_is_within_a_day(kind: str, name: str, data: bytes) -> None:
    """Readers of the table refuse any other, so that it is a dead letter."""
    decoder = of({"type": "array", "items": {"type": kind, "logicalType": name}})
    good, bad = b"\x02\x0a\0", b"\x02" + data + b"\0"
    if (name, data) == ("time-micros", b"\xfe\xff\xff\xff\x0f"):
        assert decoded(decoder, bad)[0][0]["f"][0].minute == 35  # 2,147 seconds
        return
    rows, faults = decoded(decoder, good, bad, good)
    assert [each is None for each in rows] == [False, True, False]
    assert faults[1].startswith("it does not fit the columns: ")


def test_nanoseconds_are_cut_towards_the_past() -> None:
    decoder = of({"type": "long", "logicalType": "timestamp-nanos"})
    rows, _ = decoded(decoder, b"\x01", b"\x9e\x1f")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    micros = [(each["f"] - epoch) / datetime.timedelta(microseconds=1) for each in rows]
    assert micros == [-1, 1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("null", "Field f of the Avro schema is null alone"),
        (["null"], "Field f of the Avro schema is null alone"),
        (["int", "string"], "Field f of the Avro schema is a union of several types"),
        (["null", "int", "long"], "Field f of the Avro schema is a union of several types"),
        (["null", "R"], "Field f of the Avro schema is recursive"),
        ({"type": "array", "items": "R"}, r"Field f\[\] of the Avro schema is recursive"),
        (
            {"type": "map", "values": "Other"},
            r"Field f\{\} of the Avro schema has the unknown type",
        ),
        ({"type": {"type": "string"}}, "Field f of the Avro schema has no name of a type"),
        ({**MONEY, "precision": 60, "size": 30}, "Field f of the Avro schema has 60 digits"),
        ({"type": "record", "name": "E", "fields": []}, "is a record without fields"),
        ({"type": "array"}, "The Avro schema is not valid: a type lacks 'items'"),
        ({"type": "fixed", "name": "F"}, "The Avro schema is not valid: a type lacks 'size'"),
    ],
)
def test_what_no_column_holds(kind: Any, words: str) -> None:
    with pytest.raises(UnusableSchema, match=words):
        of(kind)


def test_names_are_those_of_their_namespaces() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["P", "Q"]}
    inner = {"type": "record", "name": "c.I", "fields": [{"name": "x", "type": enum}]}
    fields = [{"name": "f", "type": inner}, {"name": "g", "type": "c.E"}]
    schema = {"type": "record", "name": "R", "namespace": "a.b", "fields": fields}
    decoder = AvroDecoder.of(json.dumps(schema))
    assert decoded(decoder, b"\0\x02") == ([{"f": {"x": "P"}, "g": "Q"}], {})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it ends within a record of the schema"),
        (b"\x80\x80\x80\x80\x80\x01\0", "it does not fit the columns"),  # no int
        (b"\x02\x06", "it is not a record of the schema"),  # no branch of the union
        (b"\x02\x02\x02\xff", "it is not a record of the schema"),  # no UTF-8
        (b"\x02\x02\x04a", "it "),
        (b"\x02\0\0", "1 bytes follow the record"),
    ],
)
def test_garbage(data: bytes, reason: str) -> None:
    decoder = of("int", {"name": "g", "type": ["null", "string"]})
    rows, faults = decoded(decoder, b"\x02\0", data, None, b"\x02\x02\x02a")
    assert rows == [{"f": 1, "g": None}, None, None, {"f": 1, "g": "a"}]
    assert faults[1].startswith(reason)
    framed = Framed(decoder, frozenset({7}))
    assert decoded(framed, FRAME + b"\x02\0", FRAME + data)[1] == {1: faults[1]}
    assert list(decoded(framed, b"\x02\0", b"\0\0\0\0\x08\x02\0", FRAME[:4])[1]) == [0, 1, 2]


def test_a_value_that_is_no_record() -> None:
    """Keys are often a text or a number."""
    assert decoded(AvroDecoder.of('"string"'), b"\x02a", b"\x04a", None)[0] == ["a", None, None]
    assert decoded(AvroDecoder.of('{"type": "long"}'), b"\x02", b"")[0] == [1, None]

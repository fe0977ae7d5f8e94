"""Goal: each record of a typed archive is a row or a dead letter, as a plain parser decides.
Method: JSON of any shape, damaged anywhere, in batches with nulls; the twin takes one at a time.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafkalog.jobs.archive.file_layout import SCHEMA, FileLayout
from kafkalog.jobs.archive.formats.decoder import (
    Framed,
    SchemaOutgrown,
    UnusableSchema,
    conform,
    table_type,
)
from kafkalog.jobs.archive.formats.json_types import inferred_type, united_type
from kafkalog.jobs.archive.formats.json_values import JsonDecoder
from kafkalog.jobs.archive.formats.records import RecordDecoder
from tests.naive.json_values import Fault, plain_json

INNER = pa.struct([pa.field("x", pa.int32(), nullable=False), ("s", pa.utf8())])
TYPES = [
    pa.struct([("a", pa.int64())]),
    pa.struct(
        [
            ("a", pa.int64()),
            ("s", pa.utf8()),
            ("f", pa.float64()),
            ("n", pa.float32()),
            ("b", pa.bool_()),
            ("o", INNER),
            ("l", pa.list_(pa.int32())),
            ("m", pa.list_(INNER)),
        ]
    ),
    pa.struct([pa.field("s", pa.utf8(), nullable=False), pa.field("o", INNER, nullable=False)]),
]
NAMES = st.sampled_from(["a", "s", "f", "n", "b", "o", "l", "m", "x", "other"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 66), 1 << 66)
    | st.integers(-9, 9)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["NaN", 'a"Infinity', "\\NaN", "Inf"])
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-9, 9) | st.none(),
        "s": st.text(max_size=9),
        "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "n": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(),
        "b": st.booleans(),
        "o": st.fixed_dictionaries({"x": st.integers(-9, 9)}, optional={"s": st.text(max_size=3)}),
        "l": st.lists(st.integers(-9, 9), max_size=3),
        "m": st.lists(st.fixed_dictionaries({"x": st.integers(-9, 9)}), max_size=2),
        "other": DOCUMENTS,
    },
)
PARTS = [b"", b" ", b"\n", b"\0", b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"{}", b"\xff", b"1"]
PARTS += [b"NaN", b"-Infinity", b"\\ud800", b"\\udc00", b"e400", b".5"]


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """JSON, often of one of the types, sometimes in lines, sometimes damaged."""
    document = draw(st.one_of(FITTING, FITTING, DOCUMENTS))
    indent = draw(st.sampled_from([None, None, 1]))
    text = json.dumps(document, indent=indent, ensure_ascii=draw(st.booleans())).encode(
        errors="surrogatepass"
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 2)))
        text = text[:begin] + draw(st.sampled_from(PARTS)) + text[end:]
    return text


COLUMNS = st.lists(st.none() | texts(), max_size=12)


def has_twice(text: bytes | None) -> bool:
    """A name twice in an object: what is right then is decided by nobody."""
    found = False

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = found or len({name for name, _ in pairs}) < len(pairs)
        return dict(pairs)

    try:
        json.loads(text or b"", object_pairs_hook=noted)
    except (ValueError, UnicodeDecodeError):
        return False
    return found


def expected(values: list[bytes | None], wanted: pa.DataType) -> tuple[list[Any], list[int]]:
    found, faults = [], []
    for row, value in enumerate(values):
        try:
            found.append(plain_json(value, wanted))
        except Fault:
            found.append(None)
            faults.append(row)
    return found, faults


@given(COLUMNS, st.sampled_from(TYPES), st.integers(0, 3))
def test_as_a_plain_parser(values: list[bytes | None], wanted: pa.DataType, skipped: int) -> None:
    values = [None if has_twice(each) else each for each in values]
    column = pa.array([b"{}"] * skipped + values, pa.binary()).slice(skipped)
    decoded = JsonDecoder(wanted).decode(column)
    rows, faults = expected(values, wanted)
    assert (decoded.values.to_pylist(), list(decoded.faults)) == (rows, faults)
    decoded.values.validate(full=True)
    assert decoded.values.type == table_type(wanted)


@given(COLUMNS, COLUMNS, st.sampled_from(TYPES), st.integers(0, 1 << 32))
def test_each_record_is_a_row_or_a_dead_letter(
    keys: list[bytes | None], values: list[bytes | None], wanted: pa.DataType, schema_id: int
) -> None:
    """With keys in Confluent's framing, some of another schema."""
    count = min(len(keys), len(values))
    framing = [b"\0" + (schema_id + at % 3 % 2).to_bytes(5, "big")[1:] for at in range(count)]
    framed = [
        None if key is None else frame + key for key, frame in zip(keys, framing, strict=False)
    ]
    columns = {
        "key": framed,
        "value": values[:count],
        "topic": ["t"] * count,
        "partition": [3] * count,
        "offset": list(range(10, 10 + count)),
        "timestamp": [5] * count,
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    records = pa.RecordBatch.from_pydict(columns, SCHEMA)
    ids = frozenset({schema_id & 0xFFFFFFFF})
    decoder = RecordDecoder(Framed(JsonDecoder(wanted), ids), JsonDecoder(TYPES[0]))
    schema = SCHEMA
    for part, each in decoder.decoders.items():
        at = SCHEMA.get_field_index(part)
        schema = schema.set(at, schema.field(at).with_type(each.type))
    rows, dead = FileLayout(schema, decoder=decoder).decode(records)
    assert rows.schema == schema
    letters = [] if dead is None else dead.to_pylist()
    offsets = rows.column("offset").to_pylist() + [each["offset"] for each in letters]
    assert sorted(offsets) == columns["offset"]
    for each in letters:
        at = each["offset"] - 10
        assert (each["key"], each["value"]) == (framed[at], values[at])
        assert each["reason"]
        assert each["part"] in ("key", "value")
    for each in rows.to_pylist():
        at = each["offset"] - 10
        assert (each["value"] is None) is (values[at] is None)
        assert (each["key"] is None) is (framed[at] is None)


def test_half_a_surrogate_pair_names_no_column() -> None:
    values = [b'{"\\ud800": 1, "a": 1}', b'{"a": 2}']
    found = inferred_type(values)
    assert found == pa.struct([("a", N)])
    decoded = JsonDecoder(found, is_inferred=True).decode(pa.array(values, pa.binary()))
    assert set(decoded.faults) == {0}
    assert decoded.values[1].as_py() == {"a": 2}


@given(st.lists(texts(), max_size=10), st.randoms())
def test_what_is_inferred_depends_on_no_order(values: list[bytes], random: Any) -> None:
    found = inferred_type(values)
    random.shuffle(values)
    assert inferred_type(values) == found
    if found is not None and pa.types.is_struct(found):
        assert united_type(found, found) == found
        decoded = JsonDecoder(found).decode(pa.array(values, pa.binary()))
        wider = pa.struct([*table_type(found), ("new", pa.int32())])
        moved = conform(decoded.values, wider).to_pylist()
        assert moved == [
            None if each is None else {**each, "new": None} for each in decoded.values.to_pylist()
        ]


S, N = pa.utf8(), pa.int64()
FAULTS: list[tuple[pa.DataType, bytes, str]] = [
    (N, b'{"a": 9223372036854775808}', "couldn't parse:9223372036854775808"),
    (N, b'{"a": 1.0}', "couldn't parse:1.0"),
    (N, b'{"a": "1"}', "changed from number to string"),
    (N, b'{"a": 1, "a": 2}', "Column(/a) was specified twice"),
    (N, b'{"a": null, "a": 2}', "Column(/a) was specified twice"),
    (N, b'{"a": NaN}', "NaN or Infinity"),
    (N, b'{"b": [1, -Infinity]}', "NaN or Infinity"),
    (N, b'{"b": 1e400}', "too big"),
    (N, b'{"a": 1}{"a": 2}', "more than one JSON value"),
    (N, b'[{"a": 1}]', "not a JSON object"),
    (N, b"", "not a JSON object"),
    (S, b'{"a": "\\ud800"}', "surrogate pair"),
    (S, b'{"a": "\\udc00\\ud800"}', "surrogate pair"),
    (S, b'{"\\ud800": 1}', "surrogate pair"),
    (S, b'{"a": 5}', "changed from string to number"),
    (S, b'{"a": "\xff"}', "not UTF-8"),
    (pa.float32(), b'{"a": 1e39}', "too large for its column"),
    (pa.float64(), b'{"a": Infinity}', "NaN or Infinity"),
    (pa.time32("ms"), b'{"a": -1}', "time32[ms] -1 is not within"),
    (pa.date32(), b'{"a": "2024-02-30"}', "2024-02-30"),
    (pa.timestamp("us", tz="UTC"), b'{"a": 1700000000000}', "changed from string to number"),
]
ROWS: list[tuple[pa.DataType, bytes, Any]] = [
    (S, b'{"a": "\\ud83d\\ude00\\u0000", "b": "NaN", "\\"Inf": 1}', "\U0001f600\0"),
    (S, b'{"\\u0061": "x"}', "x"),
    (N, b' {"b": {"c": [[]]}, "a": -0}\n', 0),
    (N, b'{"b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    (N, b'{"b": ' + b'{"c":' * 100_000 + b"1" + b"}" * 100_001, None),
    (pa.float32(), b'{"a": 16777217}', 16777216.0),
    (pa.date32(), b'{"a": "2024-02-29"}', date(2024, 2, 29)),
    (
        pa.timestamp("us", tz="UTC"),
        b'{"a": "1969-12-31T23:59:59.999999999Z"}',
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ),
    (
        pa.timestamp("us", tz="UTC"),
        b'{"a": "2024-01-01T02:00+02:00"}',
        datetime(2024, 1, 1, 0, 0, 0, 0, UTC),
    ),
]


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize(("kind", "text", "words"), FAULTS)
def test_a_fault_and_its_neighbours(
    kind: pa.DataType, text: bytes, words: str, is_closed: bool
) -> None:
    decoder = JsonDecoder(pa.struct([("a", kind)]), is_closed)
    decoded = decoder.decode(pa.array([b"{}", text, None, b'{"a": null}'], pa.binary()))
    assert decoded.values.to_pylist() == [{"a": None}, None, None, {"a": None}]
    assert list(decoded.faults) == [1]
    assert is_closed or words in decoded.faults[1]


@pytest.mark.parametrize(("kind", "text", "value"), ROWS)
def test_what_is_a_row(kind: pa.DataType, text: bytes, value: Any) -> None:
    decoder = JsonDecoder(pa.struct([("a", kind)]))
    decoded = decoder.decode(pa.array([text, b"{}"], pa.binary()))
    assert (decoded.faults, decoded.values.to_pylist()) == ({}, [{"a": value}, {"a": None}])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.map_(S, N), "Field o.a is a map"),
        (pa.list_(pa.map_(S, N)), r"Field o.a\[\] is a map"),
        (pa.binary(), "Field o.a has bytes"),
        (pa.binary(3), "Field o.a has bytes"),
    ],
)
def test_types_that_json_has_no_values_of(kind: pa.DataType, words: str) -> None:
    """An Avro schema may have them, or a table that had another format."""
    with pytest.raises(UnusableSchema, match=words):
        JsonDecoder(pa.struct([("o", pa.struct([("a", kind)]))]))


def test_a_null_or_empty_field_needs_no_column() -> None:
    """Of a field that is always null nothing can be inferred, and nothing is lost without it."""
    sample = [b'{"a": 1, "n": null, "e": {}, "l": [], "o": {"x": 1, "y": null}}']
    found = inferred_type(sample)
    assert found is not None
    decoded = JsonDecoder(found, is_inferred=True).decode(pa.array(sample * 2, pa.binary()))
    assert (decoded.faults, decoded.values.to_pylist()) == ({}, [{"a": 1, "o": {"x": 1}}] * 2)


@pytest.mark.parametrize(
    ("texts", "grown"),
    [
        ([b'{"b": 1}', b'{"b": 1.5}'], [("b", pa.float64())]),
        ([b'{"b": "2024-01-01"}'], [("b", S)]),
        (
            [b'{"b": null, "c": [null, {"d": true}]}'],
            [("c", pa.list_(pa.struct([("d", pa.bool_())])))],
        ),
        ([b'{"b": 1}', b'{"b": "x"}', b'{"b": "y"}'], [("b", S)]),  # what most have
    ],
)
def test_a_field_of_an_inferred_schema_is_new(
    texts: list[bytes], grown: list[tuple[str, pa.DataType]]
) -> None:
    """Each text has its place in one batch; what has another type is for the next run to say."""
    given_type = pa.struct([("a", N)])
    column = pa.array([b'{"a": 1}', *texts, b"poison", None], pa.binary())
    with pytest.raises(SchemaOutgrown) as caught:
        JsonDecoder(given_type, is_inferred=True).decode(column)
    assert caught.value.type == pa.struct([("a", N), *grown])
    framed = pa.array([b"\0\0\0\0\x07" + each for each in texts], pa.binary())
    with pytest.raises(SchemaOutgrown):
        Framed(JsonDecoder(given_type, is_inferred=True), frozenset({7})).decode(framed)


def test_a_schema_has_an_end() -> None:
    """Names that are data would make ever more columns; then such records are dead letters."""
    text = json.dumps({f"user{each}": 1 for each in range(1001)}).encode()
    decoder = JsonDecoder(pa.struct([("a", N)]), is_inferred=True)
    decoded = decoder.decode(pa.array([b'{"a": 1}', text, b'{"a": 2}'], pa.binary()))
    assert decoded.values.to_pylist() == [{"a": 1}, None, {"a": 2}]
    words = "field user0 has no column, and an inferred schema gets at most 1000 fields: "
    assert decoded.faults == {1: words + "give a schema"}


@pytest.mark.parametrize("bad", [b'{"b": NaN}', b'{"b": "\xed\xa0\x80"}'])
def test_a_bad_record_of_a_sample_is_left_out(bad: bytes) -> None:
    """It would end the run, or be a column that no record has."""
    assert inferred_type([bad, b'{"a": "\\u00e9"}']) == pa.struct([("a", S)])
    assert inferred_type([bad]) is None

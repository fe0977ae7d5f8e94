"""Goal: each record of a typed archive is a row or a dead letter, as a plain parser decides.
Method: JSON of any shape, damaged anywhere, in batches with nulls; the twin takes one at a time.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, strategies as st

from kafkalog.jobs.archive.file_layout import SCHEMA, FileLayout
from kafkalog.jobs.archive.formats.decoder import Framed, conform, table_type
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
            ("b", pa.bool_()),
            ("o", INNER),
            ("l", pa.list_(pa.int32())),
            ("m", pa.list_(INNER)),
        ]
    ),
    pa.struct([pa.field("s", pa.utf8(), nullable=False), pa.field("o", INNER, nullable=False)]),
]
NAMES = st.sampled_from(["a", "s", "f", "b", "o", "l", "m", "x", "other"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 66), 1 << 66)
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
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
        "b": st.booleans(),
        "o": st.fixed_dictionaries({"x": st.integers(-9, 9)}, optional={"s": st.text(max_size=3)}),
        "l": st.lists(st.integers(-9, 9), max_size=3),
        "m": st.lists(st.fixed_dictionaries({"x": st.integers(-9, 9)}), max_size=2),
        "other": DOCUMENTS,
    },
)
PARTS = [b"", b" ", b"\n", b"\0", b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"{}", b"\xff", b"1"]


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

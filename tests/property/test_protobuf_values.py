"""Goal: a protobuf value is the row that its runtime sees, and what that refuses is a dead letter.
Method: messages with every kind of field, written by the runtime and damaged; the twin reads one at
a time. What other programs write is given as bytes.
"""

from __future__ import annotations

import datetime
import functools
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafkalog.jobs.archive.formats.chosen import ChosenFormat
from kafkalog.jobs.archive.formats.decoder import Decoder, UnusableSchema, table_type
from kafkalog.jobs.archive.formats.protobuf_values import ProtobufDecoder

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("google.protobuf")

from google.protobuf import (  # what it needs is there
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

IMPORTS = [timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, any_pb2, empty_pb2]
KINDS = ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
SCALARS = [*KINDS, "SInt32", "SInt64", "Fixed32", "Fixed64", "SFixed32", "SFixed64"]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def field(name: str, number: int, kind: str, label: str = "OPTIONAL", more: str = "") -> str:
    """A field of a scalar type, or of the message or enum of a name."""
    given_type = f"type: TYPE_{kind.upper()}"
    if kind.startswith("."):
        is_enum = kind.endswith("Colour")
        given_type = f'type: TYPE_{"ENUM" if is_enum else "MESSAGE"} type_name: "{kind}"'
    return f'field {{ name: "{name}" number: {number} label: LABEL_{label} {given_type} {more} }}'


def map_entry(name: str, key: str, value: str) -> str:
    fields = field("key", 1, key) + field("value", 2, value)
    return f'nested_type {{ name: "{name}" options {{ map_entry: true }} {fields} }}'


WELL_KNOWN = ".google.protobuf."
ENUM = """enum_type { name: "Colour" options { allow_alias: true }
value { name: "NONE" number: 0 } value { name: "RED" number: 1 }
value { name: "SCARLET" number: 1 } value { name: "NEG" number: -1 } }"""
INNER = "".join(
    [
        'message_type { name: "Inner"',
        field("n", 1, "int32"),
        field("s", 2, "string"),
        field("list", 3, "sint64", "REPEATED"),
        field("at", 4, f"{WELL_KNOWN}Timestamp"),
        "}",
    ]
)
ALL = "".join(
    [
        'message_type { name: "All"',
        *(field(f"one_{each}", at, each) for at, each in enumerate(SCALARS, 1)),
        *(field(f"many_{each}", at, each, "REPEATED") for at, each in enumerate(SCALARS, 21)),
        *(
            field(f"wrap_{each}", at, f"{WELL_KNOWN}{each}Value")
            for at, each in enumerate(KINDS, 41)
        ),
        field("packed", 60, "int32", "REPEATED", "options { packed: true }"),
        field("unpacked", 61, "int32", "REPEATED", "options { packed: false }"),
        field("colour", 62, ".p.Colour"),
        field("colours", 63, ".p.Colour", "REPEATED"),
        field("maybe", 64, "string", more="proto3_optional: true oneof_index: 1"),
        field("number", 65, "int32", more="oneof_index: 0"),
        field("inner_choice", 66, ".p.Inner", more="oneof_index: 0"),
        field("inner", 67, ".p.Inner"),
        field("inners", 68, ".p.Inner", "REPEATED"),
        field("took", 69, f"{WELL_KNOWN}Duration"),
        field("at", 70, f"{WELL_KNOWN}Timestamp"),
        field("times", 71, f"{WELL_KNOWN}Timestamp", "REPEATED"),
        field("by_number", 72, ".p.All.ByNumber", "REPEATED"),
        field("by_flag", 73, ".p.All.ByFlag", "REPEATED"),
        field("by_name", 74, ".p.All.ByName", "REPEATED"),
        'oneof_decl { name: "choice" } oneof_decl { name: "_maybe" }',
        map_entry("ByNumber", "uint64", ".p.Inner"),
        map_entry("ByFlag", "bool", ".p.Colour"),
        map_entry("ByName", "string", f"{WELL_KNOWN}Timestamp"),
        'nested_type { name: "Part" ' + field("x", 1, "int32") + "}",
        "}",
    ]
)


def descriptors(*messages: str, syntax: str = "proto3", imports: bool = True) -> bytes:
    """What protoc --include_imports --descriptor_set_out writes for a file of package p."""
    files = descriptor_pb2.FileDescriptorSet()
    for each in IMPORTS if imports else []:
        files.file.add().ParseFromString(each.DESCRIPTOR.serialized_pb)
    needs = "".join(f'dependency: "{each.DESCRIPTOR.name}" ' for each in IMPORTS)
    text = f'name: "a.proto" package: "p" syntax: "{syntax}" {needs}' + "".join(messages)
    text_format.Parse(text, files.file.add())
    data: bytes = files.SerializeToString()
    return data


@functools.cache
def pool_of(data: bytes) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(each)
    return pool


def made(data: bytes, name: str) -> Any:
    return message_factory.GetMessageClass(pool_of(data).FindMessageTypeByName(name))


DATA = descriptors(ENUM, INNER, ALL)
DECODER = ProtobufDecoder.of(DATA, "p.All")
All, Inner, Timestamp, Duration, *WRAPPERS = (
    made(DATA, each)
    for each in ["p.All", "p.Inner", "google.protobuf.Timestamp", "google.protobuf.Duration"]
    + [f"google.protobuf.{each}Value" for each in KINDS]
)


def decoded(decoder: Decoder, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.type
    return found.values.to_pylist(), found.faults


# ---- the twin


def plain(message: Any) -> dict[str, Any]:
    """A message as ``to_pylist`` has it, field by field."""
    row: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        kind = each.message_type
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"]
            key_kind = kind.fields_by_name["key"]
            pairs = [
                (plain_single(key, key_kind), plain_single(value[key], inner)) for key in value
            ]
            row[each.name] = sorted(pairs, key=repr)
        elif each.is_repeated:
            row[each.name] = [plain_single(item, each) for item in value]
        elif each.has_presence and not message.HasField(each.name):
            row[each.name] = None
        else:
            row[each.name] = plain_single(value, each)
    return row


def plain_single(value: Any, kind: Any) -> Any:
    if kind.message_type is None:
        if kind.enum_type is not None:
            names = [each.name for each in kind.enum_type.values if each.number == value]
            return names[0] if names else str(value)
        if kind.cpp_type == kind.CPPTYPE_UINT64:
            return Decimal(value)
        return "NaN" if value != value else value
    if kind.message_type.full_name == "google.protobuf.Timestamp":
        return EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if kind.message_type.full_name.endswith("Value"):
        return plain_single(value.value, kind.message_type.fields[0])
    return plain(value)


def sorted_maps(row: Any) -> Any:
    """A row of ours, with maps in an order and with NaN that equals itself."""
    if isinstance(row, dict):
        return {name: sorted_maps(each) for name, each in row.items()}
    if isinstance(row, list):
        items = [sorted_maps(each) for each in row]
        return sorted(items, key=repr) if items and isinstance(items[0], tuple) else items
    if isinstance(row, tuple):
        return tuple(sorted_maps(each) for each in row)
    return "NaN" if isinstance(row, float) and math.isnan(row) else row


# ---- messages by chance

TIMES = st.builds(
    Timestamp, seconds=st.integers(-62135596800, 253402300799), nanos=st.integers(0, 999_999_999)
)
TEXTS = st.text(max_size=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Double": st.floats(),
    "Float": st.floats(width=32),
    "Bool": st.booleans(),
    "String": TEXTS,
    "Bytes": st.binary(max_size=4),
}
for kind in sorted(set(SCALARS) - VALUES.keys()):  # the integers
    bits = 64 if "64" in kind else 32
    least = 0 if kind in ("UInt32", "UInt64", "Fixed32", "Fixed64") else -(1 << bits - 1)
    VALUES[kind] = st.integers(max(least, -2), 2) | st.integers(least, least + (1 << bits) - 1)
INNERS = st.builds(
    Inner,
    n=VALUES["Int32"],
    s=TEXTS,
    list=st.lists(VALUES["Int64"], max_size=2),
    at=st.none() | TIMES,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{f"one_{each}": VALUES[each] for each in SCALARS},
    **{f"many_{each}": st.lists(VALUES[each], max_size=3) for each in SCALARS},
    **{
        f"wrap_{each}": st.builds(wrapper, value=VALUES[each])
        for each, wrapper in zip(KINDS, WRAPPERS, strict=True)
    },
    "packed": st.lists(VALUES["Int32"], max_size=3),
    "unpacked": st.lists(VALUES["Int32"], max_size=3),
    "colour": st.integers(-2, 3),
    "colours": st.lists(st.integers(-2, 3), max_size=3),
    "maybe": TEXTS,
    "number": VALUES["Int32"],
    "inner_choice": INNERS,
    "inner": INNERS,
    "inners": st.lists(INNERS, max_size=2),
    "took": st.builds(Duration, seconds=VALUES["Int32"], nanos=VALUES["Int32"]),
    "at": TIMES,
    "times": st.lists(TIMES, max_size=2),
    "by_number": st.dictionaries(VALUES["UInt64"], INNERS, max_size=2),
    "by_flag": st.dictionaries(st.booleans(), st.integers(-2, 3), max_size=2),
    "by_name": st.dictionaries(TEXTS, TIMES, max_size=2),
}


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message with some fields, sometimes behind another, sometimes damaged."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True))
    data: bytes = All(**{each: draw(FIELDS[each]) for each in names}).SerializeToString()
    if draw(st.integers(0, 5)) == 0:
        data += data[: draw(st.integers(0, len(data)))]  # a parser merges what comes twice
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    return data


def in_range(row: Any) -> bool:
    """Whether the seconds of damaged timestamps can be Python's."""
    try:
        plain(row)
    except OverflowError:
        return False
    return True


@given(st.lists(st.none() | messages(), max_size=4))
def test_as_the_runtime_reads_them(values: list[bytes | None]) -> None:
    rows: list[Any] = []
    faults = []
    for at, value in enumerate(values):
        try:
            message = None if value is None else All.FromString(value)
        except DecodeError:
            faults.append(at)
            rows.append(None)
            continue
        if message is not None and not in_range(message):
            return  # what is no date of Python's
        rows.append(None if message is None else plain(message))
    found, reasons = decoded(DECODER, *values)
    assert list(reasons) == faults
    assert [sorted_maps(each) for each in found] == [sorted_maps(each) for each in rows]


# ---- what others write


def test_every_default() -> None:
    """Without presence a default, with presence a null; unsigned 64 bits above 2^63."""
    (empty, row), faults = decoded(
        DECODER, b"", All(one_UInt64=2**64 - 1, many_UInt64=[2**63]).SerializeToString()
    )
    assert not faults
    assert (empty["one_Int32"], empty["one_String"], empty["colour"]) == (0, "", "NONE")
    assert [empty[each] for each in ("maybe", "number", "inner", "at", "wrap_Int64")] == [None] * 5
    assert (empty["many_Int32"], empty["by_name"]) == ([], [])
    assert (row["one_UInt64"], row["many_UInt64"]) == (Decimal(2**64 - 1), [Decimal(2**63)])


def test_packed_and_unpacked_are_the_same() -> None:
    """A parser takes both, whatever the schema says: fields 60 and 61, each in the other form."""
    packed, unpacked = b"\xe2\x03\x02\x05\x06", b"\xe8\x03\x05\xe8\x03\x06"
    other = b"\xe0\x03\x05\xe0\x03\x06" + b"\xea\x03\x02\x05\x06"
    (one, two), faults = decoded(DECODER, packed + unpacked, other)
    assert not faults
    assert (one["packed"], one["unpacked"]) == (two["packed"], two["unpacked"]) == ([5, 6], [5, 6])


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (All(one_String="abc").SerializeToString()[:-1], "truncated"),
        (b"\x08", "a tag without its value"),
        (b"\x0b\x14", "a group that another ends"),
        (b"\x42\x01\xff", "a text that is not UTF-8"),
        (b"\x00\x01", "field 0"),
        (b"\x0f", "a wire type that there is not"),
        (b"\xff" * 11, "a varint of 11 bytes"),
    ],
)
def test_what_is_no_message(data: bytes, what: str) -> None:
    """A record that does not decode spoils no other."""
    good = All(one_Int32=7).SerializeToString()
    rows, faults = decoded(DECODER, good, data, None, good)
    assert [None if each is None else each["one_Int32"] for each in rows] == [7, None, None, 7], (
        what
    )
    assert faults == {1: "it is not a message p.All"}


def test_unknown_fields_and_other_wire_types_are_left_out() -> None:
    """A field of another wire type is an unknown field for every reader of protobuf."""
    unknown, wrong_type = b"\xa0\x7d\x05", b"\x40\x05"
    rows, faults = decoded(DECODER, unknown + wrong_type)
    assert not faults
    assert rows[0] == decoded(DECODER, b"")[0][0]


def test_a_time_that_no_column_holds_is_a_dead_letter() -> None:
    late = Timestamp(seconds=1 << 60)
    rows, faults = decoded(DECODER, All(at=late).SerializeToString(), b"")
    assert rows[0] is None
    assert list(faults) == [0]
    assert faults[0].startswith("it does not fit the columns")


def test_proto2() -> None:
    """Required fields, a group, an unknown number of a closed enum."""
    enum = 'enum_type { name: "Colour" value { name: "A" number: 3 } }'
    message = (
        'message_type { name: "M"'
        + field("r", 1, "int32", "REQUIRED")
        + field("c", 2, ".p.Colour")
        + field("cs", 3, ".p.Colour", "REPEATED")
        + field("d", 4, "int32", more='default_value: "7"')
        + 'field { name: "g" number: 5 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".p.M.G" }'
        + 'nested_type { name: "G" '
        + field("y", 1, "int32")
        + "} }"
    )
    decoder = ProtobufDecoder.of(descriptors(enum, message, syntax="proto2"), "p.M")
    rows, faults = decoded(
        decoder, b"\x10\x03", b"\x08\x01\x10\x09\x18\x03\x18\x09\x2b\x08\x05\x2c"
    )
    assert faults == {0: "a required field is missing"}
    assert rows[1] == {"r": 1, "c": None, "cs": ["A"], "d": None, "g": {"y": 5}}


def test_aliases_of_an_enum_are_its_first_name() -> None:
    """As its runtimes print it."""
    rows, _ = decoded(DECODER, All(colour=1, by_flag={True: 1, False: 9}).SerializeToString())
    assert rows[0]["colour"] == "RED"
    assert sorted(rows[0]["by_flag"]) == [(False, "9"), (True, "RED")]


# ---- schemas


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (".p.M", "Field x of the message is recursive"),
        (".p.Other", r"Field x\.back of the message is recursive"),
        (".google.protobuf.Struct", r"Field x\.fields\.struct_value of the message is recursive"),
        (".google.protobuf.Empty", "Field x of the message is a message without fields"),
    ],
)
@pytest.mark.parametrize("label", ["OPTIONAL", "REPEATED"])
def test_what_no_column_holds(kind: str, words: str, label: str) -> None:
    messages_ = (
        'message_type { name: "M" ' + field("x", 1, kind, label) + "}",
        'message_type { name: "Other" ' + field("back", 1, ".p.M") + "}",
    )
    with pytest.raises(UnusableSchema, match=words):
        ProtobufDecoder.of(descriptors(*messages_), "p.M")


def test_a_file_that_lacks_what_it_imports() -> None:
    with pytest.raises(UnusableSchema, match="--include_imports"):
        ProtobufDecoder.of(descriptors(ENUM, INNER, ALL, imports=False), "p.All")
    with pytest.raises(UnusableSchema, match=r"no message p\.Al.*they have p\.All, p\.Inner"):
        ProtobufDecoder.of(DATA, "p.Al")


def test_types_are_those_of_tables() -> None:
    assert table_type(DECODER.given) == DECODER.type == table_type(DECODER.type)


# ---- Confluent's framing


def framed(indexes: bytes, message: Any, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + bytes(message.SerializeToString())


def test_framed_messages_name_their_place_in_the_schema(tmp_path: Path) -> None:
    """Without that they would all be dead letters."""
    (tmp_path / "a.desc").write_bytes(DATA)
    part = made(DATA, "p.All.Part")
    for name, indexes, message, other in (
        ("p.Inner", b"\x00", Inner(n=5), b"\x02\x02"),
        ("p.All", b"\x02\x02", All(one_Int32=5), b"\x00"),
        ("p.All.Part", b"\x04\x02\x00", part(x=5), b"\x02\x02"),
    ):
        schema = f"{tmp_path}/a.desc:{name}"
        decoder = ChosenFormat("value", "protobuf", schema, frozenset({7})).decoder()
        assert decoder is not None
        values = [framed(indexes, message), framed(other, message), None]
        values += [
            framed(indexes, message, 8),
            framed(b"", type(message)()),
            framed(indexes, type(message)()),
        ]
        rows, faults = decoded(decoder, *values)
        assert [each is None for each in rows] == [False, True, True, True, True, False]
        assert 5 in rows[0].values()
        assert faults[1] == faults[4] == "its schema id is followed by the place of another message"
        assert faults[3].startswith("it has schema id 8")

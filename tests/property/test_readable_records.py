"""Goal: what `consume --output json` prints is readable, and gives back the very record.
Method: examples whose text is written down; bytes by chance, through a line and back.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from kafkalog.format.integers import FormatError
from kafkalog.format.wire.readable import parse_record_line, readable, record_line


@pytest.mark.parametrize(
    ("data", "text", "mark"),
    [
        (None, "null", None),
        (b"", '""', None),
        (b"third", '"third"', None),
        ("größe\n".encode(), '"größe\\n"', None),
        (b'{"n": 1.00}', '{"n": 1.00}', None),
        (b"[1,null]", "[1,null]", None),
        (b"42", "42", None),
        (b"-1.5e3", "-1.5e3", None),
        (b"true", "true", None),
        (b'"third"', '"third"', "json"),
        (b"null", '"null"', None),
        (b"007", '"007"', None),
        (b"2026-01-31", '"2026-01-31"', None),
        (b"1234567890123456", '"1234567890123456"', None),
        (b'{"a":NaN}', '"{\\"a\\":NaN}"', None),
        (b"-Infinity", '"-Infinity"', None),
        (b'{"a":\n1}', '"{\\"a\\":\\n1}"', None),
        (b"42 ", '"42 "', None),
        (b"[" * 100_000, json.dumps("[" * 100_000), None),
        (b"\xff\xfe", '"//4="', "base64"),
        (b"\0\0\0\5", '"AAAABQ=="', "base64"),
    ],
)
def test_bytes_as_people_read_them(data: bytes | None, text: str, mark: str | None) -> None:
    assert readable(data) == (text, mark)
    line = record_line("t", 0, 0, 0, data, data, [("h", data)])
    found = parse_record_line(line.encode())
    assert (found.key, found.value, found.headers) == (data, data, (("h", data),))


def test_a_line() -> None:
    """The members stand as in the pages of the API; marks come last."""
    assert record_line("t", 1, 2, 3, b'"k"', b"\xff", [("h", b"x"), ("e", None)]) == (
        '{"topic": "t", "key": "k", "value": "/w==", "partition": 1, "offset": 2, "timestamp": 3,'
        ' "headers": [{"key": "h", "value": "x"}, {"key": "e", "value": null}],'
        ' "key_format": "json", "value_format": "base64"}'
    )


NUMBERS = st.integers().map(lambda number: b"%d" % number)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
).flatmap(
    lambda value: st.sampled_from([None, 1]).map(lambda n: json.dumps(value, indent=n).encode())
)
DATA = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
DATA |= NUMBERS | DOCUMENTS


@given(DATA, DATA, st.lists(st.tuples(st.text(max_size=4), DATA), max_size=2))
@example(b'"\\ud800"', b'"\\ud800"', [])
@example(b"\xef\xbb\xbf{}", b"\x7f\xc2\x85\xe2\x80\xa8", [])
def test_a_line_gives_back_the_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = record_line("t", 3, 4, 5, key, value, headers)
    assert "\n" not in line
    document = json.loads(line)
    assert (document["topic"], document["offset"]) == ("t", 4)
    found = parse_record_line(line.encode())
    assert found == (key, value, tuple(headers), 5, 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes"),
        ('{"value":NaN}', "is not JSON: NaN is no JSON value"),
        ("[1]", "is not a JSON object"),
        ('{"vlaue":1}', "is not a record: Object contains unknown field `vlaue`"),
        ('{"value":"x","value_format":"hex"}', "is not a record: Invalid enum value 'hex'"),
        ('{"value":"%","value_format":"base64"}', 'is not a record: value: "%" is not base64'),
        ('{"key":5,"key_format":"text"}', "is not a record: key: text is a string, not 5"),
        ('{"key":"\\ud800"}', "is not a record: "),
        ('{"partition":-1}', "is not a record: Expected `int` >= 0"),
        ('{"timestamp":"soon"}', "is not a record: timestamp is ms since 1970 or ISO-8601"),
        ('{"timestamp":-2}', "is not a record: Expected `int` >= -1"),
        ('{"headers":{"h":1}}', "is not a record: Expected `array | null`, got `object`"),
        ('{"headers":[{"value":1}]}', "is not a record: Object missing required field `key`"),
        ('{"headers":[{"key":"\\ud800"}]}', "is not a record: "),
    ],
)
def test_what_is_no_record(line: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_record_line(line.encode())
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (b"hello, world", "; one JSON object a line, not: hello, world"),
        (b"x" * 99, f"; one JSON object a line, not: {'x' * 40}..."),
        (b"\xff", "is not UTF-8"),
        (
            b'{"vlaue":1}',
            "unknown field `vlaue`; did you mean value? A record may have topic, key, value, "
            "partition, offset, timestamp, headers, key_format, value_format",
        ),
        (b'{"headers":{"h":1}}', '; headers is a list of {"key":..., "value":...}'),
        (b'{"headers":["h"]}', '; headers is a list of {"key":..., "value":...}'),
    ],
)
def test_what_is_said_of_it(line: bytes, hint: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_record_line(line)
    assert str(raised.value).endswith(hint)


def test_a_byte_order_mark_is_ignored() -> None:
    assert parse_record_line(b'\xef\xbb\xbf{"value":"v"}').value == b"v"


def test_what_a_person_writes() -> None:
    """Members may be left out; a string is text, what is none is JSON."""
    assert parse_record_line(b'{"value":"hello"}') == (None, b"hello", (), None, None)
    line = b' {"key": 7, "value": {"n": 1.0 , "s":"x"}, "timestamp": "2026-01-31T12:00:00Z"} '
    assert parse_record_line(line) == (
        b"7", b'{"n": 1.0 , "s":"x"}', (), "2026-01-31T12:00:00Z", None
    )  # fmt: skip

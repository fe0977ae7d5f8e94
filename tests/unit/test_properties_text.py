r"""Goal: `.properties` files mean to us what they mean to Java.
Method: a table of the grammar's corners, the writer against the reader, exact written forms.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.format_error import FormatError
from kafkalog.format.properties_text import decode_properties, encode_properties, java_date


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a : = b", {"a": "= b"}),
        ("  a  b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n!c=d\n  # e\nf=g", {"f": "g"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b\r\nc=d\re=f\n\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n\t c\\\n d", {"a": "bcd"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("# a\\\nb=c", {"b": "c"}),
        ("\\\na=b", {"a": "b"}),
        ("\\\n\na=b", {"a": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b\\ c=d", {"a:b c": "d"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e4\\uD83D\\uDE00", {"a": "ä😀"}),
        ("a\\u003db=c", {"a=b": "c"}),
        ("a=\\\\u0041", {"a": "\\u0041"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\fb", {"a": "b"}),
    ],
)
def test_the_grammar(text: str, pairs: dict[str, str]) -> None:
    assert decode_properties(text.encode("latin-1")) == pairs


def test_bytes_are_latin_1() -> None:
    assert decode_properties(b"a=\xe4") == {"a": "ä"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "\\uxyz1=b"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="Malformed"):
        decode_properties(text.encode())


def test_written_form() -> None:
    pairs = {"a b": " c d", "e=:#!\\": "=:#!\\", "t": "\t\n\r\f\x01ä😀"}
    assert encode_properties(pairs, comments=("", "now")) == (
        b"#\n#now\n"
        b"a\\ b=\\ c d\n"
        b"e\\=\\:\\#\\!\\\\=\\=\\:\\#\\!\\\\\n"
        b"t=\\t\\n\\r\\f\\u0001\\u00E4\\uD83D\\uDE00\n"
    )


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=10))
def test_what_is_written_reads_back(pairs: dict[str, str]) -> None:
    assert decode_properties(encode_properties(pairs)) == pairs


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        decode_properties(data)
    except FormatError:
        return


def test_the_date_comment() -> None:
    assert java_date(0) == "Thu Jan 01 00:00:00 UTC 1970"
    assert java_date(1700000000123) == "Tue Nov 14 22:13:20 UTC 2023"

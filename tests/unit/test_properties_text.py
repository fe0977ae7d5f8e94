r"""Goal: `.properties` files mean to us what they mean to Java.
Method: a table of the grammar's corners, the writer against the reader, exact written forms.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.properties import decode_properties, encode_properties, java_date
from kafkalog.format.integers import FormatError


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
        # white space: blank, tab and form feed alone
        ("a\x0bb=c", {"a\x0bb": "c"}),
        ("a\x85b=c", {"a\x85b": "c"}),
        ("a\xa0b=c", {"a\xa0b": "c"}),
        ("\xa0a=b", {"\xa0a": "b"}),
        ("a=\t\f b\t", {"a": "b\t"}),
        ("a\\ =b", {"a ": "b"}),
        ("a=\\ b", {"a": " b"}),
        # at most one separator
        ("a==b", {"a": "=b"}),
        ("a =: b", {"a": ": b"}),
        ("a:=b", {"a": "=b"}),
        (":", {"": ""}),
        (" = ", {"": ""}),
        # line ends, comments and continuations
        ("a=b\n\r\r\nc=d", {"a": "b", "c": "d"}),
        ("a=b\x1cc\u0000d", {"a": "b\x1cc\u0000d"}),
        (" \t\f#a=b\nc=d", {"c": "d"}),
        ("a#=b!", {"a#": "b!"}),
        ("\\#a=b", {"#a": "b"}),
        ("a\\\n  =b", {"a": "b"}),
        ("a=b\\\r\n\r\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\n  \nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\\\n c", {"a": "b\\c"}),
        ("a=\\\n\\ b", {"a": " b"}),
        ("\\\n# a=b\nc=d", {"c": "d"}),
        ("\\\n\nc=d", {"c": "d"}),
        ("a=b\\\n", {"a": "b"}),
        # a backslash at the very end is a line of its own
        ("a=b\n\\", {"a": "b", "": ""}),
        ("a=b\n\\\n", {"a": "b", "": ""}),
        ("a=b\n\\\r\n", {"a": "b"}),
        ("", {}),
        ("\n \n#", {}),
        # escapes
        ("a=\\u000A\\u0020b", {"a": "\n b"}),
        ("a=\\U0041\\x41\\101", {"a": "U0041x41101"}),
        ("a=\\u004\\\n1", {"a": "A"}),
        ("\\u0061=b", {"a": "b"}),
        ("a\\u003Db\\u0020c", {"a=b c": ""}),
        ("a=\\uD83D", {"a": "\ud83d"}),
        ("a=1\nb=2\na=3\na", {"a": "", "b": "2"}),
    ],
)
def test_the_grammar(text: str, pairs: dict[str, str]) -> None:
    assert decode_properties(text.encode("latin-1")) == pairs


def test_bytes_are_latin_1() -> None:
    assert decode_properties(b"a=\xe4") == {"a": "ä"}


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    """Unlike Java's. A file that was saved by such an editor keeps its first setting."""
    assert decode_properties(b"\xef\xbb\xbfa=1\nb=2") == {"a": "1", "b": "2"}
    assert decode_properties(b"a=1\n\xef\xbb\xbfb=2") == {"a": "1", "\xef\xbb\xbfb": "2"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a=\\u12", "\\u12"),
        ("a=\\u12g4", "\\u12g4"),
        ("a=\\u", "\\u"),
        ("a=\\u 041", "\\u 041"),
        ("a=\\u+041", "\\u+041"),
        ("a=\\u00_1", "\\u00_1"),
        ("a=\\uu0041", "\\uu0041"),
        ("\\uxyz1=b", "\\uxyz1"),
        ("a=b\nc=\\u004\nd=e", "\\u004"),
    ],
)
def test_a_broken_escape_is_refused(text: str, shown: str) -> None:
    """Four hexadecimal digits and nothing else; the message shows the half that holds it."""
    with pytest.raises(FormatError) as refusal:
        decode_properties(text.encode())
    assert str(refusal.value) == f"Malformed \\uxxxx encoding in '{shown}'"


def test_written_form() -> None:
    pairs = {"a b": " c d", "e=:#!\\": "=:#!\\", "t": "\t\n\r\f\x01ä😀"}
    assert encode_properties(pairs, comments=("", "now")) == (
        b"#\n#now\n"
        b"a\\ b=\\ c d\n"
        b"e\\=\\:\\#\\!\\\\=\\=\\:\\#\\!\\\\\n"
        b"t=\\t\\n\\r\\f\\u0001\\u00E4\\uD83D\\uDE00\n"
    )


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("a", "", b"a=\n"),
        ("", "", b"=\n"),
        ("a b ", "c d ", b"a\\ b\\ =c d \n"),
        ("a", "  b", b"a=\\  b\n"),
        (" ", " ", b"\\ =\\ \n"),
        ("a#!", "#!", b"a\\#\\!=\\#\\!\n"),
        ("\x1f\x7f", "\x80\xff", b"\\u001F\\u007F=\\u0080\\u00FF\n"),
        ("~", "\u0100\u2028", b"~=\\u0100\\u2028\n"),
        ("a\x0bb", "\ud83d", b"a\\u000Bb=\\uD83D\n"),
    ],
)
def test_exact_written_pairs(key: str, value: str, written: bytes) -> None:
    """Properties.store: all blanks of a key, only the first of a value, capital digits."""
    assert encode_properties({key: value}) == written
    assert decode_properties(written) == {key: value}


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

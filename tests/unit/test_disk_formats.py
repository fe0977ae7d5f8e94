"""Goal: every small file of a log directory has Kafka's name and bytes, means what it means to
Kafka and Java, and is read exactly as strictly.
Method: files that Kafka wrote, texts with one fault each, any bytes.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from uuid import UUID

import crc32c
import pytest
from hypothesis import given, strategies as st

from kafkalog.format.disk import file_names
from kafkalog.format.disk.checkpoints import (
    decode_leader_epochs,
    decode_offsets,
    encode_leader_epochs,
    encode_offsets,
    salvage_offsets,
)
from kafkalog.format.disk.file_names import SegmentFileName, parse_segment_file, segment_file_name
from kafkalog.format.disk.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from kafkalog.format.disk.properties import (
    MetaProperties,
    decode_meta_properties,
    decode_partition_metadata,
    decode_properties,
    encode_meta_properties,
    encode_partition_metadata,
    encode_properties,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, decode_id, encode_id

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,19}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_CHECKPOINT = "no line of this file is a checkpoint's"
NO_ENTRY = "no 'topic partition offset'"


def test_the_published_leader_epoch_file() -> None:
    """M25: two epochs, a newline after every line."""
    data = b"0\n2\n0 0\n2 3000000\n"
    assert decode_leader_epochs(data) == [(0, 0), (2, 3000000)]
    assert encode_leader_epochs([(0, 0), (2, 3000000)]) == data


def test_an_offset_checkpoint() -> None:
    """M14: `topic partition offset`."""
    data = b"0\n2\na-b 0 5\nt 12 7\n"
    offsets = {TopicPartition("t", 12): 7, TopicPartition("a-b", 0): 5}
    assert encode_offsets(offsets) == data
    assert decode_offsets(data) == offsets
    assert encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0", b"+0\n-0\n", b"00\r000\r"])
def test_no_entries(data: bytes) -> None:
    """M14: no bytes at all, or a version alone, are no damage; each shown by Kafka."""
    assert decode_offsets(data) == {}
    assert decode_leader_epochs(data) == []


@pytest.mark.parametrize(
    ("data", "partition", "offset"),
    [
        (b"0\n1\nt 0 5", T0, 5),
        (b"0\n1\nt \t 0\v5 \n", T0, 5),
        (b"0\n1\nt\f0\t5\t\v \n", T0, 5),
        (b"0\r\n1\r\nt 0 5\r\n", T0, 5),
        (b"0\r1\rt 0 5\r", T0, 5),
        (b"0\n1\r\nt 0 5", T0, 5),
        (b"+0\n1\nt 00 +5\n", T0, 5),
        (b"00\n01\nt -0 0000000000000000000000000000005\n", T0, 5),
        (b"0\n2\nt 0 7\nt 0 5\n", T0, 5),
        (b"0\n1\nt 2147483647 9223372036854775807\n", TopicPartition("t", 2**31 - 1), 2**63 - 1),
        (b"0\n1\nt -2147483648 -9223372036854775808\n", TopicPartition("t", -(2**31)), -(2**63)),
        (b"0\n1\n\xc3\xa4\x00 0 5\n", TopicPartition("\u00e4\x00", 0), 5),
        (b"0\n1\n 0 5\n", TopicPartition("", 0), 5),
    ],
)
def test_what_kafka_tolerates(data: bytes, partition: TopicPartition, offset: int) -> None:
    """M14: each shown by Kafka (tests/oracle/test_text_files_against_kafka.py)."""
    assert decode_offsets(data) == {partition: offset}


def malformed(line: str) -> str:
    return f"Malformed line in the checkpoint: '{line}'"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        # the version line
        (b"\n", malformed("")),
        (b"x\n0\n", malformed("x")),
        (b" 0\n0\n", malformed(" 0")),
        (b"0 \n0\n", malformed("0 ")),
        (b"\xef\xbb\xbf0\n0\n", malformed("\ufeff0")),
        (b"0x0\n0\n", malformed("0x0")),
        (b"2147483648\n0\n", malformed("2147483648")),
        (b"1\n0\n", "Unrecognized version of the checkpoint: 1"),
        (b"-1\n0\n", "Unrecognized version of the checkpoint: -1"),
        (b"1", "Unrecognized version of the checkpoint: 1"),
        (bytes(64), malformed("\x00" * 64)),
        # the count line
        (b"0\nx\n", malformed("x")),
        (b"0\n\n", malformed("")),
        (b"0\n1 \nt 0 5\n", malformed("1 ")),
        (b"0\nt 0 5\n", malformed("t 0 5")),
        (b"0\n4294967297\nt 0 5\n", malformed("4294967297")),
        (b"0\n2\nt 0 5\n", "Expected 2 entries in the checkpoint, but found only 1"),
        (b"0\n0\nt 0 5\n", "Expected 0 entries in the checkpoint, but found only 1"),
        (b"0\n-1\n", "Expected -1 entries in the checkpoint, but found only 0"),
        # entries
        (b"0\n1\n t 0 5\n", malformed(" t 0 5")),
        (b"0\n1\nt 0\n", malformed("t 0")),
        (b"0\n1\nt 0 5 6\n", malformed("t 0 5 6")),
        (b"0\n1\nt 0 5x\n", malformed("t 0 5x")),
        (b"0\n1\nt 0 5\x00\n", malformed("t 0 5\x00")),
        (b"0\n1\nt 0 1_0\n", malformed("t 0 1_0")),
        (b"0\n1\nt 0 \n", malformed("t 0 ")),
        (b"0\n1\nt\xc2\xa00 5\n", malformed("t\u00a00 5")),
        (b"0\n1\nt 2147483648 5\n", malformed("t 2147483648 5")),
        (b"0\n1\nt -2147483649 5\n", malformed("t -2147483649 5")),
        (b"0\n1\nt 0 9223372036854775808\n", malformed("t 0 9223372036854775808")),
        (b"0\n1\nt 0 -9223372036854775809\n", malformed("t 0 -9223372036854775809")),
        (b"0\n1\nt 0 " + b"9" * 5000, malformed("t 0 " + "9" * 5000)),
        # behind the last entry
        (b"0\n1\nt 0 5\n\n", malformed("")),
        (b"0\n1\nt 0 5\n ", malformed(" ")),
        (b"0\n1\nt 0 5\ngarbage", malformed("garbage")),
        (b"0\n1\nt 0 5\n\x00\x00\x00", malformed("\x00\x00\x00")),
        (b"0\n1\nt 0 5\nt 1 5\n", "Expected 1 entries in the checkpoint, but found only 2"),
        # the encoding
        (b"0\n1\n\xff 0 5\n", "The checkpoint is not UTF-8 at byte 4"),
        (b"0\n1\nt 0 5\x85\n", "The checkpoint is not UTF-8 at byte 9"),
        (b"0\n1\n\xed\xa0\x80 0 5\n", "The checkpoint is not UTF-8 at byte 4"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, reason: str) -> None:
    """M14: whole, with the line; each is refused by Kafka as well."""
    with pytest.raises(FormatError) as refusal:
        decode_offsets(data)
    assert str(refusal.value) == reason


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"0\n1\n0 0 0\n", "0 0 0"),
        (b"0\n1\n0\n", "0"),
        (b"0\n1\n 5\n", " 5"),
        (b"0\n1\n2147483648 0\n", "2147483648 0"),
        (b"0\n1\n0 9223372036854775808\n", "0 9223372036854775808"),
        (b"0\n1\n0 0x\n", "0 0x"),
        (b"0\n1\n0 0\n\x00", "\x00"),
    ],
)
def test_a_damaged_leader_epoch_file_is_refused(data: bytes, line: str) -> None:
    """M08: an epoch is an int32, an offset an int64, two fields a line."""
    with pytest.raises(FormatError) as refusal:
        decode_leader_epochs(data)
    assert str(refusal.value) == malformed(line)


@pytest.mark.parametrize(
    ("data", "offsets", "bad"),
    [
        (b"0\n2\nt 0 5\nt 1 x\n", {T0: 5}, [(4, "t 1 x", NO_ENTRY)]),
        (b"0\n3\nt 0 5\nt 1 7\n", {T0: 5, T1: 7}, [(2, "3", "2 entries follow")]),
        (b"0\n2\nt 0 5\nt 1 7", {T0: 5}, [(4, "t 1 7", "cut off")]),
        (b"0\n1\nt 0 5\nt 1", {T0: 5}, [(4, "t 1", "cut off")]),
        (b"0\n9\nt 0 5\nt 1", {T0: 5}, [(2, "9", "1 entries follow"), (4, "t 1", "cut off")]),
        (b"0\n3", {}, [(2, "3", "cut off")]),
        (b"00\n2\nt 0 5\nx\n", {T0: 5}, [(4, "x", NO_ENTRY)]),
        (b"?\n1\nt 0 5\n", {T0: 5}, [(1, "?", "no version")]),
        (b"1\n1\nt 0 5\n", {}, [(1, "1", "another version")]),
        (b"0\n2\nt 0 5\nt 0 4\n", {T0: 4}, [(4, "t 0 4", "a second entry")]),
        (b"0\n2\nt 0 4\nt 0 5\n", {T0: 4}, [(4, "t 0 5", "a second entry")]),
        (b"0\n1\nt 0 -5\n", {}, [(3, "t 0 -5", "impossible")]),
        (b"0\n1\nt -1 5\n", {}, [(3, "t -1 5", "impossible")]),
        (b"0\n1\nt/ 0 5\n", {}, [(3, "t/ 0 5", "impossible")]),
        (b"0\n1\n\xff 0 5\n", {}, [(3, "\\xff 0 5", "impossible")]),
        (b"0\n1\nt 0 " + b"9" * 5000 + b"\n", {}, [(3, "t 0 " + "9" * 5000, NO_ENTRY)]),
        (b"x", {}, [(1, "x", NO_CHECKPOINT)]),
        (b"\0" * 50, {}, [(1, "\0" * 50, NO_CHECKPOINT)]),
        (b"\x89PNG\r\n\x1a\n\0\0\nIHDR\n", {}, [(1, "\\x89PNG", NO_CHECKPOINT)]),
    ],
)
def test_the_good_lines_of_a_damaged_file(
    data: bytes, offsets: dict[TopicPartition, int], bad: list[tuple[int, str, str]]
) -> None:
    """M08: what Kafka could not have written is no entry, and every bad line is named."""
    found, lines = salvage_offsets(data)
    assert found == offsets
    assert [(line.number, line.text, line.reason) for line in lines] == bad


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20), st.data())
def test_one_bad_line_costs_one_entry(
    offsets: dict[TopicPartition, int], data: st.DataObject
) -> None:
    """M08: all the others are as they were."""
    lines = encode_offsets(offsets).splitlines(keepends=True)
    at = data.draw(st.integers(2, len(lines)))
    lines.insert(at, b"no entry\n")
    found, bad = salvage_offsets(b"".join(lines))
    assert found == offsets
    assert [line.number for line in bad] == [2, at + 1]


@given(st.binary(max_size=60) | st.binary(max_size=60).map(b"0\n1\n".__add__))
def test_any_bytes_are_salvaged(data: bytes) -> None:
    try:
        decode_offsets(data)
    except FormatError:
        offsets, bad = salvage_offsets(data)
        assert bad
        numbers = [line.number for line in bad]
        assert numbers == sorted(set(numbers))
        assert all(offset >= 0 for offset in offsets.values())


@given(st.dictionaries(PARTITIONS, INT64, max_size=20))
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), INT64), max_size=20))
def test_leader_epochs_round_trip(epochs: list[tuple[int, int]]) -> None:
    assert decode_leader_epochs(encode_leader_epochs(epochs)) == epochs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a  b=c", {"a": "b=c"}),
        ("a=\xe4", {"a": "ä"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n!c=d\n  # e\nf=g", {"f": "g"}),
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
        ("a=\\\\u0041", {"a": "\\u0041"}),
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
        ("e=:#!\\", "=:#!\\", b"e\\=\\:\\#\\!\\\\=\\=\\:\\#\\!\\\\\n"),
        ("t", "\t\n\r\f\x01ä😀", b"t=\\t\\n\\r\\f\\u0001\\u00E4\\uD83D\\uDE00\n"),
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
def test_any_properties_are_read_or_refused(data: bytes) -> None:
    try:
        decode_properties(data)
    except FormatError:
        return


TOPIC_ID = decode_id("a2Fma2Fsb2dPcmFjbGUwMQ")


def test_partition_metadata_has_43_bytes() -> None:
    """M02: two lines, no newline at the end."""
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ"
    assert len(data) == 43
    assert decode_partition_metadata(data) == TOPIC_ID


def test_partition_metadata_of_a_later_version_is_accepted() -> None:
    data = b"version: 3\r\ntopic_id:  a2Fma2Fsb2dPcmFjbGUwMQ\r\n"
    assert decode_partition_metadata(data) == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version: -1\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version: x\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version:0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwM",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ\nmore: x",
        b"\xff",
        bytes(43),
    ],
)
def test_damaged_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_partition_metadata(data)


def test_meta_properties_as_written() -> None:
    meta = MetaProperties("a2Fma2Fsb2dPcmFjbGUwMQ", 1, UUID(int=1 << 100))
    data = encode_meta_properties(meta, written_at_ms=1700000000123)
    assert data.decode().splitlines() == [
        "#",
        "#Tue Nov 14 22:13:20 UTC 2023",
        "cluster.id=a2Fma2Fsb2dPcmFjbGUwMQ",
        f"directory.id={encode_id(UUID(int=1 << 100))}",
        "node.id=1",
        "version=1",
    ]
    assert decode_meta_properties(data) == meta


def test_meta_properties_of_older_brokers() -> None:
    zookeeper = decode_meta_properties(b"version=0\nbroker.id=3\ncluster.id=x\n")
    assert zookeeper == MetaProperties("x", 3, None, version=0)
    assert decode_meta_properties(b"version=1\nnode.id=3\n") == MetaProperties(None, 3, None)
    ours = replace(zookeeper, directory_id=UUID(int=1 << 100), is_directory_id_given=True)
    data = encode_meta_properties(ours, 0)
    assert b"kafkalog.dir.id=" in data
    assert b"directory.id" not in data
    assert decode_meta_properties(data) == ours
    with pytest.raises(FormatError, match=r"kafkalog\.dir\.id is damaged"):
        decode_meta_properties(data.replace(b"log.dir", b"log.dis"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node.id=1", "no version"),
        ("version=2", "Unknown meta.properties version number 2"),
        ("version=one", "no number"),
        ("version=1\nnode.id=x", "no number"),
        ("version=1\nnode.id=2147483648", "no number"),
        ("version=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA", "reserved"),
        ("version=1\ndirectory.id=zzz", "base64url"),
    ],
)
def test_damaged_meta_properties_are_refused(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_meta_properties(text.encode())


SUFFIXES = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT_SUFFIX)


def test_names_have_twenty_digits() -> None:
    """M02: base names are zero-padded to twenty digits."""
    assert segment_file_name(0, ".log") == "00000000000000000000.log"
    assert (
        segment_file_name(42, ".timeindex", ".deleted") == "00000000000000000042.timeindex.deleted"
    )
    assert segment_file_name(2**63 - 1, ".log") == "09223372036854775807.log"


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(SUFFIXES),
    st.sampled_from(("", *file_names.STAGE_SUFFIXES)),
)
def test_names_round_trip(offset: int, suffix: str, stage: str) -> None:
    parsed = parse_segment_file(segment_file_name(offset, suffix, stage))
    assert parsed == SegmentFileName(offset, suffix, stage)


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000000.log.bak",
        ".lock",
        "",
    ],
)
def test_other_files_are_not_segments(name: str) -> None:
    assert parse_segment_file(name) is None


@pytest.mark.parametrize(
    "name", ["x.log", ".log", "-1.index", "1_0.log", "9" * 20 + ".log", "١.log"]
)
def test_a_segment_file_without_an_offset_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="does not start with an offset"):
        parse_segment_file(name)


@pytest.mark.parametrize(
    "name", ["123.log", "0" * 18 + "123.log", "0" * 20 + "7.index", "7.log.swap", "7.snapshot"]
)
def test_another_number_of_digits_is_no_name_of_a_segment(name: str) -> None:
    """M02: else a stray file stands for a segment whose files nobody has."""
    with pytest.raises(FormatError, match="twenty digits"):
        parse_segment_file(name)


GOLDEN = bytes.fromhex(
    "000175fdd5b40000000200000000000000070002"
    "0000000c000000000000000f000000020000018bcfe568c800000004ffffffffffffffff"
    "00000000000000080000ffffffffffffffffffffffff000000000000018bcfe568c9ffffffff0000000000000014"
)
ENTRIES = [
    ProducerSnapshotEntry(7, 2, 12, 15, 2, 1700000000200, 4, -1),
    ProducerSnapshotEntry(8, 0, -1, -1, 0, 1700000000201, -1, 20),
]
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def test_the_published_snapshot() -> None:
    """M25: pid 7 with a batch and a marker, pid 8 with an open transaction only."""
    assert encode_snapshot(ENTRIES) == GOLDEN
    assert decode_snapshot(GOLDEN) == ENTRIES


def test_an_empty_snapshot_has_ten_bytes() -> None:
    """M02: no producers, ten bytes."""
    data = encode_snapshot([])
    assert len(data) == 10
    assert decode_snapshot(data) == []


@given(
    st.lists(
        st.builds(ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64),
        max_size=20,
    )
)
def test_snapshots_round_trip(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


def test_every_truncation_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(FormatError):
            decode_snapshot(GOLDEN[:length])


def test_every_flipped_bit_is_seen() -> None:
    for bit in range(len(GOLDEN) * 8):
        damaged = bytearray(GOLDEN)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_snapshot(bytes(damaged))


def test_a_wrong_count_under_a_good_crc_is_refused() -> None:
    for count in (-1, 1, 3):
        checked = struct.pack(">i", count) + GOLDEN[10:]
        data = struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked
        with pytest.raises(FormatError, match="do not hold"):
            decode_snapshot(data)


def test_kafka_words_for_damage() -> None:
    with pytest.raises(
        FormatError, match="validation: Snapshot contained an unknown file version 2"
    ):
        decode_snapshot(b"\x00\x02" + GOLDEN[2:])
    with pytest.raises(FormatError, match=r"CRC is no longer valid.*Stored crc: 1979569588"):
        decode_snapshot(GOLDEN[:-1] + b"\x15")

"""Goal: messages of formats v0 and v1 are read and converted without losing anything.

Method: entries of any shape, written by a plain twin, between v2 batches; the offsets, times, keys
and values that come out are those that went in.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from kafkalog.format.records.batch_scan import (
    BatchColumn,
    ScanStop,
    has_messages,
    message_size,
    scan,
    scan_any,
)
from kafkalog.format.records.compression import compress
from kafkalog.format.records.message_set import (
    GROUP_BYTES,
    MalformedMessage,
    Message,
    convert,
    read_messages,
)
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import (
    BatchHeader,
    Codec,
    TimestampType,
    codec_of,
    is_crc_valid,
    iterate_batches,
    timestamp_type_of,
)
from tests.naive.message_sets import APPEND_TIME, PlainMessage, bare, entry, wrapper
from tests.naive.stored_batches import stored_batch

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MAX_BYTES = 1 << 24
FIELDS = st.none() | st.binary(max_size=40)
STAMPS = st.integers(0, 2**40)


@dataclass(frozen=True)
class Entry:
    data: bytes
    magic: int
    codec: Codec
    messages: tuple[PlainMessage, ...]
    append_time: int | None


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """A piece of a log; offsets rise, with gaps."""
    found, offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        magic = draw(st.sampled_from([0, 1, 2]))
        codec = draw(st.sampled_from([Codec.NONE, *CODECS]))
        count = draw(st.integers(1, 5)) if codec or magic == 2 else 1
        messages = []
        first = offset
        for _ in range(count):
            offset += draw(st.integers(0, 3))
            stamp = draw(STAMPS) if magic else -1
            messages.append(PlainMessage(offset, stamp, draw(FIELDS), draw(FIELDS)))
            offset += 1
        append_time = draw(st.none() | STAMPS) if magic == 1 else None
        if magic == 2:
            records = [
                Record(each.offset, each.timestamp, each.key, each.value) for each in messages
            ]
            data = stored_batch(records, codec=codec)
        elif codec:
            data = wrapper(magic, codec, messages, append_time=append_time, first_offset=first)
        else:
            if append_time is not None:
                messages = [
                    PlainMessage(each.offset, append_time, each.key, each.value)
                    for each in messages
                ]
            data = bare(magic, messages[0], 0 if append_time is None else APPEND_TIME)
        found.append(Entry(data, magic, codec, tuple(messages), append_time))
        offset += draw(st.integers(0, 2))
    return found


def expected(each: Entry) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (
            message.offset,
            message.timestamp if each.append_time is None else each.append_time,
            message.key,
            message.value,
        )
        for message in each.messages
    ]


@given(entries())
def test_each_entry_is_found_and_read(log: list[Entry]) -> None:
    data = b"".join(each.data for each in log)
    rows = scan_any(data)
    assert (rows.stop, rows.stop_position) == (ScanStop.END, len(data))
    assert rows.column(BatchColumn.SIZE).tolist() == [len(each.data) for each in log]
    assert rows.column(BatchColumn.MAGIC).tolist() == [each.magic for each in log]
    assert rows.column(BatchColumn.LAST_OFFSET).tolist() == [
        each.messages[-1].offset for each in log
    ]
    assert has_messages(rows) == any(each.magic < 2 for each in log)
    assert rows.first_disorder(-1) is None
    for each in log:
        if each.magic < 2:
            assert list(map(tuple, read_messages(each.data, max_bytes=MAX_BYTES))) == expected(each)


@given(entries())
def test_the_conversion_keeps_everything(log: list[Entry]) -> None:
    """Codecs and timestamp types as well; v2 batches byte for byte."""
    data = b"".join(each.data for each in log)
    converted = convert(data, scan_any(data).table, max_bytes=MAX_BYTES)
    rows = scan(converted.data)
    assert (rows.stop, rows.consumed_bytes) == (ScanStop.END, len(converted.data))
    assert rows.first_disorder(-1) is None
    assert converted.message_count == sum(len(each.messages) for each in log if each.magic < 2)
    found, attributes = [], dict[int, tuple[Codec, TimestampType]]()
    for header, batch in iterate_batches(converted.data):
        assert is_crc_valid(batch)
        check_header(header)
        for record in iterate_records(batch):
            found.append((record.offset, record.timestamp, record.key, record.value))
            attributes[record.offset] = (
                codec_of(header.attributes),
                timestamp_type_of(header.attributes),
            )
            assert record.headers == ()
    assert found == [line for each in log for line in expected(each)]
    for each in log:
        is_append_time = each.append_time is not None
        kind = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        assert {attributes[message.offset] for message in each.messages} == {(each.codec, kind)}
        if each.magic == 2:
            assert each.data in converted.data


def check_header(header: BatchHeader) -> None:
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.record_count <= header.last_offset_delta + 1


def one(offset: int = 5, value: bytes = b"v") -> PlainMessage:
    return PlainMessage(offset, 7, b"k", value)


def test_messages_share_batches_up_to_a_size() -> None:
    value = b"v" * 1_000
    count = 40
    data = b"".join(bare(1, one(offset, value)) for offset in range(count))
    converted = convert(data, scan_any(data).table, max_bytes=MAX_BYTES).data
    sizes = [header.size_bytes for header, _ in iterate_batches(converted)]
    assert len(sizes) == 3
    assert max(sizes) <= GROUP_BYTES + 100


def test_an_old_wrapper_of_offset_0_counts_from_0() -> None:
    """As librdkafka once produced them."""
    inner = entry(1, 0, 7, None, b"a") + entry(1, 1, 8, None, b"b")
    data = entry(1, 0, 8, None, compress(Codec.GZIP, inner), Codec.GZIP)
    assert [each.offset for each in read_messages(data, max_bytes=MAX_BYTES)] == [0, 1]


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_is_noticed(magic: int) -> None:
    """CRC-32 covers magic to end; the offset and the length lie outside it."""
    data = bare(magic, one())
    assert message_size(data) == len(data)
    for bit in range(64, 8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 0x80 >> bit % 8
        assert message_size(bytes(broken)) == 0
        rows = scan_any(bytes(broken))
        assert rows.count == 0


def test_a_v2_batch_whose_magic_rotted_is_no_message() -> None:
    batch = bytearray(stored_batch([Record(0, 7, b"k", b"v")]))
    for magic in (0, 1):
        batch[16] = magic
        rows = scan_any(bytes(batch))
        assert (rows.count, rows.stop) == (0, ScanStop.LEGACY)


def nested(magic: int) -> bytes:
    inner = wrapper(magic, Codec.GZIP, [one()])
    return entry(magic, 5, 7, None, compress(Codec.GZIP, inner), Codec.GZIP)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (nested(1), "holds a compressed one"),
        (entry(1, 5, 7, None, None, Codec.GZIP), "has no value"),
        (entry(1, 5, 7, None, b"", Codec.ZSTD), "no compression type 4"),
        (entry(0, 5, 7, None, b"junk", Codec.GZIP), "gzip"),
        (wrapper(1, Codec.GZIP, [one(5), one(5)]), "does not follow"),
        (bare(1, one()) + b"x", "more than one message"),
    ],
)
def test_what_kafka_does_not_read_is_refused(data: bytes, reason: str) -> None:
    table = scan_any(data).table
    if reason == "more than one message":
        with pytest.raises(MalformedMessage, match=reason):
            read_messages(data, max_bytes=MAX_BYTES)
        return
    with pytest.raises(MalformedMessage, match=reason):
        convert(data, table, max_bytes=MAX_BYTES)


def test_more_than_allowed_is_not_inflated() -> None:
    data = wrapper(1, Codec.GZIP, [one(value=b"v" * 10_000)])
    with pytest.raises(MalformedMessage, match="inflates to more than 100 bytes"):
        convert(data, scan_any(data).table, max_bytes=100)


def test_a_message_has_the_fields_of_its_bytes() -> None:
    data = bare(1, PlainMessage(5, 7, None, b""))
    assert read_messages(data, max_bytes=MAX_BYTES) == [Message(5, 7, None, b"")]

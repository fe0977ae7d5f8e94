"""Goal: what Kafka and others compress is read, what we write is framed as Kafka's, and no
stream makes us take more memory than allowed.

Method: published batches, hand-made frames, bombs with measured memory, mutation.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from hypothesis import given, strategies as st

from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.records.compression import WINDOW_MAX, compress, decompress, decompress_into
from kafkalog.format.records.record_batch import Codec

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20
# The records of the published batches, log-format.md 1.3, and the streams that Kafka made of them.
RECORDS = bytes.fromhex(
    "26000000046b310476310404683102780468320110000a02046b320100100006040104763300"
)
_PLAIN = RECORDS.hex()
PUBLISHED = {
    Codec.GZIP: "1f8b08000000000000ff5363606060c9366429336461c93064aa60c930621460e06262c936"
    "62641060606361642933660000e6e6609e26000000",
    Codec.SNAPPY: f"82534e41505059000000000100000001000000282694{_PLAIN}",
    Codec.LZ4: f"04224d1860408226000080{_PLAIN}00000000",
    Codec.ZSTD: f"28b52ffd0058300100{_PLAIN}010000",
}


@pytest.mark.parametrize("codec", CODECS)
def test_the_published_streams_decode(codec: Codec) -> None:
    assert decompress(codec, bytes.fromhex(PUBLISHED[codec]), max_bytes=38) == RECORDS


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_we_write_is_framed_as_the_published_streams(codec: Codec) -> None:
    published = bytes.fromhex(PUBLISHED[codec])
    header = {Codec.GZIP: 10, Codec.SNAPPY: 16, Codec.LZ4: len(published)}[codec]
    assert compress(codec, RECORDS)[:header] == published[:header]


@pytest.mark.parametrize("codec", [*CODECS, Codec.NONE])
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda piece, count: piece * count, st.binary(max_size=50), st.integers(0, 9000)),
    )
)
def test_round_trip_within_exactly_the_limit(codec: Codec, data: bytes) -> None:
    """M06: all codecs."""
    stream = compress(codec, data)
    assert decompress(codec, stream, max_bytes=len(data)) == data
    assert decompress(codec, memoryview(bytearray(stream)), max_bytes=len(data)) == data
    if data:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, stream, max_bytes=len(data) - 1)


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, -1),
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -131072),
        (Codec.ZSTD, -5),
        (Codec.ZSTD, 0),
        (Codec.ZSTD, 19),
        (Codec.ZSTD, 22),
    ],
)
def test_every_end_of_the_level_ranges(codec: Codec, level: int) -> None:
    data = b"".join(b"record %d, " % number for number in range(20000))
    assert decompress(codec, compress(codec, data, level), max_bytes=len(data)) == data


def test_content_above_the_window_limit_stays_readable_at_the_highest_level() -> None:
    data = b"0123456789abcdef" * (WINDOW_MAX // 16 + 1)
    stream = compress(Codec.ZSTD, data, 22)
    assert decompress(Codec.ZSTD, stream, max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_view_of_content_above_the_window_limit_compresses(codec: Codec) -> None:
    """A rebuilt batch hands over a view; one codec's streaming form took only bytes."""
    content = bytes(WINDOW_MAX + 1)
    stream = compress(codec, memoryview(content))
    assert decompress(codec, stream, max_bytes=len(content)) == content


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_numbers_are_refused(number: int) -> None:
    with pytest.raises(UnsupportedCompression, match=f"id: {number}"):
        decompress(number, b"", max_bytes=1)


def lz4_frame(flags: int, descriptor: int, body: bytes, size: int | None = None) -> bytes:
    """A frame with a right header checksum (the third byte of xxh32 of the descriptor)."""
    header = struct.pack("<BB", flags, descriptor)
    if size is not None:
        header += struct.pack("<Q", size)
    return struct.pack("<I", 0x184D2204) + header + bytes([xxh32(header) >> 8 & 0xFF]) + body


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes."""
    accumulator = 374761393 + len(data)
    position = 0
    while len(data) - position >= 4:
        (word,) = struct.unpack_from("<I", data, position)
        accumulator = rotated(accumulator + word * 3266489917, 17) * 668265263
        position += 4
    for byte in data[position:]:
        accumulator = rotated(accumulator + byte * 374761393, 11) * 2654435761
    accumulator &= 0xFFFFFFFF
    accumulator = (accumulator ^ accumulator >> 15) * 2246822519 & 0xFFFFFFFF
    accumulator = (accumulator ^ accumulator >> 13) * 3266489917 & 0xFFFFFFFF
    return accumulator ^ accumulator >> 16


def rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits & 0xFFFFFFFF | value >> 32 - bits


STORED = struct.pack("<I", 3 | 1 << 31) + b"abc"
END = bytes(4)


@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(0x60, 0x40, STORED + END),
        lz4_frame(0x60, 0x70, STORED + STORED[:0] + END),
        lz4_frame(0x68, 0x40, STORED + END, size=3),
        lz4_frame(0x64, 0x40, STORED + END + struct.pack("<I", xxh32(b"abc"))),
        lz4_frame(0x70, 0x40, STORED + struct.pack("<I", xxh32(b"abc")) + END),
        lz4_frame(
            0x7C,
            0x50,
            STORED + struct.pack("<I", xxh32(b"abc")) + END + struct.pack("<I", xxh32(b"abc")),
            size=3,
        ),
    ],
)
def test_lz4_frames_of_other_producers(frame: bytes) -> None:
    assert decompress(Codec.LZ4, frame, max_bytes=3) == b"abc"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "header is cut short"),
        (lz4_frame(0x60, 0x40, b""), "block length is cut short"),
        (lz4_frame(0x60, 0x40, STORED), "block length is cut short"),
        (lz4_frame(0x40, 0x40, STORED + END), "depend on one another"),
        (lz4_frame(0xA0, 0x40, STORED + END), "frame version 2"),
        (lz4_frame(0x61, 0x40, STORED + END), "frame flags"),
        (lz4_frame(0x60, 0x30, STORED + END), "frame flags"),
        (lz4_frame(0x60, 0xC0, STORED + END), "frame flags"),
        (lz4_frame(0x60, 0x40, STORED + END)[:6] + b"\x00" + STORED + END, "lz4"),
        (lz4_frame(0x68, 0x40, STORED + END, size=2), "lz4"),
        (lz4_frame(0x68, 0x40, STORED + END, size=4), "lz4"),
        (lz4_frame(0x64, 0x40, STORED + END + bytes(4)), "lz4"),
        (lz4_frame(0x64, 0x40, STORED + END), "content checksum is cut short"),
        (lz4_frame(0x70, 0x40, STORED + bytes(4) + END), "lz4"),
        (lz4_frame(0x60, 0x40, struct.pack("<I", 65537) + bytes(65537) + END), "block of 65537"),
        (lz4_frame(0x60, 0x40, STORED + END + b"x"), "1 bytes follow"),
        (bytes(20), "frame magic"),
    ],
)
def test_illegal_lz4_frames_are_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedCompression, match=reason):
        decompress(Codec.LZ4, frame, max_bytes=100)


XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def block(data: bytes) -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(raw)) + raw


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (XERIAL + block(b"ab") + block(b"c"), b"abc"),
        (XERIAL + block(b"ab") + XERIAL + block(b"c"), b"abc"),
        (XERIAL + block(b"x" * 100_000), b"x" * 100_000),
        (XERIAL, b""),
        (b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1) + block(b"abc"), b"abc"),
        (b"\x82SNAPPY\x00" + struct.pack(">ii", 9, 1) + block(b"abc"), b"abc"),
        (bytes(cramjam.snappy.compress_raw(b"bare" * 100)), b"bare" * 100),
    ],
)
def test_snappy_streams_of_other_producers(stream: bytes, data: bytes) -> None:
    assert decompress(Codec.SNAPPY, stream, max_bytes=len(data)) == data


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        XERIAL[:12],
        XERIAL + b"\0\0",
        XERIAL + bytes(4),
        XERIAL + struct.pack(">i", -1) + b"abc",
        XERIAL + struct.pack(">i", 9) + b"abc",
        XERIAL + block(b"abc")[:-1],
        b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1) + block(b"abc"),
        b"\x82SNAPPY\x00" + struct.pack(">ii", -1, 1) + block(b"abc"),
        b"\xff" * 10,
    ],
)
def test_broken_snappy_is_refused(stream: bytes) -> None:
    with pytest.raises(UnsupportedCompression, match="snappy"):
        decompress(Codec.SNAPPY, stream, max_bytes=1000)


def test_snappy_declared_lengths_are_checked_before_anything_is_inflated() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"junk", max_bytes=MIB)
    sixteen = XERIAL + (struct.pack(">i", 5) + b"\x80\x80\x80\x80\x01") * 16
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, sixteen, max_bytes=MIB)


def test_gzip_members_are_joined_and_optional_headers_skipped() -> None:
    named = gzip.compress(b"ab", mtime=5)
    with_name = named[:3] + b"\x08" + named[4:10] + b"file\0" + named[10:]
    stream = with_name + compress(Codec.GZIP, b"c") * 3000
    assert decompress(Codec.GZIP, stream, max_bytes=3002) == b"ab" + b"c" * 3000
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, stream, max_bytes=3001)


@pytest.mark.parametrize("cut", range(1, 30))
def test_cut_gzip_is_refused(cut: int) -> None:
    stream = compress(Codec.GZIP, b"some bytes, some bytes")
    with pytest.raises(UnsupportedCompression, match="gzip"):
        decompress(Codec.GZIP, stream[:-cut], max_bytes=1000)


def test_gzip_checks_crc_size_and_rest() -> None:
    stream = compress(Codec.GZIP, b"abc")
    for damaged in (
        stream[:-8] + bytes(4) + stream[-4:],
        stream[:-4] + bytes(4),
        stream + b"x",
        zlib.compress(b"abc"),
        b"",
    ):
        with pytest.raises(UnsupportedCompression, match="gzip"):
            decompress(Codec.GZIP, damaged, max_bytes=1000)


ZSTD_MAGIC = bytes.fromhex("28b52ffd")
RAW_LAST = struct.pack("<I", 1 | 3 << 3)[:3] + b"abc"


def test_zstd_frames_of_other_producers() -> None:
    single = ZSTD_MAGIC + b"\x20\x03" + RAW_LAST
    windowed = ZSTD_MAGIC + b"\x00\x58" + RAW_LAST
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"xxxxx"
    stream = single + skipped + windowed
    assert decompress(Codec.ZSTD, stream, max_bytes=6) == b"abcabc"
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.ZSTD, stream, max_bytes=5)


def test_a_declared_window_counts_only_when_the_content_may_fill_it() -> None:
    """Levels 20 to 22 of a streaming writer declare up to 128 MiB for any content."""
    huge_window = ZSTD_MAGIC + b"\x00" + bytes([(27 - 10) << 3])
    assert decompress(Codec.ZSTD, huge_window + RAW_LAST, max_bytes=3) == b"abc"
    one_more = WINDOW_MAX // 131072 + 1
    repeat = struct.pack("<I", 1 << 1 | 131072 << 3)[:3] + b"x"
    body = repeat * (one_more - 1) + struct.pack("<I", 1 | 1 << 1 | 131072 << 3)[:3] + b"x"
    with pytest.raises(UnsupportedCompression, match="window"):
        decompress(Codec.ZSTD, huge_window + body, max_bytes=64 * MIB)
    small_window = ZSTD_MAGIC + b"\x00" + bytes([(23 - 10) << 3])
    inflated = decompress(Codec.ZSTD, small_window + body, max_bytes=64 * MIB)
    assert len(inflated) == one_more * 131072


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        ZSTD_MAGIC,
        ZSTD_MAGIC + b"\xe0\x00",
        ZSTD_MAGIC + b"\x20\x03",
        ZSTD_MAGIC + b"\x20\x03" + RAW_LAST[:-1],
        ZSTD_MAGIC + b"\x20\x04" + RAW_LAST,
        ZSTD_MAGIC + b"\x20\x00" + RAW_LAST,
        ZSTD_MAGIC + b"\x24\x03" + RAW_LAST,
        ZSTD_MAGIC + b"\x24\x03" + RAW_LAST + bytes(4),
        ZSTD_MAGIC + b"\x21\x07\x03" + RAW_LAST,
        ZSTD_MAGIC + b"\x20\x03" + RAW_LAST + b"rest",
        ZSTD_MAGIC + b"\x20\x03" + RAW_LAST + b"other rest",
        struct.pack("<I", 0x184D2A50) + b"\xff",
        struct.pack("<II", 0x184D2A50, 9),
        bytes(30),
    ],
)
def test_broken_zstd_is_refused(stream: bytes) -> None:
    with pytest.raises(UnsupportedCompression, match="zstd"):
        decompress(Codec.ZSTD, stream, max_bytes=1000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_allowed(codec: Codec) -> None:
    """64 MiB of zeros against a limit of 1 MiB."""
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge) as caught:
            decompress(codec, bomb, max_bytes=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.details["max_bytes"] == MIB
    assert peak < 4 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_counts_over_blocks_and_frames(codec: Codec) -> None:
    content = b"".join(b"%d," % number for number in range(40_000))
    stream = compress(codec, content)
    if codec is not Codec.LZ4:
        stream, content = stream * 2, content * 2
    assert decompress(codec, stream, max_bytes=len(content)) == content
    with pytest.raises(DecompressedTooLarge) as caught:
        decompress(codec, stream, max_bytes=len(content) - 1)
    assert caught.value.details["max_bytes"] == len(content) - 1


def test_threads_inflate_side_by_side() -> None:
    """What a thread keeps between calls is its own: the codecs let others run meanwhile."""
    contents = [bytes([number]) * 30_000 + b"%d" % number for number in range(8)]

    def round_trips(content: bytes) -> bool:
        return all(
            decompress(codec, compress(codec, content), max_bytes=40_000) == content
            for codec in CODECS * 50
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(round_trips, contents))


@pytest.mark.parametrize("codec", CODECS)
@given(st.data())
def test_mutated_streams_decode_or_are_refused(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, b"".join(b"%d," % number for number in range(500))))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(stream) - 1))
        stream[position] = data.draw(st.integers(0, 255))
    try:
        inflated = decompress(codec, stream, max_bytes=4096)
    except (UnsupportedCompression, DecompressedTooLarge):
        return
    assert len(inflated) <= 4096


TARGET_BYTES = 1 << 16


@pytest.mark.parametrize("codec", [*CODECS, Codec.NONE])
@pytest.mark.parametrize(
    ("data", "is_one_block"),
    [
        (b"", False),
        (b"abc" * 1000, True),
        (bytes(TARGET_BYTES), True),
        (bytes(TARGET_BYTES + 1), False),
        (hashlib.shake_128(b"").digest(1000), False),
    ],
    ids=["nothing", "small", "full", "two blocks", "stored"],
)
def test_one_lz4_block_is_inflated_in_place(
    codec: Codec, data: bytes, *, is_one_block: bool
) -> None:
    """The target holds the content exactly when the result is a size."""
    stream = memoryview(compress(codec, data))
    for room, limit in (
        (TARGET_BYTES, MIB),
        (TARGET_BYTES - 1, MIB),
        (2 * TARGET_BYTES, max(TARGET_BYTES, len(data))),
        (2 * TARGET_BYTES, max(TARGET_BYTES - 1, len(data))),
    ):
        target = bytearray(room)
        result = decompress_into(codec, stream, memoryview(target), max_bytes=limit)
        has_room = min(room, limit) >= TARGET_BYTES
        assert isinstance(result, int) == (codec == Codec.LZ4 and is_one_block and has_room)
        if isinstance(result, int):
            assert target[:result] == data
        else:
            assert (result, any(target)) == (data, False)


@given(st.data())
def test_a_mutated_lz4_block_means_the_same_in_place(data: st.DataObject) -> None:
    stream = bytearray(compress(Codec.LZ4, b"key-0123" * data.draw(st.integers(1, 9000))))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(bytes(stream))[: data.draw(st.integers(0, 3)) * -1 or None]
    target = memoryview(bytearray(2 * TARGET_BYTES))
    try:
        content = decompress(Codec.LZ4, view, max_bytes=MIB)
    except (DecompressedTooLarge, UnsupportedCompression) as error:
        with pytest.raises(type(error)):
            decompress_into(Codec.LZ4, view, target, max_bytes=MIB)
        return
    result = decompress_into(Codec.LZ4, view, target, max_bytes=MIB)
    assert (bytes(target[:result]) if isinstance(result, int) else result) == content
    assert not any(target[TARGET_BYTES:]), "more than a block was written"


def test_an_lz4_block_of_more_than_its_frame_allows_is_refused_in_place() -> None:
    """What a block inflates to is bounded by the frame, not by the room that is left."""
    block = bytes(cramjam.lz4.compress_block(bytes(TARGET_BYTES + 1), store_size=False))
    stream = lz4_frame(0x60, 0x40, struct.pack("<I", len(block)) + block + END)
    target = memoryview(bytearray(b"x" * 4 * TARGET_BYTES))
    for limit in (TARGET_BYTES, MIB):
        with pytest.raises(UnsupportedCompression, match="lz4"):
            decompress_into(Codec.LZ4, memoryview(stream), target, max_bytes=limit)
    assert target[TARGET_BYTES:] == b"x" * 3 * TARGET_BYTES, "more than a block was written"

"""The five codecs, framed as Kafka's producers frame them: one stream of all records of a batch.

Owns the framing of each codec (xerial blocks, the gzip header of JDK 16 and later, LZ4 frames of
independent 64 KiB blocks, zstd frames) and the bound on decompressed bytes: sizes that a stream
declares are checked before memory is allocated, and at most one block more than the caller's limit
is ever decompressed. Does not read records. Contexts of codecs are pooled, because creating one
costs as much as decompressing 16 KiB. Any thread; all codecs release the interpreter lock. Source:
Kafka 4.1 `clients/.../common/compress` and the libraries below it.

Differs from Kafka: bytes after the end of a gzip or LZ4 stream are refused (Kafka ignores them). A
zstd frame must not need more than 8 MiB of history (Kafka: 128 MiB); one that only declares a
larger window, as Kafka's levels 20 to 22 do, is accepted while its content is smaller.
"""

from __future__ import annotations

import functools
import struct
import zlib
from typing import TYPE_CHECKING, Generic, TypeVar

import cramjam
import zstandard

from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.records.record_batch import Codec

if TYPE_CHECKING:
    from collections.abc import Callable


def too_large(max_bytes: int) -> DecompressedTooLarge:
    """The error of a stream that declares or holds more than the caller's limit."""
    return DecompressedTooLarge(
        f"The batch inflates to more than {max_bytes} bytes", max_bytes=max_bytes
    )


def undecodable(codec: str, reason: str) -> UnsupportedCompression:
    """The error of a stream that the codec does not decode."""
    return UnsupportedCompression(f"The records do not decode as {codec}: {reason}")


T = TypeVar("T")


class ContextPool(Generic[T]):
    """Contexts that cost more to create than to use. Each is used by one caller at a time.

    Needs no lock: taking an item from a list and appending one are atomic. The pool grows to the
    number of callers that ever ran at the same time.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        # constant after construction
        self._make = make
        # any thread
        self._idle: list[T] = []

    def acquire(self) -> T:
        """A context that no other caller uses; must be released."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def release(self, context: T) -> None:
        """Also after an error: a context stays usable."""
        self._idle.append(context)


Buffer = bytes | bytearray | memoryview

GZIP_LEVEL_DEFAULT = -1
LZ4_LEVEL_DEFAULT = 9
ZSTD_LEVEL_DEFAULT = 3


# ID1 ID2, deflate, no flags, no time, no extra flags, unknown operating system
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_GZIP_PIECE = 1 << 14

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 1 << 15

_LZ4_MAGIC = 0x184D2204
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # version 1, independent blocks, 64 KiB, checksum
_LZ4_END = bytes(4)
_LZ4_BEGINNING = struct.Struct("<7sI")  # of a frame: header, size of the first block
_LZ4_BLOCK = 1 << 16
_LZ4_STORED = 0x80000000
_LZ4_HIGH_LEVEL_MAX = 12  # the C library's; Kafka's 13 to 17 mean the same
_LZ4_RATIO_MAX = 255

# cramjam's message for a full output buffer; tests/unit/test_compression.py pins it.
_LZ4_OUTPUT_FULL = "failed to write whole buffer"


_lz4_blocks = ContextPool(functools.partial(bytearray, _LZ4_BLOCK))


def compress(codec: Codec | int, data: Buffer, level: int | None = None) -> bytes:
    """Compress all records of a batch as Kafka's producer frames them.

    level: gzip 1..9 or -1, lz4 1..17, zstd -131072..22; None is Kafka's default (-1, 9, 3);
    ignored by none and snappy. The settings have checked the range. Raises UnsupportedCompression
    for codec numbers 5 to 7.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip_compress(data, GZIP_LEVEL_DEFAULT if level is None else level)
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if codec == Codec.LZ4:
        return _lz4_compress(data, LZ4_LEVEL_DEFAULT if level is None else level)
    if codec == Codec.ZSTD:
        return compress_zstd(data, ZSTD_LEVEL_DEFAULT if level is None else level)
    raise _unknown(codec)


def decompress(codec: Codec | int, data: Buffer, *, max_bytes: int) -> bytes:
    """Inflate one batch's stream to at most max_bytes.

    Raises DecompressedTooLarge as soon as more is declared or met (details: max_bytes), and
    UnsupportedCompression for codec numbers 5 to 7 and for a stream that the codec does not decode.
    """
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise too_large(max_bytes)
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip_decompress(data, max_bytes)
    if codec == Codec.SNAPPY:
        return _snappy_decompress(data, max_bytes)
    if codec == Codec.LZ4:
        return _lz4_decompress(data, max_bytes)
    if codec == Codec.ZSTD:
        return decompress_zstd(data, max_bytes)
    raise _unknown(codec)


def decompress_into(
    codec: Codec | int, data: memoryview, target: memoryview, *, max_bytes: int
) -> int | bytes:
    """As `decompress`, but what most LZ4 batches are, one block, is inflated straight into target.

    The number of bytes now in target, or the content itself, of which nothing is in target.
    """
    if codec == Codec.LZ4 and len(target) >= _LZ4_BLOCK <= max_bytes:
        size = _lz4_single_block(data, target)
        if size >= 0:
            return size
    return decompress(codec, data, max_bytes=max_bytes)


def _unknown(codec: Codec | int) -> UnsupportedCompression:
    return UnsupportedCompression(f"Unknown compression type id: {int(codec)}")


# gzip


def _gzip_compress(data: Buffer, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, body, trailer))


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    """All members of the stream, one after the other, as GZIPInputStream reads them."""
    view = memoryview(data)
    inflated: list[bytes] = []
    room = max_bytes + 1  # one more than allowed, so that too much is seen and never stored
    position = 0
    piece = len(view)  # nearly always there is one member
    while position < len(view) or not inflated:
        member, position = _gzip_member(view, position, piece, room)
        inflated.append(member)
        room -= len(member)
        if room <= 0:
            raise too_large(max_bytes)
        # A rest is copied by zlib at every member: small pieces keep thousands of them linear.
        piece = _GZIP_PIECE
    return b"".join(inflated)


def _gzip_member(view: memoryview, position: int, piece: int, room: int) -> tuple[bytes, int]:
    """One member from position, at most room bytes of it, and the position after it."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    parts: list[bytes] = []
    while not inflate.eof:
        end = min(position + piece, len(view))
        if end == position:
            raise undecodable("gzip", "the stream is cut short")
        try:
            parts.append(inflate.decompress(view[position:end], room))
        except zlib.error as error:
            raise undecodable("gzip", str(error)) from error
        position = end - len(inflate.unused_data)
        room -= len(parts[-1])
        if room <= 0:
            break
    return b"".join(parts), position


# snappy


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Xerial blocks, or one bare block as librdkafka and most Go clients write it."""
    view = memoryview(data)
    spans = _xerial_spans(view) if view[:8] == _XERIAL_MAGIC else [(0, len(view))]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(view[start:end]) for start, end in spans]
        size = sum(sizes)
        if size > max_bytes:
            raise too_large(max_bytes)
        output = bytearray(size)
        target = memoryview(output)
        position = 0
        for (start, end), block_size in zip(spans, sizes, strict=True):
            block = target[position : position + block_size]
            cramjam.snappy.decompress_raw_into(view[start:end], block)
            position += block_size
    except cramjam.DecompressionError as error:
        raise undecodable("snappy", str(error)) from error
    return bytes(output)


def _xerial_spans(view: memoryview) -> list[tuple[int, int]]:
    """Start and end of every raw block; a header between blocks starts a joined stream."""
    spans: list[tuple[int, int]] = []
    position = 0
    while position < len(view):
        if view[position : position + 8] == _XERIAL_MAGIC:
            if len(view) - position < len(_XERIAL_HEADER):
                raise undecodable("snappy", "the xerial header is cut short")
            (version,) = struct.unpack_from(">i", view, position + 8)
            if version < 1:
                raise undecodable("snappy", f"xerial version {version}")
            position += len(_XERIAL_HEADER)
            continue
        if len(view) - position < 4:
            raise undecodable("snappy", "a block length is cut short")
        (length,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise undecodable("snappy", f"a block of {length} bytes at {position}")
        spans.append((position, position + length))
        position += length
    return spans


# lz4


def _lz4_compress(data: Buffer, level: int) -> bytes:
    """Kafka's default level 9 is the fast compressor, every other one the high compressor."""
    view = memoryview(data)
    parts: list[Buffer | cramjam.Buffer] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        if level == LZ4_LEVEL_DEFAULT:
            block = cramjam.lz4.compress_block(plain, store_size=False)
        else:
            block = cramjam.lz4.compress_block(
                plain,
                mode="high_compression",
                compression=min(level, _LZ4_HIGH_LEVEL_MAX),
                store_size=False,
            )
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_LZ4_HEADER)] == _LZ4_HEADER:
        return _lz4_plain_blocks(view, max_bytes)
    content_size, bound, end = _lz4_frame(view)
    if content_size is not None:
        if content_size > max_bytes:
            raise too_large(max_bytes)
        bound = min(bound, content_size)
    _refuse_lz4_rest(view, end)
    # The library checks the header's checksum, those of blocks and content, and the content size.
    output = bytearray(min(bound, max_bytes))
    try:
        size = cramjam.lz4.decompress_into(view, output)
    except cramjam.DecompressionError as error:
        if bound > max_bytes and _LZ4_OUTPUT_FULL in str(error):
            raise too_large(max_bytes) from error
        raise undecodable("lz4", str(error)) from error
    return bytes(memoryview(output)[:size])


def _lz4_single_block(data: memoryview, target: memoryview) -> int:
    """A frame of Kafka's header and one compressed block, into target; -1: it is another one."""
    length = len(data) - len(_LZ4_HEADER) - 8
    if not 0 < length <= _LZ4_BLOCK:
        return -1
    header, word = _LZ4_BEGINNING.unpack_from(data)
    if header != _LZ4_HEADER or word != length or data[-4:] != _LZ4_END:
        return -1
    block, room = data[_LZ4_BEGINNING.size : -4], target[:_LZ4_BLOCK]  # output_len bounds nothing
    try:
        size: int = cramjam.lz4.decompress_block_into(block, room, output_len=_LZ4_BLOCK)
    except cramjam.DecompressionError as error:
        raise undecodable("lz4", str(error)) from error
    return size


def _lz4_plain_blocks(view: memoryview, max_bytes: int) -> bytes:
    """A frame with Kafka's header, which has no checksum: block by block, twice as fast."""
    parts, room, position = list[bytes](), max_bytes, len(_LZ4_HEADER)
    while True:
        start, word = position + 4, int.from_bytes(view[position : position + 4], "little")
        if start > len(view):
            raise undecodable("lz4", "a block length is cut short")
        length = word & ~_LZ4_STORED
        position = start + length
        if position > len(view) or length > _LZ4_BLOCK:
            raise undecodable("lz4", f"a block of {length} bytes at {start}")
        if word == 0:
            _refuse_lz4_rest(view, position)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        block = view[start:position]
        parts.append(bytes(block) if word & _LZ4_STORED else _lz4_block(block))
        room -= len(parts[-1])
        if room < 0:
            raise too_large(max_bytes)


def _lz4_block(block: memoryview) -> bytes:
    output = _lz4_blocks.acquire()
    try:
        size = cramjam.lz4.decompress_block_into(block, output, output_len=_LZ4_BLOCK)
        return bytes(memoryview(output)[:size])
    except cramjam.DecompressionError as error:
        raise undecodable("lz4", str(error)) from error
    finally:
        _lz4_blocks.release(output)


def _refuse_lz4_rest(view: memoryview, end: int) -> None:
    """Refuse bytes that Kafka's reader would not read."""
    if end != len(view):
        raise undecodable("lz4", f"{len(view) - end} bytes follow the frame")


def _lz4_frame(view: memoryview) -> tuple[int | None, int, int]:
    """Walk one frame: declared content size, upper bound of the content, position of its end."""
    if len(view) < 7:
        raise undecodable("lz4", "the frame header is cut short")
    magic, flags, descriptor = struct.unpack_from("<IBB", view, 0)
    if magic != _LZ4_MAGIC:
        raise undecodable("lz4", f"frame magic {magic:08x}")
    if flags >> 6 != 1:
        raise undecodable("lz4", f"frame version {flags >> 6}")
    if not flags & 0x20:
        raise undecodable("lz4", "its blocks depend on one another")
    if flags & 0x03 or descriptor & 0x8F or descriptor >> 4 < 4:
        raise undecodable("lz4", f"frame flags {flags:02x}{descriptor:02x}")
    block_max = 1 << (8 + 2 * (descriptor >> 4))
    block_trailer = 4 if flags & 0x10 else 0
    content_size: int | None = None
    position = 6
    if flags & 0x08:
        if len(view) < 15:
            raise undecodable("lz4", "the frame header is cut short")
        (content_size,) = struct.unpack_from("<Q", view, position)
        position += 8
    position += 1
    bound = 0
    while True:
        if len(view) - position < 4:
            raise undecodable("lz4", "a block length is cut short")
        (word,) = struct.unpack_from("<I", view, position)
        position += 4
        if word == 0:
            break
        length = word & ~_LZ4_STORED
        if length > block_max or length + block_trailer > len(view) - position:
            raise undecodable("lz4", f"a block of {length} bytes at {position}")
        bound += length if word & _LZ4_STORED else min(block_max, length * _LZ4_RATIO_MAX)
        position += length + block_trailer
    if flags & 0x04:
        position += 4
    if position > len(view):
        raise undecodable("lz4", "the content checksum is cut short")
    return content_size, bound, position


_XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_U32 = 0xFFFFFFFF


def with_header_checksum(frame: Buffer) -> bytes:
    """The LZ4 frame with the checksum of its header as it should be.

    Kafka's producers of message format v0 computed it over the frame's magic, too. What is no frame
    is returned as it is.
    """
    data = bytearray(frame)
    at = 14 if len(data) > 4 and data[4] & 0x08 else 6  # after the content size, if there is one
    if len(data) > at:
        data[at] = _xxh32_of_few(data[4:at]) >> 8 & 0xFF
    return bytes(data)


def _xxh32_of_few(data: Buffer) -> int:
    """XXH32 of less than 16 bytes with seed 0."""
    first, second, third, fourth, fifth = _XXH32_PRIMES
    hashed = (fifth + len(data)) & _U32
    words = len(data) // 4 * 4
    for position in range(0, words, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        hashed = _rotated(hashed + word * third, 17) * fourth & _U32
    for byte in data[words:]:
        hashed = _rotated(hashed + byte * fifth, 11) * first & _U32
    hashed = (hashed ^ hashed >> 15) * second & _U32
    hashed = (hashed ^ hashed >> 13) * third & _U32
    return hashed ^ hashed >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _U32
    return (value << bits | value >> 32 - bits) & _U32


WINDOW_MAX = 1 << 23
_WINDOW_LOG_MAX = 23
_OUTPUT_FULL = "did not decompress full frame"  # tests/unit/test_compression.py pins it
_MAGIC = 0xFD2FB528
_HEADER_BYTES_MAX = 18
_BLOCK_MAX = 1 << 17
_SKIPPABLE_MAGIC = 0x184D2A50  # and the fifteen numbers after it

_decompressors = ContextPool(zstandard.ZstdDecompressor)


@functools.cache
def _compressors(level: int) -> ContextPool[zstandard.ZstdCompressor]:
    return ContextPool(functools.partial(zstandard.ZstdCompressor, level=level))


def compress_zstd(data: Buffer, level: int) -> bytes:
    """One frame, which names the size of its content. The level is checked by the settings."""
    if len(data) > WINDOW_MAX:  # the highest levels would take its size for the window
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level, source_size=len(data), window_log=_WINDOW_LOG_MAX
        )
        return zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    compressors = _compressors(level)
    compressor = compressors.acquire()
    try:
        return compressor.compress(data)
    finally:
        compressors.release(compressor)


def decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    """All frames of the stream, one after the other."""
    view, parts, room = memoryview(data), list[bytes](), max_bytes
    if not len(view):
        raise undecodable("zstd", "the stream is empty")
    position = 0
    while position < len(view):
        bound, end = _frame(view, position, room, max_bytes)
        if bound:
            parts.append(_inflate(view[position:end], bound, room, max_bytes))
            room -= len(parts[-1])
        position = end
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate(frame: memoryview, bound: int, room: int, max_bytes: int) -> bytes:
    """One whole frame of at most bound bytes; room: what is left of max_bytes."""
    decompressor = _decompressors.acquire()
    try:
        content = decompressor.decompress(frame, max_output_size=min(bound, room + 1))
    except zstandard.ZstdError as error:
        if bound > room and _OUTPUT_FULL in str(error):
            raise too_large(max_bytes) from error
        raise undecodable("zstd", str(error)) from error
    finally:
        _decompressors.release(decompressor)
    if len(content) > room:
        raise too_large(max_bytes)
    return content


def _frame(view: memoryview, position: int, room: int, max_bytes: int) -> tuple[int, int]:
    """Walk one frame's header and block headers: upper bound of its content, end of the frame."""
    if len(view) - position < 5:
        raise undecodable("zstd", "the frame header is cut short")
    (magic,) = struct.unpack_from("<I", view, position)
    if magic & ~0x0F == _SKIPPABLE_MAGIC:
        if len(view) - position < 8:
            raise undecodable("zstd", "the frame header is cut short")
        (length,) = struct.unpack_from("<I", view, position + 4)
        if length > len(view) - position - 8:
            raise undecodable("zstd", "a skippable frame is cut short")
        return 0, position + 8 + length
    if magic != _MAGIC:
        raise undecodable("zstd", f"frame magic {magic:08x} at {position}")
    window, content_size, has_checksum, first_block = _header(view, position)
    if content_size is not None and content_size > room:
        raise too_large(max_bytes)
    block_max = min(window, _BLOCK_MAX)
    bound, end = _blocks(view, first_block, block_max)
    if content_size is not None:
        if bound and not content_size:
            raise undecodable("zstd", "a frame of 0 bytes has content")
        bound = min(bound, content_size)
    if min(window, bound) > WINDOW_MAX:
        raise undecodable("zstd", f"its window of {window} bytes is above {WINDOW_MAX}")
    if has_checksum:
        end += 4
    if end > len(view):
        raise undecodable("zstd", "the frame is cut short")
    return bound, end


def _header(view: memoryview, position: int) -> tuple[int, int | None, bool, int]:
    """Window bytes, content size, whether a checksum follows, position of the first block."""
    head = view[position : position + _HEADER_BYTES_MAX]
    try:
        found = zstandard.get_frame_parameters(head)
        size = zstandard.frame_header_size(head)
    except zstandard.ZstdError as error:
        raise undecodable("zstd", str(error)) from error
    is_known = found.content_size != zstandard.CONTENTSIZE_UNKNOWN
    content_size = found.content_size if is_known else None
    return found.window_size, content_size, found.has_checksum, position + size


def _blocks(view: memoryview, position: int, block_max: int) -> tuple[int, int]:
    """Upper bound of the blocks' content and the position after the last block."""
    bound = 0
    is_last = False
    while not is_last:
        if len(view) - position < 3:
            raise undecodable("zstd", "a block header is cut short")
        header = int.from_bytes(view[position : position + 3], "little")
        position += 3
        is_last = bool(header & 1)
        kind, size = header >> 1 & 3, header >> 3
        if kind == 1:  # one byte, repeated
            position += 1
            bound += size
        else:
            position += size
            bound += size if kind == 0 else block_max
    return bound, position

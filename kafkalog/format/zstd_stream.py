"""zstd as Kafka's producers write it: the frames of a stream, bounded before they are inflated.

Contexts are kept: to make one costs as much as to inflate 16 KiB. For any thread.
Differs from Kafka: a frame must not need more than 8 MiB of history (Kafka: 128 MiB). One that
merely declares a larger window, as Kafka's own levels 20 to 22 do, is accepted while its content
is smaller.
"""

from __future__ import annotations

import functools
import struct

import zstandard

from kafkalog.format.codec_faults import too_large, undecodable
from kafkalog.format.kept import Kept

Buffer = bytes | bytearray | memoryview

WINDOW_MAX = 1 << 23
_WINDOW_LOG_MAX = 23
_OUTPUT_FULL = "did not decompress full frame"  # tests/unit/test_compression.py pins it
_MAGIC = 0xFD2FB528
_BLOCK_MAX = 1 << 17
_SKIPPABLE_MAGIC = 0x184D2A50  # and the fifteen numbers after it

_decompressors = Kept(zstandard.ZstdDecompressor)


@functools.cache
def _compressors(level: int) -> Kept[zstandard.ZstdCompressor]:
    return Kept(functools.partial(zstandard.ZstdCompressor, level=level))


def compress(data: Buffer, level: int) -> bytes:
    """One frame, which names the size of its content. The level is checked by the settings."""
    if len(data) > WINDOW_MAX:  # the highest levels would take its size for the window
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level, source_size=len(data), window_log=_WINDOW_LOG_MAX
        )
        return zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    compressors = _compressors(level)
    compressor = compressors.take()
    try:
        return compressor.compress(data)
    finally:
        compressors.put_back(compressor)


def decompress(data: Buffer, max_bytes: int) -> bytes:
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
    decompressor = _decompressors.take()
    try:
        content = decompressor.decompress(frame, max_output_size=min(bound, room + 1))
    except zstandard.ZstdError as error:
        if bound > room and _OUTPUT_FULL in str(error):
            raise too_large(max_bytes) from error
        raise undecodable("zstd", str(error)) from error
    finally:
        _decompressors.put_back(decompressor)
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
    window, content_size, has_checksum, first_block = _header(view, position + 4)
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
    descriptor = view[position]
    position += 1
    is_single_segment = bool(descriptor & 0x20)
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 0x03]
    size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    window_bytes = 0 if is_single_segment else 1
    if len(view) - position < window_bytes + dictionary_bytes + size_bytes:
        raise undecodable("zstd", "the frame header is cut short")
    window = 0
    if not is_single_segment:
        exponent, mantissa = view[position] >> 3, view[position] & 0x07
        window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
    position += window_bytes + dictionary_bytes
    content_size: int | None = None
    if size_bytes:
        content_size = int.from_bytes(view[position : position + size_bytes], "little")
        if size_bytes == 2:
            content_size += 256
        if is_single_segment:
            window = content_size
    return window, content_size, bool(descriptor & 0x04), position + size_bytes


def _blocks(view: memoryview, position: int, block_max: int) -> tuple[int, int]:
    """Upper bound of the blocks' content and the position behind the last block."""
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

"""The bytes both sides get: values, record batches, request bodies, whole partition directories.

Everything is made by the plain twin of the batch builder and is the same on every run (seeded). A
batch's base offset is not under its CRC, so long logs repeat a few thousand checked batches and
number them anew; timestamps grow, so that time indexes get their entries.
"""

from __future__ import annotations

import base64
import random
import struct
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.disk.checkpoints import encode_leader_epochs
from kafkalog.format.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from kafkalog.format.disk.producer_snapshot import encode_snapshot
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import BASE_TIMESTAMP_AT, CRC_AT, compute_crc
from tests.naive.batches import PlainBatch
from tests.naive.index_entries_due import entries_due

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.format.records.record_batch import Codec

FIRST_TIMESTAMP_MS = 1_760_000_000_000
RECORD_BYTES = 1024  # of the raw rows: kafka-producer-perf-test --record-size 1024
SMALL_BYTES = 100  # of the JSON rows
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_BLOCK_BYTES = 64 << 20
KEYED_BATCH_RECORDS = 145  # of a batch of Kafka's batch.size, 16 KiB, at about 112 bytes a record
_WORDS = [b"alpha", b"bravo", b"charlie", b"delta", b"echo", b"foxtrot", b"golf", b"hotel"]


def values(count: int, size: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [bytes(chance.choices(_LETTERS, k=size)) for _ in range(count)]


def words(chance: np.random.Generator, count: int) -> bytes:
    """So many words with blanks between, at least five bytes each: what compresses well."""
    return b" ".join(_WORDS[index] for index in chance.integers(0, len(_WORDS), count))


def batch_of(count: int, size: int, timestamp_ms: int = FIRST_TIMESTAMP_MS, seed: int = 1) -> bytes:
    """One uncompressed batch of so many random values, at base offset 0."""
    batch = PlainBatch(0, (timestamp_ms,) * count, tuple(values(count, size, seed)))
    return batch.encode()


def raw_bodies(batch_records: int, batches: int, bodies: int = 4) -> list[bytes]:
    """Bodies of several 1 KiB-record batches, each body different."""
    return [
        b"".join(
            batch_of(batch_records, RECORD_BYTES, seed=body * batches + n) for n in range(batches)
        )
        for body in range(bodies)
    ]


def json_body(records: list[bytes]) -> bytes:
    """A v2 produce body, binary format: values in base64, written without spaces."""
    inner = b",".join(b'{"value":"' + base64.b64encode(value) + b'"}' for value in records)
    return b'{"records":[' + inner + b"]}"


def write_log(
    directory: Path, *, total_bytes: int, batch_records: int, value_bytes: int
) -> tuple[Path, int]:
    """A .log file of equal-sized batches from offset 0, and the offset behind the last record.

    A new timestamp begins at least every 4 KiB, the default interval of index entries.
    """
    batch = bytearray(batch_of(batch_records, value_bytes))
    size = len(batch)
    repeat = max(1, 4096 // size)
    batch_count = total_bytes // size
    made, offset = 0, 0
    directory.mkdir()
    path = directory / segment_file_name(0, LOG_SUFFIX)
    with path.open("wb") as log:
        while made < batch_count:
            blocks = []
            in_block = min(batch_count - made, max(1, _BLOCK_BYTES // size))
            for number in range(0, in_block, repeat):
                set_timestamp(batch, FIRST_TIMESTAMP_MS + (made + number) // repeat)
                blocks.append(bytes(batch) * repeat)
            block = np.frombuffer(b"".join(blocks), dtype=np.uint8).copy()
            rows = block.reshape(-1, size)[:in_block]
            bases = offset + np.arange(in_block, dtype=">i8") * batch_records
            rows[:, :8] = bases.astype(">i8").view(np.uint8).reshape(-1, 8)
            log.write(rows.tobytes())
            made += in_block
            offset += in_block * batch_records
    return path, offset


def set_timestamp(batch: bytearray, timestamp_ms: int) -> None:
    """Give all records of a batch this timestamp: their deltas are 0."""
    struct.pack_into(">qq", batch, BASE_TIMESTAMP_AT, timestamp_ms, timestamp_ms)
    struct.pack_into(">I", batch, CRC_AT, compute_crc(batch))


def keyed_batches(
    records: int,
    keys: int,
    codec: Codec,
    *,
    batch_records: int = KEYED_BATCH_RECORDS,
    key_bytes: int = 16,
    value_bytes: int = 84,
    seed: int = 1,
) -> Iterator[bytes]:
    """Batches for compaction, from offset 0: random keys, values half random, half words.

    The defaults give batches of Kafka's batch.size of 16 KiB, about 112 bytes a record.
    """
    chance = np.random.default_rng(seed)
    numbers = chance.integers(0, keys, records)
    noise = chance.bytes(1 << 20)
    some_words = words(chance, 1 << 17)
    half = value_bytes // 2
    digits, rest = max(key_bytes - 4, 1), value_bytes - half
    for start in range(0, records, batch_records):
        some = numbers[start : start + batch_records].tolist()
        spots = [(start + index) * 37 % ((1 << 20) - half) for index in range(len(some))]
        columns = RecordColumns.of(
            [b"key-%0*d" % (digits, number) for number in some],
            [noise[at : at + half] + some_words[at // 2 : at // 2 + rest] for at in spots],
            np.arange(start, start + len(some)) // 50 + FIRST_TIMESTAMP_MS,
        )
        yield build_batch(columns, base_offset=start, codec=codec)


def segment_files(segments: int, batches: int = 8, batch_records: int = 4) -> dict[str, bytes]:
    """A cleanly closed partition of small segments: name -> content.

    The last segment is the active one, closed at a clean stop: trimmed indexes, a snapshot at its
    end offset.
    """
    files: dict[str, bytes] = {LEADER_EPOCH_CHECKPOINT: encode_leader_epochs([(0, 0)])}
    offset, timestamp = 0, FIRST_TIMESTAMP_MS
    for _ in range(segments):
        base, plain = offset, []
        for _ in range(batches):
            chosen = tuple(values(batch_records, 256, seed=offset))
            plain.append(PlainBatch(offset, (timestamp,) * batch_records, chosen))
            offset += batch_records
            timestamp += 1
        by_offset, by_time = entries_due([batch.facts() for batch in plain], 4096)
        by_time = [*by_time, (plain[-1].max_timestamp_ms, plain[-1].last_offset)]
        files[segment_file_name(base, LOG_SUFFIX)] = b"".join(batch.encode() for batch in plain)
        files[segment_file_name(base, OFFSET_INDEX_SUFFIX)] = b"".join(
            struct.pack(">ii", entry - base, position) for entry, position in by_offset
        )
        files[segment_file_name(base, TIME_INDEX_SUFFIX)] = b"".join(
            struct.pack(">qi", time_ms, entry - base) for time_ms, entry in by_time
        )
    files[segment_file_name(offset, SNAPSHOT_SUFFIX)] = encode_snapshot([])
    return files


def end_offset(segments: int, batches: int = 8, batch_records: int = 4) -> int:
    """The log end offset of segment_files with the same arguments."""
    return segments * batches * batch_records

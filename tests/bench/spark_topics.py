"""The topic that Spark's benchmarks read: a segment a partition, the same bytes on each side.

Keys of 11 and values of 205 bytes, half of a value random and half words; 2 % of the values are
null, every tenth record has a header. A few hundred different batches of 64 KiB are repeated with
new offsets and timestamps, which costs a checksum each and no compression.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_columns import SCHEMA
from tests.bench import datasets
from tests.bench.planting import plant_unclean

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.bench import Bench

TOPIC = "scanned"
PARTITIONS = 4
BATCH_RECORDS = 300
KEY_BYTES, VALUE_BYTES = 11, 205
_PLAIN_TYPES = {"topic": pa.utf8(), "timestamp": pa.timestamp("us", tz="UTC")}
COLUMNS = pa.schema((each.name, _PLAIN_TYPES.get(each.name, each.type)) for each in SCHEMA)
"""What Spark asks of a record."""
_DIFFERENT_BATCHES = 256
_NULL_VALUE_EACH, _HEADER_EACH = 50, 10


@dataclass(frozen=True, slots=True)
class LogSource:
    """Directories named ``scanned-0`` and so on, each with one ``.log`` file.

    payload_bytes  of keys and values, as records have them when they are inflated
    value_bytes    of those
    """

    directory: Path
    partition_records: int
    payload_bytes: int
    value_bytes: int

    @property
    def records(self) -> int:
        return self.partition_records * PARTITIONS

    @property
    def partitions(self) -> list[Path]:
        return [self.directory / f"{TOPIC}-{number}" for number in range(PARTITIONS)]


class _Batch(NamedTuple):
    """One of the different ones, at offset 0."""

    data: bytes
    value_bytes: int


def write_source(directory: Path, batches: int, codec: Codec = Codec.NONE) -> LogSource:
    """So many batches in each partition; a partition begins with another batch than the next."""
    different = _different_batches(min(batches, _DIFFERENT_BATCHES), codec)
    value_bytes = 0
    for partition in range(PARTITIONS):
        path = directory / f"{TOPIC}-{partition}"
        path.mkdir(parents=True)
        with (path / segment_file_name(0, LOG_SUFFIX)).open("wb") as log:
            for number in range(batches):
                batch = different[(number + partition) % len(different)]
                data = bytearray(batch.data)
                struct.pack_into(">q", data, 0, number * BATCH_RECORDS)
                datasets.set_timestamp(data, datasets.FIRST_TIMESTAMP_MS + number)
                log.write(data)
                value_bytes += batch.value_bytes
    records = batches * BATCH_RECORDS
    key_bytes = records * PARTITIONS * KEY_BYTES
    return LogSource(directory, records, key_bytes + value_bytes, value_bytes)


def _different_batches(count: int, codec: Codec) -> list[_Batch]:
    chance = np.random.default_rng(1)
    noise = chance.bytes(1 << 20)
    words = datasets.words(chance, 1 << 17)
    half = VALUE_BYTES // 2
    rest = VALUE_BYTES - half
    different = []
    for number in range(count):
        numbers = range(number * BATCH_RECORDS, (number + 1) * BATCH_RECORDS)
        spots = [each * 37 % ((1 << 19) - VALUE_BYTES) for each in numbers]
        values = [
            None if each % _NULL_VALUE_EACH == 0 else noise[at : at + half] + words[at : at + rest]
            for each, at in zip(numbers, spots, strict=True)
        ]
        headers = [
            [(b"trace", b"%016d" % each)] if each % _HEADER_EACH == 0 else [] for each in numbers
        ]
        columns = RecordColumns.of(
            [b"key%08d" % each for each in numbers], values, datasets.FIRST_TIMESTAMP_MS, headers
        )
        data = build_batch(columns, codec=codec, leader_epoch=0)
        different.append(_Batch(data, sum(len(each) for each in values if each is not None)))
    return different


def plant(bench: Bench, source: LogSource) -> Path:
    """Under both servers, stopped; the log directory of kafkalog's, recovered and closed cleanly.

    The broker recovers its own at its next start.
    """
    plant_unclean(bench, TOPIC, source.partitions)
    with bench.running_daemon() as daemon:
        return daemon.log_dirs[0]

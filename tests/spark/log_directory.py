"""A log directory on the machine's disk, and the rows that Spark has to find in it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafkalog.format.disk.file_names import PARTITION_METADATA, segment_file_name
from kafkalog.format.disk.index_entries import pack_aborted_entry
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from tests.naive.stored_batches import TRANSACTIONAL, Producer, stored_batch

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from pyspark.sql import DataFrame

TIME_MS = 1_700_000_000_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

Row = dict[str, Any]


@dataclass
class LogDirectory:
    """Partitions as a daemon leaves them when it stops: segments without indexes."""

    path: Path
    rows: list[Row] = field(default_factory=list)

    def write(
        self,
        topic: str,
        partition: int,
        records: list[Record],
        *,
        codec: Codec = Codec.NONE,
        attributes: int = 0,
        producer: Producer | None = None,
        append_time: int | None = None,
        last_offset: int | None = None,
    ) -> Path:
        directory = self.path / f"{topic}-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        data = stored_batch(
            records,
            codec=codec,
            attributes=attributes,
            producer=producer or Producer(),
            append_time=append_time,
            last_offset=last_offset,
        )
        file = directory / segment_file_name(records[0].offset, ".log")
        file.write_bytes(data)
        self.rows += [_row(topic, partition, each, append_time) for each in records]
        return file

    def fill(self, topic: str, partition: int, first: int, count: int) -> Path:
        return self.write(topic, partition, plain_records(first, count))

    def empty(self, topic: str, partition: int) -> None:
        """A partition to which nothing was ever written."""
        directory = self.path / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        (directory / segment_file_name(0, ".log")).touch()

    def identify(self, topic: str, topic_id: UUID) -> None:
        """Write the topic's id into its partitions, as a daemon or a Kafka since 2.8 does."""
        for place in self.path.glob(f"{topic}-*"):
            (place / PARTITION_METADATA).write_bytes(encode_partition_metadata(topic_id))

    def delete(self, topic: str) -> None:
        for place in self.path.glob(f"{topic}-*"):
            shutil.rmtree(place)
        self.rows = [row for row in self.rows if row["topic"] != topic]

    def abort(self, topic: str, partition: int, offset: int, producer: Producer) -> None:
        """The marker of a transaction that began at ``offset - 1``, and its index entry."""
        marker = build_end_transaction_marker(
            producer.id,
            producer.epoch,
            0,
            ControlRecordType.ABORT,
            timestamp_ms=TIME_MS,
            base_offset=offset,
        )
        file = self.path / f"{topic}-{partition}" / segment_file_name(offset, ".log")
        file.write_bytes(marker)
        entry = pack_aborted_entry(producer.id, offset - 1, offset, offset + 1)
        file.with_suffix(".txnindex").write_bytes(entry)

    def of(self, topic: str, partition: int | None = None) -> list[Row]:
        found = [row for row in self.rows if row["topic"] == topic]
        return in_order(row for row in found if partition in (None, row["partition"]))


def plain_records(first: int, count: int) -> list[Record]:
    """At second n the record of offset n, with its number as text."""
    return [
        Record(offset, TIME_MS + 1000 * offset, b"k%d" % offset, b"value %d" % offset)
        for offset in range(first, first + count)
    ]


def every_shape(directory: LogDirectory, topic: str) -> None:
    """Two partitions with each codec, headers, nulls, append times, gaps, a start above 0,
    markers, and a transaction that was aborted (which who reads uncommitted sees).
    """
    at = 40
    for codec in Codec:
        records = plain_records(at, 3)
        records[1] = Record(at + 1, TIME_MS - 5, None, b"x" * 300, ((b"h", b"1"), (b"g", None)))
        records[2] = Record(at + 2, TIME_MS, b"key only", None, ((b"", b""),))
        directory.write(topic, 0, records, codec=codec, last_offset=at + 9)
        at += 10
    directory.write(topic, 0, plain_records(at, 2), append_time=TIME_MS + 77, codec=Codec.ZSTD)
    producer = Producer(9, 0, 0)
    directory.fill(topic, 1, 0, 5)
    directory.write(topic, 1, plain_records(5, 1), attributes=TRANSACTIONAL, producer=producer)
    directory.abort(topic, 1, 6, producer)
    directory.fill(topic, 1, 7, 2)


def _row(topic: str, partition: int, record: Record, append_time: int | None) -> Row:
    stamp_ms = record.timestamp if append_time is None else append_time
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=stamp_ms),
        "timestampType": int(append_time is not None),
        "headers": [{"key": name.decode(), "value": value} for name, value in record.headers]
        or None,
    }


def in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def rows_of(frame: DataFrame) -> list[Row]:
    """What a query finds, in order. The session's time zone is UTC."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    for row in rows:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
        for name in ("key", "value"):
            row[name] = None if row[name] is None else bytes(row[name])
        for header in row.get("headers") or ():
            header["value"] = None if header["value"] is None else bytes(header["value"])
    return in_order(rows)


def plain(rows: list[Row]) -> list[Row]:
    """Without headers, as the source has them by default."""
    return [{name: row[name] for name in COLUMNS} for row in rows]

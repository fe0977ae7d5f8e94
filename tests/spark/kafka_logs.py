"""Logs that a real Kafka wrote, for both of Spark's sources: every shape of batch and of log.

What they hold is listed in `SHAPES`, and `shapes_in` finds it. `frozen/logs.tar.gz` is one such
directory; `under_a_broker` puts one under a broker again, byte for byte.
"""

from __future__ import annotations

import random
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.format.disk.checkpoints import decode_offsets
from kafkalog.format.disk.file_names import (
    DELETED_SUFFIX,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
)
from kafkalog.format.records.control_record import read_batch_control_type
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import (
    TimestampType,
    codec_of,
    is_control,
    read_header,
    timestamp_type_of,
)
from kafkalog.format.topic_names import parse_directory_name
from tests.oracle.kafka import Broker
from tests.oracle.real_directories import make, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.format.topic_names import TopicPartition
    from tests.oracle.kafka import Kafka

SHAPES = {
    *("codec NONE", "codec GZIP", "codec SNAPPY", "codec LZ4", "codec ZSTD"),
    *("no key", "no value", "no headers", "headers", "empty header value", "null header value"),
    *("append time", "create time", "marker COMMIT", "marker ABORT"),
    *("a gap", "segments", "start above 0", "nothing written"),
}
MANY_COUNTS = {0: 40, 1: 3, 9: 17, 10: 25, 11: 1}
"""Records in the partitions of topic many, which has twelve: 10 is before 2 as text."""


def written_by_kafka(kafka: Kafka, home: Path) -> Path:
    """A log directory as a clean stop left it: the oracle's topics and one of many partitions."""
    with Broker(kafka, home / "writing") as broker:
        make(broker, home)
        broker.start()
        broker.create_topic("many", max(MANY_COUNTS) + 1)
        for partition, count in MANY_COUNTS.items():
            lines = some_records(random.Random(partition), count)
            broker.produce("many", lines, "--codec", "lz4", partition=partition)
        broker.stop()
    # Its internal topics and its metadata are no topics of ours to read.
    ignored = shutil.ignore_patterns("__*", f"*{DELETED_SUFFIX}", LOCK, "bootstrap.checkpoint")
    return shutil.copytree(broker.data, home / "logs", ignore=ignored)


def places_in(logs: Path) -> dict[TopicPartition, Path]:
    found = (path for path in sorted(logs.iterdir()) if path.is_dir())
    return {parse_directory_name(path.name).topic_partition: path for path in found}


@contextmanager
def under_a_broker(kafka: Kafka, logs: Path, directory: Path) -> Iterator[Broker]:
    """A broker of its own that serves these logs. It neither cleans nor retains them."""
    places = places_in(logs)
    starts = decode_offsets((logs / LOG_START_OFFSET_CHECKPOINT).read_bytes())
    with Broker(kafka, directory) as broker:
        for topic in sorted({at.topic for at in places}):
            broker.create_topic(topic, sum(at.topic == topic for at in places))
        broker.stop()
        for at, place in places.items():
            broker.plant(place.name, place, "clean", log_start=starts.get(at))
        broker.start()
        yield broker


def shapes_in(logs: Path) -> set[str]:
    found: set[str] = set()
    starts = decode_offsets((logs / LOG_START_OFFSET_CHECKPOINT).read_bytes())
    for at, place in places_in(logs).items():
        segments = sorted(place.glob(f"*{LOG_SUFFIX}"))
        if len(segments) > 1:
            found.add("segments")
        if starts.get(at, 0) > int(segments[0].stem):
            found.add("start above 0")
        if not any(segment.stat().st_size for segment in segments):
            found.add("nothing written")
        next_offset = int(segments[0].stem)
        for segment in segments:
            for batch in _batches_in(segment):
                offsets = [record.offset for record in iterate_records(batch)]
                header = read_header(batch)
                if offsets != list(range(next_offset, header.next_offset)):
                    found.add("a gap")
                next_offset = header.next_offset
                found.update(_shapes_of(batch))
    return found


def _batches_in(segment: Path) -> Iterator[memoryview]:
    data = memoryview(segment.read_bytes())
    while data:
        size = read_header(data).size_bytes
        yield data[:size]
        data = data[size:]


def _shapes_of(batch: memoryview) -> Iterator[str]:
    attributes = read_header(batch).attributes
    if is_control(attributes):
        kind = read_batch_control_type(batch)
        if kind is not None:  # None: compaction took the marker and left its batch
            yield f"marker {kind.name}"
        return
    yield f"codec {codec_of(attributes).name}"
    is_appended = timestamp_type_of(attributes) is TimestampType.LOG_APPEND_TIME
    yield "append time" if is_appended else "create time"
    for record in iterate_records(batch):
        if record.key is None:
            yield "no key"
        if record.value is None:
            yield "no value"
        yield "headers" if record.headers else "no headers"
        for _, value in record.headers:
            if not value:
                yield "null header value" if value is None else "empty header value"

"""A sample of the records that an archive will add, to infer the schema of JSON from."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog.client.errors import ClientError
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_files import is_of_log
from kafkalog.jobs.archive.formats.json_types import SAMPLE_RECORDS
from kafkalog.spark.logs.open import read_piece
from kafkalog.spark.logs.values import TARGET_BYTES, OffsetRange
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kafkalog.jobs.archive.archive_table import Position
    from kafkalog.spark.logs.open import OpenedLogs


def sampled(
    logs: OpenedLogs, position: Position, topics: Collection[str] | None, part: str
) -> Iterator[bytes]:
    """The keys or values of the first new records of each partition, by topic and partition.

    part    ``key`` or ``value``; nulls are left out
    topics  None: all

    Raises the errors of a daemon. A partition that cannot be read is left out: the run names it.
    """
    for topic, partitions in sorted(logs.topics().items()):
        if topics is not None and topic not in topics:
            continue
        for partition in sorted(partitions):
            begin = position.next_offsets.get((topic, partition), 0)
            new = _parts(logs, topic, partition, begin, part)
            yield from islice(new, SAMPLE_RECORDS)


def _parts(logs: OpenedLogs, topic: str, partition: int, begin: int, part: str) -> Iterator[bytes]:
    schema = pa.schema([("offset", pa.int64()), (part, pa.binary())])
    try:
        bounds = logs.bounds(topic, partition)
        begin = max(begin, bounds.log_start_offset)
        if begin >= bounds.end_offset:
            return
        wanted = OffsetRange(topic, partition, begin, bounds.end_offset)
        for piece in logs.pieces(wanted, TARGET_BYTES):
            with closing(read_piece(piece, logs.access)) as chunks:
                for batch in record_batches(chunks, piece.range, schema):
                    yield from batch.column(part).drop_null().slice(0, SAMPLE_RECORDS).to_pylist()
    except (KafkalogError, ClientError, OSError) as error:
        if not is_of_log(error):
            raise

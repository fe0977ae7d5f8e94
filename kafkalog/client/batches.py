"""Conversion of records to v2 batches and back, by the format ring.

Imported only at the first record, because its kernels take most of a second. The event loop of an
``AsyncClient`` is blocked while the records of a call are converted: microseconds each.
"""

from __future__ import annotations

from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.client.errors import BadAnswer
from kafkalog.client.records import RECORD_OVERHEAD_BYTES, ConsumerRecord
from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import RecordColumns, build_batch, cuts
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import Codec, is_control, is_crc_valid, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.client.records import CodecName, Headers, ProducerRecord
    from kafkalog.format.records.batch_builder import Int64s

INFLATED_BYTES_MAX = 1 << 30
"""The daemon has its own limits; this keeps a corrupt batch from using all memory."""

_FIELDS = attrgetter("key", "value", "timestamp_ms", "headers")
_AS_THEY_ARE = {bytes, NoneType}
_NO_PRODUCER = -1


class OutgoingRecords:
    """The records of one call as columns; those without a timestamp get ``now_ms``."""

    def __init__(self, records: Sequence[ProducerRecord], now_ms: int) -> None:
        keys, values, stamps, headers = zip(*map(_FIELDS, records), strict=True)
        is_unstamped = stamps.count(None) == len(stamps)
        self._columns = RecordColumns.of(
            _as_bytes(keys),
            _as_bytes(values),
            now_ms if is_unstamped else [now_ms if at is None else at for at in stamps],
            _as_named_bytes(headers) if any(headers) else None,
        )
        self._sizes = self._columns.field_bytes + RECORD_OVERHEAD_BYTES

    def by_partition(
        self, partition_count: int, served: Sequence[int], chance: float
    ) -> list[tuple[int, Int64s]]:
        """The rows of each partition, ascending: by murmur2 of the key, as Java's producer.

        Records without a key go together to one served partition, chosen by ``chance`` in [0, 1).
        """
        chosen = self._columns.partitions(partition_count)
        if served:
            chosen[chosen < 0] = served[int(chance * len(served))]
        else:
            chosen[chosen < 0] = int(chance * partition_count)
        return [(int(number), np.flatnonzero(chosen == number)) for number in np.unique(chosen)]

    def all_rows(self) -> Int64s:
        """Every record, in order."""
        return np.arange(len(self._columns), dtype=np.int64)

    def slices(self, rows: Int64s, batch_bytes: int) -> Iterator[Int64s]:
        """The rows in batches of at most this many bytes before compression.

        A larger record is alone in its batch.
        """
        first = 0
        for end in cuts(self._sizes[rows], batch_bytes):
            yield rows[first:end]
            first = end

    def batch(
        self,
        rows: Int64s,
        codec: CodecName,
        producer_id: int = _NO_PRODUCER,
        producer_epoch: int = _NO_PRODUCER,
        base_sequence: int = _NO_PRODUCER,
    ) -> bytes:
        """One batch of these rows."""
        return build_batch(
            self._columns,
            rows,
            codec=Codec[codec.upper()],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def consumer_records(
    topic: str, partition: int, data: bytes, from_offset: int
) -> list[ConsumerRecord]:
    """The records of whole batches from an offset on, without control records.

    Raises BadAnswer for corrupt bytes: the network, a proxy or the daemon's disk damaged them
    (``fetch.raw.verify``).
    """
    view = memoryview(data)
    records: list[ConsumerRecord] = []
    position = 0
    try:
        while position < len(view):
            header = read_header(view, position)
            batch = view[position : position + header.size_bytes]
            position += header.size_bytes
            if len(batch) != header.size_bytes or not is_crc_valid(batch):
                raise BadAnswer(f"{topic}-{partition}: a batch arrived corrupt at {position}.")
            if not is_control(header.attributes):
                table = read_records(batch, max_bytes=INFLATED_BYTES_MAX)
                first = int(np.searchsorted(table.offsets, from_offset))
                for offset, timestamp_ms, key, value, headers in table.fields(first):
                    named = tuple(
                        (name.decode("utf-8", "surrogateescape"), content)
                        for name, content in headers or ()
                    )
                    records.append(
                        ConsumerRecord(topic, partition, offset, timestamp_ms, key, value, named)
                    )
    except (FormatError, KafkalogError) as error:
        raise BadAnswer(f"{topic}-{partition}: a batch arrived corrupt: {error}") from error
    return records


def _as_bytes(column: Sequence[bytes | str | None]) -> Sequence[bytes | None]:
    if _AS_THEY_ARE.issuperset(map(type, column)):
        return column  # type: ignore[return-value] # by the types that were found
    return [field.encode() if isinstance(field, str) else field for field in column]


def _as_named_bytes(column: Sequence[Headers]) -> list[list[tuple[bytes, bytes | None]]]:
    return [
        [(name.encode("utf-8", "surrogateescape"), value) for name, value in headers]
        for headers in column
    ]

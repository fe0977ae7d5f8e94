"""The stream reader of the source: which offsets each micro-batch reads.

Spark keeps one reader in its own process while the query runs. It holds the open logs, the end
offsets of Trigger.AvailableNow, and the time of the last micro-batch that was not delayed. The
copies in the tasks only read. Offsets in checkpoints have the format of Spark's Kafka source, and
the ids of their topics: a topic that was recreated is not read on from the offset of another.
Spark 4.1 calls fewer methods, and has a reader of its own here.
Source: KafkaMicroBatchStream of Spark 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkalog.env.clock import SystemClock
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.offsets import (
    document_of,
    lag_of,
    offsets_of,
    rate_limited,
    recreated,
    topic_ids_of,
    without_topics,
)
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.planning import OffsetReader, StreamOffset, log_warnings, trigger_pieces
from kafkalog.spark.user_errors import for_users
from kafkalog.spark.workers import rows_of

try:
    from pyspark.sql.streaming import datasource
except ImportError:
    from kafkalog.spark import spark_4_1 as datasource

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from kafkalog.env.clock import Clock
    from kafkalog.spark.logs.values import Logs
    from kafkalog.spark.offsets import OffsetDocument, PartitionOffsets, TopicIds
    from kafkalog.spark.options import SourceOptions

limits = datasource
"""The limits of a micro-batch; where PySpark has none, our stand-ins."""


class KafkalogStreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """One streaming query. Spark calls the methods, from one thread."""

    def __init__(
        self, schema: StructType, options: SourceOptions, clock: Clock | None = None
    ) -> None:
        """``clock``: for maxTriggerDelay and retries; None: the machine's."""
        log_warnings(options)
        self._schema = schema
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._logs: Logs | None = None
        self._latest: PartitionOffsets | None = None
        self._topic_ids: TopicIds = {}  # of the latest offsets
        self._is_available_now = False
        self._last_batch_ns: int | None = None

    @for_users()
    def initialOffset(self) -> OffsetDocument:  # noqa: N802 - Spark's
        """The first offsets of a query without a checkpoint."""
        reader = self._reader()
        partitions = reader.partitions()
        topic_ids = reader.topic_ids(partitions)
        return document_of(reader.starting(partitions), topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """The limit that Spark passes to `latestOffset`; it has none for a minimum and maximum."""
        if self._options.max_offsets_per_trigger is not None:
            return limits.ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return limits.ReadMinRows(self._options.min_offsets_per_trigger)
        return limits.ReadAllAvailable()

    @for_users()
    def latestOffset(self, start: OffsetDocument, limit: ReadLimit) -> OffsetDocument:  # noqa: N802
        """The end of the next batch; ``start`` when there shall be none.

        Raises UnknownTopic or UnknownPartition if a topic or partition of the query is missing,
        PartitionsGone if it was read before, DataLost if it was recreated. Here, and not only in
        `partitions`, because a returned end is in the checkpoint.
        """
        read = _position(start)
        latest = self._target(read)
        begin = without_topics(read.offsets, recreated(read.topic_ids, self._topic_ids))
        if isinstance(limit, limits.ReadAllAvailable):
            return document_of(latest, self._topic_ids)
        if self._waits_for_more(begin, latest):
            return document_of(read.offsets, read.topic_ids)
        rows_max = self._options.max_offsets_per_trigger
        if rows_max is None:
            return document_of(latest, self._topic_ids)
        of_new = self._reader().earliest(sorted(latest.keys() - begin.keys()))
        return document_of(rate_limited(rows_max, of_new | begin, latest), self._topic_ids)

    def reportLatestOffset(self) -> OffsetDocument | None:  # noqa: N802 - Spark's
        """The ends of the logs, for the progress of the query."""
        return document_of(self._latest, self._topic_ids) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Fix the ends: records after the next `latestOffset` are not read."""
        self._is_available_now = True
        self._latest = None

    @for_users()
    def partitions(self, start: OffsetDocument, end: OffsetDocument) -> list[InputPartition]:
        """The tasks of a batch. Raises what `trigger_pieces` raises."""
        logs = self._opened()
        pieces = trigger_pieces(logs, self._options, _position(start), _position(end))
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; none of a recreated topic that is read from its start."""
        restarts = self._options.restarts_recreated_topics
        return rows_of(partition, self._schema, self._options, skips_recreated=restarts)

    def commit(self, end: OffsetDocument) -> None:
        """Do nothing: the checkpoint holds the offsets."""

    def stop(self) -> None:
        """Close the logs at the end of the query."""
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _opened(self) -> Logs:
        if self._logs is None:
            self._logs = open_logs(self._options.access)
        return self._logs

    def _reader(self) -> OffsetReader:
        return OffsetReader(self._opened(), self._options)

    def _target(self, read: StreamOffset) -> PartitionOffsets:
        """The ends of all partitions: now, or when Trigger.AvailableNow began.

        An end below an offset that was read is looked up again: a daemon that has just started may
        not have checkpointed a high watermark as high as the end of its stopped directory. An end
        that stays below is data loss.
        """
        if self._is_available_now and self._latest is not None:
            return self._latest
        tries_left = self._options.fetch_offset_tries
        while True:
            reader = self._reader()
            partitions, self._topic_ids = reader.continued(read)
            self._latest = latest = reader.latest(partitions)
            tries_left -= 1
            begin = without_topics(read.offsets, recreated(read.topic_ids, self._topic_ids))
            went_back = any(latest[at] < begin[at] for at in latest.keys() & begin.keys())
            if not went_back or tries_left == 0:
                return latest
            self._clock.sleep(self._options.fetch_offset_interval_ms / 1000)

    def _waits_for_more(self, begin: PartitionOffsets, latest: PartitionOffsets) -> bool:
        """Whether minOffsetsPerTrigger is not reached and maxTriggerDelay has not passed.

        The first batch of a query never waits, nor a batch of Trigger.AvailableNow, which would
        never end.
        """
        rows_min = self._options.min_offsets_per_trigger
        if rows_min is None or self._is_available_now:
            return False
        now_ns = self._clock.monotonic_ns()
        is_due = (
            self._last_batch_ns is None
            or now_ns - self._last_batch_ns >= self._options.max_trigger_delay_ms * 1_000_000
        )
        if not is_due and lag_of(begin, latest) < rows_min:
            return True
        self._last_batch_ns = now_ns
        return False


class RefusedStream(DataSourceStreamReader):
    """The reader of a query whose options are wrong. It raises the error where Spark shows it.

    Spark 4.3 hides an error of ``streamReader`` behind its own UnboundLocalError.
    """

    def __init__(self, error: InvalidOption) -> None:
        self._error = error

    @for_users()
    def initialOffset(self) -> OffsetDocument:  # noqa: N802 - Spark's
        """Raise the error."""
        raise self._error

    @for_users()
    def latestOffset(self, *given: object) -> OffsetDocument:  # noqa: N802
        """Raise the error; Spark 4.1 gives nothing."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


class UnlimitedStreamReader(KafkalogStreamReader):
    """For Spark 4.1: each batch has all that is new.

    Spark calls `latestOffset` without the position of the query. It is known from `initialOffset`
    and `partitions`, which Spark also calls when a query continues, with twice the offset of the
    checkpoint. Before that it asks for the end of a query with Trigger.AvailableNow, once: then a
    deleted or recreated topic is noticed by `partitions` alone.
    """

    def __init__(
        self, schema: StructType, options: SourceOptions, clock: Clock | None = None
    ) -> None:
        """Raises InvalidOption for a limit."""
        super().__init__(schema, options, clock)
        given = {
            "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
            "minOffsetsPerTrigger": options.min_offsets_per_trigger,
        }
        for name, value in given.items():
            if value is not None:
                raise InvalidOption(
                    f"Option {name} needs Spark 4.2 or newer, and this is {pyspark.__version__}: "
                    "leave it out, then each micro-batch has all new records"
                )
        self._read: OffsetDocument = {}

    def initialOffset(self) -> OffsetDocument:  # noqa: N802 - Spark's
        """See KafkalogStreamReader."""
        self._read = super().initialOffset()
        return self._read

    def latestOffset(self) -> OffsetDocument:  # type: ignore[override]  # noqa: N802 - Spark's
        """The ends of the logs. Raises what KafkalogStreamReader raises."""
        return super().latestOffset(self._read, limits.ReadAllAvailable())

    def partitions(self, start: OffsetDocument, end: OffsetDocument) -> list[InputPartition]:
        """See KafkalogStreamReader."""
        self._read = end
        return super().partitions(start, end)


def stream_reader(schema: StructType, options: SourceOptions) -> KafkalogStreamReader:
    """The reader for the Spark of this process. Raises InvalidOption."""
    has_limits = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
    return (KafkalogStreamReader if has_limits else UnlimitedStreamReader)(schema, options)


def _position(document: OffsetDocument) -> StreamOffset:
    return StreamOffset(offsets_of(document), topic_ids_of(document))

"""Appends and fetches by topic: the counters, and the same under Kafka's names.

Owns names and help of both sets. Kafka also has the sum over all topics; it includes deleted
topics, so that it never falls. Any thread may count. Labels are existing topics, because a caller
has found a log before it counts.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, cast

from kafkalog.observe.exposition import RowFamily
from kafkalog.observe.prometheus import Declarations, child_of, counter, take_out, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry, Counter


class TopicTotals(NamedTuple):
    """Totals of one topic since the start; topic None is the sum over all topics.

    Only the sum has the last two.
    """

    topic: str | None
    bytes_in: float
    bytes_out: float
    messages_in: float
    produce_requests: float
    fetch_requests: float
    failed_produce: float
    failed_fetch: float
    bytes_rejected: float
    bad_crcs: float | None
    null_keys: float | None


KAFKA_TOPIC_ALIASES: tuple[RowFamily, ...] = tuple(
    RowFamily(
        f"kafka_server_brokertopicmetrics_{bean.lower()}_total",
        field,
        f"Kafka's kafka.server:type=BrokerTopicMetrics,name={bean}PerSec{note}.",
        "counter",
    )
    for bean, field, note in (
        ("BytesIn", "bytes_in", ""),
        ("BytesOut", "bytes_out", ""),
        ("MessagesIn", "messages_in", ""),
        ("TotalProduceRequests", "produce_requests", ""),
        ("TotalFetchRequests", "fetch_requests", ""),
        ("FailedProduceRequests", "failed_produce", ""),
        ("FailedFetchRequests", "failed_fetch", ""),
        ("BytesRejected", "bytes_rejected", ""),
        ("InvalidMessageCrcRecords", "bad_crcs", "; refused batches"),
        ("NoKeyCompactedTopicRecords", "null_keys", "; refused batches"),
    )
)


class TopicTraffic(Declarations):
    """See the module. Attributes are the metric names without ``kafkalog_`` and ``_total``."""

    append_records = counter("Records of the batches appended.", "topic")
    append_bytes = counter("Batch bytes appended.", "topic")
    append_requests = counter("Attempted appends to partitions.", "topic")
    append_refusals = counter("Appends that failed, by kind of error.", "topic", "error")
    append_rejected_bytes = counter(
        "Bytes of appends with a batch larger than max.message.bytes.", "topic"
    )
    fetch_records = counter("Records fetched as JSON.", "topic")
    fetch_bytes = counter("Batch bytes read for fetches.", "topic")
    fetch_requests = counter("Attempted reads of partitions.", "topic")
    fetch_refusals = counter("Reads that failed, by kind of error.", "topic", "error")

    def __init__(self, registry: CollectorRegistry) -> None:
        self.declare("kafkalog_", registry)
        # A topic that is deleted during a sum counts exactly once.
        self._mutex = threading.Lock()
        # guarded by the mutex: totals of deleted topics, by counter and the labels after the topic
        self._departed: dict[tuple[Counter, tuple[str, ...]], float] = {}

    # ---- counting, any thread

    def observe_append(self, topic: str, records: int, size_bytes: int, requests: int = 1) -> None:
        """One or more appends that the writer has ended, and what it wrote of them."""
        child_of(self.append_records, topic)._value.inc(records)
        child_of(self.append_bytes, topic)._value.inc(size_bytes)
        child_of(self.append_requests, topic)._value.inc(requests)

    def observe_refusal(self, topic: str, error: Exception, size_bytes: int) -> None:
        """An append that was refused before it was queued."""
        child_of(self.append_requests, topic).inc()
        self.observe_failed_append(topic, error)
        if type(error).__name__ == "RecordBatchTooLarge":
            child_of(self.append_rejected_bytes, topic).inc(size_bytes)

    def observe_failed_append(self, topic: str, error: Exception) -> None:
        """The error of an append that ``observe_append`` counts, or of one refused before."""
        child_of(self.append_refusals, topic, type(error).__name__).inc()

    def observe_fetch(self, topic: str, size_bytes: int, records: int = 0) -> None:
        """Bytes sent to a client; records when they were decoded."""
        if size_bytes:
            child_of(self.fetch_bytes, topic).inc(size_bytes)
        if records:
            child_of(self.fetch_records, topic).inc(records)

    def observe_read(self, topic: str, error: Exception | None = None) -> None:
        """One read of a partition's log."""
        child_of(self.fetch_requests, topic)._value.inc(1)
        if error is not None:
            self.observe_cut_read(topic, error)

    def observe_cut_read(self, topic: str, error: Exception) -> None:
        """One of ``observe_reads`` had an error after all."""
        child_of(self.fetch_refusals, topic, type(error).__name__).inc()

    def observe_reads(self, topic: str, size_bytes: int, requests: int) -> None:
        """So many reads, without an error, of what was sent to clients."""
        child_of(self.fetch_requests, topic)._value.inc(requests)
        child_of(self.fetch_bytes, topic)._value.inc(size_bytes)

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters; unknown topics are ignored."""
        with self._mutex:
            for counter in self.topic_counters:
                for labels, value in take_out(counter, topic):
                    self._depart(counter, value, *labels[1:])

    def observe_departed_append(self, records: int, size_bytes: int, requests: int) -> None:
        """``observe_append`` of a topic that was deleted meanwhile: only the sum has it."""
        with self._mutex:
            self._depart(self.append_records, records)
            self._depart(self.append_bytes, size_bytes)
            self._depart(self.append_requests, requests)

    def observe_departed_reads(self, size_bytes: int, requests: int) -> None:
        """``observe_reads`` of a topic that was deleted meanwhile."""
        with self._mutex:
            self._depart(self.fetch_requests, requests)
            self._depart(self.fetch_bytes, size_bytes)

    def _depart(self, counter: Counter, value: float, *labels: str) -> None:
        """Under the mutex."""
        key = (counter, labels)
        self._departed[key] = self._departed.get(key, 0.0) + value

    # ---- for the scrape

    def totals(self) -> Iterator[TopicTotals]:
        """All topics together, then each that was counted."""
        counters = (
            self.append_bytes, self.fetch_bytes, self.append_records, self.append_requests,
            self.fetch_requests, self.append_refusals, self.fetch_refusals,
            self.append_rejected_bytes,
        )  # fmt: skip
        with self._mutex:
            columns = [self._sums(counter, 0) for counter in counters]
            errors = self._sums(self.append_refusals, 1)
        whole = [sum(column.values()) for column in columns]
        yield TopicTotals._make(
            (None, *whole, errors.get("BadBatchCrc", 0.0), errors.get("NullKey", 0.0))
        )
        for topic in dict.fromkeys(topic for column in columns for topic in column if topic):
            values = (column.get(topic, 0.0) for column in columns)
            yield TopicTotals._make((topic, *values, None, None))

    def volume(self) -> tuple[float, ...]:
        """Records in, append and fetch requests, bytes in and out; also of deleted topics."""
        counters = (
            self.append_records, self.append_requests, self.fetch_requests, self.append_bytes,
            self.fetch_bytes,
        )  # fmt: skip
        with self._mutex:
            return tuple(map(self._sum, counters))

    def _sum(self, counter: Counter) -> float:
        """Under the mutex: over all topics."""
        total = sum(value for (of, _), value in self._departed.items() if of is counter)
        for child in list(counter._metrics.values()):  # one step: others may add and remove
            total += cast("Counter", child)._value.get()
        return total

    def _sums(self, counter: Counter, label: int) -> dict[str, float]:
        """By one of its labels; the first is the topic, "" of those that were deleted."""
        departed = self._departed.items()
        children = [(("", *rest), value) for (of, rest), value in departed if of is counter]
        sums = {"": 0.0}
        for labels, value in (*children, *values_of(counter)):
            sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

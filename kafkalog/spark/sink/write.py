"""One task of a sink: its records from Arrow to the daemon's acknowledgement. Without Spark.

`BatchPlanner` chooses the partition of each record and where a batch ends; `delivery` sends the
batches. Records are converted in blocks, which bound the memory of a task. No Python statement runs
per record. The order within a partition is kept.

    Arrow batches ─► block ─► one part a topic ─► columns ─► partitions ─► batches

A record's partition is the one in its column, else murmur2 of its key as in Kafka's producers.
Records with neither fill a batch of one served partition, then of the next (Kafka's "sticky"
partitioner).

At least once is the default: Spark runs a failed task again, and the records that it had appended
are there twice. The process keeps the producer of a task (an id, and the sequences of its
partitions) for the next task, so that a cluster has one producer for each worker, not one for each
task. The producer of a failed delivery is dropped.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from kafkalog.client import ClientError
from kafkalog.client.produce import partitions_or_new
from kafkalog.client.producer import new_producer
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.errors import InvalidRequest
from kafkalog.format.integers import INT32_MAX
from kafkalog.format.records.batch_builder import cuts
from kafkalog.format.wire.arrow_reader import record_block
from kafkalog.spark.logs.daemon import client_of
from kafkalog.spark.sink.delivery import Delivery, OutgoingBatch, sink_failed
from kafkalog.spark.sink.options import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.client import Client, ProducerIdentity
    from kafkalog.client.produce import Partitions
    from kafkalog.client.retry import Steps
    from kafkalog.env.random import Random
    from kafkalog.format.records.batch_builder import RecordColumns
    from kafkalog.format.wire.arrow_reader import Int64s, RecordBlock
    from kafkalog.spark.logs.values import Access
    from kafkalog.spark.sink.delivery import TopicPartition
    from kafkalog.spark.sink.options import SinkOptions


class NoSuchPartition(InvalidRequest):
    """The column `partition` names a partition that the topic does not have."""


class NullTopic(InvalidRequest):
    """A row without a topic."""


def blocks(batches: Iterable[pa.RecordBatch], block_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, each ended by the batch that reaches ``block_bytes``."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= block_bytes:
            yield pa.concat_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


@dataclass(slots=True)
class BatchPlanner:
    """Divides the records of one task into batches; for one thread.

    topic          topic of every record; None: column `topic` names it
    columns        the columns that become records (`written_columns`)
    ask            looks up the partitions of a topic, once for each topic
    batch_bytes    size of a batch before compression; a single record may be larger
    random         chooses the first partition of records without key and partition
    """

    topic: str | None
    columns: Sequence[str]
    ask: Callable[[str], Partitions]
    batch_bytes: int
    random: Random
    _partitions: dict[str, Partitions] = field(default_factory=dict)
    _keyless_bytes: dict[str, int] = field(default_factory=dict)

    def batches(self, block: pa.RecordBatch, now_ms: int) -> Iterator[OutgoingBatch]:
        """The batches of a block, the partitions of a topic in turn.

        now_ms   timestamp of records without one

        Raises NullTopic, NoSuchPartition, UnusableColumn, and the errors of ``ask``.
        """
        for topic, part in self._by_topic(block):
            yield from self._of_topic(topic, part, now_ms)

    def _by_topic(self, block: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each topic, in order."""
        columns = block.select([name for name in self.columns if name != TOPIC])
        if self.topic is not None:
            yield self.topic, columns
            return
        named = block.column(TOPIC)
        if named.null_count:
            raise NullTopic(
                "null topic present in the data. Use the topic option for setting a default topic."
            )
        encoded = named.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield topics[0], columns
            return
        numbers = encoded.indices.to_numpy()
        for number, topic in enumerate(topics):
            yield topic, columns.take(pa.array(np.flatnonzero(numbers == number)))

    def _of_topic(self, topic: str, part: pa.RecordBatch, now_ms: int) -> Iterator[OutgoingBatch]:
        if topic not in self._partitions:
            self._partitions[topic] = self.ask(topic)
        decoded = record_block(part, now_ms, INT32_MAX)
        columns = decoded.piece(0, part.num_rows).columns
        sizes = decoded.sizes()
        chosen = self._chosen(topic, decoded, columns, sizes)
        order = np.argsort(chosen, kind="stable").astype(np.int64)
        numbers, starts = np.unique(chosen[order], return_index=True)
        # One batch of each partition in turn, so that batches of all of them are in flight at once.
        waiting = [
            (number, rows, cuts(sizes[rows], self.batch_bytes), 0)
            for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        ]
        while waiting:
            further = []
            for number, rows, ends, start in waiting:
                end = next(ends, None)
                if end is not None:
                    yield OutgoingBatch(topic, number, columns, rows[start:end])
                    further.append((number, rows, ends, end))
            waiting = further

    def _chosen(
        self, topic: str, decoded: RecordBlock, columns: RecordColumns, sizes: Int64s
    ) -> Int64s:
        """The partition of each record."""
        count = self._partitions[topic].count
        chosen = columns.partitions(count)
        if decoded.partitions is not None:
            highest = int(decoded.partitions.max())
            if highest >= count:
                raise NoSuchPartition(
                    f"The column 'partition' names {topic}-{highest}, "
                    f"but the topic has {count} partitions, from 0 to {count - 1}."
                )
            chosen = np.where(decoded.partitions >= 0, decoded.partitions, chosen)
        keyless = np.flatnonzero(chosen < 0)
        if len(keyless):
            chosen[keyless] = self._spread(topic, sizes[keyless])
        return chosen

    def _spread(self, topic: str, sizes: Int64s) -> Int64s:
        """Partitions for records without key and partition: a batch for each partition in turn."""
        found = self._partitions[topic]
        choice = np.array(found.served or range(found.count), np.int64)
        if topic not in self._keyless_bytes:
            self._keyless_bytes[topic] = self.random.below(len(choice)) * self.batch_bytes
        ends = self._keyless_bytes[topic] + np.cumsum(sizes)
        self._keyless_bytes[topic] = int(ends[-1])
        picked: Int64s = choice[(ends - sizes) // self.batch_bytes % len(choice)]
        return picked


# ---- the task

T = TypeVar("T")


@dataclass(slots=True)
class Connection:
    """A client, and the producer of records that are written at least once."""

    client: Client
    identity: ProducerIdentity | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


# The connections of this process. Spark's workers are forked before they write.
_idle: dict[Access, Connection] = {}


def write_at_least_once(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, columns: Sequence[str]
) -> tuple[TopicPartition, ...]:
    """Append the records of a task, all acknowledged on return; the partitions that got some.

    columns   the columns that become records (`written_columns`)

    Raises SinkFailed, UnusableColumn, NullTopic, NoSuchPartition; some records may be appended
    then, and a second attempt appends them again.
    """
    with connected(options.access) as connection:
        if connection.identity is None:
            connection.identity = requested(
                connection.client, new_producer(), "The daemon did not allocate a producer id"
            )
        return deliver(
            blocks(batches, options.block_bytes),
            connection.client,
            options,
            columns,
            connection.identity,
            connection.sequences,
        )


def deliver(
    parts: Iterable[pa.RecordBatch],
    client: Client,
    options: SinkOptions,
    columns: Sequence[str],
    identity: ProducerIdentity,
    sequences: dict[TopicPartition, int],
    *,
    is_transactional: bool = False,
) -> tuple[TopicPartition, ...]:
    """Append all records of the parts as this producer; see ``write_at_least_once``."""

    def found(topic: str) -> Partitions:
        return requested(client, partitions_or_new(topic), f"Topic {topic} cannot be written to")

    def send(topic: str, partition: int, data: bytes) -> None:
        client.append_batches(topic, partition, data, acks=options.acks)

    clock = SystemClock()
    planner = BatchPlanner(
        options.topic, columns, found, batch_bytes=options.batch_bytes, random=SystemRandom()
    )
    with Delivery(
        send, identity, sequences, codec=options.codec, is_transactional=is_transactional
    ) as delivery:
        for part in parts:
            for batch in planner.batches(part, clock.wall_ms()):
                delivery.append(batch)
        return delivery.finish()


def requested(client: Client, steps: Steps[T], what_failed: str) -> T:
    """The result of a request. Raises SinkFailed."""
    try:
        return client.run(steps)
    except ClientError as failure:
        raise sink_failed(failure, what_failed) from failure


@contextmanager
def connected(access: Access) -> Iterator[Connection]:
    """An idle connection of this process; it is kept for the next task unless this one fails."""
    connection = _idle.pop(access, None) or Connection(client_of(access, access.urls[0]))
    try:
        yield connection
    except BaseException:
        connection.client.close()
        raise
    _idle[access] = connection


def close_connections() -> None:
    """Close the idle connections of this process."""
    while _idle:
        _idle.popitem()[1].client.close()

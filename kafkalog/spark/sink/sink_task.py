"""One task of a sink: its records from Arrow to the daemon's acknowledgement. Without Spark.

At least once is the default: Spark runs a failed task again, and the records that it had appended
are there twice. The process keeps the producer of a task (an id, and the sequences of its
partitions) for the next task, so that a cluster has one producer for each worker, not one for each
task. The producer of a failed delivery is dropped.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kafkalog.client import ClientError
from kafkalog.client.produce import partitions_of
from kafkalog.client.producer import new_producer
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.spark.logs.daemon import client_of
from kafkalog.spark.sink.delivery import Delivery
from kafkalog.spark.sink.failures import sink_failed
from kafkalog.spark.sink.write import BatchPlanner, blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from kafkalog.client import Client, ProducerIdentity
    from kafkalog.client.produce import Partitions
    from kafkalog.client.retry import Steps
    from kafkalog.spark.logs.values import Access
    from kafkalog.spark.sink.delivery import TopicPartition
    from kafkalog.spark.sink.options import SinkOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """How many records a task appended, and to which partitions."""

    record_count: int
    partitions: tuple[TopicPartition, ...]


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
) -> Written:
    """Append the records of a task; all are acknowledged when this returns.

    columns   the columns that become records (`written_columns`)

    Raises SinkFailed, UnusableColumn, NullTopic, NoSuchPartition; some records may be appended
    then, and a second attempt appends them again.
    """
    with connected(options.access) as connection:
        if connection.identity is None:
            connection.identity = asked(
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
) -> Written:
    """Append all records of the parts as this producer; see ``write_at_least_once``."""

    def found(topic: str) -> Partitions:
        return asked(client, partitions_of(topic), f"Topic {topic} cannot be written to")

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
        partitions = delivery.finish()
    return Written(delivery.record_count, partitions)


def asked(client: Client, steps: Steps[T], what_failed: str) -> T:
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

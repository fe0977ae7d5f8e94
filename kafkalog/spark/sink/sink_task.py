"""One task of a sink: its records from Arrow to the daemon's acknowledgement. Without Spark.

At least once, the default: a task appends its records; a task that fails is run again by Spark, and
then what it had appended stands twice. Its producer (an id, and the sequences of its partitions)
stays with the process for the next task, so that a cluster has as many producers as workers and not
as many as tasks; one whose delivery failed is forgotten.
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
    """What the driver learns of a task that has ended: the partitions that got records. Pickled."""

    record_count: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Connection:
    """A client, and the producer of records that are written at least once."""

    client: Client
    identity: ProducerIdentity | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


# Of this process. Spark's workers write after they were forked, never before.
_idle: dict[Access, Connection] = {}


def write_at_least_once(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, columns: Sequence[str]
) -> Written:
    """Append the records of a task; all are acknowledged when this returns.

    columns   those that become records (`written_columns`)

    Raises SinkFailed, UnusableColumn, NullTopic, NoSuchPartition; some records may be appended
    then, and a repetition appends them again.
    """
    with connected(options.access) as connection:
        if connection.identity is None:
            connection.identity = asked(
                connection.client, new_producer(), "The daemon gives no producer id"
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
    """Append every record of the parts as this producer; see ``write_at_least_once``."""

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
    """The result of a call. Raises SinkFailed."""
    try:
        return client.run(steps)
    except ClientError as failure:
        raise sink_failed(failure, what_failed) from failure


@contextmanager
def connected(access: Access) -> Iterator[Connection]:
    """A connection of this process that nobody else uses; kept unless it was used in vain."""
    connection = _idle.pop(access, None) or Connection(client_of(access, access.urls[0]))
    try:
        yield connection
    except BaseException:
        connection.client.close()
        raise
    _idle[access] = connection


def close_connections() -> None:
    """Let go of what this process keeps for its next task."""
    while _idle:
        _idle.popitem()[1].client.close()

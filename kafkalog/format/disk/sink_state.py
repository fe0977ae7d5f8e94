"""Records of ``__sink_state``: the state of the coordinator of exactly-once sinks.

Owns the bytes of both kinds of records; a newer version of either is refused. The topic and its
layout are kafkalog's own, because a transaction of Kafka's ``__transaction_state`` has one producer
and a sink commits many at once. The order of records matters: a producer is open when its record
comes after the record of its query. Compaction keeps that order. Pure; any thread.

    key of a query       int16 version 1, int8 kind 0, string query
    key of a producer    int16 version 1, int8 kind 1, string query, int32 partition id,
                         int32 attempt
    value of a query     int16 version 1, int8 state, int64 committed batch id, int64 timestamp,
                         array of winners: int64 producer id, int16 epoch,
                           array of topics: string topic, array of int32 partition
    value of a producer  int16 version 1, int64 producer id, int16 epoch, int64 batch id,
                         int64 timestamp

An array is its length as an int32 and its elements. Timestamps are wall clock, ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from kafkalog.format.field_reader import INT8, INT16, INT32, INT64, Buffer, FieldReader, encode_text
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, topic_name_fault

KEY_VERSION = 1
VALUE_VERSION = 1
NO_BATCH = -1
MAX_MESSAGE_BYTES = 8 << 20
"""The topic's max.message.bytes: a decision names every partition of every winner."""
_QUERY, _PRODUCER = 0, 1


class MalformedSinkRecord(FormatError):
    """A key or value is cut off, of an unknown kind or version, or not UTF-8."""


class SinkState(IntEnum):
    """The state in a query's newest record: Kafka's TransactionState, and kafkalog's from 16 on."""

    PREPARE_COMMIT = 2  # the decision: the winners' transactions are committed, the others aborted
    PREPARE_ABORT = 3  # all are aborted
    COMPLETE_COMMIT = 4  # every marker of the decision is written
    DEAD = 6  # as COMPLETE_COMMIT, after PREPARE_LAST_COMMIT: no batch follows
    PREPARE_LAST_COMMIT = 16  # PREPARE_COMMIT, of the last batch of the query


@dataclass(frozen=True, slots=True)
class QueryKey:
    """A sink: Kafka's transactional id."""

    query: str


@dataclass(frozen=True, slots=True, order=True)
class ProducerKey:
    """The producer of one attempt at one partition of a query's data."""

    query: str
    partition_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Winner:
    """A producer whose transaction is committed, in these partitions, sorted."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class QueryValue:
    """``winners``: of a decision alone. ``committed_batch_id``: the last one, or NO_BATCH."""

    state: SinkState
    committed_batch_id: int
    timestamp_ms: int
    winners: tuple[Winner, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerValue:
    """The producer that a begin assigned, and its batch."""

    producer_id: int
    producer_epoch: int
    batch_id: int
    timestamp_ms: int


def query_name_fault(name: str) -> str | None:
    """Why name is no legal name of a query; None when it is one: the characters of a topic's."""
    if topic_name_fault(name) is None:
        return None
    return "The name of a query has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'"


def encode_key(key: QueryKey | ProducerKey) -> bytes:
    """Version 1."""
    version, query = INT16.pack(KEY_VERSION), encode_text(key.query)
    if isinstance(key, QueryKey):
        return version + INT8.pack(_QUERY) + query
    numbers = INT32.pack(key.partition_id) + INT32.pack(key.attempt)
    return version + INT8.pack(_PRODUCER) + query + numbers


def decode_key(data: Buffer) -> QueryKey | ProducerKey:
    """MalformedSinkRecord."""
    reader = FieldReader(data, MalformedSinkRecord)
    _check_version("key", reader.number(INT16), KEY_VERSION)
    kind, query = reader.number(INT8), reader.text()
    if kind == _QUERY:
        return QueryKey(query)
    if kind == _PRODUCER:
        return ProducerKey(query, reader.number(INT32), reader.number(INT32))
    raise MalformedSinkRecord(f"sink key of kind {kind}")


def encode_query(value: QueryValue) -> bytes:
    """Version 1."""
    parts = [
        INT16.pack(VALUE_VERSION),
        INT8.pack(value.state),
        INT64.pack(value.committed_batch_id),
        INT64.pack(value.timestamp_ms),
        INT32.pack(len(value.winners)),
    ]
    for winner in value.winners:
        topics = [
            (topic, [at.partition for at in ats])
            for topic, ats in groupby(winner.partitions, key=lambda at: at.topic)
        ]
        parts += [INT64.pack(winner.producer_id), INT16.pack(winner.producer_epoch)]
        parts.append(INT32.pack(len(topics)))
        for topic, numbers in topics:
            parts += [encode_text(topic), INT32.pack(len(numbers)), *map(INT32.pack, numbers)]
    return b"".join(parts)


def decode_query(data: Buffer) -> QueryValue:
    """MalformedSinkRecord."""
    reader = FieldReader(data, MalformedSinkRecord)
    _check_version("query", reader.number(INT16), VALUE_VERSION)
    number, batch_id, timestamp = reader.number(INT8), reader.number(INT64), reader.number(INT64)
    try:
        state = SinkState(number)
    except ValueError as error:
        raise MalformedSinkRecord(f"sink in state {number}") from error
    winners = tuple(_decode_winner(reader) for _ in range(reader.count()))
    return QueryValue(state, batch_id, timestamp, winners)


def _decode_winner(reader: FieldReader) -> Winner:
    producer_id, producer_epoch = reader.number(INT64), reader.number(INT16)
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic = reader.text()
        partitions += [TopicPartition(topic, reader.number(INT32)) for _ in range(reader.count())]
    return Winner(producer_id, producer_epoch, tuple(partitions))


def encode_producer(value: ProducerValue) -> bytes:
    """Version 1."""
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            INT64.pack(value.producer_id),
            INT16.pack(value.producer_epoch),
            INT64.pack(value.batch_id),
            INT64.pack(value.timestamp_ms),
        )
    )


def decode_producer(data: Buffer) -> ProducerValue:
    """MalformedSinkRecord."""
    reader = FieldReader(data, MalformedSinkRecord)
    _check_version("producer", reader.number(INT16), VALUE_VERSION)
    return ProducerValue(
        reader.number(INT64), reader.number(INT16), reader.number(INT64), reader.number(INT64)
    )


def _check_version(what: str, version: int, known: int) -> None:
    if version != known:
        raise MalformedSinkRecord(f"sink {what} of version {version}")

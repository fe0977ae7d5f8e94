"""Delivery of record batches to the daemon: several at once, in order within a partition.

A lane is a thread with a queue, and every partition has one lane. So a partition's batch is sent
when the batch before it is acknowledged, while batches of other partitions are in flight. A task
has at most `BATCHES_IN_FLIGHT` of them in memory.

Every batch has a producer id and a sequence. After a lost answer it is sent again, and the daemon
recognises the duplicate by them: each batch is appended once. A batch that cannot be delivered
within the client's deadline fails the task, and no later batch is sent.
"""

from __future__ import annotations

import functools
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self

from kafkalog.client import ClientError, errors
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import KafkalogError
from kafkalog.format.records.batch_builder import build_batch
from kafkalog.format.records.record_batch import Codec, add_to_sequence

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.client import ProducerIdentity
    from kafkalog.env.threads import Thread
    from kafkalog.format.records.batch_builder import RecordColumns
    from kafkalog.format.wire.arrow_reader import Int64s


# ---- the error of records that could not be written, with advice for its cause


class SinkFailed(KafkalogError):
    """The records of a task, or the commit or abort of a batch, were not accepted."""


_ACCESS = "Give credentials with access: option tokenFile, or user and passwordFile"
_ADVICE: tuple[tuple[tuple[type[ClientError], ...], str], ...] = (
    (
        (errors.ConnectFailed, errors.OutcomeUnknown, errors.Unavailable, errors.Throttled),
        "Check that the daemon of option url runs and can be reached from this machine; "
        "option deliveryTimeout is the time of the retries",
    ),
    ((errors.UnknownTopic,), "Create the topic first, for example with 'kafkalog topics create'"),
    ((errors.UnknownPartition,), "The topic was changed or lacks partitions: check its partitions"),
    ((errors.NotAuthenticated, errors.AccessDenied), _ACCESS),
    ((errors.TooLarge,), "Decrease option batchBytes, or increase the topic's max.message.bytes"),
    (
        (errors.OutOfOrderSequence,),
        "The daemon lost earlier records of this task, as in a power cut with acks=1: run it again",
    ),
    (
        (errors.InvalidTxnState,),
        "The records are not visible: they were aborted, as the daemon does when nothing is "
        "appended for transaction.max.timeout.ms, or some of them are lost, as with a deleted "
        "topic. Start it again",
    ),
    (
        (errors.Conflict,),
        "Another attempt or run has fenced this one; if there is none, start it again",
    ),
)


def sink_failed(failure: ClientError, what: str) -> SinkFailed:
    """The error with what failed, the error of daemon or network, and what to do."""
    advice = next((text for kinds, text in _ADVICE if isinstance(failure, kinds)), None)
    message = f"{what}: {failure.message.rstrip('.')}."
    failed = SinkFailed(message if advice is None else f"{message} {advice}.")
    failed.__cause__ = failure
    return failed


# ---- the delivery


LANES = 4
BATCHES_IN_FLIGHT = 12

TopicPartition = tuple[str, int]
_Parcel = tuple[TopicPartition, bytes]


class OutgoingBatch(NamedTuple):
    """One record batch of one partition: rows of the columns, in order."""

    topic: str
    partition: int
    columns: RecordColumns
    rows: Int64s


class Delivery:
    """The delivery of one task, a context manager; call ``finish`` at its end. For one thread.

    send        appends a batch to a partition, with retries; raises ClientError. Called by lanes
    identity    producer of the batches
    sequences   next sequence of this producer for each partition; updated
    """

    def __init__(
        self,
        send: Callable[[str, int, bytes], object],
        identity: ProducerIdentity,
        sequences: dict[TopicPartition, int],
        *,
        codec: Codec = Codec.NONE,
        is_transactional: bool = False,
    ) -> None:
        # constant after construction
        self._send = send
        self._identity = identity
        self._codec = codec
        self._is_transactional = is_transactional
        self._system = SystemThreads(self._fail)
        self._slots: SimpleQueue[None] = SimpleQueue()  # one for each batch that may be in flight
        for _ in range(BATCHES_IN_FLIGHT):
            self._slots.put(None)
        # owned by the task
        self._sequences = sequences
        self._lanes: list[SimpleQueue[_Parcel | None]] = []
        self._threads: list[Thread] = []
        self._lane_of: dict[TopicPartition, SimpleQueue[_Parcel | None]] = {}
        # published by the lanes: the error after which nothing is sent
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """After an error send nothing more, and do not wait for batches in flight."""
        if error is not None and self._failure is None:
            self._failure = SinkFailed("The task failed before all of its records were sent.")
        self._end_lanes()

    def append(self, batch: OutgoingBatch) -> None:
        """Encode a batch and queue it; waits while too many are in flight.

        Raises SinkFailed when an earlier batch could not be delivered.
        """
        at = batch.topic, batch.partition
        base_sequence = self._sequences.get(at, 0)
        data = build_batch(
            batch.columns,
            batch.rows,
            codec=self._codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=base_sequence,
            is_transactional=self._is_transactional,
        )
        self._slots.get()
        self._check()
        self._lane(at).put((at, data))
        self._sequences[at] = add_to_sequence(base_sequence, len(batch.rows))

    def finish(self) -> tuple[TopicPartition, ...]:
        """Wait until every batch is acknowledged; the partitions of the batches, sorted.

        Raises SinkFailed.
        """
        self._end_lanes()
        for thread in self._threads:
            thread.join()
        self._check()
        return tuple(sorted(self._lane_of))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _lane(self, at: TopicPartition) -> SimpleQueue[_Parcel | None]:
        if at not in self._lane_of:
            if len(self._lanes) < LANES:
                lane: SimpleQueue[_Parcel | None] = SimpleQueue()
                body = functools.partial(self._run, lane)
                self._threads.append(
                    self._system.start(f"kafkalog-append-{len(self._lanes)}", body)
                )
                self._lanes.append(lane)
            self._lane_of[at] = self._lanes[len(self._lane_of) % len(self._lanes)]
        return self._lane_of[at]

    def _end_lanes(self) -> None:
        while self._lanes:
            self._lanes.pop().put(None)

    def _run(self, lane: SimpleQueue[_Parcel | None]) -> None:
        """The body of a lane: send until the end mark; after an error only empty the queue."""
        while (parcel := lane.get()) is not None:
            at, data = parcel
            try:
                if self._failure is None:
                    self._send(*at, data)
            except ClientError as failure:
                what = f"A batch of {len(data)} bytes could not be appended to {at[0]}-{at[1]}"
                self._failure = sink_failed(failure, what)
            except Exception as failure:  # noqa: BLE001 - in a thread: the task raises it
                self._failure = failure
            finally:
                self._slots.put(None)

    def _fail(self, _: str, failure: BaseException) -> None:
        self._failure = failure

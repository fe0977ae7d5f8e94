"""Exactly-once appends from one process: a producer id, and a sequence for each partition.

The daemon knows the last batches of an id, so a batch whose answer was lost can be sent again and
is answered as a duplicate. One batch is in flight at a time, and it is recorded before it is sent:
if anything interrupts the call, the producer knows that the outcome of this batch is open.

`client.Producer` and `async_client.AsyncProducer` both use ProducerState, under a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.client.errors import (
    ClientError,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    document_of,
)
from kafkalog.client.messages import Request, json_body
from kafkalog.client.produce import BATCH_BYTES, append_batches, partitions_or_new, planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.client.produce import Partitions
    from kafkalog.client.records import Acks, AppendReceipt, CodecName, ProducerRecord
    from kafkalog.client.retry import Steps


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The id and epoch by which the daemon knows a producer."""

    producer_id: int
    producer_epoch: int


def new_producer() -> Steps[ProducerIdentity]:
    """Get a producer id. Raises ClientError. An unused id costs nothing."""
    answer = yield Request("POST", "/v1/producers", body=json_body({}))
    given = document_of(answer, "producer_id", "producer_epoch")
    return ProducerIdentity(given["producer_id"], given["producer_epoch"])


@dataclass(slots=True)
class _Unanswered:
    """A batch that was sent, or was about to be; only the daemon's success closes it."""

    batch: bytes
    record_count: int
    may_be_appended: bool = False


class ProducerState:
    """Sequences and open batches of one producer id."""

    def __init__(
        self,
        identity: ProducerIdentity | None = None,
        *,
        acks: Acks | None = None,
        codec: CodecName = "none",
    ) -> None:
        if acks == "0":
            raise ValueError(
                "With acks=0 there is no answer that tells a lost batch from an appended one"
            )
        # constant after construction
        self._acks = acks
        self._codec: CodecName = codec
        # guarded by the lock of the producer
        self.identity = identity
        self._next_sequences: dict[tuple[str, int], int] = {}
        self._unanswered: dict[tuple[str, int], _Unanswered] = {}
        self._partitions: dict[str, Partitions] = {}
        self._end: ClientError | None = None

    def send(
        self, topic: str, records: Sequence[ProducerRecord], *, partition: int | None = None
    ) -> Steps[tuple[AppendReceipt, ...]]:
        """Append records exactly once: one receipt for each batch, in the order of the appends.

        Partitions are chosen as by ``produce``; their number is requested once for each topic.

        Raises:
        OutcomeUnknown      the deadline passed without an answer. The batch is kept: ``resend``
                            finds its outcome, and nothing else is sent to this partition before
        OutOfOrderSequence  earlier records of this producer are missing in the log, as after a
                            power cut with acks=1. This producer is finished
        ProducerFenced      another producer has taken over its id. This producer is finished
        other ClientErrors  with ``nothing_was_done`` the current batch is not in the log, and the
                            same call may be repeated without the records in ``appended``;
                            otherwise as OutcomeUnknown
        """
        self._check_alive()
        found: Partitions | None = None
        if partition is None and records:
            if topic not in self._partitions:
                self._partitions[topic] = yield from partitions_or_new(topic)
            found = self._partitions[topic]
        if self.identity is None:
            self.identity = yield from new_producer()
        identity = self.identity
        receipts: list[AppendReceipt] = []
        for number, outgoing, rows in planned(records, partition, found, BATCH_BYTES):
            at = topic, number
            try:
                if at in self._unanswered:
                    raise OutcomeUnknown(
                        f"A batch to {topic}-{number} has no answer yet: resend it first.",
                        nothing_was_done=True,
                    )
                batch = outgoing.batch(
                    rows,
                    self._codec,
                    identity.producer_id,
                    identity.producer_epoch,
                    self._next_sequences.get(at, 0),
                )
                self._unanswered[at] = _Unanswered(batch, len(rows))
                receipts.append((yield from self._settled(at)))
            except ClientError as failure:
                failure.appended = tuple(receipts)
                raise
        return tuple(receipts)

    def resend(self, topic: str, partition: int) -> Steps[AppendReceipt | None]:
        """Find the outcome of the batch of a partition that had no answer.

        Sends it again with the same sequence, so that it is in the log once, whatever happened.
        None when no batch is open. Raises as ``send``.
        """
        self._check_alive()
        at = topic, partition
        return (yield from self._settled(at)) if at in self._unanswered else None

    @property
    def unanswered(self) -> list[tuple[str, int]]:
        """Topic and partition of the batches whose outcome is open."""
        return sorted(self._unanswered)

    def _settled(self, at: tuple[str, int]) -> Steps[AppendReceipt]:
        """Send the open batch until its outcome is known."""
        open_batch = self._unanswered[at]
        was_open, open_batch.may_be_appended = open_batch.may_be_appended, True
        try:
            receipt = yield from append_batches(*at, open_batch.batch, acks=self._acks)
        except (OutOfOrderSequence, ProducerFenced) as failure:
            self._end = failure
            raise
        except ClientError as failure:
            if failure.nothing_was_done and not was_open:
                del self._unanswered[at]
            raise
        del self._unanswered[at]
        from kafkalog.format.records.record_batch import add_to_sequence  # see `produce`

        sequence = self._next_sequences.get(at, 0)
        self._next_sequences[at] = add_to_sequence(sequence, open_batch.record_count)
        return receipt

    def _check_alive(self) -> None:
        if self._end is not None:
            raise type(self._end)(
                f"This producer is finished, create a new one: {self._end.message}",
                nothing_was_done=True,
            ) from self._end


class Appender:
    """Base of the producers of both clients."""

    def __init__(self, state: ProducerState) -> None:
        self._state = state

    @property
    def identity(self) -> ProducerIdentity | None:
        """None before the first send."""
        return self._state.identity

    @property
    def unanswered(self) -> list[tuple[str, int]]:
        """Topic and partition of the batches whose outcome is open."""
        return self._state.unanswered

"""Bodies of answers about producers as the API's description has them."""

from __future__ import annotations

from kafkalog.server.answers import Body


class ProducerAnswer(Body):
    """What a producer writes into its batches."""

    producer_id: int
    producer_epoch: int


class ProducerState(Body):
    """What a log remembers of a producer; -1 is none, the timestamp is its last batch's, in ms."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int | None


class AbortedTransactionAnswer(Body):
    """A transaction that has ended; committed records are readable below the last stable offset."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_stable_offset: int


class ProducersAnswer(Body):
    """All that the log of a partition remembers."""

    topic: str
    partition: int
    producers: list[ProducerState]

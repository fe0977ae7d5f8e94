"""Bodies of answers about exactly-once sinks as the API's description has them."""

from __future__ import annotations

from typing import Literal

from pydantic import RootModel

from kafkalog.server.answers import Body


class SinkProducerAnswer(Body):
    """What an attempt writes into its batches."""

    state: Literal["open"]
    producer_id: int
    producer_epoch: int


class SinkCommittedAnswer(Body):
    """The batch is committed: there is nothing to write."""

    state: Literal["committed"]
    batch_id: int


class SinkBeginAnswer(RootModel[SinkProducerAnswer | SinkCommittedAnswer]):
    """What a begin gives."""


class SinkAbortedAnswer(Body):
    """Nothing of the batch is open."""

    state: Literal["aborted"]
    batch_id: int


class PendingPartition(Body):
    """Where a marker is still to be written."""

    topic: str
    partition: int


class SinkProducerEntry(Body):
    """A producer of a sink; ``is_open``: it may append, and be named by a commit."""

    partition_id: int
    attempt: int
    producer_id: int
    producer_epoch: int
    batch_id: int
    begun: int
    is_open: bool


class SinkSummary(Body):
    """A sink; times are ms since 1970. ``pending``: decided to be committed, markers follow."""

    query: str
    state: Literal["open", "committing", "committed", "aborted"]
    committed_batch_id: int | None
    open_batch_id: int | None
    open_producers: int
    pending: list[PendingPartition]
    changed: int


class SinkAnswer(SinkSummary):
    """A sink with its producers, by partition and attempt."""

    producers: list[SinkProducerEntry]


class SinkList(Body):
    """By query."""

    sinks: list[SinkSummary]

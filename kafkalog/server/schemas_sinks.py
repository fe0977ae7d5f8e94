"""Request bodies of the exactly-once sinks, with errors that name the field."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT64_MAX
from kafkalog.server.schemas import Schema, TopicName, whole

BatchId = Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]
CallerId = Annotated[str, Field(min_length=1, max_length=100)]
Int32 = Annotated[int, Field(ge=0, le=INT32_MAX), BeforeValidator(whole)]


class BeginSink(Schema):
    """``POST /v1/sinks/{sink}:begin``: an attempt to write one partition of a batch.

    ``run_id`` names the life of the query's driver, ``call_id`` this begin and its repetitions.
    """

    batch_id: BatchId
    partition_id: Int32
    attempt: Int32 = 0
    run_id: CallerId | None = None
    call_id: CallerId | None = None


class WinnerPartition(Schema):
    """Where a winner wrote; ``last_sequence``: of its last record, held against the log."""

    topic: TopicName
    partition: Int32
    last_sequence: Int32 | None = None


class SinkWinner(Schema):
    """A producer whose transaction is committed: all partitions that it wrote to."""

    producer_id: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]
    producer_epoch: Annotated[int, Field(ge=0, le=INT16_MAX), BeforeValidator(whole)]
    partitions: list[WinnerPartition]


class CommitSink(Schema):
    """``POST /v1/sinks/{sink}:commit``; no winners: a batch without records.

    ``is_last``: no batch of the query follows, so little of it is kept. ``run_id``: as its begins.
    """

    batch_id: BatchId
    winners: list[SinkWinner]
    is_last: bool = False
    run_id: CallerId | None = None


class AbortSink(Schema):
    """``POST /v1/sinks/{sink}:abort``; ``run_id``: as the begins of the batch."""

    batch_id: BatchId
    run_id: CallerId | None = None

"""Answers about consumers, groups and exactly-once sinks."""

from __future__ import annotations

from typing import Literal

from kafkalog.broker.transactions.sink import SinkPhase
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType


class NewInstance(AnswerBody):
    """Where the consumer instance is found from now on."""

    instance_id: str
    base_uri: str


class AssignedPartition(AnswerBody):
    """One partition."""

    topic: str
    partition: int


class Assignments(AnswerBody):
    """What the instance reads, in order."""

    partitions: list[AssignedPartition]


class SubscribedTopics(AnswerBody):
    """Topics, and partitions by topic as the Bridge shows them."""

    topics: list[str]
    partitions: list[dict[str, list[int]]]


class CommittedPartition(AssignedPartition):
    """The next offset that the group wants."""

    offset: int
    metadata: str


class CommittedOffsets(AnswerBody):
    """Partitions without a commit are left out."""

    offsets: list[CommittedPartition]


NO_RECORDS = NamedType("Nothing", {"type": "array", "maxItems": 0}, "An empty array.")


class GroupEntry(AnswerBody):
    """One group; state is Stable with members, Empty without."""

    group: str
    state: str
    members: int


class GroupList(AnswerBody):
    """Groups that have commits or members, by name."""

    groups: list[GroupEntry]


class GroupOffsetEntry(AssignedPartition):
    """A commit beside its log; lag is end less commit, null when the partition is not served."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None


class GroupMember(AnswerBody):
    """A consumer instance."""

    instance_id: str
    topics: list[str]
    partitions: list[AssignedPartition]


class GroupDescription(AnswerBody):
    """A group with its members and commits."""

    group: str
    state: str
    members: list[GroupMember]
    offsets: list[GroupOffsetEntry]


class GroupOffsetList(AnswerBody):
    """Commits of one group."""

    group: str
    offsets: list[GroupOffsetEntry]


class ResetEntry(AssignedPartition):
    """Before and after; old_offset is null without a commit."""

    old_offset: int | None
    new_offset: int


class FailedReset(AssignedPartition):
    """A partition that stays as it is."""

    error_code: int
    kafka_error: str
    error: str


class ResetReport(AnswerBody):
    """What was reset, or would be in a dry run."""

    group: str
    dry_run: bool
    offsets: list[ResetEntry | FailedReset]


class RemovedOffsets(AnswerBody):
    """How many commits went."""

    group: str
    removed: int


class SinkProducerAnswer(AnswerBody):
    """What an attempt writes into its batches."""

    state: Literal["open"]
    producer_id: int
    producer_epoch: int


class SinkCommittedAnswer(AnswerBody):
    """The batch is committed: there is nothing to write."""

    state: Literal["committed"]
    batch_id: int


SinkBeginAnswer = NamedType(
    "SinkBeginAnswer", SinkProducerAnswer | SinkCommittedAnswer, "What a begin gives."
)


class SinkAbortedAnswer(AnswerBody):
    """Nothing of the batch is open."""

    state: Literal["aborted"]
    batch_id: int


class PendingPartition(AnswerBody):
    """Where a marker is still to be written."""

    topic: str
    partition: int


class SinkProducerEntry(AnswerBody):
    """A producer of a sink; ``is_open``: it may append, and be named by a commit."""

    partition_id: int
    attempt: int
    producer_id: int
    producer_epoch: int
    batch_id: int
    begun: int
    is_open: bool


class SinkSummary(AnswerBody):
    """A sink; times are ms since 1970. ``pending``: decided to be committed, markers follow."""

    query: str
    state: SinkPhase
    committed_batch_id: int | None
    open_batch_id: int | None
    open_producers: int
    pending: list[PendingPartition]
    changed: int


class SinkAnswer(SinkSummary):
    """A sink with its producers, by partition and attempt."""

    producers: list[SinkProducerEntry]


class SinkList(AnswerBody):
    """By query."""

    sinks: list[SinkSummary]

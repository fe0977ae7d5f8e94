"""Bodies of answers about consumer groups, as the API's description has them.

Bodies of answers about exactly-once sinks as the API's description has them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, RootModel

from kafkalog.server.admin.answers_logs import Body


class NewInstance(Body):
    """Where the consumer instance is found from now on."""

    instance_id: str
    base_uri: str


class AssignedPartition(Body):
    """One partition."""

    topic: str
    partition: int


class Assignments(Body):
    """What the instance reads, in order."""

    partitions: list[AssignedPartition]


class SubscribedTopics(Body):
    """Topics, and partitions by topic as the Bridge shows them."""

    topics: list[str]
    partitions: list[dict[str, list[int]]]


class CommittedPartition(AssignedPartition):
    """The next offset that the group wants."""

    offset: int
    metadata: str


class CommittedOffsets(Body):
    """Partitions without a commit are left out."""

    offsets: list[CommittedPartition]


class Nothing(RootModel[list[BaseModel]]):
    """An empty array."""

    root: list[BaseModel] = Field(max_length=0)


class GroupEntry(Body):
    """One group; state is Stable with members, Empty without."""

    group: str
    state: str
    members: int


class GroupList(Body):
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


class GroupMember(Body):
    """A consumer instance."""

    instance_id: str
    topics: list[str]
    partitions: list[AssignedPartition]


class GroupDescription(Body):
    """A group with its members and commits."""

    group: str
    state: str
    members: list[GroupMember]
    offsets: list[GroupOffsetEntry]


class GroupOffsetList(Body):
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


class ResetReport(Body):
    """What was reset, or would be in a dry run."""

    group: str
    dry_run: bool
    offsets: list[ResetEntry | FailedReset]


class RemovedOffsets(Body):
    """How many commits went."""

    group: str
    removed: int


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

"""Request bodies of consumer groups: the v2 consumers and the native group routes.

Clients of the proxies send numbers as strings and flags as words; both are understood.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.server.schemas import Schema

_FLAGS: dict[str, object] = {"true": True, "false": False}


def _number(value: object) -> object:
    """A number that was sent as a text."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value) if len(value) <= 20 else value
    return value


def _flag(value: object) -> object:
    """A flag that was sent as a word."""
    return _FLAGS.get(value.lower(), value) if isinstance(value, str) else value


PartitionNumber = Annotated[int, BeforeValidator(_number), Field(ge=0, le=INT32_MAX)]
# One may be added to it.
Offset = Annotated[int, BeforeValidator(_number), Field(ge=0, le=INT64_MAX - 1)]
Number = Annotated[int, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]


class NewConsumer(Schema):
    """``POST /consumers/{group}``: the union of what the REST Proxy and the Bridge take."""

    id: str | None = None
    name: str | None = None
    format: str = "binary"
    auto_offset_reset: str = Field("latest", alias="auto.offset.reset")
    auto_commit_enable: Flag | None = Field(None, alias="auto.commit.enable")
    enable_auto_commit: Flag | None = Field(None, alias="enable.auto.commit")
    isolation_level: str | None = Field(None, alias="isolation.level")
    fetch_min_bytes: Number | None = Field(None, alias="fetch.min.bytes")
    response_min_bytes: Number | None = Field(None, alias="responseMinBytes")
    request_timeout_ms: Number | None = Field(None, alias="consumer.request.timeout.ms")
    request_wait_ms: Number | None = Field(None, alias="requestWaitMs")
    auto_commit_interval_ms: Number = Field(5_000, alias="auto.commit.interval.ms")


class GroupPartition(Schema):
    """One partition of a topic."""

    topic: str
    partition: PartitionNumber


class Partitions(Schema):
    """Some partitions."""

    partitions: list[GroupPartition]


class Subscription(Schema):
    """Topics by name, or those that match a pattern."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


class CommitEntry(GroupPartition):
    """An offset of a partition."""

    offset: Offset
    metadata: str | None = None


class OffsetCommit(Schema):
    """``offsets``, or pandaproxy's ``partitions``, which are stored as they are."""

    offsets: list[CommitEntry] | None = None
    partitions: list[CommitEntry] | None = None

    @model_validator(mode="after")
    def _not_both(self) -> OffsetCommit:
        if self.offsets is not None and self.partitions is not None:
            raise ValueError("offsets and partitions mean two things; send one")
        return self


class TimestampEntry(GroupPartition):
    """A time: ms since 1970, or ISO-8601 with a zone."""

    timestamp: int | str
    metadata: str | None = None


class Positions(Schema):
    """``POST .../positions``."""

    offsets: list[CommitEntry] = Field(default_factory=list)
    timestamps: list[TimestampEntry] = Field(default_factory=list)


class GroupOffsets(Schema):
    """``PUT /v1/groups/{group}/offsets``: stored exactly as sent."""

    offsets: list[CommitEntry]


class ResetOffsets(Schema):
    """``POST /v1/groups/{group}/offsets:reset``.

    ``timestamp`` goes with to=timestamp (ms or ISO-8601 with a zone), ``shift`` with to=shift.
    Without partitions and topics: all that the group has committed.
    """

    to: Literal["earliest", "latest", "timestamp", "shift", "offset"]
    timestamp: int | str | None = None
    shift: int | None = None
    offset: Offset | None = None
    topics: list[str] | None = None
    partitions: list[GroupPartition] | None = None
    dry_run: bool = False

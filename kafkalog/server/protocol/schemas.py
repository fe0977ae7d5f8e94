"""Bodies of requests (pydantic); an error names the field that is wrong.

Bodies of the v2 consumers and of groups also take numbers as strings and flags as words, as clients
of the proxies send them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT64_MAX
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.protocol.bodies import Body, check_json
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import TIME_SCHEMA, TOPIC_NAME_SCHEMA, checked_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from kafkalog.server.protocol.bodies import BodyHost


_SMALL_BODY_BYTES = 4 << 20  # a control-plane body above this is a mistake


class Schema(BaseModel):
    """Unknown fields are refused: a misspelt option must not be ignored.

    Built with the first body: all of them take 40 ms of a start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


MAX_PARTITIONS = 10_000  # that one request may name


_EXACT = 1 << 53  # above it a float may have been another number when it was written


def whole(value: object) -> object:
    """1.0 is an integer in JSON Schema, and some writers of JSON have only that one."""
    is_exact = isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT
    return int(cast("float", value)) if is_exact else value


Whole = Annotated[int, BeforeValidator(whole)]
# Described, not checked here: further in they are refused in Kafka's words.
TopicName = Annotated[str, WithJsonSchema(TOPIC_NAME_SCHEMA)]
# Checked here: a list of names that need not exist yet, or a look-up among those at hand.
CheckedTopicName = Annotated[str, AfterValidator(checked_topic), WithJsonSchema(TOPIC_NAME_SCHEMA)]
Time = Annotated[str, WithJsonSchema(TIME_SCHEMA)]


class AdminTopic(Schema):
    """``POST /admin/topics``. ``configs`` is kafkalog's addition to the Bridge's body."""

    topic_name: TopicName
    partitions_count: Whole | None = None
    replication_factor: Whole | None = None
    configs: dict[str, str] = Field(default_factory=dict)


class TopicConfigEntry(Schema):
    """One config of a v3 topic."""

    name: str
    value: str | None = None


class ReplicasAssignment(Schema):
    """The brokers of one partition."""

    partition_id: Whole
    broker_ids: list[Whole]


class V3Topic(Schema):
    """``POST /v3/clusters/{cluster_id}/topics``."""

    topic_name: TopicName
    partitions_count: Whole | None = None
    replication_factor: Whole | None = None
    # As the REST Proxy's description has it, or brokers by partition as its code has it.
    replicas_assignments: list[ReplicasAssignment] | dict[str, list[Whole]] | None = None
    configs: list[TopicConfigEntry] = Field(default_factory=list)
    validate_only: bool = False


class PartitionsCount(Schema):
    """``PATCH /v3/clusters/{cluster_id}/topics/{topic}``."""

    partitions_count: Whole


class ConfigValue(Schema):
    """``PUT`` of one config."""

    value: str | None = None


class ConfigOperation(Schema):
    """One step of an alteration; SET by default."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] | None = None


class AlterConfigs(Schema):
    """``POST .../configs:alter``."""

    data: list[ConfigOperation]
    validate_only: bool = False


class TopicConfigs(Schema):
    """What is altered of one topic."""

    topic_name: TopicName
    configs: list[ConfigOperation]


class AlterTopics(Schema):
    """``POST .../topics/-/configs:alter``."""

    data: Annotated[list[TopicConfigs], Field(max_length=MAX_PARTITIONS)]
    validate_only: bool = False


class PartitionName(Schema):
    """One partition of a topic."""

    topic: str
    partition: Whole

    @property
    def key(self) -> TopicPartition:
        """The same for the broker."""
        return TopicPartition(self.topic, self.partition)


class OnePartition(PartitionName):
    """The partition that a request is about; an illegal name refuses it."""

    topic: TopicName


def keys_of(names: Sequence[PartitionName], most: int) -> list[TopicPartition]:
    """The partitions of a body that may name some; ApiError 40002."""
    keys = [name.key for name in names]
    if not 1 <= len(keys) <= most:
        raise ApiError(40002, f"Name 1 to {most} partitions, or leave them out for all.")
    if len(set(keys)) < len(keys):
        raise ApiError(40002, "Name each partition once.")
    return keys


class DeleteRecordsEntry(PartitionName):
    """One partition of kafka-delete-records' file; -1 is the high watermark."""

    offset: Whole


class DeleteRecordsFile(Schema):
    """The JSON file of kafka-delete-records; a missing version is 1."""

    partitions: list[DeleteRecordsEntry]
    version: Whole = 1


class DeleteUntil(Schema):
    """``POST .../records:delete`` of v3; -1 is the high watermark."""

    offset: Annotated[int, Field(ge=-1, le=INT64_MAX), BeforeValidator(whole)]


class ListOffsetsEntry(PartitionName):
    """Timestamp in ms, or -1 latest, -2 earliest, -3 max timestamp."""

    timestamp: Whole


class ListOffsetsRequest(Schema):
    """``POST /v1/offsets:list``."""

    partitions: list[ListOffsetsEntry]


class PartitionMoveEntry(PartitionName):
    """One partition and the entry of ``log.dirs`` that it is to go to."""

    log_dir: str


class PartitionMovesRequest(Schema):
    """``POST /v1/partition-moves``."""

    moves: list[PartitionMoveEntry]


class RetainRequest(Schema):
    """``POST .../log:retain``."""

    dry_run: bool = False


class RetentionRunRequest(RetainRequest):
    """``POST /v1/retention:run``; without partitions all that the task checks."""

    partitions: list[PartitionName] | None = None


class ArchivedOffset(Schema):
    """Below ``offset`` an archive has everything of the partition."""

    partition: Annotated[int, Field(ge=0), BeforeValidator(whole)]
    offset: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]


class ArchivedOffsetsRequest(Schema):
    """``POST /v1/topics/{topic}/archived-offsets:raise``; ``topic_id``: no other topic is meant."""

    partitions: Annotated[list[ArchivedOffset], Field(min_length=1, max_length=MAX_PARTITIONS)]
    topic_id: str | None = None


class LossToAccept(Schema):
    """``POST .../losses:accept``: a range as ``listLosses`` names it, both ends inclusive."""

    first_offset: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]
    last_offset: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]


class AbortTransaction(Schema):
    """``POST .../transactions:abort``; the offset is ``describeProducers``'s."""

    start_offset: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]


class CleanRequest(RetainRequest):
    """``POST .../log:clean``."""


class CleanerRunRequest(RetentionRunRequest):
    """``POST /v1/cleaner:run``; without partitions all that have something to clean."""


class RetentionSimulateRequest(Schema):
    """``POST /v1/retention:simulate``; ``at``: ms since 1970 or ISO-8601, absent is now.

    ``check_interval_ms``: absent is log.retention.check.interval.ms.
    """

    topic: str
    partition: Whole | None = None
    configs: dict[str, str] = Field(default_factory=dict)
    horizon_ms: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]
    at: Time | Whole | None = None
    check_interval_ms: Annotated[int, Field(ge=1, le=INT64_MAX), BeforeValidator(whole)] | None = (
        None
    )


class LogLevelRequest(Schema):
    """``PUT /debug/log-level``; without a logger all of them."""

    level: Literal["debug", "info", "warning", "error"] | None
    logger: str = ""


class BackupRequest(Schema):
    """``POST /v1/backups``; without topics all."""

    directory: str
    topics: list[str] | None = None
    link: bool = True


# ---- the body of a produce, for the API's description alone: kernels parse it (``produce_body``)


_Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class ProducedHeader(BaseModel):
    """A record header; the value is base64."""

    key: str
    value: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = None


class ProducedRecord(Schema):
    """Key and value as the media type has them: null or absent is none, of a value a tombstone."""

    key: object = None
    value: object = None
    partition: Annotated[int, Field(ge=0)] | None = None
    timestamp: Annotated[
        int | _Moment | None,
        Field(description="ms since 1970 or ISO-8601 with a zone; absent: now"),
    ] = None
    headers: list[ProducedHeader] | None = None


class NativeRecord(ProducedRecord):
    """A line or an entry of the native produce; key and value as key_format and value_format say.

    null or absent is none, of a value a tombstone.
    """


class ProduceRequest(BaseModel):
    """Records in request order; schema ids of other proxies' clients are passed by."""

    records: Annotated[list[ProducedRecord], Field(min_length=1)]


class NoBody(Schema):
    """Of a request whose path and query say everything: absent, or an object without fields."""


S = TypeVar("S", bound=Schema)
# Of Confluent's v3 and of the Bridge alone.
_STRICT_ABOUT_SHAPES = ("/v3/", "/kafka/v3/", "/admin/topics")


async def read_body(
    schema: type[S],
    request: web.Request,
    api: BodyHost,
    *,
    is_required: bool = True,
    shape_error: int | None = None,
) -> S:
    """The body of a request; ``is_required`` False: without one it is an empty object.

    ``shape_error`` None: as the one proxy has it whose route it is, else 422.
    """
    if shape_error is None:
        shape_error = 400 if request.path.startswith(_STRICT_ABOUT_SHAPES) else 422
    async with Body(request, api) as data:
        return parse_body(schema, data if is_required else data or b"{}", shape_error=shape_error)


def parse_body(schema: type[S], data: bytes, *, shape_error: int = 422) -> S:
    """The body as a schema: 400 when it is no JSON, ``shape_error`` when its shape is wrong.

    An unknown field is 422 where a wrong shape is 400. InvalidTopicName for a CheckedTopicName.
    """
    if len(data) > _SMALL_BODY_BYTES:
        raise ApiError(41302, f"This body may have {_SMALL_BODY_BYTES} bytes at most.")
    check_json(data)
    try:
        return schema.model_validate_json(data, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        problems = tuple(
            f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
            for problem in found
        )
        message, first = problems[0], found[0]
        if first["type"] == "extra_forbidden":
            shape_error = 422 if shape_error == 400 else shape_error
            if schema is NoBody:
                message = "This request reads no body, and nothing was done: leave it out."
            elif len(first["loc"]) == 1:
                message += did_you_mean(str(first["loc"][0]), schema.model_fields)
        raise ApiError(shape_error, message, validation_errors=problems) from error


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


class GroupPartition(PartitionName):
    """One partition of a topic."""

    topic: CheckedTopicName
    partition: PartitionNumber


class Partitions(Schema):
    """Some partitions."""

    partitions: list[GroupPartition]


class Subscription(Schema):
    """Topics by name, or those that match a pattern."""

    topics: list[CheckedTopicName] | None = None
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

    ``timestamp`` belongs to to=timestamp (ms or ISO-8601 with a zone), ``shift`` to to=shift.
    Without partitions and topics: all that the group has committed.
    """

    to: Literal["earliest", "latest", "timestamp", "shift", "offset"]
    timestamp: int | str | None = None
    shift: int | None = None
    offset: Offset | None = None
    topics: list[str] | None = None
    partitions: list[GroupPartition] | None = None
    dry_run: bool = False


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


class WinnerPartition(PartitionName):
    """Where a winner wrote; ``last_sequence``: of its last record, held against the log."""

    topic: CheckedTopicName
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

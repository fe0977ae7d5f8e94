"""v2 consumers: instances, subscriptions, positions, polls and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog
from aiohttp import hdrs, web

from kafkalog.broker.groups.consumers import ConsumerConfig, Delivery, Dialect, Reset
from kafkalog.errors import IllegalConsumerState, KafkalogError
from kafkalog.log.values import Isolation
from kafkalog.server.api import Api, api_of
from kafkalog.server.fetch.v2 import RecordPage
from kafkalog.server.groups.commits import commit, commit_positions, commits_of
from kafkalog.server.groups.consumer_configs import IGNORED_HEADER, KARAPACE_KEY, NewConsumer
from kafkalog.server.groups.poll import ConsumerPoll
from kafkalog.server.protocol.bodies import Body
from kafkalog.server.protocol.connection import Connection
from kafkalog.server.protocol.endpoint import Access, Answer, Routes, in_v2
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType, PartitionAnswer
from kafkalog.server.protocol.media_types import (
    EMBEDDED_TYPES,
    V2_JSON,
    EmbeddedFormat,
    consumer_type,
    metadata_or_own_type,
)
from kafkalog.server.protocol.origin import origin_of, path_of
from kafkalog.server.protocol.parameters import (
    FlagParameter,
    IntegerParameter,
    group_of,
    instance_of,
    parse_timestamp,
)
from kafkalog.server.protocol.replies import (
    REQUEST_ID,
    add_standard_headers,
    bytes_reply,
    json_reply,
)
from kafkalog.server.protocol.schemas import (
    OffsetCommit,
    Partitions,
    Positions,
    Subscription,
    parse_body,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.groups.consumers import Consumer
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.server.groups.poll import PartitionPage


ROUTES = Routes("consumers", is_v2=True, takes_any_type=True)
_MIN_BYTES_MAX = 10_000_000
_FORMATS = [each.value for each in EmbeddedFormat]
_ISOLATIONS = {
    "read_uncommitted": Isolation.HIGH_WATERMARK,
    "read_committed": Isolation.LAST_STABLE,
}
_REQUEST_TIMEOUT_MS = {Dialect.CONFLUENT: 1_000, Dialect.STRIMZI: 100, Dialect.KARAPACE: 11_000}
_NAME_PREFIX = {
    Dialect.CONFLUENT: "rest-consumer-",
    Dialect.STRIMZI: "kafka-bridge-consumer-",
    Dialect.KARAPACE: "",
}


class NewInstance(AnswerBody):
    """Where the consumer instance is found from now on."""

    instance_id: str
    base_uri: str


class AssignedPartition(PartitionAnswer):
    """One partition."""


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


def consumer_of(request: web.Request) -> Consumer:
    """The instance in the path; UnknownConsumer."""
    members = api_of(request).operations.groups.members
    consumer = members.find(group_of(request), instance_of(request))
    consumer.confirm(request.protocol)
    return consumer


INSTANCE_ROUTES = Routes(
    "consumers",
    "/consumers/{group}/instances/{instance}",
    errors=(40403,),
    is_v2=True,
    takes_any_type=True,
    look_up=consumer_of,
)


def entries_of(partitions: list[TopicPartition]) -> list[AssignedPartition]:
    """As answers name partitions."""
    return [AssignedPartition(at.topic, at.partition) for at in partitions]


# ---- instances


@ROUTES.endpoint(
    "POST /consumers/{group}",
    "createConsumer",
    Access.READ_GROUP,
    Answer("The instance.", in_v2(NewInstance), (IGNORED_HEADER,)),
    is_body_required=False,
    errors=(40002, 40902, 42204),
)
async def create(request: web.Request, wanted: NewConsumer) -> web.Response:
    """Create a consumer instance in a group.

    The fields of the body tell the dialect of the client unless http.v2.dialect sets it. Configs of
    Kafka's consumer and of the proxies that have no meaning here are ignored; the header names
    them.
    """
    api = api_of(request)
    content_type = metadata_or_own_type(request.headers.get("Accept", ""))
    ignored = wanted.ignored()
    group = group_of(request)
    name = wanted.name if wanted.name is not None else wanted.id
    consumer = api.operations.groups.members.create(group, name, _config_of(api, wanted))
    base = f"{origin_of(request)}{path_of(request)}"
    uri = f"{base}/instances/{quote(consumer.name, safe='')}"
    headers = {IGNORED_HEADER: ", ".join(ignored)} if ignored else {}
    return json_reply(NewInstance(consumer.name, uri), content_type=content_type, headers=headers)


def _config_of(api: Api, wanted: NewConsumer) -> ConsumerConfig:
    """ApiError 42204 for a value that is not offered."""
    dialect = _dialect_of(api, wanted)
    resets = [each.value for each in Reset]
    isolation = wanted.isolation_level or "read_uncommitted"
    is_karapace = dialect is Dialect.KARAPACE
    reset = wanted.auto_offset_reset or ("earliest" if is_karapace else "latest")
    for name, value, offered in (
        ("format", wanted.format, _FORMATS),
        ("auto.offset.reset", reset, resets),
        ("isolation.level", isolation, list(_ISOLATIONS)),
    ):
        if value not in offered:
            raise ApiError(42204, f"{name} must be one of {', '.join(offered)}.")
    auto_commit = _either(wanted.auto_commit_enable, wanted.enable_auto_commit)
    min_bytes = _either(wanted.fetch_min_bytes, wanted.response_min_bytes)
    timeout_ms = _either(wanted.request_timeout_ms, wanted.request_wait_ms)
    return ConsumerConfig(
        dialect=dialect,
        embedded_format=wanted.format,
        reset=Reset(reset),
        is_auto_commit=True if auto_commit is None else bool(auto_commit),
        auto_commit_interval_ms=_in_range(
            "auto.commit.interval.ms", wanted.auto_commit_interval_ms, 0, 2**31 - 1
        ),
        # -1 is the REST Proxy's "wait for the whole timeout", which no client means.
        min_bytes=max(1, _in_range("fetch.min.bytes", min_bytes, -1, _MIN_BYTES_MAX, 1)),
        request_timeout_ms=_in_range(
            "consumer.request.timeout.ms", timeout_ms, 0, 2**31 - 1, _REQUEST_TIMEOUT_MS[dialect]
        ),
        isolation=_ISOLATIONS[isolation],
        name_prefix=_NAME_PREFIX[dialect],
    )


def _dialect_of(api: Api, wanted: NewConsumer) -> Dialect:
    configured = api.config.http_v2_dialect
    if configured != "auto":
        return Dialect(configured)
    is_strimzi = (
        wanted.enable_auto_commit is not None
        or wanted.isolation_level is not None
        or wanted.format == EmbeddedFormat.TEXT.value
    )
    if is_strimzi:
        return Dialect.STRIMZI
    return Dialect.KARAPACE if KARAPACE_KEY in wanted.ignored() else Dialect.CONFLUENT


def _either(one: int | None, other: int | None) -> int | None:
    """Two spellings of one config."""
    return other if one is None else one


def _in_range(name: str, value: int | None, least: int, most: int, default: int = 0) -> int:
    if value is None:
        return default
    if not least <= value <= most:
        raise ApiError(42204, f"{name} must be a number from {least} to {most}.")
    return value


@INSTANCE_ROUTES.endpoint("DELETE", "deleteConsumer", Access.READ_GROUP, "Done.")
async def delete(request: web.Request) -> None:
    """Leave the group; with auto-commit, what was delivered is committed first.

    The instance is gone even when that commit fails, which the answer then says.
    """
    api, consumer = api_of(request), consumer_of(request)
    try:
        if consumer.config.is_auto_commit:
            await commit_positions(api, consumer, only_moved=True)
    finally:
        api.operations.groups.members.delete(consumer)


# ---- subscription


@INSTANCE_ROUTES.endpoint(
    "POST /subscription", "subscribe", Access.READ_GROUP, "Done.", errors=(40002, 40903)
)
async def subscribe(request: web.Request, wanted: Subscription) -> None:
    """Read topics by name, or all whose name matches a pattern.

    The group's partitions are dealt out at once, so that the first poll returns records. Topics
    that do not exist yet are read when they appear.
    """
    api, consumer = api_of(request), consumer_of(request)
    if wanted.topics is not None and wanted.topic_pattern is not None:
        raise IllegalConsumerState("Illegal state: send topics or topic_pattern, not both.")
    if wanted.topics is None and wanted.topic_pattern is None:
        raise ApiError(422, "Send topics or topic_pattern.")
    members = api.operations.groups.members
    if wanted.topics == []:  # Java's consumer: nothing is read any more
        members.unsubscribe(consumer)
    else:
        members.subscribe(consumer, wanted.topics, wanted.topic_pattern)


@INSTANCE_ROUTES.endpoint("GET /subscription", "getSubscription", Access.READ_GROUP, "The topics.")
async def subscription(request: web.Request) -> SubscribedTopics:
    """Topics that the instance subscribed to, and its partitions of them."""
    consumer = consumer_of(request)
    by_topic: dict[str, list[int]] = {}
    for at in consumer.partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    partitions = [{topic: numbers} for topic, numbers in by_topic.items()]
    return SubscribedTopics(consumer.topics, partitions)


@INSTANCE_ROUTES.endpoint("DELETE /subscription", "unsubscribe", Access.READ_GROUP, "Done.")
async def unsubscribe(request: web.Request) -> None:
    """Read nothing any more; the partitions go to the others of the group."""
    consumer = consumer_of(request)
    api_of(request).operations.groups.members.unsubscribe(consumer)


# ---- assignment by hand


@INSTANCE_ROUTES.endpoint(
    "POST /assignments", "assign", Access.READ_GROUP, "Done.", errors=(40401, 40402, 40903)
)
async def assign(request: web.Request, wanted: Partitions) -> None:
    """Read these partitions and no others, independently of the group."""
    consumer_of(request).assign_by_hand([each.key for each in wanted.partitions])


@INSTANCE_ROUTES.endpoint(
    "GET /assignments", "getAssignments", Access.READ_GROUP, "Its partitions."
)
async def assignments(request: web.Request) -> Assignments:
    """Partitions that the instance reads, assigned by the group or by hand."""
    consumer = consumer_of(request)
    return Assignments(entries_of(consumer.partitions))


# ---- positions


@INSTANCE_ROUTES.endpoint(
    "POST /positions", "seek", Access.READ_GROUP, "Done.", errors=(40005, 40402, 40903, 50303)
)
async def seek(request: web.Request, wanted: Positions) -> None:
    """Read on from offsets, or from the first records at or after times.

    No record that late: from the end.
    """
    consumer = consumer_of(request)
    positions = {each.key: each.offset for each in wanted.offsets}
    times = {each.key: parse_timestamp(str(each.timestamp)) for each in wanted.timestamps}
    consumer.check_assigned((*positions, *times))
    consumer.seek({**positions, **await _offsets_at(request, consumer, times)})


async def _offsets_at(
    request: web.Request, consumer: Consumer, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    api, found = api_of(request), {}
    isolation = consumer.config.isolation
    for at, timestamp_ms in times.items():
        log = api.operations.partition_log(at.topic, at.partition)
        answer = await api.offset_at(log, timestamp_ms, isolation)
        found[at] = consumer.end_of(log) if answer is None else answer.offset
    return found


@INSTANCE_ROUTES.endpoint(
    "POST /positions/beginning",
    "seekToBeginning",
    Access.READ_GROUP,
    "Done.",
    errors=(40402, 40903, 50303),
)
async def seek_to_beginning(request: web.Request, wanted: Partitions) -> None:
    """Read partitions from their first record on."""
    _seek_to_edge(request, wanted, is_end=False)


@INSTANCE_ROUTES.endpoint(
    "POST /positions/end", "seekToEnd", Access.READ_GROUP, "Done.", errors=(40402, 40903, 50303)
)
async def seek_to_end(request: web.Request, wanted: Partitions) -> None:
    """Read what is appended to partitions from now on."""
    _seek_to_edge(request, wanted, is_end=True)


def _seek_to_edge(request: web.Request, wanted: Partitions, *, is_end: bool) -> None:
    consumer, partitions = consumer_of(request), [each.key for each in wanted.partitions]
    consumer.check_assigned(partitions)
    operations = api_of(request).operations
    logs = {at: operations.partition_log(at.topic, at.partition) for at in partitions}
    consumer.seek(
        {at: consumer.end_of(log) if is_end else log.log_start_offset for at, log in logs.items()}
    )


_log = structlog.get_logger("kafkalog.server")
_TIMEOUT = IntegerParameter(
    "timeout",
    "How long to wait for records, in ms; absent: the consumer's consumer.request.timeout.ms.",
    -1,
)
_MAX_BYTES = IntegerParameter(
    "max_bytes", "Bytes of keys and values, but at least one record.", 1 << 20
)


@INSTANCE_ROUTES.endpoint(
    "GET /records",
    "pollRecords",
    Access.READ_GROUP,
    Answer(
        "Records of its partitions, each in offset order.",
        dict.fromkeys(EMBEDDED_TYPES, RecordPage),
    ),
    parameters=(_TIMEOUT, _MAX_BYTES),
    errors=(422, 40402, 40601, 40602, 40903, 40914, 41001, 41601, 42903, 50010, 50101, 50303),
)
async def poll(request: web.Request) -> web.StreamResponse:
    """Records that the consumer has not got yet, as soon as there are some.

    Positions move when the answer is written. A client that polls again after its connection broke
    before it had read all gets the same records once more.
    """
    api, consumer = api_of(request), consumer_of(request)
    embedded = EmbeddedFormat(consumer.config.embedded_format)
    content_type = consumer_type(request.headers.get("Accept", ""), embedded)
    timeout_ms = _TIMEOUT.read_or_none(request)
    if timeout_ms is None:
        timeout_ms = consumer.config.request_timeout_ms
    max_bytes = min(_MAX_BYTES.read(request), api.config.http_max_fetch_bytes)
    consumer.take_back_lost_answer()
    if consumer.is_commit_due():
        await _auto_commit(api, consumer)
    reading = ConsumerPoll(api, consumer, max_bytes)
    pages = await reading.run(min(timeout_ms, api.config.http_max_wait_ms))
    response = bytes_reply(_joined(pages), content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    add_standard_headers(response, request[REQUEST_ID])
    await response.prepare(request)
    await response.write_eof()
    connection = request.protocol
    assert isinstance(connection, Connection)
    if request.method != hdrs.METH_HEAD:  # its answer held no records
        moves = {page.at: (page.position, page.next_offset) for page in pages}
        consumer.deliver(Delivery(moves, lambda: connection.was_cut, connection))
    return response


async def _auto_commit(api: Api, consumer: Consumer) -> None:
    """A commit that fails is tried again at the next poll; reading continues, as in Java's."""
    try:
        await commit_positions(api, consumer, only_moved=True)
    except KafkalogError as fault:
        _log.warning(
            "auto_commit_failed", group=consumer.group, consumer=consumer.name, reason=fault.message
        )


def _joined(pages: list[PartitionPage]) -> bytes:
    """Arrays as one."""
    if len(pages) == 1:
        return pages[0].body
    return b"[%b]" % b",".join(page.body[1:-1] for page in pages)


_ASYNC = FlagParameter("async", "Answer before the commit counts.")


@INSTANCE_ROUTES.endpoint(
    "POST /offsets",
    "commitOffsets",
    Access.READ_GROUP,
    {
        200: Answer("Committed; dialect confluent.", in_v2(NO_RECORDS)),
        204: Answer("Committed; dialects strimzi and karapace, or a body of pandaproxy's."),
    },
    parameters=(_ASYNC,),
    is_body_required=False,
    errors=(40002, 40401, 40402, 50003, 50302, 50303, 50701),
)
async def commit_offsets(request: web.Request, wanted: OffsetCommit) -> list[object] | None:
    """Commit offsets, or without a body all that was delivered.

    In the dialects confluent and karapace an entry of ``offsets`` names the last record that was
    processed and the next one is committed; in strimzi, and in ``partitions``, the offset is stored
    as it is.
    """
    api, consumer = api_of(request), consumer_of(request)
    is_awaited = not _ASYNC.read(request)
    dialect = consumer.config.dialect
    if wanted.partitions is not None:
        commits = commits_of(api, wanted.partitions)
        await commit(api, consumer.group, commits, is_awaited=is_awaited)
        return None
    if wanted.offsets is not None:
        commits = commits_of(api, wanted.offsets, plus=int(dialect is not Dialect.STRIMZI))
        await commit(api, consumer.group, commits, is_awaited=is_awaited)
    else:
        await commit_positions(api, consumer, is_awaited=is_awaited)
    return [] if dialect is Dialect.CONFLUENT else None


@INSTANCE_ROUTES.endpoint(
    "GET /offsets",
    "getCommittedOffsets",
    Access.READ_GROUP,
    "The commits.",
    body={V2_JSON: Partitions},
    is_body_required=False,
    errors=(50303,),
)
async def committed(request: web.Request) -> CommittedOffsets:
    """What the group has committed for partitions, or without a body for those it was assigned.

    Partitions without a commit are left out.
    """
    api, consumer = api_of(request), consumer_of(request)
    async with Body(request, api) as data:
        if not data or data.isspace() or data == b"{}":  # clients that send a body with every verb
            wanted = consumer.partitions
        else:
            wanted = [each.key for each in parse_body(Partitions, data).partitions]
    found = api.operations.groups.offsets.committed(consumer.group)
    offsets = [
        CommittedPartition(at.topic, at.partition, found[at].offset, found[at].metadata)
        for at in wanted
        if at in found
    ]
    return CommittedOffsets(offsets)

"""v3 topics, partitions, replicas, offsets and ``records:delete``.

``offset`` has further values of the proxy's offset_type. ``records:delete`` is an addition of
kafkalog: ``POST /v1/records:delete`` for one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.broker.values import ListedPartition
from kafkalog.errors import TopicExists, UnknownTopic
from kafkalog.server.admin.delete_records import delete_one
from kafkalog.server.admin.topics import (
    INCLUDE_INTERNAL,
    listed_partitions,
    names_asked_for,
    partition_in_path,
)
from kafkalog.server.admin.v3 import (
    PAGING,
    E,
    Entity,
    Page,
    Related,
    broker_of,
    cluster_of,
    cluster_url,
    entity_of,
    page_of,
)
from kafkalog.server.api import api_of
from kafkalog.server.fetch.offsets import EARLIEST, LATEST, NAMED_OFFSETS, OffsetAnswer, look_up
from kafkalog.server.protocol.endpoint import CLUSTER, Access, Answer, Link, Routes
from kafkalog.server.protocol.errors import ApiError, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.parameters import (
    ISOLATION,
    ChoiceParameter,
    TimeParameter,
    partition_number,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import (
    DeleteRecordsEntry,
    DeleteUntil,
    PartitionsCount,
    V3Topic,
    read_body,
)
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from kafkalog.broker.values import TopicDescription


ROUTES = Routes("partitions", CLUSTER)
TOPIC_ROUTES = Routes("topics", f"{CLUSTER}/topics")
_STORAGE = (50302, 50303, 50701)
_NAMED = {"cluster_id": "$response.body#/cluster_id", "topic": "$response.body#/topic_name"}
_ABOUT_IT = tuple(
    Link(operation_id, _NAMED)
    for operation_id in (
        *("getTopic", "growTopic", "deleteTopic"),
        *("listPartitions", "listTopicConfigs", "alterTopicConfigs"),
    )
)


class OfflinePartition(AnswerBody):
    """A partition that is not served, and why."""

    partition_id: int
    error_code: int
    kafka_error: str
    error: str


class KafkaTopic(Entity):
    """A topic; id, overrides and offline partitions are kafkalog's additions."""

    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: Literal[1]
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related
    config_overrides: dict[str, str]
    offline_partitions: list[OfflinePartition]
    authorized_operations: list[str]


class KafkaTopicList(Page[KafkaTopic]):
    """By name."""


def _topic_entity(request: web.Request, topic: TopicDescription) -> KafkaTopic:
    url = f"{cluster_url(request)}/topics/{topic.name}"
    return entity_of(
        KafkaTopic,
        request,
        f"/topics/{topic.name}",
        f"/topic={topic.name}",
        topic_name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        replication_factor=1,
        partitions_count=topic.partition_count,
        partitions=Related(f"{url}/partitions"),
        configs=Related(f"{url}/configs"),
        partition_reassignments=Related(f"{url}/partitions/-/reassignment"),
        config_overrides=dict(topic.overrides),
        offline_partitions=[
            answer_of(OfflinePartition, error_of(fault), partition_id=number)
            for number, fault in topic.faults.items()
        ],
        authorized_operations=[],
    )


@TOPIC_ROUTES.endpoint(
    "GET",
    "listTopics",
    Access.DESCRIBE_TOPIC,
    "A page of topics.",
    parameters=(*PAGING, INCLUDE_INTERNAL),
)
async def topics(request: web.Request) -> KafkaTopicList:
    """All topics by name, internal ones if asked for."""
    operations = cluster_of(request).operations

    def listed(request: web.Request, name: str) -> KafkaTopic | None:
        try:
            return _topic_entity(request, operations.topics.describe(name))
        except UnknownTopic:
            return None  # deleted since the names were taken

    names = names_asked_for(request)
    return page_of(KafkaTopicList, request, names, str, listed, keeps=(INCLUDE_INTERNAL.name,))


@TOPIC_ROUTES.endpoint(
    "POST",
    "createTopic",
    Access.CREATE_TOPIC,
    {
        200: Answer("validate_only: it could be made.", KafkaTopic),
        201: Answer("Made, durable.", KafkaTopic, ("Location",), _ABOUT_IT),
    },
    body=V3Topic,
    errors=(40002, *_STORAGE),
)
async def create(request: web.Request) -> web.Response:
    """Create: 201 with Location; 200 when validate_only; an existing topic is 400/40002."""
    api = cluster_of(request)
    wanted = await read_body(V3Topic, request, api)
    note_subject(
        request,
        topic=wanted.topic_name,
        partition_count=wanted.partitions_count,
        validate_only=wanted.validate_only or None,
    )
    configs = {entry.name: entry.value for entry in wanted.configs if entry.value is not None}
    try:
        created = await api.blocking(
            api.operations.topics.create,
            wanted.topic_name,
            _partition_count(wanted, api.operations.node_id),
            configs,
            replication_factor=wanted.replication_factor,
            validate_only=wanted.validate_only,
        )
    except TopicExists as error:
        raise ApiError(
            40002, error.message, details=error.details, kafka_error=error.kafka_error
        ) from error
    entity = _topic_entity(request, created)
    if wanted.validate_only:
        return json_reply(entity)
    location = f"{cluster_url(request)}/topics/{created.name}"
    return json_reply(entity, status=201, headers={"Location": location})


def _partition_count(wanted: V3Topic, node_id: int) -> int | None:
    """As the body says, or as many as it assigns to the one broker. ApiError 40002."""
    given = wanted.replicas_assignments
    if not given:
        return wanted.partitions_count
    if isinstance(given, dict):
        assigned = [(partition_number(text), brokers) for text, brokers in given.items()]
    else:
        assigned = [(each.partition_id, each.broker_ids) for each in given]
    if any(brokers != [node_id] for _, brokers in assigned):
        raise ApiError(40002, f"Assign each partition to [{node_id}]: there is no other broker.")
    if {number for number, _ in assigned} != set(range(len(assigned))):
        raise ApiError(40002, "Assign each partition once, from 0 on without a gap.")
    if wanted.partitions_count not in (None, -1, len(assigned)):
        raise ApiError(
            40002,
            f"replicas_assignments name {len(assigned)} partitions: leave partitions_count out.",
        )
    return len(assigned)


@TOPIC_ROUTES.endpoint(
    "GET /{topic}", "getTopic", Access.DESCRIBE_TOPIC, "The topic.", tag="topics"
)
async def describe(request: web.Request) -> KafkaTopic:
    """One topic."""
    api = cluster_of(request)
    return _topic_entity(request, api.operations.topics.describe(topic_of(request)))


@TOPIC_ROUTES.endpoint(
    "PATCH /{topic}", "growTopic", Access.ALTER_TOPIC, "As it is now.", errors=_STORAGE
)
def grow(request: web.Request, operations: Operations, wanted: PartitionsCount) -> KafkaTopic:
    """More partitions; fewer or as many are refused."""
    cluster_of(request)
    note_subject(request, partition_count=wanted.partitions_count)
    grown = operations.topics.create_partitions(topic_of(request), wanted.partitions_count)
    return _topic_entity(request, grown)


@TOPIC_ROUTES.endpoint(
    "DELETE /{topic}", "deleteTopic", Access.DELETE_TOPIC, "Gone.", errors=_STORAGE
)
def delete(request: web.Request, operations: Operations) -> None:
    """Delete a topic: its directories are renamed at once and removed later."""
    cluster_of(request)
    operations.topics.delete(topic_of(request))


class KafkaPartition(Entity):
    """A partition; one that is not served has no leader."""

    topic_name: str
    partition_id: int
    leader: Related | None
    replicas: Related
    reassignment: Related


class KafkaPartitionList(Page[KafkaPartition]):
    """By number."""


class KafkaReplica(Entity):
    """The one replica of a partition."""

    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class KafkaReplicaList(Page[KafkaReplica]):
    """Of a partition: one. Of a broker: by topic and number."""


class KafkaPartitionWithOffsets(Entity):
    """The requested offsets; -1 when nothing is found by a time."""

    topic_name: str
    partition_id: int
    earliest_offset: int | None = None
    latest_offset: int | None = None
    max_timestamp_offset: int | None = None
    offset: int | None = None
    timestamp: int | None = None


class DeletedRecordsEntity(Entity, tag="KafkaDeletedRecords"):
    """What ``records:delete`` left."""

    topic_name: str
    partition_id: int
    low_watermark: int


_BOTH, _AT_TIME = "earliest_and_latest", "timestamp"
_OFFSET_TYPE = ChoiceParameter(
    "offset_type",
    "Which offset; earliest_and_latest is the proxy's only one, the others are kafkalog's.",
    {name: name for name in (_BOTH, *NAMED_OFFSETS, _AT_TIME)},
    _BOTH,
)
_TIMESTAMP = TimeParameter(_AT_TIME, "With offset_type=timestamp: ms since 1970 or ISO-8601.")


def _partition_in_path(request: web.Request) -> ListedPartition:
    """The one in the path, also when it is not served. ApiError 40403."""
    cluster_of(request)
    return partition_in_path(request)


def _number_key(partition: ListedPartition) -> str:
    return f"{partition.partition:010}"


def _entity(
    model: type[E],
    request: web.Request,
    partition: ListedPartition,
    place: tuple[str, str] = ("", ""),
    **fields: object,
) -> E:
    """An entity about a partition; ``place``: its path and resource name below the partition."""
    topic, number = partition.name, partition.partition
    return entity_of(
        model,
        request,
        f"/topics/{topic}/partitions/{number}{place[0]}",
        f"/topic={topic}/partition={number}{place[1]}",
        topic_name=topic,
        partition_id=number,
        **fields,
    )


def _partition_entity(request: web.Request, partition: ListedPartition) -> KafkaPartition:
    node_id = api_of(request).operations.node_id
    url = f"{cluster_url(request)}/topics/{partition.name}/partitions/{partition.partition}"
    return _entity(
        KafkaPartition,
        request,
        partition,
        leader=Related(f"{url}/replicas/{node_id}") if partition.fault is None else None,
        replicas=Related(f"{url}/replicas"),
        reassignment=Related(f"{url}/reassignment"),
    )


def _replica_entity(request: web.Request, partition: ListedPartition) -> KafkaReplica:
    node_id = api_of(request).operations.node_id
    is_served = partition.fault is None
    return _entity(
        KafkaReplica,
        request,
        partition,
        (f"/replicas/{node_id}", f"/replica={node_id}"),
        broker_id=node_id,
        is_leader=is_served,
        is_in_sync=is_served,
        broker=Related(f"{cluster_url(request)}/brokers/{node_id}"),
    )


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions",
    "listPartitions",
    Access.DESCRIBE_TOPIC,
    "A page of partitions.",
    parameters=PAGING,
)
async def partitions(request: web.Request) -> KafkaPartitionList:
    """The partitions of a topic by number, also those that are not served."""
    found = listed_partitions(cluster_of(request).operations.topics.describe(topic_of(request)))
    return page_of(KafkaPartitionList, request, found, _number_key, _partition_entity)


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}",
    "getPartition",
    Access.DESCRIBE_TOPIC,
    "The partition.",
)
async def partition(request: web.Request) -> KafkaPartition:
    """One partition; its leader is null when it is not served."""
    return _partition_entity(request, _partition_in_path(request))


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/replicas",
    "listReplicas",
    Access.DESCRIBE_TOPIC,
    "One.",
    parameters=PAGING,
)
async def replicas(request: web.Request) -> KafkaReplicaList:
    """The one replica of a partition."""
    return page_of(
        KafkaReplicaList, request, [_partition_in_path(request)], _number_key, _replica_entity
    )


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/replicas/{broker}",
    "getReplica",
    Access.DESCRIBE_TOPIC,
    "The replica.",
)
async def replica(request: web.Request) -> KafkaReplica:
    """The replica on one broker."""
    found = _partition_in_path(request)
    broker_of(request)
    return _replica_entity(request, found)


@ROUTES.endpoint(
    "GET /brokers/{broker}/partition-replicas",
    "listBrokerReplicas",
    Access.DESCRIBE_CLUSTER,
    "A page of replicas.",
    parameters=PAGING,
)
def broker_replicas(request: web.Request, operations: Operations) -> KafkaReplicaList:
    """Every replica of the broker, by topic and number."""
    cluster_of(request)
    broker_of(request)
    return page_of(
        KafkaReplicaList,
        request,
        operations.partitions(),
        lambda each: f"{each.name}\0{_number_key(each)}",
        _replica_entity,
    )


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/offset",
    "getPartitionOffsets",
    Access.DESCRIBE_TOPIC,
    "Those asked for.",
    parameters=(_OFFSET_TYPE, _TIMESTAMP, ISOLATION),
)
async def offset(request: web.Request) -> KafkaPartitionWithOffsets:
    """Offsets of a partition: where it begins and ends, or the one at a time.

    latest is the next offset that a reader has not seen. Nothing at or after a time: -1.
    """
    api = cluster_of(request)
    key = ListedPartition(topic_of(request), partition_of(request), None)
    offset_type, isolation = _OFFSET_TYPE.read(request), ISOLATION.read(request)
    moment_ms = _TIMESTAMP.read(request)

    async def at(timestamp_ms: int) -> OffsetAnswer:
        return await look_up(api, key.name, key.partition, timestamp_ms, isolation)

    if offset_type == _AT_TIME:
        if moment_ms is None:
            raise ApiError(40005, "offset_type=timestamp needs the parameter timestamp.")
        found = await at(moment_ms)
        offsets = {"offset": found.offset, "timestamp": found.timestamp}
    elif offset_type == _BOTH:
        earliest, latest = await at(EARLIEST), await at(LATEST)
        offsets = {"earliest_offset": earliest.offset, "latest_offset": latest.offset}
    else:
        found = await at(NAMED_OFFSETS[offset_type])
        offsets = {f"{offset_type}_offset": found.offset}
        if offset_type == "max_timestamp":
            offsets["timestamp"] = found.timestamp
    return _entity(KafkaPartitionWithOffsets, request, key, ("/offset", "/offset"), **offsets)


@ROUTES.endpoint(
    "POST /topics/{topic}/partitions/{partition}/records:delete",
    "deletePartitionRecords",
    Access.DELETE_TOPIC,
    "The new log start.",
    body=DeleteUntil,
    errors=(40907, 41602, 50003),
)
async def delete_records(request: web.Request) -> DeletedRecordsEntity:
    """Delete the records of a partition below an offset; -1 is the high watermark.

    Durable before the answer.
    """
    api = cluster_of(request)
    key = ListedPartition(topic_of(request), partition_of(request), None)
    wanted = await read_body(DeleteUntil, request, api)
    entry = DeleteRecordsEntry(topic=key.name, partition=key.partition, offset=wanted.offset)
    low_watermark = await delete_one(request, entry)
    return _entity(DeletedRecordsEntity, request, key, low_watermark=low_watermark)

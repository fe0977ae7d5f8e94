"""v3 topics, partitions, replicas, offsets and ``records:delete`` (http-api.md 1.7, 3.5).

``offset`` has further values of the proxy's offset_type. ``records:delete`` is an addition of
kafkalog: ``POST /v1/records:delete`` for one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from aiohttp import web
from msgspec import structs

from kafkalog.broker.values import ListedPartition
from kafkalog.errors import InvalidRequest, KafkalogError, TopicExists, UnknownTopic
from kafkalog.server.admin.delete_records import delete_one
from kafkalog.server.admin.v3 import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    PAGING,
    broker_of,
    cluster_of,
    cluster_url,
    entity_metadata,
    page_reply,
    v3_numbers,
)
from kafkalog.server.admin.v3_answers import (
    DeletedRecordsEntity,
    EntityMetadata,
    KafkaPartition,
    KafkaPartitionList,
    KafkaPartitionWithOffsets,
    KafkaReplica,
    KafkaReplicaList,
    KafkaTopic,
    KafkaTopicList,
    OfflinePartition,
    Related,
)
from kafkalog.server.api import Api, api_of
from kafkalog.server.fetch.offsets import EARLIEST, LATEST, NAMED_OFFSETS, look_up
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Link, Resource, endpoint
from kafkalog.server.protocol.errors import ApiError, entry_error
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import (
    ISOLATION,
    ChoiceParameter,
    TextParameter,
    parse_timestamp,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import (
    TIME_SCHEMA,
    DeleteRecordsEntry,
    DeleteUntil,
    PartitionsCount,
    V3Topic,
    read_body,
)
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from kafkalog.broker.values import TopicDescription
    from kafkalog.server.fetch.answers import OffsetAnswer


ROUTES = web.RouteTableDef()
_STORAGE = (50302, 50303, 50701)
_NAMED = {"cluster_id": "$response.body#/cluster_id", "topic": "$response.body#/topic_name"}
_ABOUT_IT = tuple(
    Link(operation_id, _NAMED)
    for operation_id in (
        *("getTopic", "growTopic", "deleteTopic"),
        *("listPartitions", "listTopicConfigs", "alterTopicConfigs"),
    )
)


def _topic_entity(request: web.Request, api: Api, topic: TopicDescription) -> KafkaTopic:
    url = f"{cluster_url(request)}/topics/{topic.name}"
    return KafkaTopic(
        kind="KafkaTopic",
        metadata=entity_metadata(request, f"/topics/{topic.name}", f"/topic={topic.name}"),
        cluster_id=api.cluster_id,
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
            OfflinePartition(number, **entry_error(fault)) for number, fault in topic.faults.items()
        ],
        authorized_operations=[],
    )


@ROUTES.get("/v3/clusters/{cluster_id}/topics")
@endpoint(
    "listTopics",
    "topics",
    DESCRIBE_TOPIC,
    {200: Answer("A page of topics.", {JSON: KafkaTopicList})},
    parameters=PAGING,
)
async def topics(request: web.Request) -> web.Response:
    """All topics, internal ones too, by name."""
    api = cluster_of(request)
    return page_reply(
        request,
        "KafkaTopicList",
        api.operations.topic_names(),
        key=str,
        entity=lambda name: _listed(request, api, name),
    )


def _listed(request: web.Request, api: Api, name: str) -> KafkaTopic | None:
    """None: deleted since the names were taken."""
    try:
        return _topic_entity(request, api, api.operations.topics.describe(name))
    except UnknownTopic:
        return None


@ROUTES.post("/v3/clusters/{cluster_id}/topics")
@endpoint(
    "createTopic",
    "topics",
    Access(Action.CREATE, Resource.TOPIC),
    {
        200: Answer("validate_only: it could be made.", {JSON: KafkaTopic}),
        201: Answer("Made, durable.", {JSON: KafkaTopic}, ("Location",), _ABOUT_IT),
    },
    body={JSON: V3Topic},
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
            wanted.partitions_count,
            configs,
            replication_factor=wanted.replication_factor,
            validate_only=wanted.validate_only,
        )
    except TopicExists as error:
        raise ApiError(
            40002, error.message, details=error.details, kafka_error=error.kafka_error
        ) from error
    entity = _topic_entity(request, api, created)
    if wanted.validate_only:
        return json_reply(entity)
    location = f"{cluster_url(request)}/topics/{created.name}"
    return json_reply(entity, status=201, headers={"Location": location})


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}")
@endpoint("getTopic", "topics", DESCRIBE_TOPIC, {200: Answer("The topic.", {JSON: KafkaTopic})})
async def describe(request: web.Request) -> web.Response:
    """One topic."""
    api = cluster_of(request)
    with v3_numbers():
        described = api.operations.topics.describe(topic_of(request))
    return json_reply(_topic_entity(request, api, described))


@ROUTES.patch("/v3/clusters/{cluster_id}/topics/{topic}")
@endpoint(
    "growTopic",
    "topics",
    Access(Action.ALTER, Resource.TOPIC),
    {200: Answer("As it is now.", {JSON: KafkaTopic})},
    body={JSON: PartitionsCount},
    errors=_STORAGE,
)
async def grow(request: web.Request) -> web.Response:
    """More partitions; fewer or as many are refused."""
    api = cluster_of(request)
    wanted = await read_body(PartitionsCount, request, api)
    note_subject(request, partition_count=wanted.partitions_count)
    with v3_numbers():
        grown = await api.blocking(
            api.operations.topics.create_partitions, topic_of(request), wanted.partitions_count
        )
    return json_reply(_topic_entity(request, api, grown))


@ROUTES.delete("/v3/clusters/{cluster_id}/topics/{topic}")
@endpoint(
    "deleteTopic",
    "topics",
    Access(Action.DELETE, Resource.TOPIC),
    {204: Answer("Gone.")},
    errors=_STORAGE,
)
async def delete(request: web.Request) -> web.Response:
    """Delete a topic: its directories are renamed at once and removed later."""
    api = cluster_of(request)
    with v3_numbers():
        await api.blocking(api.operations.topics.delete, topic_of(request))
    return web.Response(status=204)


_BOTH, _AT_TIME = "earliest_and_latest", "timestamp"
_OFFSET_TYPE = ChoiceParameter(
    "offset_type",
    "Which offset; earliest_and_latest is the proxy's only one, the others are kafkalog's.",
    {name: name for name in (_BOTH, *NAMED_OFFSETS, _AT_TIME)},
    _BOTH,
)
_TIMESTAMP = TextParameter(
    _AT_TIME, "With offset_type=timestamp: ms since 1970 or ISO-8601.", schema=TIME_SCHEMA
)


def _partition_in_path(request: web.Request) -> ListedPartition:
    """The one in the path, also when it is not served. ApiError 40403."""
    operations = cluster_of(request).operations
    topic, number = topic_of(request), partition_of(request)
    try:
        with v3_numbers():
            operations.partition_log(topic, number)
    except InvalidRequest:
        raise
    except KafkalogError as fault:
        return ListedPartition(topic, number, fault)
    return ListedPartition(topic, number, None)


def _partitions_of(api: Api, topic: str) -> list[ListedPartition]:
    """All of a topic. UnknownTopic."""
    described = api.operations.topics.describe(topic)
    return [
        ListedPartition(topic, number, described.faults.get(number))
        for number in range(described.partition_count)
    ]


def _number_key(partition: ListedPartition) -> str:
    return f"{partition.partition:010}"


class _Head(TypedDict):
    """What every entity about a partition begins with, beside its kind."""

    metadata: EntityMetadata
    cluster_id: str
    topic_name: str
    partition_id: int


def _head(
    request: web.Request, partition: ListedPartition, *, path: str = "", crn: str = ""
) -> _Head:
    """``path`` and ``crn`` of the entity are below the partition."""
    topic, number = partition.name, partition.partition
    metadata = entity_metadata(
        request,
        f"/topics/{topic}/partitions/{number}{path}",
        f"/topic={topic}/partition={number}{crn}",
    )
    return {
        "metadata": metadata,
        "cluster_id": api_of(request).cluster_id,
        "topic_name": topic,
        "partition_id": number,
    }


def _partition_entity(request: web.Request, partition: ListedPartition) -> KafkaPartition:
    node_id = api_of(request).operations.node_id
    url = f"{cluster_url(request)}/topics/{partition.name}/partitions/{partition.partition}"
    return KafkaPartition(
        kind="KafkaPartition",
        **_head(request, partition),
        leader=Related(f"{url}/replicas/{node_id}") if partition.fault is None else None,
        replicas=Related(f"{url}/replicas"),
        reassignment=Related(f"{url}/reassignment"),
    )


def _replica_entity(request: web.Request, partition: ListedPartition) -> KafkaReplica:
    node_id = api_of(request).operations.node_id
    is_served = partition.fault is None
    return KafkaReplica(
        kind="KafkaReplica",
        **_head(request, partition, path=f"/replicas/{node_id}", crn=f"/replica={node_id}"),
        broker_id=node_id,
        is_leader=is_served,
        is_in_sync=is_served,
        broker=Related(f"{cluster_url(request)}/brokers/{node_id}"),
    )


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}/partitions")
@endpoint(
    "listPartitions",
    "partitions",
    DESCRIBE_TOPIC,
    {200: Answer("A page of partitions.", {JSON: KafkaPartitionList})},
    parameters=PAGING,
)
async def partitions(request: web.Request) -> web.Response:
    """The partitions of a topic by number, also those that are not served."""
    api = cluster_of(request)
    with v3_numbers():
        found = _partitions_of(api, topic_of(request))
    return page_reply(
        request,
        "KafkaPartitionList",
        found,
        key=_number_key,
        entity=lambda each: _partition_entity(request, each),
    )


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}")
@endpoint(
    "getPartition",
    "partitions",
    DESCRIBE_TOPIC,
    {200: Answer("The partition.", {JSON: KafkaPartition})},
)
async def partition(request: web.Request) -> web.Response:
    """One partition; its leader is null when it is not served."""
    return json_reply(_partition_entity(request, _partition_in_path(request)))


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}/replicas")
@endpoint(
    "listReplicas",
    "partitions",
    DESCRIBE_TOPIC,
    {200: Answer("One.", {JSON: KafkaReplicaList})},
    parameters=PAGING,
)
async def replicas(request: web.Request) -> web.Response:
    """The one replica of a partition."""
    return page_reply(
        request,
        "KafkaReplicaList",
        [_partition_in_path(request)],
        key=_number_key,
        entity=lambda each: _replica_entity(request, each),
    )


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}/replicas/{broker}")
@endpoint(
    "getReplica", "partitions", DESCRIBE_TOPIC, {200: Answer("The replica.", {JSON: KafkaReplica})}
)
async def replica(request: web.Request) -> web.Response:
    """The replica on one broker."""
    found = _partition_in_path(request)
    broker_of(request)
    return json_reply(_replica_entity(request, found))


@ROUTES.get("/v3/clusters/{cluster_id}/brokers/{broker}/partition-replicas")
@endpoint(
    "listBrokerReplicas",
    "partitions",
    DESCRIBE_CLUSTER,
    {200: Answer("A page of replicas.", {JSON: KafkaReplicaList})},
    parameters=PAGING,
)
async def broker_replicas(request: web.Request) -> web.Response:
    """Every replica of the broker, by topic and number."""
    api = cluster_of(request)
    broker_of(request)
    return await api.blocking(_broker_replicas, request, api)


def _broker_replicas(request: web.Request, api: Api) -> web.Response:
    return page_reply(
        request,
        "KafkaReplicaList",
        api.operations.partitions(),
        key=lambda each: f"{each.name}\0{_number_key(each)}",
        entity=lambda each: _replica_entity(request, each),
    )


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}/offset")
@endpoint(
    "getPartitionOffsets",
    "partitions",
    DESCRIBE_TOPIC,
    {200: Answer("Those asked for.", {JSON: KafkaPartitionWithOffsets})},
    parameters=(_OFFSET_TYPE, _TIMESTAMP, ISOLATION),
)
async def offset(request: web.Request) -> web.Response:
    """Offsets of a partition: where it begins and ends, or the one at a time.

    latest is the next offset that a reader has not seen. Nothing at or after a time: -1.
    """
    api = cluster_of(request)
    key = ListedPartition(topic_of(request), partition_of(request), None)
    offset_type, isolation = _OFFSET_TYPE.read(request), ISOLATION.read(request)
    text = _TIMESTAMP.read(request)
    moment_ms = None if text is None else parse_timestamp(text)

    async def at(timestamp_ms: int) -> OffsetAnswer:
        with v3_numbers():
            return await look_up(api, key.name, key.partition, timestamp_ms, isolation)

    answer = KafkaPartitionWithOffsets(
        kind="KafkaPartitionWithOffsets", **_head(request, key, path="/offset", crn="/offset")
    )
    if offset_type == _AT_TIME:
        if moment_ms is None:
            raise ApiError(40005, "offset_type=timestamp needs the parameter timestamp.")
        found = await at(moment_ms)
        answer = structs.replace(answer, offset=found.offset, timestamp=found.timestamp)
    elif offset_type == _BOTH:
        answer = structs.replace(
            answer,
            earliest_offset=(await at(EARLIEST)).offset,
            latest_offset=(await at(LATEST)).offset,
        )
    else:
        found = await at(NAMED_OFFSETS[offset_type])
        answer = structs.replace(answer, **{f"{offset_type}_offset": found.offset})
        if offset_type == "max_timestamp":
            answer = structs.replace(answer, timestamp=found.timestamp)
    return json_reply(answer)


@ROUTES.post("/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}/records:delete")
@endpoint(
    "deletePartitionRecords",
    "partitions",
    Access(Action.DELETE, Resource.TOPIC),
    {200: Answer("The new log start.", {JSON: DeletedRecordsEntity})},
    body={JSON: DeleteUntil},
    errors=(40907, 41602, 50003),
)
async def delete_records(request: web.Request) -> web.Response:
    """Delete the records of a partition below an offset; -1 is the high watermark.

    Durable before the answer.
    """
    api = cluster_of(request)
    key = ListedPartition(topic_of(request), partition_of(request), None)
    wanted = await read_body(DeleteUntil, request, api)
    entry = DeleteRecordsEntry(topic=key.name, partition=key.partition, offset=wanted.offset)
    with v3_numbers():
        low_watermark = await delete_one(request, entry)
    return json_reply(
        DeletedRecordsEntity(
            kind="KafkaDeletedRecords", **_head(request, key), low_watermark=low_watermark
        )
    )

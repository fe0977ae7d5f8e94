"""v3 partitions, replicas, offsets and ``records:delete`` (http-api.md 1.7, 3.5).

``offset`` knows more than the proxy's one offset_type, and ``records:delete`` is kafkalog's own in
v3's idiom: the same operation as ``POST /v1/records:delete`` for one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import InvalidRequest, KafkalogError
from kafkalog.manager.values import ListedPartition
from kafkalog.server.answers_v3 import (
    DeletedRecordsEntity,
    KafkaPartition,
    KafkaPartitionList,
    KafkaPartitionWithOffsets,
    KafkaReplica,
    KafkaReplicaList,
)
from kafkalog.server.api import Api, api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.moments import parse_timestamp
from kafkalog.server.parameters import (
    ISOLATION,
    ChoiceParameter,
    TextParameter,
    partition_of,
    topic_of,
)
from kafkalog.server.replies import json_reply
from kafkalog.server.routes.delete_records import delete_one
from kafkalog.server.routes.offsets import (
    EARLIEST,
    LATEST,
    NAMED_OFFSETS,
    look_up,
)
from kafkalog.server.routes.v3 import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    PAGING,
    broker_of,
    cluster_of,
    cluster_url,
    page_reply,
    v3_numbers,
)
from kafkalog.server.schemas import TIME_SCHEMA, DeleteRecordsEntry, DeleteUntil, parse_body

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUTES = web.RouteTableDef()
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


def _head(
    request: web.Request, kind: str, partition: ListedPartition, *, path: str = "", crn: str = ""
) -> dict[str, object]:
    """What every entity about a partition begins with; ``path`` and ``crn`` are below it."""
    cluster_id = api_of(request).cluster_id
    topic, number = partition.name, partition.partition
    return {
        "kind": kind,
        "metadata": {
            "self": f"{cluster_url(request)}/topics/{topic}/partitions/{number}{path}",
            "resource_name": f"crn:///kafka={cluster_id}/topic={topic}/partition={number}{crn}",
        },
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": number,
    }


def _partition_entity(request: web.Request, partition: ListedPartition) -> dict[str, object]:
    node_id = api_of(request).operations.node_id
    url = f"{cluster_url(request)}/topics/{partition.name}/partitions/{partition.partition}"
    leader = {"related": f"{url}/replicas/{node_id}"} if partition.fault is None else None
    return {
        **_head(request, "KafkaPartition", partition),
        "leader": leader,
        "replicas": {"related": f"{url}/replicas"},
        "reassignment": {"related": f"{url}/reassignment"},
    }


def _replica_entity(request: web.Request, partition: ListedPartition) -> dict[str, object]:
    node_id = api_of(request).operations.node_id
    is_served = partition.fault is None
    return {
        **_head(
            request,
            "KafkaReplica",
            partition,
            path=f"/replicas/{node_id}",
            crn=f"/replica={node_id}",
        ),
        "broker_id": node_id,
        "is_leader": is_served,
        "is_in_sync": is_served,
        "broker": {"related": f"{cluster_url(request)}/brokers/{node_id}"},
    }


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

    async def at(timestamp_ms: int) -> Mapping[str, object]:
        with v3_numbers():
            return await look_up(api, key.name, key.partition, timestamp_ms, isolation)

    answer: dict[str, object] = {}
    if offset_type == _AT_TIME:
        if moment_ms is None:
            raise ApiError(40005, "offset_type=timestamp needs the parameter timestamp.")
        found = await at(moment_ms)
        answer = {"offset": found["offset"], "timestamp": found["timestamp"]}
    elif offset_type == _BOTH:
        answer = {
            "earliest_offset": (await at(EARLIEST))["offset"],
            "latest_offset": (await at(LATEST))["offset"],
        }
    else:
        found = await at(NAMED_OFFSETS[offset_type])
        answer = {f"{offset_type}_offset": found["offset"]}
        if offset_type == "max_timestamp":
            answer["timestamp"] = found["timestamp"]
    head = _head(request, "KafkaPartitionWithOffsets", key, path="/offset", crn="/offset")
    return json_reply({**head, **answer})


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
    async with Body(request, api) as data:
        wanted = parse_body(DeleteUntil, data)
    entry = DeleteRecordsEntry(topic=key.name, partition=key.partition, offset=wanted.offset)
    with v3_numbers():
        low_watermark = await delete_one(request, entry)
    head = _head(request, "KafkaDeletedRecords", key)
    return json_reply({**head, "low_watermark": low_watermark})

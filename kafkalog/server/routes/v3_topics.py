"""v3 topics: the one spelling of topic administration (http-api.md 1.7, 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import TopicExists, UnknownTopic
from kafkalog.server.answers_v3 import KafkaTopic, KafkaTopicList
from kafkalog.server.endpoint import Access, Action, Answer, Link, Resource, endpoint
from kafkalog.server.error_map import ApiError, entry_error
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import topic_of
from kafkalog.server.replies import json_reply
from kafkalog.server.routes.v3 import (
    DESCRIBE_TOPIC,
    PAGING,
    cluster_of,
    cluster_url,
    page_reply,
    v3_numbers,
)
from kafkalog.server.schemas import PartitionsCount, V3Topic, parse_body
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from kafkalog.manager.values import TopicDescription
    from kafkalog.server.api import Api

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


def _topic_entity(request: web.Request, api: Api, topic: TopicDescription) -> dict[str, object]:
    url = f"{cluster_url(request)}/topics/{topic.name}"
    return {
        "kind": "KafkaTopic",
        "metadata": {
            "self": url,
            "resource_name": f"crn:///kafka={api.cluster_id}/topic={topic.name}",
        },
        "cluster_id": api.cluster_id,
        "topic_name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "replication_factor": 1,
        "partitions_count": topic.partition_count,
        "partitions": {"related": f"{url}/partitions"},
        "configs": {"related": f"{url}/configs"},
        "partition_reassignments": {"related": f"{url}/partitions/-/reassignment"},
        "config_overrides": dict(topic.overrides),
        "offline_partitions": [
            {"partition_id": number, **entry_error(fault)} for number, fault in topic.faults.items()
        ],
        "authorized_operations": [],
    }


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


def _listed(request: web.Request, api: Api, name: str) -> dict[str, object] | None:
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
    async with Body(request, api) as data:
        wanted = parse_body(V3Topic, data)
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
    async with Body(request, api) as data:
        wanted = parse_body(PartitionsCount, data)
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

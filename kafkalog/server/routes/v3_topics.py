"""v3 clusters, broker, topics: the one spelling of topic administration (http-api.md 1.7, 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import TopicExists
from kafkalog.server.api import api_of
from kafkalog.server.error_map import ApiError, entry_error
from kafkalog.server.in_flight import Body
from kafkalog.server.parameters import topic_of
from kafkalog.server.replies import json_reply
from kafkalog.server.routes.v3 import broker_of, cluster_of, clusters_url, list_reply, v3_numbers
from kafkalog.server.schemas import PartitionsCount, V3Topic, parse_body

if TYPE_CHECKING:
    from kafkalog.manager.values import TopicDescription
    from kafkalog.server.api import Api

ROUTES = web.RouteTableDef()


def _cluster_entity(request: web.Request, api: Api) -> dict[str, object]:
    url = f"{clusters_url(request)}/{api.cluster_id}"
    return {
        "kind": "KafkaCluster",
        "metadata": {"self": url, "resource_name": f"crn:///kafka={api.cluster_id}"},
        "cluster_id": api.cluster_id,
        "brokers": {"related": f"{url}/brokers"},
        "broker_configs": {"related": f"{url}/broker-configs"},
        "topics": {"related": f"{url}/topics"},
    }


def _broker_entity(request: web.Request, api: Api) -> dict[str, object]:
    node_id = api.operations.node_id
    url = f"{clusters_url(request)}/{api.cluster_id}/brokers/{node_id}"
    return {
        "kind": "KafkaBroker",
        "metadata": {
            "self": url,
            "resource_name": f"crn:///kafka={api.cluster_id}/broker={node_id}",
        },
        "cluster_id": api.cluster_id,
        "broker_id": node_id,
        "host": api.config.http_host,
        "port": api.config.http_port,
        "rack": None,
        "configs": {"related": f"{url}/configs"},
    }


def _topic_entity(request: web.Request, api: Api, topic: TopicDescription) -> dict[str, object]:
    url = f"{clusters_url(request)}/{api.cluster_id}/topics/{topic.name}"
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
        "config_overrides": dict(topic.overrides),
        "offline_partitions": [
            {"partition_id": number, **entry_error(fault)} for number, fault in topic.faults.items()
        ],
        "authorized_operations": [],
    }


@ROUTES.get("/v3/clusters")
async def clusters(request: web.Request) -> web.Response:
    """The one cluster."""
    return list_reply(request, "KafkaClusterList", [_cluster_entity(request, api_of(request))])


@ROUTES.get("/v3/clusters/{cluster_id}")
async def cluster(request: web.Request) -> web.Response:
    """The cluster by its id."""
    return json_reply(_cluster_entity(request, cluster_of(request)))


@ROUTES.get("/v3/clusters/{cluster_id}/brokers")
async def brokers(request: web.Request) -> web.Response:
    """The one broker."""
    entity = _broker_entity(request, cluster_of(request))
    return list_reply(request, "KafkaBrokerList", [entity])


@ROUTES.get("/v3/clusters/{cluster_id}/brokers/{broker}")
async def broker(request: web.Request) -> web.Response:
    """The broker by its id."""
    api = cluster_of(request)
    broker_of(request)
    return json_reply(_broker_entity(request, api))


@ROUTES.get("/v3/clusters/{cluster_id}/topics")
async def topics(request: web.Request) -> web.Response:
    """All topics."""
    api = cluster_of(request)
    described = map(api.operations.topics.describe, api.operations.topic_names())
    return list_reply(
        request, "KafkaTopicList", [_topic_entity(request, api, t) for t in described]
    )


@ROUTES.post("/v3/clusters/{cluster_id}/topics")
async def create(request: web.Request) -> web.Response:
    """Create: 201 with Location; 200 when validate_only; an existing topic is 400/40002."""
    api = cluster_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(V3Topic, data)
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
        raise ApiError(40002, error.message, details=error.details) from error
    entity = _topic_entity(request, api, created)
    if wanted.validate_only:
        return json_reply(entity)
    location = f"{clusters_url(request)}/{api.cluster_id}/topics/{created.name}"
    return json_reply(entity, status=201, headers={"Location": location})


@ROUTES.get("/v3/clusters/{cluster_id}/topics/{topic}")
async def describe(request: web.Request) -> web.Response:
    """One topic."""
    api = cluster_of(request)
    with v3_numbers():
        described = api.operations.topics.describe(topic_of(request))
    return json_reply(_topic_entity(request, api, described))


@ROUTES.patch("/v3/clusters/{cluster_id}/topics/{topic}")
async def grow(request: web.Request) -> web.Response:
    """More partitions; fewer or as many are refused."""
    api = cluster_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(PartitionsCount, data)
    with v3_numbers():
        grown = await api.blocking(
            api.operations.topics.create_partitions, topic_of(request), wanted.partitions_count
        )
    return json_reply(_topic_entity(request, api, grown))


@ROUTES.delete("/v3/clusters/{cluster_id}/topics/{topic}")
async def delete(request: web.Request) -> web.Response:
    """Delete a topic: its directories are renamed at once and removed later."""
    api = cluster_of(request)
    with v3_numbers():
        await api.blocking(api.operations.topics.delete, topic_of(request))
    return web.Response(status=204)

"""v3 cluster and broker: one each; what one node does not have is 501 (http-api.md 1.7, 3.5)."""

from __future__ import annotations

from aiohttp import web

from kafkalog.server.answers_v3 import KafkaBroker, KafkaBrokerList, KafkaCluster, KafkaClusterList
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import (
    AUTHENTICATED,
    Access,
    Action,
    Answer,
    Link,
    Resource,
    endpoint,
)
from kafkalog.server.error_map import ApiError
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import json_reply
from kafkalog.server.routes.v3 import (
    DESCRIBE_CLUSTER,
    PAGING,
    broker_of,
    cluster_of,
    cluster_url,
    page_reply,
)

ROUTES = web.RouteTableDef()
_INTO_IT = tuple(
    Link(operation_id, {"cluster_id": "$response.body#/data/0/cluster_id"})
    for operation_id in ("getCluster", "listBrokers", "listTopics", "createTopic")
)


def _cluster_entity(request: web.Request) -> dict[str, object]:
    cluster_id, url = api_of(request).cluster_id, cluster_url(request)
    return {
        "kind": "KafkaCluster",
        "metadata": {"self": url, "resource_name": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
        "controller": {"related": f"{url}/brokers/{api_of(request).operations.node_id}"},
        "acls": {"related": f"{url}/acls"},
        "brokers": {"related": f"{url}/brokers"},
        "broker_configs": {"related": f"{url}/broker-configs"},
        "consumer_groups": {"related": f"{url}/consumer-groups"},
        "topics": {"related": f"{url}/topics"},
        "partition_reassignments": {"related": f"{url}/topics/-/partitions/-/reassignment"},
    }


def _broker_entity(request: web.Request, node_id: int) -> dict[str, object]:
    api = api_of(request)
    url = f"{cluster_url(request)}/brokers/{node_id}"
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
        "partition_replicas": {"related": f"{url}/partition-replicas"},
    }


@ROUTES.get("/v3/clusters")
@endpoint(
    "listClusters",
    "clusters",
    AUTHENTICATED,
    {200: Answer("One.", {JSON: KafkaClusterList}, links=_INTO_IT)},
    parameters=PAGING,
)
async def clusters(request: web.Request) -> web.Response:
    """The one cluster."""
    return page_reply(
        request,
        "KafkaClusterList",
        [api_of(request).cluster_id],
        key=str,
        entity=lambda _: _cluster_entity(request),
    )


@ROUTES.get("/v3/clusters/{cluster_id}")
@endpoint(
    "getCluster", "clusters", AUTHENTICATED, {200: Answer("The cluster.", {JSON: KafkaCluster})}
)
async def cluster(request: web.Request) -> web.Response:
    """The cluster by its id."""
    cluster_of(request)
    return json_reply(_cluster_entity(request))


@ROUTES.get("/v3/clusters/{cluster_id}/brokers")
@endpoint(
    "listBrokers",
    "clusters",
    DESCRIBE_CLUSTER,
    {200: Answer("One.", {JSON: KafkaBrokerList})},
    parameters=PAGING,
)
async def brokers(request: web.Request) -> web.Response:
    """The one broker."""
    return page_reply(
        request,
        "KafkaBrokerList",
        [cluster_of(request).operations.node_id],
        key=str,
        entity=lambda node_id: _broker_entity(request, node_id),
    )


@ROUTES.get("/v3/clusters/{cluster_id}/brokers/{broker}")
@endpoint(
    "getBroker", "clusters", DESCRIBE_CLUSTER, {200: Answer("The broker.", {JSON: KafkaBroker})}
)
async def broker(request: web.Request) -> web.Response:
    """The broker by its id."""
    cluster_of(request)
    return json_reply(_broker_entity(request, broker_of(request)))


_NOT_HERE = (
    ("GET", "acls", "listAcls"),
    ("POST", "acls", "createAcl"),
    ("POST", "acls:batch", "createAcls"),
    ("DELETE", "acls", "deleteAcls"),
    ("GET", "topics/-/partitions/-/reassignment", "listReassignments"),
    ("GET", "topics/{topic}/partitions/-/reassignment", "listTopicReassignments"),
    ("GET", "topics/{topic}/partitions/{partition}/reassignment", "getReassignment"),
)


def _refuse(method: str, path: str, operation_id: str) -> None:
    """Offer a route that says 501: a client learns that it is no misspelt path."""
    action = Action.DESCRIBE if method == "GET" else Action.CLUSTER

    @ROUTES.route(method, f"/v3/clusters/{{cluster_id}}/{path}")
    @endpoint(operation_id, "unsupported", Access(action, Resource.CLUSTER), {}, errors=(501,))
    async def handle(request: web.Request) -> web.Response:
        """Not on a single node: rights are its configuration's, replicas cannot move to others."""
        cluster_of(request)
        raise ApiError(501, "One node has neither Kafka ACLs nor reassignments.")


for _each in _NOT_HERE:
    _refuse(*_each)

"""v3 cluster and broker, and what all v3 routes share: addresses, pages, error numbers.

There is one cluster with one broker. What a single node cannot do is 501 (http-api.md 1.7, 3.5).
"""

from __future__ import annotations

import bisect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from aiohttp import web

from kafkalog.errors import KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.server.admin.v3_answers import (
    EntityMetadata,
    KafkaBroker,
    KafkaBrokerList,
    KafkaCluster,
    KafkaClusterList,
    Page,
    PageMetadata,
    Related,
)
from kafkalog.server.api import Api, api_of
from kafkalog.server.protocol.endpoint import (
    AUTHENTICATED,
    Access,
    Action,
    Answer,
    Link,
    Resource,
    endpoint,
)
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.origin import origin_of
from kafkalog.server.protocol.parameters import IntegerParameter, TextParameter
from kafkalog.server.protocol.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


T = TypeVar("T")

DESCRIBE_CLUSTER = Access(Action.DESCRIBE, Resource.CLUSTER)
DESCRIBE_TOPIC = Access(Action.DESCRIBE, Resource.TOPIC)
UNKNOWN = 40403

_ALL = 0
# The name after which the page begins, in hexadecimal. Any such text has a place in the order: a
# page can be asked for after its last entity was deleted.
_TOKEN = re.compile(r"(?:[0-9a-f]{2}){1,2000}")
_NUMBER = re.compile(r"[0-9]+")
_PAGE_SIZE = IntegerParameter(
    "page_size", "Entities of a page at most; without it all are on one.", _ALL, least=1, most=10000
)
_PAGE_TOKEN = TextParameter(
    "page_token",
    "Where the page begins: taken from metadata.next of the page before.",
    schema={"type": "string", "pattern": f"^{_TOKEN.pattern}$"},
)
PAGING = (_PAGE_SIZE, _PAGE_TOKEN)


def cluster_of(request: web.Request) -> Api:
    """The graph; only this node's own cluster id exists."""
    api = api_of(request)
    if request.match_info["cluster_id"] != api.cluster_id:
        raise ApiError(UNKNOWN, "Cluster not found; GET /v3/clusters names it.")
    return api


def broker_of(request: web.Request) -> int:
    """The id in the path, which is this node's: there is no other."""
    node_id = api_of(request).operations.node_id
    if request.match_info["broker"] != str(node_id):
        raise ApiError(404, "Broker not found; GET /brokers names it.")
    return node_id


def clusters_url(request: web.Request) -> str:
    """Absolute, where the client found us and under the prefix that it uses."""
    prefix = "/kafka" if request.path.startswith("/kafka/") else ""
    return f"{origin_of(request)}{prefix}/v3/clusters"


def cluster_url(request: web.Request) -> str:
    """Of the one cluster."""
    return f"{clusters_url(request)}/{api_of(request).cluster_id}"


def list_reply(request: web.Request, kind: str, data: list[dict[str, object]]) -> web.Response:
    """A page of entities that are made already, in the order of their resource names."""

    def place(entity: dict[str, object]) -> str:
        metadata = cast("EntityMetadata", entity["metadata"])
        return _NUMBER.sub(lambda number: number[0].zfill(10), metadata.resource_name)

    return page_reply(request, kind, sorted(data, key=place), place, lambda entity: entity)


def page_reply(
    request: web.Request,
    kind: str,
    items: Sequence[T],
    key: Callable[[T], str],
    entity: Callable[[T], object | None],
) -> web.Response:
    """One page of a list that is sorted by ``key``; entities are built for that page only.

    An entity of None is one that vanished since the list was taken.
    ``page_size`` and ``page_token`` choose it (PAGING); without a size everything is on one page,
    as clients that do not follow ``next`` expect it. ApiError 40005.
    """

    def place(item: T) -> bytes:
        return key(item).encode()

    size = _PAGE_SIZE.read(request)
    token = _PAGE_TOKEN.read(request)
    start = 0
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise ApiError(40005, "page_token is none that metadata.next ever had.")
        start = bisect.bisect_right(items, bytes.fromhex(token), key=place)
    end = len(items) if size == _ALL else start + size
    page, url = items[start:end], f"{origin_of(request)}{request.path}"
    following = None
    if end < len(items):
        following = f"{url}?page_size={size}&page_token={place(page[-1]).hex()}"
    return json_reply(
        Page(
            kind=kind,
            metadata=PageMetadata(url, following),
            data=[found for found in map(entity, page) if found is not None],
        )
    )


@contextmanager
def v3_numbers() -> Iterator[None]:
    """A missing topic or partition has another number in v3 than in v2."""
    try:
        yield
    except (UnknownTopic, UnknownPartition) as error:
        raise v3_fault(error) from error


def v3_fault(fault: KafkalogError | ApiError) -> KafkalogError | ApiError:
    """With v3's number."""
    if isinstance(fault, (UnknownTopic, UnknownPartition)):
        return ApiError(UNKNOWN, fault.message, details=fault.details)
    return fault


ROUTES = web.RouteTableDef()
_INTO_IT = tuple(
    Link(operation_id, {"cluster_id": "$response.body#/data/0/cluster_id"})
    for operation_id in ("getCluster", "listBrokers", "listTopics", "createTopic")
)


def entity_metadata(request: web.Request, path: str, resource: str) -> EntityMetadata:
    """Of an entity below the cluster: its path and its resource name, each with its slash."""
    crn = f"crn:///kafka={api_of(request).cluster_id}{resource}"
    return EntityMetadata(f"{cluster_url(request)}{path}", crn)


def _cluster_entity(request: web.Request) -> KafkaCluster:
    url = cluster_url(request)
    return KafkaCluster(
        kind="KafkaCluster",
        metadata=entity_metadata(request, "", ""),
        cluster_id=api_of(request).cluster_id,
        controller=Related(f"{url}/brokers/{api_of(request).operations.node_id}"),
        acls=Related(f"{url}/acls"),
        brokers=Related(f"{url}/brokers"),
        broker_configs=Related(f"{url}/broker-configs"),
        consumer_groups=Related(f"{url}/consumer-groups"),
        topics=Related(f"{url}/topics"),
        partition_reassignments=Related(f"{url}/topics/-/partitions/-/reassignment"),
    )


def _broker_entity(request: web.Request, node_id: int) -> KafkaBroker:
    api = api_of(request)
    url = f"{cluster_url(request)}/brokers/{node_id}"
    return KafkaBroker(
        kind="KafkaBroker",
        metadata=entity_metadata(request, f"/brokers/{node_id}", f"/broker={node_id}"),
        cluster_id=api.cluster_id,
        broker_id=node_id,
        host=api.config.http_host,
        port=api.config.http_port,
        rack=None,
        configs=Related(f"{url}/configs"),
        partition_replicas=Related(f"{url}/partition-replicas"),
    )


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
    """Add a route that answers 501: a client sees that the path is not misspelt."""
    action = Action.DESCRIBE if method == "GET" else Action.CLUSTER

    @ROUTES.route(method, f"/v3/clusters/{{cluster_id}}/{path}")
    @endpoint(operation_id, "unsupported", Access(action, Resource.CLUSTER), {}, errors=(501,))
    async def handle(request: web.Request) -> web.Response:
        """Not on a single node: rights are its configuration's, replicas cannot move to others."""
        cluster_of(request)
        raise ApiError(501, "One node has neither Kafka ACLs nor reassignments.")


for _each in _NOT_HERE:
    _refuse(*_each)

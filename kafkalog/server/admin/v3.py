"""v3 cluster and broker, and what all v3 routes share: addresses, pages, error numbers.

There is one cluster with one broker. What a single node cannot do is 501.
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from kafkalog.server.api import Api, api_of
from kafkalog.server.protocol.endpoint import Access, Answer, Link, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.origin import origin_of
from kafkalog.server.protocol.parameters import IntegerParameter, TextParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


T = TypeVar("T")
E = TypeVar("E", bound="Entity")
P = TypeVar("P", bound="Page[Any]")

UNKNOWN = 40403


class EntityMetadata(AnswerBody):
    """Where the entity is, and its Confluent resource name."""

    url: str = msgspec.field(name="self")
    resource_name: str


class PageMetadata(AnswerBody):
    """Where this page is, and the next one; null: this is the last."""

    url: str = msgspec.field(name="self")
    next: str | None


class Related(AnswerBody):
    """A relation is an address."""

    related: str


class Page(AnswerBody, Generic[T], tag=True, tag_field="kind"):
    """A page of entities in the order of their names or numbers."""

    metadata: PageMetadata
    data: list[T]


class Entity(AnswerBody, tag=True, tag_field="kind"):
    """What every entity has; ``kind`` is the name of its class, of pages too."""

    metadata: EntityMetadata
    cluster_id: str


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


def list_of(request: web.Request, kind: str, data: list[dict[str, object]]) -> dict[str, object]:
    """A page of entities that are made already, in the order of their resource names."""

    def place(entity: dict[str, object]) -> str:
        metadata = cast("EntityMetadata", entity["metadata"])
        return _NUMBER.sub(lambda number: number[0].zfill(10), metadata.resource_name)

    page = page_of(Page, request, sorted(data, key=place), place, lambda _, entity: entity)
    return {"kind": kind, "metadata": page.metadata, "data": page.data}


def page_of(
    model: type[P],
    request: web.Request,
    items: Sequence[T],
    key: Callable[[T], str],
    entity: Callable[[web.Request, T], object | None],
    *,
    keeps: tuple[str, ...] = (),
) -> P:
    """One page of a list that is sorted by ``key``; entities are built for that page only.

    An entity of None is one that vanished since the list was taken.
    ``page_size`` and ``page_token`` choose it (PAGING); without a size everything is on one page,
    as clients that do not follow ``next`` expect it. ``keeps``: parameters of the request that the
    next page has too. ApiError 40005.
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
    page, url = items[start:end], f"{origin_of(request)}{request.path.rstrip('/')}"
    following = None
    if end < len(items):
        kept = {name: request.query[name] for name in keeps if name in request.query}
        query = urlencode({"page_size": size, "page_token": place(page[-1]).hex(), **kept})
        following = f"{url}?{query}"
    entities = [made for each in page if (made := entity(request, each)) is not None]
    return model(PageMetadata(url, following), entities)


ROUTES = Routes("clusters", "/v3/clusters")
_INTO_IT = tuple(
    Link(operation_id, {"cluster_id": "$response.body#/data/0/cluster_id"})
    for operation_id in ("getCluster", "listBrokers", "listTopics", "createTopic")
)


def entity_metadata(request: web.Request, path: str, resource: str) -> EntityMetadata:
    """Of an entity below the cluster: its path and its resource name, each with its slash."""
    crn = f"crn:///kafka={api_of(request).cluster_id}{resource}"
    return EntityMetadata(f"{cluster_url(request)}{path}", crn)


def entity_of(
    model: type[E], request: web.Request, path: str, resource: str, **fields: object
) -> E:
    """An entity; its path and its resource name as of ``entity_metadata``."""
    metadata = entity_metadata(request, path, resource)
    return answer_of(model, metadata=metadata, cluster_id=api_of(request).cluster_id, **fields)


class KafkaCluster(Entity):
    """The one cluster."""

    controller: Related
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class KafkaClusterList(Page[KafkaCluster]):
    """One."""


class KafkaBroker(Entity):
    """The one broker."""

    broker_id: int
    host: str
    port: int
    rack: None
    configs: Related
    partition_replicas: Related


class KafkaBrokerList(Page[KafkaBroker]):
    """One."""


def _cluster_entity(request: web.Request) -> KafkaCluster:
    url = cluster_url(request)
    return entity_of(
        KafkaCluster,
        request,
        "",
        "",
        controller=Related(f"{url}/brokers/{api_of(request).operations.node_id}"),
        acls=Related(f"{url}/acls"),
        brokers=Related(f"{url}/brokers"),
        broker_configs=Related(f"{url}/broker-configs"),
        consumer_groups=Related(f"{url}/consumer-groups"),
        topics=Related(f"{url}/topics"),
        partition_reassignments=Related(f"{url}/topics/-/partitions/-/reassignment"),
    )


def _broker_entity(request: web.Request, node_id: int) -> KafkaBroker:
    config, url = api_of(request).config, f"{cluster_url(request)}/brokers/{node_id}"
    return entity_of(
        KafkaBroker,
        request,
        f"/brokers/{node_id}",
        f"/broker={node_id}",
        broker_id=node_id,
        host=config.http_host,
        port=config.http_port,
        rack=None,
        configs=Related(f"{url}/configs"),
        partition_replicas=Related(f"{url}/partition-replicas"),
    )


@ROUTES.endpoint(
    "GET",
    "listClusters",
    Access.AUTHENTICATED,
    Answer("One.", KafkaClusterList, links=_INTO_IT),
    parameters=PAGING,
)
async def clusters(request: web.Request) -> KafkaClusterList:
    """The one cluster."""
    ids = [api_of(request).cluster_id]
    return page_of(KafkaClusterList, request, ids, str, lambda *_: _cluster_entity(request))


@ROUTES.endpoint("GET /{cluster_id}", "getCluster", Access.AUTHENTICATED, "The cluster.")
async def cluster(request: web.Request) -> KafkaCluster:
    """The cluster by its id."""
    cluster_of(request)
    return _cluster_entity(request)


@ROUTES.endpoint(
    "GET /{cluster_id}/brokers", "listBrokers", Access.DESCRIBE_CLUSTER, "One.", parameters=PAGING
)
async def brokers(request: web.Request) -> KafkaBrokerList:
    """The one broker."""
    ids = [cluster_of(request).operations.node_id]
    return page_of(KafkaBrokerList, request, ids, str, _broker_entity)


@ROUTES.endpoint(
    "GET /{cluster_id}/brokers/{broker}", "getBroker", Access.DESCRIBE_CLUSTER, "The broker."
)
async def broker(request: web.Request) -> KafkaBroker:
    """The broker by its id."""
    cluster_of(request)
    return _broker_entity(request, broker_of(request))


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

    @ROUTES.endpoint(
        f"{method} /{{cluster_id}}/{path}",
        operation_id,
        Access.DESCRIBE_CLUSTER if method == "GET" else Access.OPERATE_CLUSTER,
        {},
        tag="unsupported",
        errors=(501,),
    )
    async def handle(request: web.Request) -> web.Response:
        """Not on a single node: rights are its configuration's, replicas cannot move to others."""
        cluster_of(request)
        raise ApiError(501, "One node has neither Kafka ACLs nor reassignments.")


for _each in _NOT_HERE:
    _refuse(*_each)

"""v3 configs of topics, the broker and the cluster: list, get, put, delete, alter.

Each kind of ``_Resource`` has the same five routes (http-api.md 1.7). The cluster's
(``broker-configs``) are the broker's dynamic configs: with one broker both are the same.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.operations import ConfigChange
from kafkalog.errors import UnknownTopic
from kafkalog.server.admin.v3 import PAGING, Entity, Page, broker_of, cluster_of, entity_of, page_of
from kafkalog.server.protocol.endpoint import Access, Answer, Right, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.parameters import topic_of
from kafkalog.server.protocol.schemas import AlterConfigs, ConfigValue
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp import web
    from pydantic import BaseModel

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import ConfigEntry
    from kafkalog.server.protocol.parameters import Parameter


ROUTES = Routes("configs")


class Synonym(AnswerBody):
    """One link of a config's chain of sources."""

    name: str
    value: str | None
    source: str


class ConfigEntity(Entity):
    """What every config has."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[Synonym]


class KafkaTopicConfig(ConfigEntity):
    """A config of a topic with its sources, the strongest first."""

    kind: Literal["KafkaTopicConfig"]
    topic_name: str


class KafkaTopicConfigList(Page[KafkaTopicConfig]):
    """By topic and name."""

    kind: Literal["KafkaTopicConfigList"]


class KafkaBrokerConfig(ConfigEntity):
    """A config of the broker, likewise."""

    kind: Literal["KafkaBrokerConfig"]
    broker_id: int


class KafkaBrokerConfigList(Page[KafkaBrokerConfig]):
    """By name."""

    kind: Literal["KafkaBrokerConfigList"]


class KafkaClusterConfig(ConfigEntity):
    """A config of the broker that changes at run time."""

    kind: Literal["KafkaClusterConfig"]
    config_type: Literal["BROKER"]


class KafkaClusterConfigList(Page[KafkaClusterConfig]):
    """By name."""

    kind: Literal["KafkaClusterConfigList"]


@dataclass(frozen=True, slots=True)
class _Resource:
    """A topic, the broker or the cluster that a path names."""

    entity: type[Entity]
    path: str  # of its configs, below the cluster
    crn: str  # of one config, below the cluster, without the config's name
    owner: Mapping[str, str | int]  # how an entity names the resource
    describe: Callable[[], Sequence[ConfigEntry]]
    alter: Callable[[list[ConfigChange], bool], object]


def _topic(request: web.Request) -> _Resource:
    return _topic_named(cluster_of(request).operations, topic_of(request))


def _topic_named(operations: Operations, name: str) -> _Resource:
    return _Resource(
        KafkaTopicConfig,
        f"topics/{name}/configs",
        f"topic={name}/config",
        {"topic_name": name},
        lambda: operations.topics.describe(name).configs,
        lambda changes, validate_only: operations.topics.alter_configs(
            name, changes, validate_only=validate_only
        ),
    )


def _broker(request: web.Request) -> _Resource:
    operations = cluster_of(request).operations
    broker_of(request)
    return _broker_resource(operations)


def _broker_resource(operations: Operations) -> _Resource:
    node_id = operations.node_id
    return _Resource(
        KafkaBrokerConfig,
        f"brokers/{node_id}/configs",
        f"broker={node_id}/config",
        {"broker_id": node_id},
        operations.describe_broker_configs,
        _broker_alteration(operations),
    )


def _cluster(request: web.Request) -> _Resource:
    operations = cluster_of(request).operations
    return _Resource(
        KafkaClusterConfig,
        "broker-configs",
        "broker-config",
        {"config_type": "BROKER"},
        lambda: [e for e in operations.describe_broker_configs() if not e.is_read_only],
        _broker_alteration(operations),
    )


def _broker_alteration(operations: Operations) -> Callable[[list[ConfigChange], bool], object]:
    return lambda changes, validate_only: operations.alter_broker_configs(
        changes, validate_only=validate_only
    )


def _entity(request: web.Request, resource: _Resource, entry: ConfigEntry) -> Entity:
    return entity_of(
        resource.entity,
        request,
        f"/{resource.path}/{entry.name}",
        f"/{resource.crn}={entry.name}",
        **resource.owner,
        name=entry.name,
        value=entry.value,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=False,
        source=entry.source,
        synonyms=[answer_of(Synonym, each) for each in entry.synonyms],
    )


def _one(request: web.Request, resource: _Resource) -> ConfigEntry:
    """The config in the path."""
    name = request.match_info["config"]
    for entry in resource.describe():
        if entry.name == name:
            return entry
    raise ApiError(404, "No config of that name; GET .../configs lists them.")


def _list(request: web.Request, resource: _Resource) -> Page[object]:
    """All of them, by name."""
    return page_of(
        request,
        f"{resource.entity.__name__}List",
        sorted(resource.describe(), key=lambda entry: entry.name),
        key=lambda entry: entry.name,
        entity=lambda entry: _entity(request, resource, entry),
    )


def _get(request: web.Request, resource: _Resource) -> Entity:
    """One config with its sources."""
    return _entity(request, resource, _one(request, resource))


def _put(request: web.Request, resource: _Resource, wanted: ConfigValue) -> None:
    """Set one config; durable and in force before the answer."""
    resource.alter([_set(_one(request, resource).name, wanted.value)], False)


def _delete(request: web.Request, resource: _Resource) -> None:
    """Back to the default of one config."""
    resource.alter([ConfigChange(_one(request, resource).name, None)], False)


def _post(request: web.Request, resource: _Resource, wanted: AlterConfigs) -> None:
    """Set and delete several configs, all or none."""
    for each in wanted.data:
        note_subject(request, config=each.name, validate_only=wanted.validate_only or None)
    changes = [
        ConfigChange(each.name, None) if each.operation == "DELETE" else _set(each.name, each.value)
        for each in wanted.data
    ]
    resource.alter(changes, wanted.validate_only)


def _set(name: str, value: str | None) -> ConfigChange:
    if value is None:
        raise ApiError(40002, f"Null value not supported for : {name}; DELETE resets a config.")
    return ConfigChange(name, value)


@ROUTES.endpoint(
    "GET /v3/clusters/{cluster_id}/brokers/-/configs",
    "listAllBrokerConfigs",
    Access.DESCRIBE_CLUSTER,
    Answer("A page of configs.", KafkaBrokerConfigList),
    parameters=PAGING,
)
async def all_brokers(request: web.Request) -> Page[object]:
    """The configs of every broker: of the one."""
    return _list(request, _broker_resource(cluster_of(request).operations))


@ROUTES.endpoint(
    "GET /v3/clusters/{cluster_id}/topics/-/configs",
    "listAllTopicConfigs",
    Access.DESCRIBE_TOPIC,
    Answer("A page of configs.", KafkaTopicConfigList),
    parameters=PAGING,
)
def all_topics(request: web.Request, operations: Operations) -> Page[object]:
    """The configs of every topic in one list; made off the loop, for there are many."""
    cluster_of(request)
    found: list[tuple[_Resource, str, ConfigEntry]] = []
    for name in operations.topic_names():
        resource = _topic_named(operations, name)
        with suppress(UnknownTopic):  # deleted since the names were taken
            entries = sorted(resource.describe(), key=lambda entry: entry.name)
            found += [(resource, name, entry) for entry in entries]
    return page_of(
        request,
        "KafkaTopicConfigList",
        found,
        key=lambda each: f"{each[1]}\0{each[2].name}",
        entity=lambda each: _entity(request, each[0], each[2]),
    )


class _Offer(NamedTuple):
    """One of the five routes; ``{}`` in its operation id is the resource's name."""

    method: str
    rest: str
    operation_id: str
    action: Action
    act: Callable[..., object]
    status: int
    body: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()


class _Place(NamedTuple):
    """The path and the entities of the configs of one kind of resource."""

    path: str
    name: str
    find: Callable[[web.Request], _Resource]
    resource: Resource
    entity: type[Entity]
    entities: type[Page[Any]]


_OFFERS = (
    _Offer("GET", "", "list{}Configs", Action.DESCRIBE, _list, 200, parameters=PAGING),
    _Offer("GET", "/{config}", "get{}Config", Action.DESCRIBE, _get, 200),
    _Offer("PUT", "/{config}", "set{}Config", Action.ALTER, _put, 204, ConfigValue),
    _Offer("DELETE", "/{config}", "reset{}Config", Action.ALTER, _delete, 204),
    _Offer("POST", ":alter", "alter{}Configs", Action.ALTER, _post, 204, AlterConfigs),
)
_PLACES = (
    _Place(
        "topics/{topic}/configs",
        "Topic",
        _topic,
        Resource.TOPIC,
        KafkaTopicConfig,
        KafkaTopicConfigList,
    ),
    _Place(
        "brokers/{broker}/configs",
        "Broker",
        _broker,
        Resource.CLUSTER,
        KafkaBrokerConfig,
        KafkaBrokerConfigList,
    ),
    _Place(
        "broker-configs",
        "Cluster",
        _cluster,
        Resource.CLUSTER,
        KafkaClusterConfig,
        KafkaClusterConfigList,
    ),
)


def _route(place: _Place, offer: _Offer) -> None:
    """Offer one route over one kind of resource, with its spec."""
    answer = Answer("Done, durable.")
    if offer.status == 200:
        is_list = offer.act is _list
        answer = Answer("As it is now.", place.entities if is_list else place.entity)

    async def look(request: web.Request) -> object:
        return offer.act(request, place.find(request))

    def change(request: web.Request, _: Operations, *wanted: BaseModel) -> object:
        return offer.act(request, place.find(request), *wanted)

    handle = look if offer.action is Action.DESCRIBE else change
    handle.__doc__ = offer.act.__doc__
    ROUTES.endpoint(
        f"{offer.method} /v3/clusters/{{cluster_id}}/{place.path}{offer.rest}",
        offer.operation_id.format(place.name),
        Access(Right(offer.action, place.resource)),
        {offer.status: answer},
        parameters=offer.parameters,
        body=offer.body,
        errors=(40002, 50302, 50303, 50701) if offer.action is Action.ALTER else (),
    )(handle)


for _each in _PLACES:
    for _offer in _OFFERS:
        _route(_each, _offer)

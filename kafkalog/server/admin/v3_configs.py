"""v3 configs of topics, the broker and the cluster: list, get, put, delete, alter.

Each kind of ``_Resource`` has the same five routes. The cluster's (``broker-configs``) are the
broker's dynamic configs: with one broker both are the same.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.operations import ConfigChange, Operations
from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.server.admin.v3 import PAGING, Entity, Page, broker_of, cluster_of, entity_of, page_of
from kafkalog.server.protocol.endpoint import CLUSTER, Access, Answer, Right, Routes
from kafkalog.server.protocol.errors import ApiError, EntryError, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.parameters import topic_of
from kafkalog.server.protocol.schemas import (
    AlterConfigs,
    AlterTopics,
    ConfigOperation,
    ConfigValue,
    TopicConfigs,
)
from kafkalog.server.security.audit import note_failure, note_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

    from kafkalog.broker.values import ConfigEntry
    from kafkalog.errors import Detail


ROUTES = Routes("configs", CLUSTER)


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

    topic_name: str


class KafkaTopicConfigList(Page[KafkaTopicConfig]):
    """By topic and name."""


class KafkaBrokerConfig(ConfigEntity):
    """A config of the broker, likewise."""

    broker_id: int


class KafkaBrokerConfigList(Page[KafkaBrokerConfig]):
    """By name."""


class KafkaClusterConfig(ConfigEntity):
    """A config of the broker that changes at run time."""

    config_type: Literal["BROKER"]


class KafkaClusterConfigList(Page[KafkaClusterConfig]):
    """By name."""


_LISTS: dict[type[Entity], type[Page[Any]]] = {
    KafkaTopicConfig: KafkaTopicConfigList,
    KafkaBrokerConfig: KafkaBrokerConfigList,
    KafkaClusterConfig: KafkaClusterConfigList,
}


@dataclass(frozen=True, slots=True)
class _Resource:
    """A topic, the broker or the cluster that a path names."""

    entity: type[Entity]
    path: str  # of its configs, below the cluster
    crn: str  # of one config, below the cluster, without the config's name
    owner: Mapping[str, str | int]  # how an entity names the resource
    describe: Callable[[], Sequence[ConfigEntry]]
    alter: Callable[..., object]  # the changes; ``validate_only``


def _topic(request: web.Request) -> _Resource:
    return _topic_named(cluster_of(request).operations, topic_of(request))


def _topic_named(operations: Operations, name: str) -> _Resource:
    return _Resource(
        KafkaTopicConfig,
        f"topics/{name}/configs",
        f"topic={name}/config",
        {"topic_name": name},
        lambda: operations.topics.describe(name).configs,
        functools.partial(operations.topics.alter_configs, name),
    )


def _broker(request: web.Request) -> _Resource:
    """The one in the path, or of a path that names all of them."""
    operations = cluster_of(request).operations
    node_id = broker_of(request) if "broker" in request.match_info else operations.node_id
    return _Resource(
        KafkaBrokerConfig,
        f"brokers/{node_id}/configs",
        f"broker={node_id}/config",
        {"broker_id": node_id},
        operations.describe_broker_configs,
        operations.alter_broker_configs,
    )


def _cluster(request: web.Request) -> _Resource:
    operations = cluster_of(request).operations
    return _Resource(
        KafkaClusterConfig,
        "broker-configs",
        "broker-config",
        {"config_type": "BROKER"},
        lambda: [e for e in operations.describe_broker_configs() if not e.is_read_only],
        operations.alter_broker_configs,
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
    raise _unknown_config()


def _unknown_config(**details: Detail) -> ApiError:
    return ApiError(404, "No config of that name; GET .../configs lists them.", details=details)


def _list(request: web.Request, resource: _Resource) -> Page[Any]:
    """All of them, by name."""
    return page_of(
        _LISTS[resource.entity],
        request,
        sorted(resource.describe(), key=lambda entry: entry.name),
        key=lambda entry: entry.name,
        entity=lambda request, entry: _entity(request, resource, entry),
    )


def _get(request: web.Request, resource: _Resource) -> Entity:
    """One config with its sources."""
    return _entity(request, resource, _one(request, resource))


def _put(request: web.Request, resource: _Resource, wanted: ConfigValue) -> None:
    """Set one config; durable and in force before the answer."""
    resource.alter([_set(_one(request, resource).name, wanted.value)], validate_only=False)


def _delete(request: web.Request, resource: _Resource) -> None:
    """Back to the default of one config."""
    resource.alter([ConfigChange(_one(request, resource).name, None)], validate_only=False)


def _post(request: web.Request, resource: _Resource, wanted: AlterConfigs) -> None:
    """Set and delete several configs, all or none."""
    for each in wanted.data:
        note_subject(request, config=each.name, validate_only=wanted.validate_only or None)
    resource.alter(_changes_of(wanted.data), validate_only=wanted.validate_only)


def _changes_of(steps: Sequence[ConfigOperation]) -> list[ConfigChange]:
    """As the broker takes them; ApiError 40002."""
    return [
        ConfigChange(each.name, None) if each.operation == "DELETE" else _set(each.name, each.value)
        for each in steps
    ]


def _set(name: str, value: str | None) -> ConfigChange:
    if value is None:
        raise ApiError(40002, f"Null value not supported for : {name}; DELETE resets a config.")
    return ConfigChange(name, value)


@ROUTES.endpoint(
    "GET /brokers/-/configs",
    "listAllBrokerConfigs",
    Access.DESCRIBE_CLUSTER,
    Answer("A page of configs.", KafkaBrokerConfigList),
    parameters=PAGING,
)
async def all_brokers(request: web.Request) -> Page[Any]:
    """The configs of every broker: of the one."""
    return _list(request, _broker(request))


@ROUTES.endpoint(
    "GET /topics/-/configs",
    "listAllTopicConfigs",
    Access.DESCRIBE_TOPIC,
    "A page of configs.",
    parameters=PAGING,
)
def all_topics(request: web.Request, operations: Operations) -> KafkaTopicConfigList:
    """The configs of every topic in one list; made off the loop, for there are many."""
    cluster_of(request)
    found: list[tuple[_Resource, str, ConfigEntry]] = []
    for name in operations.topic_names():
        resource = _topic_named(operations, name)
        with suppress(UnknownTopic):  # deleted since the names were taken
            entries = sorted(resource.describe(), key=lambda entry: entry.name)
            found += [(resource, name, entry) for entry in entries]
    return page_of(
        KafkaTopicConfigList,
        request,
        found,
        key=lambda each: f"{each[1]}\0{each[2].name}",
        entity=lambda request, each: _entity(request, each[0], each[2]),
    )


class TopicFailure(EntryError, kw_only=True):
    """A topic that was not altered; the others were."""

    topic_name: str


class TopicFailures(AnswerBody):
    """In the order of the request."""

    failures: list[TopicFailure]


@ROUTES.endpoint(
    "POST /topics/-/configs:alter",
    "alterConfigsOfTopics",
    Access.ALTER_TOPIC,
    {
        207: Answer("Some topics could not be altered; the others are, durable.", TopicFailures),
        204: Answer("Done, durable."),
    },
    errors=(404, 40002, 40403, 50302, 50303, 50701),
)
def alter_topics(
    request: web.Request, operations: Operations, wanted: AlterTopics
) -> TopicFailures | None:
    """Set and delete configs of several topics; of each topic all or none.

    Nothing is changed when one of the topics or configs does not exist.
    """
    cluster_of(request)
    changes = {each.topic_name: _checked_changes(operations, each) for each in wanted.data}
    if len(changes) < len(wanted.data):
        raise ApiError(40002, "Name each topic once.")
    failures = []
    for name, steps in changes.items():
        subjects = [
            note_subject(
                request, topic=name, config=step.name, validate_only=wanted.validate_only or None
            )
            for step in steps
        ]
        try:
            operations.topics.alter_configs(name, steps, validate_only=wanted.validate_only)
        except KafkalogError as error:
            failures.append(answer_of(TopicFailure, error_of(error), topic_name=name))
            for subject in subjects:
                note_failure(subject, error)
    return TopicFailures(failures) if failures else None


def _checked_changes(operations: Operations, wanted: TopicConfigs) -> list[ConfigChange]:
    """Of one topic; UnknownTopic, ApiError 404 for a config, 40002 for a value that is null."""
    topic = operations.topics.describe(wanted.topic_name)
    known = {entry.name for entry in topic.configs} | topic.overrides.keys()
    for step in wanted.configs:
        if step.name not in known:
            raise _unknown_config(topic=topic.name, config=step.name)
    return _changes_of(wanted.configs)


def _handler(
    act: Callable[..., object], find: Callable[[web.Request], _Resource], *, is_read: bool
) -> Callable[..., object]:
    """``act`` on the resource of the path; what changes it runs on the control pool."""

    @functools.wraps(act)
    async def look(request: web.Request) -> object:
        return act(request, find(request))

    @functools.wraps(act)
    def change(request: web.Request, _: Operations, *wanted: BaseModel) -> object:
        return act(request, find(request), *wanted)

    return look if is_read else change


_OFFERS: tuple[tuple[str, str, str, Callable[..., object]], ...] = (
    ("GET", "", "list{}Configs", _list),
    ("GET", "/{config}", "get{}Config", _get),
    ("PUT", "/{config}", "set{}Config", _put),
    ("DELETE", "/{config}", "reset{}Config", _delete),
    ("POST", ":alter", "alter{}Configs", _post),
)
"""The routes of each kind of resource, whose name is for ``{}`` in an operation id."""
_PLACES = (
    ("topics/{topic}/configs", "Topic", _topic, Resource.TOPIC, KafkaTopicConfig),
    ("brokers/{broker}/configs", "Broker", _broker, Resource.CLUSTER, KafkaBrokerConfig),
    ("broker-configs", "Cluster", _cluster, Resource.CLUSTER, KafkaClusterConfig),
)


for _place, _name, _find, _kind, _model in _PLACES:
    for _method, _rest, _operation_id, _act in _OFFERS:
        _is_read = _method == "GET"
        ROUTES.endpoint(
            f"{_method} /{_place}{_rest}",
            _operation_id.format(_name),
            Access(Right(Action.DESCRIBE if _is_read else Action.ALTER, _kind)),
            Answer("As it is now.", _LISTS[_model] if _act is _list else _model)
            if _is_read
            else {204: Answer("Done, durable.")},
            parameters=PAGING if _act is _list else (),
            errors=() if _is_read else (40002, 50302, 50303, 50701),
        )(_handler(_act, _find, is_read=_is_read))

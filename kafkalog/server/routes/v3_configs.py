"""v3 configs of topics, the one broker and the cluster: list, get, put, delete, alter.

All have the same five routes; a ``_Resource`` is what they act on (http-api.md 1.7). The cluster's
(``broker-configs``) are the broker's that can change at run time: with one broker its dynamic
configs and the cluster's defaults of them are the same.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import UnknownTopic
from kafkalog.manager.operations import ConfigChange
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.parameters import topic_of
from kafkalog.server.replies import json_reply
from kafkalog.server.routes.v3 import broker_of, cluster_of, clusters_url, list_reply, v3_numbers
from kafkalog.server.schemas import AlterConfigs, ConfigValue, parse_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kafkalog.manager.values import ConfigEntry
    from kafkalog.server.api import Api

    Resource = Callable[[web.Request], "_Resource"]
    Action = Callable[[web.Request, "_Resource"], Awaitable[web.Response]]

ROUTES = web.RouteTableDef()


@dataclass(frozen=True, slots=True)
class _Resource:
    """A topic, the broker or the cluster, behind its path."""

    api: Api
    kind: str
    path: str  # of its configs, below the cluster
    crn: str  # of one config, below the cluster, without the config's name
    owner: Mapping[str, str | int]  # how an entity names the resource
    describe: Callable[[], Sequence[ConfigEntry]]
    alter: Callable[[list[ConfigChange], bool], object]


def _topic(request: web.Request) -> _Resource:
    return _topic_named(cluster_of(request), topic_of(request))


def _topic_named(api: Api, name: str) -> _Resource:
    operations = api.operations
    return _Resource(
        api,
        "KafkaTopicConfig",
        f"topics/{name}/configs",
        f"topic={name}/config",
        {"topic_name": name},
        lambda: operations.topics.describe(name).configs,
        lambda changes, validate_only: operations.topics.alter_configs(
            name, changes, validate_only=validate_only
        ),
    )


def _broker(request: web.Request) -> _Resource:
    api, node_id = cluster_of(request), broker_of(request)
    return _Resource(
        api,
        "KafkaBrokerConfig",
        f"brokers/{node_id}/configs",
        f"broker={node_id}/config",
        {"broker_id": node_id},
        api.operations.describe_broker_configs,
        _broker_alteration(api),
    )


def _cluster(request: web.Request) -> _Resource:
    api = cluster_of(request)
    return _Resource(
        api,
        "KafkaClusterConfig",
        "broker-configs",
        "broker-config",
        {"config_type": "BROKER"},
        lambda: [e for e in api.operations.describe_broker_configs() if not e.is_read_only],
        _broker_alteration(api),
    )


def _broker_alteration(api: Api) -> Callable[[list[ConfigChange], bool], object]:
    return lambda changes, validate_only: api.operations.alter_broker_configs(
        changes, validate_only=validate_only
    )


def _entity(request: web.Request, resource: _Resource, entry: ConfigEntry) -> dict[str, object]:
    cluster_id = resource.api.cluster_id
    return {
        "kind": resource.kind,
        "metadata": {
            "self": f"{clusters_url(request)}/{cluster_id}/{resource.path}/{entry.name}",
            "resource_name": f"crn:///kafka={cluster_id}/{resource.crn}={entry.name}",
        },
        "cluster_id": cluster_id,
        **resource.owner,
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "is_sensitive": False,
        "source": entry.source,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source} for one in entry.synonyms
        ],
    }


def _one(request: web.Request, resource: _Resource) -> ConfigEntry:
    """The config in the path."""
    name = request.match_info["config"]
    for entry in resource.describe():
        if entry.name == name:
            return entry
    raise ApiError(404, "No config of that name; GET .../configs lists them.")


async def _list(request: web.Request, resource: _Resource) -> web.Response:
    entities = [_entity(request, resource, entry) for entry in resource.describe()]
    return list_reply(request, f"{resource.kind}List", entities)


async def _get(request: web.Request, resource: _Resource) -> web.Response:
    return json_reply(_entity(request, resource, _one(request, resource)))


async def _put(request: web.Request, resource: _Resource) -> web.Response:
    async with Body(request, resource.api) as data:
        wanted = parse_body(ConfigValue, data)
    name = _one(request, resource).name
    return await _alter(resource, [_set(name, wanted.value)])


async def _delete(request: web.Request, resource: _Resource) -> web.Response:
    return await _alter(resource, [ConfigChange(_one(request, resource).name, None)])


async def _post(request: web.Request, resource: _Resource) -> web.Response:
    async with Body(request, resource.api) as data:
        wanted = parse_body(AlterConfigs, data)
    changes = [
        ConfigChange(each.name, None) if each.operation == "DELETE" else _set(each.name, each.value)
        for each in wanted.data
    ]
    return await _alter(resource, changes, validate_only=wanted.validate_only)


def _set(name: str, value: str | None) -> ConfigChange:
    if value is None:
        raise ApiError(40002, f"Null value not supported for : {name}; DELETE resets a config.")
    return ConfigChange(name, value)


async def _alter(
    resource: _Resource, changes: list[ConfigChange], *, validate_only: bool = False
) -> web.Response:
    await resource.api.blocking(resource.alter, changes, validate_only)
    return web.Response(status=204)


@ROUTES.get("/v3/clusters/{cluster_id}/topics/-/configs")
async def all_topics(request: web.Request) -> web.Response:
    """The configs of every topic in one list; made off the loop, for there are many."""
    api = cluster_of(request)
    return await api.blocking(_all_topics, request, api)


def _all_topics(request: web.Request, api: Api) -> web.Response:
    entities: list[dict[str, object]] = []
    for name in api.operations.topic_names():
        resource = _topic_named(api, name)
        with suppress(UnknownTopic):  # deleted since the names were taken
            entities += [_entity(request, resource, entry) for entry in resource.describe()]
    return list_reply(request, "KafkaTopicConfigList", entities)


_ACTIONS = (
    ("GET", "", _list),
    ("GET", "/{config}", _get),
    ("PUT", "/{config}", _put),
    ("DELETE", "/{config}", _delete),
    ("POST", ":alter", _post),
)
_RESOURCES: tuple[tuple[str, Resource], ...] = (
    ("topics/{topic}/configs", _topic),
    ("brokers/{broker}/configs", _broker),
    ("broker-configs", _cluster),
)


def _offer(method: str, path: str, find: Resource, act: Action) -> None:
    @ROUTES.route(method, path)
    async def handle(request: web.Request) -> web.Response:
        with v3_numbers():
            return await act(request, find(request))


for _place, _find in _RESOURCES:
    for _method, _rest, _act in _ACTIONS:
        _offer(_method, f"/v3/clusters/{{cluster_id}}/{_place}{_rest}", _find, _act)

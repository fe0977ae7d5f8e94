"""v3 consumer groups, their consumers and lags: read only."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from kafkalog.errors import UnknownConsumer
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.admin.v3 import (
    PAGING,
    Related,
    cluster_of,
    cluster_url,
    entity_metadata,
    list_of,
)
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import CLUSTER, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import group_of, instance_of, partition_of, topic_of

if TYPE_CHECKING:
    from kafkalog.broker.groups.consumers import Consumer
    from kafkalog.broker.groups.groups import GroupOperations, GroupSummary, PartitionLag

ROUTES = Routes("v3", f"{CLUSTER}/consumer-groups", errors=(40403, 40405, 50303))
_ENTITY = {200: Answer("The entity.", {JSON: {"type": "object"}})}
_LIST = {200: Answer("The list.", {JSON: {"type": "object"}})}


def _groups_of(request: web.Request) -> GroupOperations:
    return cluster_of(request).operations.groups


def _summary_of(request: web.Request) -> GroupSummary:
    """The group in the path; UnknownGroup."""
    return _groups_of(request).summary(group_of(request))


def _entity(request: web.Request, kind: str, tail: str, **fields: object) -> dict[str, object]:
    """An entity below the cluster; ``tail`` is its path."""
    cluster_id = api_of(request).cluster_id
    names = tail.split("/")
    pairs = zip(names[::2], names[1::2], strict=False)
    resource = "".join(f"/{_SINGULAR[noun]}={name}" for noun, name in pairs)
    return {
        "kind": kind,
        "metadata": entity_metadata(request, f"/{tail}", resource),
        "cluster_id": cluster_id,
        **fields,
    }


_SINGULAR = {
    "consumer-groups": "consumer-group",
    "consumers": "consumer",
    "assignments": "assignment",
    "lags": "lag",
    "partitions": "partition",
}


def _tail(group: str, *more: object) -> str:
    return "/".join(
        ("consumer-groups", quote(group, safe=""), *(quote(str(m), safe="") for m in more))
    )


def _related(request: web.Request, tail: str) -> Related:
    return Related(f"{cluster_url(request)}/{tail}")


def _group_entity(request: web.Request, group: GroupSummary) -> dict[str, object]:
    tail = _tail(group.name)
    broker = f"brokers/{api_of(request).operations.node_id}"
    return _entity(
        request,
        "KafkaConsumerGroup",
        tail,
        consumer_group_id=group.name,
        is_simple=group.member_count == 0,
        partition_assignor="range" if group.member_count else "",
        state=group.state.upper(),
        coordinator=_related(request, broker),
        consumers=_related(request, f"{tail}/consumers"),
        lag_summary=_related(request, f"{tail}/lag-summary"),
    )


def _consumer_entity(request: web.Request, consumer: Consumer) -> dict[str, object]:
    tail = _tail(consumer.group, "consumers", consumer.name)
    return _entity(
        request,
        "KafkaConsumer",
        tail,
        consumer_group_id=consumer.group,
        consumer_id=consumer.name,
        instance_id=None,
        client_id=consumer.name,
        assignments=_related(request, f"{tail}/assignments"),
    )


def _assignment_entity(
    request: web.Request, consumer: Consumer, at: TopicPartition
) -> dict[str, object]:
    parts = ("consumers", consumer.name, "assignments", at.topic, "partitions", at.partition)
    return _entity(
        request,
        "KafkaConsumerAssignment",
        _tail(consumer.group, *parts),
        consumer_group_id=consumer.group,
        consumer_id=consumer.name,
        topic_name=at.topic,
        partition_id=at.partition,
        partition=_related(request, f"topics/{at.topic}/partitions/{at.partition}"),
        lag=_related(request, _tail(consumer.group, "lags", at.topic, "partitions", at.partition)),
    )


def _lag_entity(
    request: web.Request, group: str, lag: PartitionLag, reader: str
) -> dict[str, object]:
    return _entity(
        request,
        "KafkaConsumerLag",
        _tail(group, "lags", lag.at.topic, "partitions", lag.at.partition),
        consumer_group_id=group,
        topic_name=lag.at.topic,
        partition_id=lag.at.partition,
        current_offset=lag.committed.offset,
        log_end_offset=lag.log_end_offset,
        lag=lag.lag,
        consumer_id=reader,
        instance_id=None,
        client_id=reader,
    )


def _readers(groups: GroupOperations, group: str) -> dict[TopicPartition, str]:
    """Who reads each partition now."""
    return {at: each.name for each in groups.members.members(group) for at in each.partitions}


@ROUTES.endpoint("GET", "v3ListConsumerGroups", Access.DESCRIBE_GROUP, _LIST, parameters=PAGING)
async def consumer_groups(request: web.Request) -> dict[str, object]:
    """Groups that have commits or members."""
    found = [_group_entity(request, each) for each in _groups_of(request).summaries()]
    return list_of(request, "KafkaConsumerGroupList", found)


@ROUTES.endpoint("GET /{group}", "v3GetConsumerGroup", Access.DESCRIBE_GROUP, _ENTITY)
async def consumer_group(request: web.Request) -> dict[str, object]:
    """One group; state is STABLE with members, EMPTY without."""
    return _group_entity(request, _summary_of(request))


@ROUTES.endpoint(
    "GET /{group}/consumers", "v3ListConsumers", Access.DESCRIBE_GROUP, _LIST, parameters=PAGING
)
async def consumers(request: web.Request) -> dict[str, object]:
    """Consumer instances of the group."""
    group = _summary_of(request).name
    members = _groups_of(request).members.members(group)
    entities = [_consumer_entity(request, each) for each in members]
    return list_of(request, "KafkaConsumerList", entities)


def _consumer_in(request: web.Request) -> Consumer:
    """The consumer in the path; this does not reset its idle time. UnknownConsumer."""
    name = instance_of(request, "consumer")
    for each in _groups_of(request).members.members(group_of(request)):
        if each.name == name:
            return each
    raise UnknownConsumer("The group has no consumer of that name.", name=name)


@ROUTES.endpoint(
    "GET /{group}/consumers/{consumer}", "v3GetConsumer", Access.DESCRIBE_GROUP, _ENTITY
)
async def consumer(request: web.Request) -> dict[str, object]:
    """One consumer instance."""
    return _consumer_entity(request, _consumer_in(request))


@ROUTES.endpoint(
    "GET /{group}/consumers/{consumer}/assignments",
    "v3ListConsumerAssignments",
    Access.DESCRIBE_GROUP,
    _LIST,
    parameters=PAGING,
)
async def assignments(request: web.Request) -> dict[str, object]:
    """Partitions that a consumer instance reads."""
    member = _consumer_in(request)
    entities = [_assignment_entity(request, member, at) for at in member.partitions]
    return list_of(request, "KafkaConsumerAssignmentList", entities)


@ROUTES.endpoint(
    "GET /{group}/consumers/{consumer}/assignments/{topic}/partitions/{partition}",
    "v3GetConsumerAssignment",
    Access.DESCRIBE_GROUP,
    _ENTITY,
)
async def assignment(request: web.Request) -> dict[str, object]:
    """One partition that a consumer instance reads; 404 when it does not."""
    member, at = _consumer_in(request), TopicPartition(topic_of(request), partition_of(request))
    if at not in member.partitions:
        raise ApiError(40403, "The consumer does not read this partition.")
    return _assignment_entity(request, member, at)


@ROUTES.endpoint(
    "GET /{group}/lags", "v3ListConsumerLags", Access.DESCRIBE_GROUP, _LIST, parameters=PAGING
)
async def lags(request: web.Request) -> dict[str, object]:
    """The lag of the group in each partition; null when the partition is not served."""
    groups, group = _groups_of(request), _summary_of(request).name
    readers = _readers(groups, group)
    entities = [
        _lag_entity(request, group, each, readers.get(each.at, "")) for each in groups.lags(group)
    ]
    return list_of(request, "KafkaConsumerLagList", entities)


@ROUTES.endpoint(
    "GET /{group}/lags/{topic}/partitions/{partition}",
    "v3GetConsumerLag",
    Access.DESCRIBE_GROUP,
    _ENTITY,
)
async def lag(request: web.Request) -> dict[str, object]:
    """The lag of the group in one partition; 404 without a commit."""
    groups, group = _groups_of(request), _summary_of(request).name
    at = TopicPartition(topic_of(request), partition_of(request))
    for each in groups.lags(group):
        if each.at == at:
            reader = _readers(groups, group).get(at, "")
            return _lag_entity(request, group, each, reader)
    raise ApiError(40403, "The group has no commit for this partition.")


@ROUTES.endpoint(
    "GET /{group}/lag-summary", "v3GetConsumerLagSummary", Access.DESCRIBE_GROUP, _ENTITY
)
async def lag_summary(request: web.Request) -> dict[str, object]:
    """The largest lag and the sum of all; 404 while no partition of a commit is served."""
    groups, group = _groups_of(request), _summary_of(request).name
    known = [(each.lag, each) for each in groups.lags(group) if each.lag is not None]
    if not known:
        raise ApiError(40405, "The group has no commit in a partition that is served.")
    largest, most = max(known, key=lambda pair: pair[0])
    reader = _readers(groups, group).get(most.at, "")
    return _entity(
        request,
        "KafkaConsumerGroupLagSummary",
        f"{_tail(group)}/lag-summary",
        consumer_group_id=group,
        max_lag_consumer_id=reader,
        max_lag_instance_id=None,
        max_lag_client_id=reader,
        max_lag_topic_name=most.at.topic,
        max_lag_partition_id=most.at.partition,
        max_lag=largest,
        total_lag=sum(lag for lag, _ in known),
    )

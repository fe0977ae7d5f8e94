"""v2 consumers: commit offsets and read them back (http-api.md 1.3, 1.4, 1.5, 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.format.topic_names import TopicPartition
from kafkalog.manager.consumer import Dialect
from kafkalog.server.answers_groups import CommittedOffsets, Nothing
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Answer, endpoint
from kafkalog.server.group_commits import commit, commit_positions, commits_of
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON, V2_JSON
from kafkalog.server.parameters import FlagParameter
from kafkalog.server.routes.consumers import INSTANCE, READ_GROUP, consumer_of, v2_reply
from kafkalog.server.schemas import parse_body
from kafkalog.server.schemas_consumers import OffsetCommit, Partitions

if TYPE_CHECKING:
    from kafkalog.manager.consumer import Consumer

ROUTES = web.RouteTableDef()
_ASYNC = FlagParameter("async", "Answer before the commit counts.")


@ROUTES.post(f"{INSTANCE}/offsets")
@ROUTES.post(f"{INSTANCE}/offsets/")
@endpoint(
    "commitOffsets",
    "consumers",
    READ_GROUP,
    {
        200: Answer("Committed; dialect confluent.", dict.fromkeys((V2_JSON, JSON), Nothing)),
        204: Answer("Committed; dialect strimzi, or a body of pandaproxy's."),
    },
    parameters=(_ASYNC,),
    body={V2_JSON: OffsetCommit},
    is_body_required=False,
    errors=(406, 40002, 40401, 40402, 40403, 50003, 50302, 50303, 50701),
)
async def commit_offsets(request: web.Request) -> web.Response:
    """Commit offsets, or without a body all that was delivered.

    In the dialect confluent an entry of ``offsets`` names the last record that was processed and
    the next one is committed; in strimzi, and in ``partitions``, the offset is stored as it is.
    """
    api, consumer = api_of(request), consumer_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(OffsetCommit, data or b"{}")
    is_awaited = not _ASYNC.read(request)
    is_confluent = consumer.config.dialect is Dialect.CONFLUENT
    if wanted.partitions is not None:
        commits = commits_of(api, wanted.partitions)
        await commit(api, consumer.group, commits, is_awaited=is_awaited)
        return web.Response(status=204)
    if wanted.offsets is not None:
        commits = commits_of(api, wanted.offsets, plus=int(is_confluent))
        await commit(api, consumer.group, commits, is_awaited=is_awaited)
    else:
        await commit_positions(api, consumer, is_awaited=is_awaited)
    return v2_reply(request, []) if is_confluent else web.Response(status=204)


@ROUTES.get(f"{INSTANCE}/offsets")
@endpoint(
    "getCommittedOffsets",
    "consumers",
    READ_GROUP,
    {200: Answer("The commits.", dict.fromkeys((V2_JSON, JSON), CommittedOffsets))},
    body={V2_JSON: Partitions},
    is_body_required=False,
    errors=(406, 40403, 50303),
)
async def committed(request: web.Request) -> web.Response:
    """What the group has committed for partitions, or without a body for those it was assigned.

    Partitions without a commit are left out.
    """
    api, consumer = api_of(request), consumer_of(request)
    async with Body(request, api) as data:
        wanted = _wanted(data, consumer)
    found = api.operations.groups.offsets.committed(consumer.group)
    offsets = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": found[at].offset,
            "metadata": found[at].metadata,
        }
        for at in wanted
        if at in found
    ]
    return v2_reply(request, {"offsets": offsets})


def _wanted(data: bytes, consumer: Consumer) -> list[TopicPartition]:
    if not data or data.isspace() or data == b"{}":  # clients that send a body with every verb
        return consumer.partitions
    partitions = parse_body(Partitions, data).partitions
    return [TopicPartition(each.topic, each.partition) for each in partitions]

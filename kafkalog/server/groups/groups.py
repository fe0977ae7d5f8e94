"""Native group routes: list, describe, offsets, resets.

Offsets are stored exactly as sent: the next record that the group wants.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.broker.groups.groups import ResetTarget
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.group_offsets import CommittedOffset
from kafkalog.log.values import Isolation
from kafkalog.server.api import Api, api_of
from kafkalog.server.groups.commits import commit, commits_of
from kafkalog.server.groups.consumers import AssignedPartition, entries_of
from kafkalog.server.protocol.endpoint import Access, Routes
from kafkalog.server.protocol.errors import ApiError, FailedPartition, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.parameters import TopicsParameter, group_of, parse_timestamp
from kafkalog.server.protocol.schemas import GroupOffsets, ResetOffsets
from kafkalog.server.security.audit import note_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.broker.groups.groups import PartitionLag
    from kafkalog.format.topic_names import TopicPartition

ROUTES = Routes("groups", "/v1/groups")
_SLICE = 100  # partitions whose offset a reset looks up between two turns of the loop
_WRITES = (50003, 50302, 50303, 50701)
_TOPICS = TopicsParameter("topics", "Of these topics alone, separated by commas; absent: all.")


class GroupEntry(AnswerBody):
    """One group; state is Stable with members, Empty without."""

    group: str
    state: str
    members: int


class GroupList(AnswerBody):
    """Groups that have commits or members, by name."""

    groups: list[GroupEntry]


class GroupOffsetEntry(AssignedPartition):
    """A commit beside its log; lag is end less commit, null when the partition is not served."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None


class GroupMember(AnswerBody):
    """A consumer instance."""

    instance_id: str
    topics: list[str]
    partitions: list[AssignedPartition]


class GroupDescription(AnswerBody):
    """A group with its members and commits."""

    group: str
    state: str
    members: list[GroupMember]
    offsets: list[GroupOffsetEntry]


class GroupOffsetList(AnswerBody):
    """Commits of one group."""

    group: str
    offsets: list[GroupOffsetEntry]


class ResetEntry(AssignedPartition):
    """Before and after; old_offset is null without a commit."""

    old_offset: int | None
    new_offset: int


class FailedReset(FailedPartition):
    """A partition that stays as it is."""


class ResetReport(AnswerBody):
    """What was reset, or would be in a dry run."""

    group: str
    dry_run: bool
    offsets: list[ResetEntry | FailedReset]


class RemovedOffsets(AnswerBody):
    """How many commits went."""

    group: str
    removed: int


@ROUTES.endpoint("GET", "listGroups", Access.DESCRIBE_GROUP, "By name.")
async def groups(request: web.Request) -> GroupList:
    """Groups that have commits or members."""
    found = api_of(request).operations.groups.summaries()
    return GroupList([GroupEntry(g.name, g.state, g.member_count) for g in found])


@ROUTES.endpoint(
    "GET /{group}", "describeGroup", Access.DESCRIBE_GROUP, "The group.", errors=(40405, 50303)
)
async def describe(request: web.Request) -> GroupDescription:
    """A group with its members and its commits beside the logs."""
    operations, group = api_of(request).operations.groups, group_of(request)
    summary = operations.summary(group)
    return GroupDescription(
        group=group,
        state=summary.state,
        members=[
            GroupMember(each.name, each.topics, entries_of(each.partitions))
            for each in operations.members.members(group)
        ],
        offsets=_offset_entries(operations.lags(group)),
    )


@ROUTES.endpoint(
    "DELETE /{group}",
    "deleteGroup",
    Access.DELETE_GROUP,
    "It is gone.",
    errors=(40405, 40911, *_WRITES),
)
async def delete(request: web.Request) -> None:
    """Delete a group without members: all its commits."""
    api, group = api_of(request), group_of(request)
    api.operations.groups.summary(group)
    api.operations.groups.check_no_members(group)
    await api.blocking(api.operations.groups.offsets.delete, group)


# ---- offsets


@ROUTES.endpoint(
    "GET /{group}/offsets",
    "getGroupOffsets",
    Access.DESCRIBE_GROUP,
    "Its commits.",
    errors=(50303,),
)
async def offsets(request: web.Request) -> GroupOffsetList:
    """What a group has committed; nothing of an unknown one."""
    group = group_of(request)
    lags = api_of(request).operations.groups.lags(group)
    return GroupOffsetList(group, _offset_entries(lags))


@ROUTES.endpoint(
    "PUT /{group}/offsets",
    "putGroupOffsets",
    Access.READ_GROUP,
    "Stored.",
    errors=(40401, 40402, *_WRITES),
)
async def put_offsets(request: web.Request, wanted: GroupOffsets) -> None:
    """Commit offsets of a group, all or none, exactly as sent.

    For clients without a consumer instance: they fetch by offset, then commit here.
    """
    api = api_of(request)
    await commit(api, group_of(request), commits_of(api, wanted.offsets))


@ROUTES.endpoint(
    "DELETE /{group}/offsets",
    "deleteGroupOffsets",
    Access.DELETE_GROUP,
    "What went.",
    parameters=(_TOPICS,),
    errors=(40911, *_WRITES),
)
async def delete_offsets(request: web.Request) -> RemovedOffsets:
    """Take away commits of a group without members."""
    api, group, topics = api_of(request), group_of(request), _topics_in(request)
    api.operations.groups.check_no_members(group)
    removed = await api.blocking(api.operations.groups.offsets.delete, group, topics)
    return RemovedOffsets(group, removed)


def _topics_in(request: web.Request) -> list[str] | None:
    """None: all of them, which an empty parameter does not say."""
    return _TOPICS.read(request) if _TOPICS.name in request.query else None


@ROUTES.endpoint(
    "POST /{group}/offsets:reset",
    "resetGroupOffsets",
    Access.READ_GROUP,
    "Before and after.",
    errors=(40005, 40401, 40402, 40405, 40911, *_WRITES),
)
async def reset(request: web.Request, wanted: ResetOffsets) -> ResetReport:
    """Set the offsets of a group without members, or say what they would be.

    As kafka-consumer-groups: a shift and an offset stop at the ends of the log, a time after the
    last record is the end. A partition that is not served stays as it is and says why.
    """
    _check_reset(wanted)
    named = wanted.partitions
    partitions = None if named is None else [each.key for each in named]
    return await reset_offsets(
        request,
        group_of(request),
        _target_of(wanted),
        wanted.topics,
        partitions,
        is_dry=wanted.dry_run,
    )


async def reset_offsets(
    request: web.Request,
    group: str,
    target: ResetTarget,
    topics: Sequence[str] | None,
    partitions: Sequence[TopicPartition] | None = None,
    *,
    is_dry: bool = False,
) -> ResetReport:
    """Reset what is named, else all that the group has committed."""
    api = api_of(request)
    operations = api.operations.groups
    if not is_dry:
        operations.check_no_members(group)
    scope = operations.reset_scope(group, topics, partitions)
    entries: list[ResetEntry | FailedReset] = []
    commits: dict[TopicPartition, CommittedOffset] = {}
    for count, (at, old) in enumerate(sorted(scope.items())):
        if count % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)  # a look-up that needs no disk does not leave the loop
        try:
            offset = await _reset_offset(api, at, old, target)
        except KafkalogError as error:
            entries.append(answer_of(FailedReset, at, error_of(error)))
            continue
        commits[at] = CommittedOffset(offset, "", api.operations.now_ms())
        entries.append(
            ResetEntry(
                at.topic,
                at.partition,
                old_offset=None if old is None else old.offset,
                new_offset=offset,
            )
        )
    if not is_dry:
        note_entries(request, entries)
        await commit(api, group, commits)
    return ResetReport(group, is_dry, entries)


def _check_reset(wanted: ResetOffsets) -> None:
    """422 when ``to`` lacks its number or has another's."""
    for name, value in (
        ("timestamp", wanted.timestamp),
        ("shift", wanted.shift),
        ("offset", wanted.offset),
    ):
        if (value is not None) != (wanted.to == name):
            raise ApiError(422, f"{name} belongs to to={name}, and only there.")


def _target_of(wanted: ResetOffsets) -> ResetTarget:
    if wanted.timestamp is not None:
        return ResetTarget(wanted.to, parse_timestamp(str(wanted.timestamp)))
    return ResetTarget(wanted.to, wanted.shift or wanted.offset or 0)


async def _reset_offset(
    api: Api, at: TopicPartition, old: CommittedOffset | None, target: ResetTarget
) -> int:
    """The new offset of one partition; errors as of a fetch."""
    found = None
    if target.to == "timestamp":
        log = api.operations.partition_log(at.topic, at.partition)
        found = await api.offset_at(log, target.number, Isolation.HIGH_WATERMARK)
    return api.operations.groups.reset_offset(at, old, target, found)


def _offset_entries(lags: Iterable[PartitionLag]) -> list[GroupOffsetEntry]:
    return [
        answer_of(
            GroupOffsetEntry,
            lag.at,
            lag.committed,
            lag,
            commit_timestamp=lag.committed.commit_timestamp_ms,
        )
        for lag in lags
    ]

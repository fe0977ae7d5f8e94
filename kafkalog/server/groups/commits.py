"""Commits of a group's offsets: what was delivered, or what a body names; all or none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalog.format.disk.group_offsets import CommittedOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.broker.groups.consumers import Consumer
    from kafkalog.errors import KafkalogError
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.server.api import Api
    from kafkalog.server.protocol.schemas import CommitEntry


async def commit(
    api: Api,
    group: str,
    commits: Mapping[TopicPartition, CommittedOffset],
    *,
    is_awaited: bool = True,
) -> None:
    """Store offsets of a group, all or none; the first commit creates ``__consumer_offsets``.

    Returns when they are durable, or queued when it is not awaited. Errors of GroupOffsets.submit
    and of the append.
    """
    if not commits:
        return
    offsets = api.operations.groups.offsets
    for at in commits:  # as the principal sees them: a commit does not reveal which topics exist
        offsets.check_exists(at)
    if not offsets.has_topic:
        await api.blocking(offsets.create_topic)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(error: KafkalogError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    offsets.submit(group, commits, finish)
    if is_awaited:
        await done
    else:
        done.add_done_callback(asyncio.Future.exception)


async def commit_positions(
    api: Api, consumer: Consumer, *, is_awaited: bool = True, only_moved: bool = False
) -> None:
    """Commit the positions of what was delivered, never beyond.

    only_moved  leave out what the group has committed already
    """
    consumer.take_back_lost_answer()
    now_ms = api.operations.now_ms()
    commits = {
        at: CommittedOffset(position, "", now_ms) for at, position in consumer.positions().items()
    }
    if only_moved:
        known = api.operations.groups.offsets.committed(consumer.group)
        commits = {
            at: each
            for at, each in commits.items()
            if at not in known or known[at].offset != each.offset
        }
    await commit(api, consumer.group, commits, is_awaited=is_awaited)
    consumer.note_commit()


def commits_of(
    api: Api, entries: Iterable[CommitEntry], *, plus: int = 0
) -> dict[TopicPartition, CommittedOffset]:
    """Entries of a body; ``plus`` is 1 where they name the last record that was read."""
    now_ms = api.operations.now_ms()
    return {
        each.key: CommittedOffset(each.offset + plus, each.metadata or "", now_ms)
        for each in entries
    }

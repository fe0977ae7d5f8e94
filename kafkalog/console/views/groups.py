"""Consumer groups: the list, one group beside its logs, and what a reset of its offsets would do.

Members are read on the event loop before a view is made (``members_of``); everything else is for
any thread.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalog.console.charts import LEAST_SAMPLES, Unit, lay_out_chart
from kafkalog.console.view import Fragment, View, page_of
from kafkalog.console.views.offsets import record_at
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.broker.groups.groups import (
        GroupOperations,
        GroupSummary,
        PartitionLag,
        ResetTarget,
    )
    from kafkalog.broker.operations import Operations
    from kafkalog.console.charts import Chart
    from kafkalog.format.topic_names import TopicPartition

GROUPS_A_PAGE = 50
PARTITIONS_A_PAGE = 100
TOPICS_SHOWN = 3


class GroupRow(Fragment):
    """One group. ``topics``: the first TOPICS_SHOWN of ``topic_count`` with commits.

    lag     of the partitions that are served; null: none is
    deleted offsets of the lag that are below the log start
    """

    group: str
    state: str
    members: int
    topics: list[str]
    topic_count: int
    partitions: int
    lag: int | None
    deleted: int | None
    committed_ms: int | None


class GroupOrder(enum.Enum):
    """The order of the list; the value is that of the query. Ties are sorted by name."""

    NAME = "name"
    MEMBERS = "members"
    LAG = "lag"

    def rank(self, row: GroupRow) -> tuple[float, str]:
        """The largest come first, those of unknown lag last."""
        rank = {
            GroupOrder.NAME: 0,
            GroupOrder.MEMBERS: -row.members,
            GroupOrder.LAG: 1 if row.lag is None else -row.lag,
        }[self]
        return rank, row.group


class GroupsView(View):
    """Groups whose name contains ``name_contains``, in the order of ``sort``.

    topic   only those with a commit to this topic; empty: all
    """

    template: ClassVar[str] = "groups.html"
    heading: ClassVar[str] = "Groups"

    name_contains: str
    topic: str
    sort: GroupOrder
    total: int
    page: int
    pages: int
    groups: list[GroupRow]


def groups_view(
    operations: Operations,
    summaries: list[GroupSummary],
    name_contains: str,
    page: int,
    *,
    topic: str = "",
    sort: GroupOrder = GroupOrder.NAME,
) -> GroupsView:
    """Page ``page`` (from 1) of the groups that the caller may see. No disk.

    Every order except that of names, and a topic, visits the commits of every group.
    """
    groups = operations.groups
    named = [each for each in summaries if name_contains in each.name]
    if topic:
        named = [
            each for each in named if any(lag.at.topic == topic for lag in groups.lags(each.name))
        ]
    shown = page_of(len(named), GROUPS_A_PAGE, page)
    of_page = slice(shown.first, shown.end)
    if sort is GroupOrder.NAME:
        rows = [_row(groups, each) for each in named[of_page]]
    else:
        rows = sorted((_row(groups, each) for each in named), key=sort.rank)[of_page]
    return GroupsView.of(
        shown,
        now_ms=operations.now_ms(),
        name_contains=name_contains,
        topic=topic,
        sort=sort,
        total=len(named),
        groups=rows,
    )


def _row(groups: GroupOperations, summary: GroupSummary) -> GroupRow:
    lags = groups.lags(summary.name)
    topics = sorted({each.at.topic for each in lags})
    return GroupRow(
        group=summary.name,
        state=summary.state,
        members=summary.member_count,
        topics=topics[:TOPICS_SHOWN],
        topic_count=len(topics),
        partitions=len(lags),
        lag=_sum(each.lag for each in lags),
        deleted=_sum(each.deleted for each in lags),
        committed_ms=max((each.committed.commit_timestamp_ms for each in lags), default=None),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Of those that are known; None: none is."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


# ---- one group


class Member(NamedTuple):
    """A member as it was on the event loop."""

    name: str
    topics: list[str]
    partitions: list[TopicPartition]


def members_of(groups: GroupOperations, group: str) -> list[Member]:
    """By name. On the event loop. UnknownGroup."""
    groups.summary(group)
    return [
        Member(each.name, each.topics, each.partitions) for each in groups.members.members(group)
    ]


class MemberRow(Fragment):
    """A member with how many partitions it reads."""

    name: str
    topics: list[str]
    partitions: int


class LagSample(Fragment):
    """The sum over the partitions that were served then."""

    at_ms: int
    lag: int


class GroupPartitionRow(Fragment):
    """A partition with a commit or a reader; null where there is none, or where it is not served.

    lag     offsets after the commit, of which ``deleted`` are below the log start
    """

    topic: str
    partition: int
    offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None
    deleted: int | None
    committed_ms: int | None
    metadata: str
    member: str | None


class GroupView(View):
    """``partitions`` are those of one page; ``topics`` all with a commit.

    deleted offsets of the lag that are below the log start
    lags    of the last hour, oldest first
    """

    template: ClassVar[str] = "group.html"
    heading: ClassVar[str] = "Group {group}"

    group: str
    state: str
    members: list[MemberRow]
    topics: list[str]
    lag: int | None
    deleted: int | None
    largest_lag: int | None
    lags: list[LagSample]
    partition_count: int
    page: int
    pages: int
    partitions: list[GroupPartitionRow]

    @property
    def chart(self) -> Chart | None:
        """The lags as a curve; None without any."""
        if not self.lags:
            return None
        points = [(each.at_ms, float(each.lag)) for each in self.lags]
        first, last = points[0][0], points[-1][0]
        series = {"lag": points}
        return lay_out_chart("Lag", Unit.COUNT, series, first, last, least_samples=LEAST_SAMPLES)


def group_view(operations: Operations, group: str, members: list[Member], page: int) -> GroupView:
    """Page ``page`` (from 1) of its partitions. No disk."""
    lags = {each.at: each for each in operations.groups.lags(group)}
    readers = {at: each.name for each in members for at in each.partitions}
    every = sorted(lags.keys() | readers.keys())
    shown = page_of(len(every), PARTITIONS_A_PAGE, page)
    known = [each.lag for each in lags.values() if each.lag is not None]
    return GroupView.of(
        shown,
        now_ms=operations.now_ms(),
        group=group,
        state="Stable" if members else "Empty",
        members=[
            MemberRow(name=each.name, topics=each.topics, partitions=len(each.partitions))
            for each in members
        ],
        topics=sorted({at.topic for at in lags}),
        lag=_sum(each.lag for each in lags.values()),
        deleted=_sum(each.deleted for each in lags.values()),
        largest_lag=max(known, default=None),
        lags=[
            LagSample(at_ms=at_ms, lag=lag)
            for at_ms, lag in operations.groups.offsets.lag_history.of(group)
        ],
        partition_count=len(every),
        partitions=[
            _partition(at, lags.get(at), readers.get(at)) for at in every[shown.first : shown.end]
        ],
    )


def _partition(
    at: TopicPartition, lag: PartitionLag | None, reader: str | None
) -> GroupPartitionRow:
    committed = None if lag is None else lag.committed
    return GroupPartitionRow.of(
        at,
        lag,
        committed,
        committed_ms=None if committed is None else committed.commit_timestamp_ms,
        metadata="" if committed is None else committed.metadata,
        member=reader,
    )


# ---- a reset


class ResetRow(Fragment):
    """One partition. ``fault``: why it stays as it is; ``old_offset`` null: it has no commit."""

    topic: str
    partition: int
    old_offset: int | None
    new_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    fault: str | None = None


class ResetView(View):
    """``to`` null: nothing was asked.

    members     of the group; with members nothing is reset
    topic       empty: all with a commit
    number      the time in ms, the shift or the offset
    refusal     why what was typed is no question; ``typed`` is empty otherwise
    again, skipped, deleted   offsets between the commits and the new ones: the group would read
                them again, or never, or cannot any more, as they are below the log start
    """

    template: ClassVar[str] = "reset.html"
    heading: ClassVar[str] = "Reset the offsets of {group}"

    group: str
    members: int
    topics: list[str]
    topic: str
    to: str | None
    number: int
    refusal: str | None
    typed: dict[str, str]
    again: int
    skipped: int
    deleted: int
    partitions: list[ResetRow]


def reset_view(
    operations: Operations,
    group: str,
    members: list[Member],
    target: ResetTarget | None,
    topic: str,
    *,
    refusal: str | None = None,
    typed: Mapping[str, str] | None = None,
) -> ResetView:
    """What a reset would do; nothing is changed. Blocks. UnknownTopic, UnknownGroup."""
    groups, time_slice = operations.groups, operations.time_slice()
    rows = list[ResetRow]()
    if target is not None:
        scope = groups.reset_scope(group, [topic] if topic else None, None)
        for at, old in sorted(scope.items()):
            time_slice.maybe_yield()
            offset = None if old is None else old.offset
            try:
                log = operations.logs.describe(at.topic, at.partition)
                found = None
                if target.to == "timestamp":
                    found = record_at(operations, at.topic, at.partition, target.number)
                new_offset = groups.reset_offset(at, old, target, found)
            except KafkalogError as fault:
                fields = {"new_offset": None, "fault": fault.public_message}
                rows.append(ResetRow.of(at, old_offset=offset, **fields))
            else:
                ends = {
                    "log_start_offset": log.log_start_offset,
                    "log_end_offset": log.high_watermark,
                }
                rows.append(ResetRow.of(at, old_offset=offset, new_offset=new_offset, **ends))
    again, skipped, deleted = _moves_of(rows)
    return ResetView(
        now_ms=operations.now_ms(),
        group=group,
        members=len(members),
        topics=sorted({each.at.topic for each in groups.lags(group)}),
        topic=topic,
        to=None if target is None else target.to,
        number=0 if target is None else target.number,
        refusal=refusal,
        typed=dict(typed or {}),
        again=again,
        skipped=skipped,
        deleted=deleted,
        partitions=rows,
    )


def _moves_of(rows: list[ResetRow]) -> tuple[int, int, int]:
    """The sums again, skipped and deleted of a ResetView."""
    again = skipped = deleted = 0
    for each in rows:
        old, new, start = each.old_offset, each.new_offset, each.log_start_offset
        if old is None or new is None or start is None:
            continue
        gone = max(0, min(new, start) - old)
        again += max(0, old - new)
        skipped += max(0, new - old) - gone
        deleted += gone
    return again, skipped, deleted

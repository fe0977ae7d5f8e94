"""The list of topics, and one topic with its partitions, configs and next deletions."""

from __future__ import annotations

import contextlib
import enum
import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalog.console.charts import spark
from kafkalog.console.view import Fragment, View, listed_topics, page_of
from kafkalog.console.views.configs import ConfigDiffRow
from kafkalog.console.views.partition import DepartureView
from kafkalog.errors import InvalidRequest, KafkalogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.broker.values import TopicDescription

TOPICS_A_PAGE = 100
PARTITIONS_A_PAGE = 50
_HORIZON_MS = 30 * 86_400_000


class TopicRow(Fragment):
    """One topic; the limits are the topic's configs.

    What its logs hold is of its served partitions, so that it has at least that; null: none is.
    ``records`` is null until the metrics task has counted each of these; ``offsets``, from the
    log starts to the high watermarks, is never less. ``oldest_timestamp_ms`` is of the partitions
    that it has visited, null: none yet. ``bytes_in``: appended in the last hour, or since the
    start of a younger daemon, in spans of two minutes, oldest first, the last one not over yet;
    empty: nothing.
    """

    name: str
    is_internal: bool
    partitions: int
    partitions_unserved: int
    size_bytes: int | None
    offsets: int | None
    records: int | None
    oldest_timestamp_ms: int | None
    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    bytes_in: list[float]

    @property
    def spark(self) -> str:
        """Its appends as a drawing."""
        return spark(self.bytes_in)


class TopicOrder(enum.Enum):
    """The order of the list; the value is that of the query. Ties are sorted by name."""

    NAME = "name"
    PARTITIONS = "partitions"
    RECORDS = "records"
    SIZE = "size"
    OLDEST = "oldest"

    def rank(self, name: str, facts: _Facts) -> tuple[float, str]:
        """Large or old topics come first, those of unknown age last."""
        oldest_ms = facts.oldest_timestamp_ms
        records = facts.offsets if facts.records is None else facts.records
        rank = {
            TopicOrder.NAME: 0,
            TopicOrder.PARTITIONS: -facts.partitions,
            TopicOrder.RECORDS: -(records or 0),
            TopicOrder.SIZE: -(facts.size_bytes or 0),
            TopicOrder.OLDEST: math.inf if oldest_ms is None else oldest_ms,
        }[self]
        return rank, name


class _Facts(NamedTuple):
    """Of a topic's logs; a row has the same, and its configs, which cost ten times as much."""

    partitions: int
    partitions_unserved: int
    size_bytes: int | None = None
    offsets: int | None = None
    records: int | None = None
    oldest_timestamp_ms: int | None = None


class TopicsView(View):
    """Topics whose name contains ``name_contains``, in the order of ``sort``.

    ``internal_hidden``: how many of them are Kafka's own and left out, as on every page of topics.
    ``traffic_since_ms``: an hour ago, or the start of a younger daemon: since then they had
    ``bytes_in``.
    """

    template: ClassVar[str] = "topics.html"
    heading: ClassVar[str] = "Topics"

    name_contains: str
    sort: TopicOrder
    with_internal: bool
    internal_hidden: int
    traffic_since_ms: int
    total: int
    page: int
    pages: int
    topics: list[TopicRow]


def topics_view(
    operations: Operations,
    name_contains: str,
    sort: TopicOrder,
    page: int,
    *,
    with_internal: bool = False,
) -> TopicsView:
    """Page ``page`` (from 1) of the topics that the caller may see. No disk.

    Every order except that of names visits every partition.
    """
    found = [name for name in operations.topic_names() if name_contains in name]
    names, internal_hidden = listed_topics(found, with_internal=with_internal)
    shown = page_of(len(names), TOPICS_A_PAGE, page)
    if sort is not TopicOrder.NAME:
        names = _sorted(operations, names, sort)
    return TopicsView.of(
        shown,
        now_ms=operations.now_ms(),
        name_contains=name_contains,
        sort=sort,
        with_internal=with_internal,
        internal_hidden=internal_hidden,
        traffic_since_ms=operations.bytes_in_since_ms(),
        total=len(names),
        topics=_rows(operations, names[shown.first : shown.end]),
    )


def _sorted(operations: Operations, names: Sequence[str], sort: TopicOrder) -> list[str]:
    ranks = []
    for name in names:
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            ranks.append(sort.rank(name, _facts(operations, name)))
    return [name for _, name in sorted(ranks)]


def _rows(operations: Operations, names: Sequence[str]) -> list[TopicRow]:
    rows = []
    for name in names:
        try:
            rows.append(_row(operations, operations.topics.describe(name)))
        except UnknownTopic:
            continue  # deleted meanwhile
    return rows


def _row(operations: Operations, topic: TopicDescription) -> TopicRow:
    configs = {entry.name: entry.value or "" for entry in topic.configs}
    facts = _facts(operations, topic.name)
    return TopicRow.of(
        topic,
        facts,
        cleanup_policy=configs["cleanup.policy"],
        retention_ms=int(configs["retention.ms"]),
        retention_bytes=int(configs["retention.bytes"]),
        bytes_in=list(operations.bytes_in(topic.name)),
    )


def _facts(operations: Operations, name: str) -> _Facts:
    numbers = range(operations.partition_count(name))
    logs = [log for each in numbers if (log := _log(operations, name, each)) is not None]
    if not logs:
        return _Facts(len(numbers), len(numbers))
    counts = [log.records for log in logs if log.records is not None]
    times_ms = [log.oldest_timestamp_ms for log in logs if log.oldest_timestamp_ms is not None]
    return _Facts(
        partitions=len(numbers),
        partitions_unserved=len(numbers) - len(logs),
        size_bytes=sum(log.size_bytes for log in logs),
        offsets=sum(log.high_watermark - log.log_start_offset for log in logs),
        records=sum(counts) if len(counts) == len(logs) else None,
        oldest_timestamp_ms=min(times_ms, default=None),
    )


def _log(operations: Operations, topic: str, partition: int) -> LogDescription | None:
    """None of a partition that went out of service meanwhile."""
    try:
        return operations.logs.describe(topic, partition)
    except KafkalogError:
        return None


class NextDeparture(DepartureView):
    """The oldest segment that retention deletes within 30 days without appends."""


class PartitionRow(Fragment):
    """One partition; ``fault``: why it is not served; nothing else is known then."""

    partition: int
    fault: str | None = None
    directory: str | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    size_bytes: int | None = None
    segments: int | None = None
    next_departure: NextDeparture | None = None


class ArchiveLag(Fragment):
    """What no archive has of a topic; ``wait_ms``: of its first record, null: not known yet."""

    offsets: int
    size_bytes: int
    wait_ms: int | None


class TopicView(View):
    """``partitions`` are those of one page; ``archive_lag`` is null of a topic without archive."""

    template: ClassVar[str] = "topic.html"
    heading: ClassVar[str] = "{topic}"

    topic: str
    topic_id: str
    is_internal: bool
    partition_count: int
    partitions_unserved: int
    page: int
    pages: int
    partitions: list[PartitionRow]
    configs: list[ConfigDiffRow]
    archive_lag: ArchiveLag | None


def topic_view(operations: Operations, name: str, page: int) -> TopicView:
    """Page ``page`` (from 1) of its partitions. Blocks: may read time indexes. UnknownTopic."""
    topic = operations.topics.describe(name)
    shown = page_of(topic.partition_count, PARTITIONS_A_PAGE, page)
    numbers = range(shown.first, shown.end)
    return TopicView.of(
        topic,
        shown,
        now_ms=operations.now_ms(),
        topic=topic.name,
        partitions_unserved=len(topic.faults),
        partitions=[_partition(operations, topic.name, number) for number in numbers],
        archive_lag=_archive_lag(operations, topic),
    )


def _archive_lag(operations: Operations, topic: TopicDescription) -> ArchiveLag | None:
    partitions = operations.retention.archived_offsets(topic.name)
    is_held = any(each.name == "archive.hold" and each.value == "true" for each in topic.configs)
    if not (is_held or any(each.archived_offset for each in partitions)):
        return None
    waits = [each.lag_seconds for each in partitions if each.lag_seconds is not None]
    return ArchiveLag(
        offsets=sum(each.lag for each in partitions),
        size_bytes=sum(each.lag_bytes for each in partitions),
        wait_ms=int(max(waits) * 1000) if waits else None,
    )


def _partition(operations: Operations, topic: str, number: int) -> PartitionRow:
    try:
        log = operations.logs.describe(topic, number)
        departure = _next_departure(operations, topic, number)
    except InvalidRequest:
        raise  # the topic was deleted
    except KafkalogError as fault:
        return PartitionRow(partition=number, fault=fault.public_message)
    return PartitionRow.of(log, partition=number, next_departure=departure)


def _next_departure(operations: Operations, topic: str, number: int) -> NextDeparture | None:
    simulation = operations.retention.simulate(
        topic, number, {}, start_ms=None, horizon_ms=_HORIZON_MS, most=1
    )
    first = next(iter(simulation.departures), None)
    return None if first is None else NextDeparture.of(first, first.facts)


class PickTopicView(View):
    """Topics whose name contains ``name_contains``: of one of them records are to be seen."""

    template: ClassVar[str] = "pick_topic.html"
    heading: ClassVar[str] = "Records"

    name_contains: str
    with_internal: bool
    internal_hidden: int
    total: int
    page: int
    pages: int
    topics: list[TopicRow]


def pick_topic_view(
    operations: Operations, name_contains: str, page: int, *, with_internal: bool = False
) -> PickTopicView:
    """As ``topics_view``, those by name."""
    listed = topics_view(
        operations, name_contains, TopicOrder.NAME, page, with_internal=with_internal
    )
    return PickTopicView.of(listed)

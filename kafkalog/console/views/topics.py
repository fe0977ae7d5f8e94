"""All topics as a list, and one topic with its partitions, its configs and what goes next."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, ClassVar

from kafkalog.console.view import Fragment, View, page_count
from kafkalog.console.views.partition import DueView, due_view
from kafkalog.errors import InvalidRequest, KafkalogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.broker.values import ConfigEntry, TopicDescription

TOPICS_A_PAGE = 100
PARTITIONS_A_PAGE = 100
_HORIZON_MS = 30 * 86_400_000


class TopicRow(Fragment):
    """One topic; ``size_bytes`` of its served partitions, limits as the topic's configs say.

    ``records`` is null until the metrics have counted every one of them; ``oldest_timestamp_ms`` is
    of those that they have looked at, null: none yet.
    """

    name: str
    is_internal: bool
    partitions: int
    partitions_unserved: int
    size_bytes: int
    records: int | None
    oldest_timestamp_ms: int | None
    cleanup_policy: str
    retention_ms: int
    retention_bytes: int


class TopicOrder(enum.Enum):
    """Of a list of topics; the value is what its address says. Equal ones stand by name."""

    NAME = "name"
    PARTITIONS = "partitions"
    RECORDS = "records"
    SIZE = "size"
    OLDEST = "oldest"

    def rank(self, row: TopicRow) -> tuple[float, str]:
        """What is large comes first, or old; what is not known comes last."""
        oldest_ms = row.oldest_timestamp_ms
        rank = {
            TopicOrder.NAME: 0,
            TopicOrder.PARTITIONS: -row.partitions,
            TopicOrder.RECORDS: 1 if row.records is None else -row.records,
            TopicOrder.SIZE: -row.size_bytes,
            TopicOrder.OLDEST: math.inf if oldest_ms is None else oldest_ms,
        }[self]
        return rank, row.name


class TopicsView(View):
    """Topics whose name holds ``name_contains``, in the order of ``sort``."""

    template: ClassVar[str] = "topics.html"

    name_contains: str
    sort: TopicOrder
    total: int
    page: int
    pages: int
    topics: list[TopicRow]

    @property
    def title(self) -> str:
        """See View."""
        return "Topics"


def topics_view(
    operations: Operations, name_contains: str, sort: TopicOrder, page: int
) -> TopicsView:
    """Page ``page`` (from 1) of the topics that the caller may see. No disk.

    Any order but that of names costs a look at every partition.
    """
    names = [name for name in operations.topic_names() if name_contains in name]
    pages = page_count(len(names), TOPICS_A_PAGE)
    shown = min(page, pages)
    first = (shown - 1) * TOPICS_A_PAGE
    last = first + TOPICS_A_PAGE
    if sort is TopicOrder.NAME:
        rows = _rows(operations, names[first:last])
    else:
        rows = sorted(_rows(operations, names), key=sort.rank)[first:last]
    return TopicsView(
        now_ms=operations.now_ms(),
        name_contains=name_contains,
        sort=sort,
        total=len(names),
        page=shown,
        pages=pages,
        topics=rows,
    )


def _rows(operations: Operations, names: Sequence[str]) -> list[TopicRow]:
    rows = []
    for name in names:
        try:
            rows.append(_row(operations, operations.topics.describe(name)))
        except UnknownTopic:
            continue  # deleted since the names were taken
    return rows


def _row(operations: Operations, topic: TopicDescription) -> TopicRow:
    configs = {entry.name: entry.value or "" for entry in topic.configs}
    served = [each for each in range(topic.partition_count) if each not in topic.faults]
    logs = [log for each in served if (log := _log(operations, topic.name, each)) is not None]
    counts = [log.records for log in logs if log.records is not None]
    times_ms = [log.oldest_timestamp_ms for log in logs if log.oldest_timestamp_ms is not None]
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=topic.partition_count,
        partitions_unserved=len(topic.faults),
        size_bytes=sum(log.size_bytes for log in logs),
        records=sum(counts) if counts and len(counts) == len(logs) else None,
        oldest_timestamp_ms=min(times_ms, default=None),
        cleanup_policy=configs["cleanup.policy"],
        retention_ms=int(configs["retention.ms"]),
        retention_bytes=int(configs["retention.bytes"]),
    )


def _log(operations: Operations, topic: str, partition: int) -> LogDescription | None:
    """None of a partition that went out of service since the topic was looked at."""
    try:
        return operations.describe_log(topic, partition)
    except KafkalogError:
        return None


class NextDeparture(Fragment):
    """The oldest segment that retention takes within 30 days, were nothing appended."""

    base_offset: int
    size_bytes: int
    rule: str
    due: DueView | None


class PartitionRow(Fragment):
    """One partition; ``fault``: why it is not served, and then nothing else is known of it."""

    partition: int
    fault: str | None = None
    directory: str | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    size_bytes: int | None = None
    segments: int | None = None
    next_departure: NextDeparture | None = None


class ConfigSourceView(Fragment):
    """One link of a config's chain of sources."""

    name: str
    value: str | None
    source: str


class ConfigRow(ConfigSourceView):
    """An effective config; ``chain`` strongest first."""

    is_default: bool
    chain: list[ConfigSourceView]


class TopicView(View):
    """See the module. ``partitions`` are those of one page."""

    template: ClassVar[str] = "topic.html"

    topic: str
    topic_id: str
    is_internal: bool
    partition_count: int
    partitions_unserved: int
    page: int
    pages: int
    partitions: list[PartitionRow]
    configs: list[ConfigRow]

    @property
    def title(self) -> str:
        """See View."""
        return self.topic


def topic_view(operations: Operations, name: str, page: int) -> TopicView:
    """Page ``page`` (from 1) of its partitions. UnknownTopic. Blocks: may read time indexes."""
    topic = operations.topics.describe(name)
    pages = page_count(topic.partition_count, PARTITIONS_A_PAGE)
    shown = min(page, pages)
    first = (shown - 1) * PARTITIONS_A_PAGE
    numbers = range(first, min(first + PARTITIONS_A_PAGE, topic.partition_count))
    return TopicView(
        now_ms=operations.now_ms(),
        topic=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partition_count=topic.partition_count,
        partitions_unserved=len(topic.faults),
        page=shown,
        pages=pages,
        partitions=[_partition(operations, topic.name, number) for number in numbers],
        configs=[_config(entry) for entry in topic.configs],
    )


def _partition(operations: Operations, topic: str, number: int) -> PartitionRow:
    try:
        log = operations.describe_log(topic, number)
        departure = _next_departure(operations, topic, number)
    except InvalidRequest:
        raise  # the topic is gone
    except KafkalogError as fault:
        return PartitionRow(partition=number, fault=fault.public_message)
    return PartitionRow(
        partition=number,
        directory=log.directory,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=log.size_bytes,
        segments=log.segments,
        next_departure=departure,
    )


def _next_departure(operations: Operations, topic: str, number: int) -> NextDeparture | None:
    simulation = operations.simulate_retention(
        topic, number, {}, start_ms=None, horizon_ms=_HORIZON_MS, most=1
    )
    if not simulation.departures:
        return None
    (first,) = simulation.departures
    return NextDeparture(
        base_offset=first.facts.base_offset,
        size_bytes=first.facts.size_bytes,
        rule=first.rule.value,
        due=due_view(first.due),
    )


def _config(entry: ConfigEntry) -> ConfigRow:
    return ConfigRow(
        name=entry.name,
        value=entry.value,
        source=entry.source,
        is_default=entry.is_default,
        chain=[
            ConfigSourceView(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ],
    )

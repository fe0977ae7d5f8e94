"""MetricsPage: the answer of ``/metrics``.

Owns which series are shown (level, limit, topics, families) and the order of the page. The values
are those of ``Metrics`` and of a ``Snapshot``. Runs on the event loop, which handles other events
after every ``SLICE`` lines. A scrape touches no disk and takes no lock that is held over I/O.
Measured with 5,000 partitions: see ``scrape`` in tests/bench.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter
from prometheus_client.metrics_core import GaugeMetricFamily

from kafkalog.format.topic_names import is_internal
from kafkalog.observe import kafka_names
from kafkalog.observe.exposition import (
    SLICE,
    Exposition,
    RowRenderer,
    header_text,
    labels_text,
    number_text,
    stock_text,
)
from kafkalog.observe.group_metrics import (
    GROUP_FAMILIES,
    KAFKA_EXPORTER_GROUP_NAMES,
    GroupSample,
    fitting,
)
from kafkalog.observe.metrics_options import MetricsOptions, PartitionLevel, Question
from kafkalog.observe.partition_metrics import (
    KAFKA_ALIASES,
    KAFKA_EXPORTER_NAMES,
    PARTITION_FAMILIES,
    BrokerState,
    PartitionSample,
    joined,
    of_topics,
    with_internal_summed,
)
from kafkalog.observe.prometheus import values_of
from kafkalog.observe.topic_metrics import KAFKA_TOPIC_ALIASES, TopicTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from kafkalog.observe.metrics import Metrics
    from kafkalog.observe.partition_metrics import Snapshot

_KAFKA, _TOPIC = "kafka_", "topic"

_log = structlog.get_logger(__name__)


class MetricsPage:
    """See the module."""

    def __init__(self, metrics: Metrics, options: MetricsOptions | None = None) -> None:
        # constant after construction
        self._metrics = metrics
        self._options = options = options or MetricsOptions()
        families = list(PARTITION_FAMILIES)
        if options.has_kafka_aliases:
            families += KAFKA_ALIASES
        if options.has_kafka_exporter_names:
            families += KAFKA_EXPORTER_NAMES
        self._partitions = RowRenderer[PartitionSample](families, "topic", "partition")
        self._topics = RowRenderer[PartitionSample](of_topics(PARTITION_FAMILIES), "topic")
        self._traffic = RowRenderer[TopicTotals](KAFKA_TOPIC_ALIASES, "topic")
        self._groups = [RowRenderer[GroupSample](GROUP_FAMILIES, "group", "topic")]
        if options.has_kafka_aliases and options.has_kafka_exporter_names:
            names = KAFKA_EXPORTER_GROUP_NAMES
            self._groups.append(RowRenderer[GroupSample](names, "consumergroup", "topic"))
        # owned by the event loop
        self._is_degraded = False
        self._has_summed_groups = False

    async def render(
        self,
        snapshot: Snapshot,
        state: BrokerState = BrokerState.RUNNING,
        question: Question | None = None,
    ) -> bytes:
        """The whole page, or what ``question`` asks for."""
        for tell in self._metrics.before_page:
            tell()
        scrape = _Scrape(self._options, question or Question())
        level, groups = self._level_of(snapshot), await self._groups_of(snapshot)
        is_degraded = self._is_degraded or self._has_summed_groups
        own = own_families(snapshot, state, is_degraded=is_degraded)
        parts = [
            await self._of_counters(scrape, level),
            await self._of_families(own, scrape, level),
            await self._of_partitions(snapshot, scrape, level),
            await self._of_groups(groups, scrape),
        ]
        if self._options.has_kafka_aliases:
            aliases = self._aliases(snapshot, state)
            parts.append(await self._of_families(aliases, scrape, level))
            parts.append(await self._of_traffic(scrape, level))
        return "".join((*parts, scrape.exposition.end)).encode()

    # ---- how much there is

    def _level_of(self, snapshot: Snapshot) -> PartitionLevel:
        """The configured level, or topics above the limit, which is logged once."""
        options = self._options
        is_degraded = (
            options.partition_level is PartitionLevel.PARTITION
            and 0 < options.partition_limit < snapshot.partitions
            and options.partition_limit < self._shown_partitions(snapshot)
        )
        if is_degraded and not self._is_degraded:
            _log.warning(
                "metrics_degraded",
                partitions=self._shown_partitions(snapshot),
                limit=options.partition_limit,
                what_to_do="raise metrics.partition.limit, or leave topics out with "
                "metrics.topic.exclude: until then partitions have series by topic alone",
            )
        self._is_degraded = is_degraded
        return PartitionLevel.TOPIC if is_degraded else options.partition_level

    def _shown_partitions(self, snapshot: Snapshot) -> int:
        """Those with series of their own; an internal topic counts as one."""
        shows_topic = self._options.shows_topic
        return sum(
            1 if is_internal(topic) else count
            for topic, count in snapshot.topics.items()
            if shows_topic(topic)
        )

    async def _groups_of(self, snapshot: Snapshot) -> list[GroupSample]:
        """The rows of groups of topics that the settings show; the first sum is logged."""
        options = self._options
        shown = [each for each in snapshot.groups if options.shows_topic(each.topic or "")]
        is_summed = 0 < options.partition_limit < len(shown)
        if is_summed and not self._has_summed_groups:
            _log.warning(
                "group_metrics_degraded",
                pairs=len(shown),
                limit=options.partition_limit,
                what_to_do="raise metrics.partition.limit, delete groups that nobody uses, or "
                "leave topics out with metrics.topic.exclude: until then groups have series "
                "without a topic",
            )
        self._has_summed_groups = is_summed
        has_topics = options.partition_level is not PartitionLevel.NONE
        return await fitting(shown, options.partition_limit, has_topics=has_topics)

    # ---- the parts

    async def _of_counters(self, scrape: _Scrape, level: PartitionLevel) -> str:
        """The registered collectors: counters with labels here, the others by the library."""
        texts: list[str] = []
        for collector in self._metrics.collectors():
            if isinstance(collector, Counter) and collector._labelnames:
                (family,) = collector.describe()
                if scrape.shows(family, collector._labelnames, level):
                    rows = ((labels, value) for labels, value in values_of(collector))
                    texts.append(await scrape.lines(family, collector._labelnames, rows))
            else:
                texts.append(await self._of_families(collector.collect(), scrape, level))
        return "".join(texts)

    async def _of_families(
        self, families: Iterable[Metric], scrape: _Scrape, level: PartitionLevel
    ) -> str:
        """Whole families, by the library unless they have a topic."""
        texts: list[str] = []
        for family in families:
            names = tuple(getattr(family, "_labelnames", ()))
            if not self._options.has_kafka_aliases and family.name.startswith(_KAFKA):
                continue
            if not scrape.shows(family, names, level):
                continue
            if _TOPIC in names:
                rows = (
                    (tuple(sample.labels[name] for name in names), sample.value)
                    for sample in family.samples
                )
                texts.append(await scrape.lines(family, names, rows))
            else:
                texts.append(stock_text(family, scrape.exposition))
        await asyncio.sleep(0)
        return "".join(texts)

    async def _of_partitions(
        self, snapshot: Snapshot, scrape: _Scrape, level: PartitionLevel
    ) -> str:
        if level is PartitionLevel.NONE:
            return ""
        is_whole = scrape.question.is_whole
        rows: Iterable[PartitionSample] = (
            each for each in snapshot.samples() if scrape.shows_topic(each.topic)
        )
        renderer, rows = self._partitions, with_internal_summed(rows)
        if level is PartitionLevel.TOPIC:
            renderer, rows = self._topics, (await _by_topic(rows)).values()
        return await renderer.render(
            rows, scrape.exposition, scrape.question.shows_family, is_whole=is_whole
        )

    async def _of_groups(self, groups: Iterable[GroupSample], scrape: _Scrape) -> str:
        """Of a scrape that asks for topics only what has one."""
        question = scrape.question
        rows = [
            each
            for each in groups
            if (question.is_whole if each.topic is None else scrape.shows_topic(each.topic))
        ]
        texts = [
            await renderer.render(
                rows, scrape.exposition, question.shows_family, is_whole=question.is_whole
            )
            for renderer in self._groups
        ]
        return "".join(texts)

    async def _of_traffic(self, scrape: _Scrape, level: PartitionLevel) -> str:
        """Kafka's names for the counters of topics, and of all topics together."""
        rows = (
            each
            for each in self._metrics.traffic.totals()
            if (
                scrape.shows_topic(each.topic) and level is not PartitionLevel.NONE
                if each.topic
                else scrape.question.is_whole
            )
        )
        return await self._traffic.render(
            rows, scrape.exposition, scrape.question.shows_family, is_whole=scrape.question.is_whole
        )

    def _aliases(self, snapshot: Snapshot, state: BrokerState) -> Iterator[Metric]:
        """Kafka's names, except those of partitions and topics."""
        yield from kafka_names.of_broker(snapshot, state)
        yield from kafka_names.of_flushes(self._metrics.flush_seconds.labels("ok"))
        process_io = self._metrics.process_io()
        if process_io is not None:
            yield from kafka_names.of_process_io(*process_io)
        if self._options.has_kafka_exporter_names:
            yield from kafka_names.of_topics(snapshot)


def own_families(snapshot: Snapshot, state: BrokerState, *, is_degraded: bool) -> Iterator[Metric]:
    """Families of the snapshot under kafkalog's names."""
    states = GaugeMetricFamily(
        "kafkalog_broker_state", "1 for the current state of the daemon, else 0.", labels=["state"]
    )
    for each in BrokerState:
        states.add_metric([each.name.lower()], float(each is state))
    yield states
    yield GaugeMetricFamily(
        "kafkalog_metrics_degraded",
        "1 while there are more partitions, or pairs of group and topic, than "
        "metrics.partition.limit, so that series are per topic, or per group.",
        value=float(is_degraded),
    )
    deletable = GaugeMetricFamily(
        "kafkalog_log_deletable_bytes",
        "Bytes that retention would delete, at the last check. Reason is start_offset, size or "
        "time.",
        labels=["topic", "reason"],
    )
    for topic, reason, size_bytes in snapshot.deletable:
        deletable.add_metric([topic, reason], size_bytes)
    yield deletable


class _Scrape:
    """One scrape: what of a family it shows."""

    def __init__(self, options: MetricsOptions, question: Question) -> None:
        self.question = question
        self.exposition: Exposition = question.exposition
        self._options = options
        self._asked_topics = frozenset(question.topics)
        self._shown: dict[str, bool] = {}

    def shows_topic(self, topic: str) -> bool:
        """Whether the settings and the question include it."""
        shown = self._shown.get(topic)
        if shown is None:
            is_asked = not self._asked_topics or topic in self._asked_topics
            shown = self._shown[topic] = is_asked and self._options.shows_topic(topic)
        return shown

    def shows(self, family: Metric, names: Iterable[str], level: PartitionLevel) -> bool:
        """Whether a family with labels of these names is on the page."""
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not self.question.shows_family(name):
            return False
        if _TOPIC in names:
            return level is not PartitionLevel.NONE
        return self.question.is_whole

    async def lines(
        self, family: Metric, names: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
    ) -> str:
        """A family of gauges or counters with labels; rows are (label values, value)."""
        name = f"{family.name}_total" if family.type == "counter" else family.name
        texts = [header_text(name, family.type, family.documentation, self.exposition)]
        topic_at = names.index(_TOPIC) if _TOPIC in names else None
        for count, (values, number) in enumerate(rows, 1):
            if topic_at is None or self.shows_topic(values[topic_at]):
                texts.append(f"{name}{labels_text(names, values)} {number_text(number)}\n")
            if count % SLICE == 0:
                await asyncio.sleep(0)
        return "".join(texts)


async def _by_topic(samples: Iterable[PartitionSample]) -> dict[str, PartitionSample]:
    """One sample a topic."""
    topics: dict[str, PartitionSample] = {}
    for count, sample in enumerate(samples, 1):
        known = topics.get(sample.topic)
        topics[sample.topic] = sample if known is None else joined(known, sample)
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return topics

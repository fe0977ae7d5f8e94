"""Goal: every metric has its name, unit and help and says what happened; our text is the library's;
sums over topics never go back; appends cost next to nothing more.
Method: prometheus_client beside ours; a manager on a simulated disk.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kafkalog.broker.directory.commands import CallCommand
from kafkalog.broker.values import Acks, ConfigChange, MoveState
from kafkalog.errors import (
    BadBatchCrc,
    NullKey,
    OffsetAboveLogEnd,
    RecordBatchTooLarge,
    UnknownTopic,
)
from kafkalog.log.values import Isolation
from kafkalog.observe.exposition import SLICE, Exposition, RowRenderer
from kafkalog.observe.kafka_names import quantile_ms
from kafkalog.observe.metrics import Metrics
from kafkalog.observe.metrics_options import MetricsOptions, PartitionLevel, Question
from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.observe.partition_metrics import (
    EMPTY_SNAPSHOT,
    PARTITION_FAMILIES,
    BrokerState,
    DeletableSample,
    LogDirSample,
    PartitionSample,
    Snapshot,
    joined,
)
from kafkalog.observe.prometheus import observe_many
from kafkalog.server.fast_path.counts import Counts
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of
from tools.metrics_page import metrics_page

if TYPE_CHECKING:
    from _collections_abc import dict_items
    from collections.abc import Callable, Sequence

    from kafkalog.broker.directory.commands import Command
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.observe.topic_metrics import TopicTotals, TopicTraffic


ROOT = Path(__file__).resolve().parents[2]
EXPOSITIONS = pytest.mark.parametrize("exposition", Exposition, ids=lambda each: each.name)
OFFSETS = st.integers(0, 2**63 - 1)
MAYBE = st.none() | st.floats(allow_nan=False) | OFFSETS
SAMPLES = st.lists(
    st.builds(
        PartitionSample, st.text(max_size=8), st.integers(0, 99), OFFSETS, OFFSETS, OFFSETS,
        OFFSETS, OFFSETS, MAYBE, MAYBE, MAYBE, MAYBE,
    ),
    unique_by=lambda sample: (sample.topic, sample.partition),
    max_size=12,
)  # fmt: skip


def stock_text(samples: Sequence[PartitionSample], exposition: Exposition) -> str:
    registry = CollectorRegistry()
    for family in PARTITION_FAMILIES:
        gauge = Gauge(family.name, family.text, ["topic", "partition"], registry=registry)
        for sample in samples:
            value = getattr(sample, family.field)
            if value is not None:
                gauge.labels(sample.topic, str(sample.partition)).set(value)
    if exposition is Exposition.TEXT:
        return generate_latest(registry).decode()
    page: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call] # untyped there
    return page.decode().removesuffix("# EOF\n")


def partition_renderer() -> RowRenderer[PartitionSample]:
    return RowRenderer(PARTITION_FAMILIES, "topic", "partition")


def snapshot_of(*samples: PartitionSample) -> Snapshot:
    topics = {each.topic: 0 for each in samples}
    for each in samples:
        topics[each.topic] += 1
    return EMPTY_SNAPSHOT._replace(
        topics=topics, partitions=len(samples), samples=lambda: iter(samples)
    )


def page_of(
    metrics: Metrics,
    snapshot: Snapshot = EMPTY_SNAPSHOT,
    options: MetricsOptions | None = None,
    **question: object,
) -> str:
    asked = Question(**question)  # type: ignore[arg-type] # its own fields
    page = MetricsPage(metrics, options)
    return asyncio.run(page.render(snapshot, BrokerState.RUNNING, asked)).decode()


def busy_metrics() -> Metrics:
    metrics = Metrics(with_process=True)
    metrics.traffic.observe_append("t", 3, 100)
    metrics.traffic.observe_refusal("t", RecordBatchTooLarge("large"), 77)
    metrics.traffic.observe_refusal("t", BadBatchCrc("crc"), 5)
    metrics.traffic.observe_refusal('q"\\\n', NullKey("null key"), 5)
    metrics.traffic.observe_fetch("t", 50, records=2)
    metrics.traffic.observe_read("t")
    metrics.traffic.observe_read("t", OffsetAboveLogEnd("no"))
    metrics.observe_http("/topics/{topic}", "BREW", 418, 0.01)
    metrics.event_loop_lag_seconds.observe(0.0)
    metrics.beat("writer-0", 1_500)
    metrics.cleaner.observe_clean("t", 10, 5, {"superseded": 3})
    metrics.observe_retention("t", [("time", 1_234_567)])
    metrics.set_log_dir_space("/d", used_bytes=6, free_bytes=4)
    metrics.flush_seconds.labels("ok").observe(0.003)
    metrics.process_io = lambda: (4096, 8192)
    return metrics


BUSY = snapshot_of(
    PartitionSample("t", 0, 1, 2, 3, 4, 5, records=2, oldest_s=1.5, newest_s=2.5),
    PartitionSample("t", 1, 10, 20, 30, 40, 50, dirty_ratio=0.5, dirty_bytes=7),
    PartitionSample("u", 0, 2**40, 1, 0, 2**62, 0),
)._replace(
    log_dirs=(LogDirSample("/d", True), LogDirSample("/e", False, 3, 4)),
    deletable=(DeletableSample("t", "time", 9),),
    offline_partitions=1,
)


@EXPOSITIONS
@given(SAMPLES, SAMPLES)
def test_our_text_equals_the_librarys(
    exposition: Exposition, samples: list[PartitionSample], later: list[PartitionSample]
) -> None:
    """M26: metrics for logs; also where some partitions have changed, gone or come."""
    renderer = partition_renderer()
    for each in (samples, samples, later):
        text = asyncio.run(renderer.render(each, exposition))
        assert text == stock_text(each, exposition)


@EXPOSITIONS
def test_many_partitions_come_in_slices_and_vanished_ones_go(exposition: Exposition) -> None:
    """M26: the loop has turns in between, and nothing is lost at the seams."""
    samples = [PartitionSample("t", number, 1, 2, 3, 4, 5) for number in range(3 * SLICE + 1)]
    renderer = partition_renderer()
    turns = 0

    async def scrape(rows: Sequence[PartitionSample]) -> str:
        nonlocal turns

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        try:
            return await renderer.render(rows, exposition)
        finally:
            counting.cancel()

    assert asyncio.run(scrape(samples)) == stock_text(samples, exposition)
    assert turns >= 3
    assert asyncio.run(scrape(samples[:1])) == stock_text(samples[:1], exposition)


@EXPOSITIONS
def test_the_page_says_what_the_library_would(exposition: Exposition) -> None:
    """M26: what is registered, family by family, whoever wrote its text."""
    metrics = busy_metrics()
    page = page_of(metrics, BUSY, exposition=exposition)
    registry = metrics.registry
    if exposition is Exposition.TEXT:
        stock = generate_latest(registry).decode()
    else:
        stock = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call] # untyped
    volatile = ("process_", "python_gc")
    lines = set(page.splitlines())
    missing = [
        line for line in stock.splitlines() if line not in lines and not line.startswith(volatile)
    ]
    assert missing == []


@EXPOSITIONS
def test_the_page_parses(exposition: Exposition) -> None:
    """M26: both formats by the library's parsers; each family once, with help, without _created."""
    options = MetricsOptions(has_kafka_exporter_names=True)
    page = page_of(busy_metrics(), BUSY, options, exposition=exposition)
    is_text = exposition is Exposition.TEXT
    parse = text_string_to_metric_families if is_text else openmetrics_families
    families = list(parse(page))
    assert all(family.documentation for family in families)
    assert all(family.type != "unknown" or "logflush" in family.name for family in families)
    assert len({family.name for family in families}) == len(families)
    assert "_created" not in page
    assert page.endswith("# EOF\n") is not is_text
    for line in (
        'kafkalog_append_records_total{topic="t"} 3.0',
        'kafkalog_fetch_bytes_total{topic="t"} 50.0',
        'kafkalog_http_requests_total{code="418",method="OTHER",route="/topics/{topic}"} 1.0',
        'kafkalog_thread_heartbeat_timestamp_seconds{thread="writer-0"} 1.5',
        'kafkalog_log_high_watermark{partition="0",topic="t"} 5.0',
        'kafkalog_broker_state{state="running"} 1.0',
        'kafkalog_log_deletable_bytes{reason="time",topic="t"} 9.0',
    ):
        assert line in page.splitlines()


def test_both_sets_of_names_say_the_same() -> None:
    """M26: aliases for the dashboards that exist, per partition, topic, directory and broker."""
    lines = page_of(busy_metrics(), BUSY).splitlines()
    traffic = "kafka_server_brokertopicmetrics_"
    for line in (
        'kafka_log_log_size{partition="1",topic="t"} 10.0',
        'kafka_log_log_numlogsegments{partition="1",topic="t"} 20.0',
        'kafka_log_log_logstartoffset{partition="1",topic="t"} 30.0',
        'kafka_log_log_logendoffset{partition="1",topic="t"} 40.0',
        "kafka_log_logmanager_offlinelogdirectorycount 1.0",
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="/e"} 1.0',
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="/d"} 0.0',
        'kafka_log_logmanager_remaininglogstorecover{dir="/e"} 3.0',
        'kafka_log_logmanager_remainingsegmentstorecover{dir="/e",threadNum="0"} 4.0',
        "kafka_server_replicamanager_leadercount 3.0",
        "kafka_server_replicamanager_partitioncount 4.0",
        "kafka_server_replicamanager_offlinereplicacount 1.0",
        "kafka_server_kafkaserver_brokerstate 3.0",
        "kafka_server_kafkaserver_linux_disk_read_bytes 4096.0",
        "kafka_server_kafkaserver_linux_disk_write_bytes 8192.0",
        "kafka_log_logflushstats_logflushrateandtimems_count_total 1.0",
        f"{traffic}bytesin_total 100.0",
        f'{traffic}bytesin_total{{topic="t"}} 100.0',
        f'{traffic}bytesout_total{{topic="t"}} 50.0',
        f'{traffic}messagesin_total{{topic="t"}} 3.0',
        f'{traffic}totalproducerequests_total{{topic="t"}} 3.0',
        f"{traffic}totalproducerequests_total 4.0",
        f'{traffic}failedproducerequests_total{{topic="t"}} 2.0',
        f'{traffic}totalfetchrequests_total{{topic="t"}} 2.0',
        f'{traffic}failedfetchrequests_total{{topic="t"}} 1.0',
        f'{traffic}bytesrejected_total{{topic="t"}} 77.0',
        f"{traffic}invalidmessagecrcrecords_total 1.0",
        f"{traffic}nokeycompactedtopicrecords_total 1.0",
    ):
        assert line in lines, line
    assert not any(line.startswith("kafka_topic_") for line in lines)
    assert not any(f'{traffic}invalidmessagecrcrecords_total{{topic="' in line for line in lines)


def test_the_other_names_are_as_set() -> None:
    """M26: kafka_exporter's with their setting; none of Kafka's without theirs."""
    options = MetricsOptions(has_kafka_exporter_names=True)
    page = page_of(busy_metrics(), BUSY, options)
    assert 'kafka_topic_partition_current_offset{partition="1",topic="t"} 50.0' in page
    assert 'kafka_topic_partition_oldest_offset{partition="1",topic="t"} 30.0' in page
    assert 'kafka_topic_partitions{topic="t"} 2.0' in page
    bare = page_of(busy_metrics(), BUSY, MetricsOptions(has_kafka_aliases=False))
    assert not re.search("^(# HELP )?kafka_", bare, re.MULTILINE)
    assert 'kafkalog_log_size_bytes{partition="1",topic="t"} 10.0' in bare


def test_quantiles_come_from_buckets() -> None:
    """M26: even inside a bucket, its bound above all."""
    counts = [0] * 16
    assert quantile_ms(counts, 0.5) == 0
    counts[0] = 10  # up to 0.5 ms
    assert quantile_ms(counts, 0.5) == 0.25
    counts[2] = 10  # 1 ms to 2 ms
    assert quantile_ms(counts, 0.75) == 1.5
    counts[15] = 1_000
    assert quantile_ms(counts, 0.999) == 8192


def test_a_level_of_topics_sums_what_can_be_summed() -> None:
    """M26: one series a topic under the same names; offsets have no sum."""
    lines = page_of(
        busy_metrics(), BUSY, MetricsOptions(partition_level=PartitionLevel.TOPIC)
    ).splitlines()
    assert 'kafkalog_log_size_bytes{topic="t"} 11.0' in lines
    assert 'kafkalog_log_segments{topic="t"} 22.0' in lines
    assert 'kafkalog_cleaner_dirty_ratio{topic="t"} 0.5' in lines
    assert 'kafkalog_log_oldest_record_timestamp_seconds{topic="t"} 1.5' in lines
    assert 'kafkalog_append_records_total{topic="t"} 3.0' in lines
    assert not any("partition=" in line or "end_offset" in line for line in lines)
    # one partition of t is not counted: the topic's records are not known
    assert not any(line.startswith("kafkalog_log_records{") for line in lines)
    counted = PartitionSample("t", 0, 1, 1, 0, 0, 0, records=5)
    assert joined(counted, counted).records == 10


@pytest.mark.parametrize("partitions", [1, 3])
def test_internal_topics_have_series_by_topic(partitions: int) -> None:
    """The partitions of `__consumer_offsets` were 42 % of a young daemon's series."""
    name = "__consumer_offsets"
    internal = [PartitionSample(name, n, 10, 2, 3, 4, 5, dirty_bytes=n) for n in range(partitions)]
    own = [PartitionSample("t", number, 1, 2, 3, 4, 5) for number in range(2)]
    options = MetricsOptions(partition_limit=3, has_kafka_exporter_names=True)
    lines = page_of(Metrics(), snapshot_of(*internal, *own), options).splitlines()
    assert 'kafkalog_log_size_bytes{partition="1",topic="t"} 1.0' in lines
    assert [each for each in lines if f'topic="{name}"' in each] == [
        f'kafkalog_log_size_bytes{{topic="{name}"}} {10 * partitions}.0',
        f'kafkalog_log_segments{{topic="{name}"}} {2 * partitions}.0',
        f'kafkalog_cleaner_dirty_bytes{{topic="{name}"}} {sum(range(partitions))}.0',
        f'kafka_log_log_size{{topic="{name}"}} {10 * partitions}.0',
        f'kafka_log_log_numlogsegments{{topic="{name}"}} {2 * partitions}.0',
        f'kafka_topic_partitions{{topic="{name}"}} {partitions}.0',
    ]
    assert "kafkalog_metrics_degraded 0.0" in lines


def test_a_level_of_none_has_no_topic_at_all() -> None:
    """M26: the sums over all topics stay."""
    page = page_of(busy_metrics(), BUSY, MetricsOptions(partition_level=PartitionLevel.NONE))
    assert "topic=" not in page.replace('route="/topics/{topic}"', "")
    assert "kafka_server_brokertopicmetrics_bytesin_total 100.0" in page


def test_too_many_partitions_degrade_to_topics_and_say_so_once() -> None:
    """M26: one warning each time that it begins; topics that are left out do not count."""
    metrics = busy_metrics()
    page = MetricsPage(metrics, MetricsOptions(partition_limit=2))

    def scrape(snapshot: Snapshot) -> str:
        return asyncio.run(page.render(snapshot)).decode()

    with capture_logs() as logs:
        for _ in range(2):
            degraded = scrape(BUSY)
            assert 'kafkalog_log_size_bytes{topic="t"} 11.0' in degraded
            assert "kafkalog_metrics_degraded 1.0" in degraded
        small = snapshot_of(PartitionSample("t", 0, 1, 2, 3, 4, 5))
        whole = scrape(small)
        assert 'kafkalog_log_size_bytes{partition="0",topic="t"} 1.0' in whole
        assert "kafkalog_metrics_degraded 0.0" in whole
        assert [each["log_level"] for each in logs] == ["warning"]
        scrape(BUSY)
        assert len(logs) == 2
    excluded = MetricsOptions(partition_limit=2, topic_exclude=re.compile("u"))
    assert 'kafkalog_log_size_bytes{partition="1",topic="t"} 10.0' in page_of(
        metrics, BUSY, excluded
    )
    assert "partition=" in page_of(metrics, BUSY, MetricsOptions(partition_limit=0))


def test_topics_are_left_out_by_their_whole_names() -> None:
    """M26: include and exclude hold for every series with a topic."""
    metrics = busy_metrics()
    only_u = page_of(metrics, BUSY, MetricsOptions(topic_include=re.compile("u|x")))
    assert 'topic="u"' in only_u
    assert 'topic="t"' not in only_u
    without_t = page_of(metrics, BUSY, MetricsOptions(topic_exclude=re.compile("t|u")))
    assert 'topic="t"' not in without_t
    assert 'topic="u"' not in without_t
    part = page_of(metrics, BUSY, MetricsOptions(topic_exclude=re.compile("")))
    assert 'topic="t"' in part


def test_a_scrape_can_ask_for_families_and_topics() -> None:
    """M26: for a look at what is many; what one scrape leaves out is not lost for the next."""
    page = MetricsPage(busy_metrics())

    def ask(*families: str, topics: Sequence[str] = ()) -> list[str]:
        question = Question(families=families, topics=topics)
        text = asyncio.run(page.render(BUSY, BrokerState.RUNNING, question)).decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    whole = ask()
    assert ask("kafkalog_log_seg", "kafka_server_kafkaserver_broker") == [
        *(line for line in whole if line.startswith("kafkalog_log_segments{")),
        *(line for line in whole if line.startswith("kafka_server_kafkaserver_brokerstate")),
    ]
    of_u = ask(topics=["u"])
    assert of_u
    assert all('topic="u"' in line for line in of_u)
    assert ask("none_such") == []
    volatile = ("process_", "python_gc")
    assert [each for each in ask() if not each.startswith(volatile)] == [
        each for each in whole if not each.startswith(volatile)
    ]


def test_a_deleted_topic_loses_its_series_but_not_its_share_of_the_sum() -> None:
    """M26: at once; a sum over all topics never goes back."""
    metrics = busy_metrics()
    metrics.forget_topic("t")
    metrics.forget_topic("never seen")
    page = page_of(metrics)
    assert 'topic="t"' not in page
    traffic = "kafka_server_brokertopicmetrics_"
    for line in (
        f"{traffic}bytesin_total 100.0",
        f"{traffic}failedproducerequests_total 3.0",
        f"{traffic}invalidmessagecrcrecords_total 1.0",
    ):
        assert line in page.splitlines()
    metrics.traffic.observe_append("t", 1, 1)
    assert f"{traffic}bytesin_total 101.0" in page_of(metrics)
    assert f'{traffic}bytesin_total{{topic="t"}} 1.0' in page_of(metrics)


def test_the_reference_page_is_current_and_whole() -> None:
    """M26: every family that a scrape has stands there, with the name that it has there."""
    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert text == metrics_page(), "run make docs"
    page = page_of(busy_metrics(), BUSY, MetricsOptions(has_kafka_exporter_names=True))
    named = set(re.findall("^# TYPE ([a-z0-9_]+) ", page, re.MULTILINE))
    stock = ("process_", "python_")
    assert {each for each in named if f"| `{each}` |" not in text} == {
        each for each in named if each.startswith(stock)
    }
    listed = set(re.findall("^. `([a-z0-9_]+)` ", text, re.MULTILINE))
    assert listed <= named


HEARTBEAT = "kafkalog_thread_heartbeat_timestamp_seconds"


def value(sim: SimManager, name: str, **labels: str) -> float:
    found = sim.metrics.registry.get_sample_value(name, labels)
    return 0.0 if found is None else found


def test_idle_threads_beat() -> None:
    """M16: an old heartbeat is a thread that hangs, never one without work."""
    sim = SimManager().start()
    sim.threads.run_until_idle()
    names = ["scheduler"]
    names += [f"log-dir-{kind}-{path}" for kind in ("writer", "flusher") for path in DIRS]
    for _ in range(3):
        sim.clock.advance_ms(10_000)
        sim.threads.run_until_idle()
        now = sim.clock.wall_ms() / 1000
        for name in names:
            assert now - value(sim, HEARTBEAT, thread=name) <= 10, name


def test_appends_and_fetches_are_timed() -> None:
    """M16: by outcome, each once."""
    sim = SimManager().start().with_topic("t", 1)
    for acks in (Acks.ALL, Acks.LEADER):
        assert sim.produce("t", batch_of("a"), acks).error is None
    log = sim.operations.partition_log("t", 0)
    sim.operations.fetch(log, 0, 1000, Isolation.HIGH_WATERMARK, may_block=True)
    with pytest.raises(OffsetAboveLogEnd):
        sim.operations.fetch(log, 9, 1000, Isolation.HIGH_WATERMARK, may_block=True)
    assert value(sim, "kafkalog_append_seconds_count", outcome="ok") == 2
    assert value(sim, "kafkalog_append_seconds_count", outcome="error") == 0
    assert value(sim, "kafkalog_fetch_seconds_count", outcome="ok") == 1
    assert value(sim, "kafkalog_fetch_seconds_count", outcome="error") == 1


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.000501, 0.3, 8.192, 9.0])
def test_observed_together_as_one_by_one(seconds: float) -> None:
    """M16: every bound falls into the bucket that the library would choose."""
    together, single = Metrics(), Metrics()
    observe_many(together.append_seconds.labels("ok"), [seconds, seconds, 0.1])
    for each in (seconds, seconds, 0.1):
        single.append_seconds.labels("ok").observe(each)
    assert generate_latest(together.registry) == generate_latest(single.registry)


def series_of(sim: SimManager, topic: str) -> list[str]:
    families = sim.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return [sample.name for sample in samples if sample.labels.get("topic") == topic]


@pytest.mark.parametrize("seed", range(5))
def test_appends_behind_a_deletion_leave_no_series(seed: int) -> None:
    sim = SimManager(seed=seed).start().with_topic("t", 2, {})
    logs = [sim.operations.partition_log("t", number) for number in (0, 1)]
    sim.threads.start("deletes", lambda: sim.operations.topics.delete("t"))
    answered: list[Command] = []

    def append(log: UnifiedLog) -> None:
        records = records_of(batch_of("a"), log)
        sim.operations.submit_produce(log, records, Acks.LEADER, on_done=answered.append)

    for turn in range(30):
        append(logs[turn % 2])
        sim.threads.run_steps(1)
    sim.threads.run_until_idle()
    append(logs[0])
    sim.threads.run_until_idle()
    assert isinstance(answered[-1].error, UnknownTopic)
    assert series_of(sim, "t") == []


def test_what_failed_is_counted_before_anybody_is_told() -> None:
    """Who forgets a topic's counters when its last command has ended forgets them all."""
    sim = SimManager().start().with_topic("t", 1, {})
    log = sim.operations.partition_log("t", 0)
    seen: list[list[str]] = []
    last = CallCommand(lambda: None)
    last.is_internal, last.on_done = True, lambda _: seen.append(series_of(sim, "t"))
    records = records_of(batch_of("a"), log)
    sim.operations.submit_produce(log, records, Acks.LEADER, expected_offset=7)
    sim.manager.logs.unit_of(log).writer.submit(last)
    sim.threads.run_until_idle()
    assert "kafkalog_append_refusals_total" in seen[0]


def test_directories_are_measured() -> None:
    """M16: partitions, segments, space and loads of each directory."""
    sim = SimManager().start().with_topic("t", 3)
    sim.clock.advance_ms(10_000)
    counts = [value(sim, "kafkalog_log_dir_partitions", log_dir=path) for path in DIRS]
    assert sorted(counts) == [1, 2]
    assert counts == [value(sim, "kafkalog_log_dir_segments", log_dir=path) for path in DIRS]
    for path in DIRS:
        assert value(sim, "kafkalog_log_dir_online", log_dir=path) == 1
        assert value(sim, "kafkalog_log_dir_free_bytes", log_dir=path) > 0
        assert value(sim, "kafkalog_recovery_remaining_logs", log_dir=path) == 0


def test_a_fresh_directory_is_no_unclean_start() -> None:
    """M16: a kill is one, a clean stop is none."""
    sim = SimManager().start()
    shown = sim.metrics.registry.get_sample_value
    assert shown("kafkalog_unclean_starts_total", {"log_dir": DIRS[0]}) == 0, "not even a sample"
    again = SimManager(sim.stop()).start()
    assert value(again, "kafkalog_unclean_starts_total", log_dir=DIRS[0]) == 0
    killed = SimManager(again.kill()).start()
    assert value(killed, "kafkalog_unclean_starts_total", log_dir=DIRS[0]) == 1
    assert value(killed, "kafkalog_recovery_remaining_segments", log_dir=DIRS[0]) == 0


def test_moves_are_counted_where_they_go() -> None:
    """M14 M26: bytes and moves under way while they copy, their ends by state."""
    sim = SimManager().start().with_topic("t", 1)
    for _ in range(20):
        assert sim.produce("t", batch_of("v" * 100)).error is None
    target = next(path for path in DIRS if path != sim.operations.partition_log("t", 0).parent_dir)
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"

    def sample(name: str, **labels: str) -> float:
        return value(sim, f"kafkalog_{name}", log_dir=target, **labels)

    sim.operations.alter_broker_configs([ConfigChange(rate, "1")])
    sim.operations.log_dirs.move("t", 0, target)
    sim.clock.advance_ms(1_000)
    copied = sim.operations.log_dirs.moves()[0].copied_bytes
    assert sample("partition_moves_running") == 1
    assert sample("partition_move_bytes_total") == copied > 0
    sim.operations.log_dirs.cancel_move("t", 0)
    assert sample("partition_moves_running") == 0
    assert sample("partition_moves_total", state="cancelled") == 1
    sim.operations.alter_broker_configs([ConfigChange(rate, None)])
    sim.operations.log_dirs.move("t", 0, target)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is MoveState.DONE)
    assert sample("partition_moves_total", state="done") == 1
    assert sample("partition_moves_total", state="cancelled") == 1
    assert sample("partition_moves_running") == 0


LET_IN_SECONDS = 0.2  # who has to wait for the mutex waits longer


class Door(dict[Any, Any]):
    """A table that lets somebody else in, once, when it is read or written."""

    def __init__(self, content: dict[Any, Any], visitor: Callable[[], None]) -> None:
        super().__init__(content)
        self.visit = threading.Thread(target=visitor)

    def _let_in(self) -> None:
        if self.visit.ident is None:
            self.visit.start()
            self.visit.join(LET_IN_SECONDS)

    def items(self) -> dict_items[Any, Any]:
        self._let_in()
        return super().items()

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._let_in()


def busy_traffic() -> TopicTraffic:
    traffic = Metrics().traffic
    traffic.observe_append("goes", 7, 700)
    traffic.observe_append("stays", 1, 100)
    return traffic


def whole(traffic: TopicTraffic) -> TopicTotals:
    return next(traffic.totals())


def test_a_topic_that_is_deleted_in_a_scrape_counts_once() -> None:
    """M26: no fall, which a rate would take for a restart of the daemon."""
    traffic = busy_traffic()
    door = Door(traffic.append_bytes._metrics, lambda: traffic.forget_topic("goes"))
    before = whole(traffic)
    traffic.append_bytes._metrics = door
    assert whole(traffic) == before
    door.visit.join()
    assert whole(traffic) == before
    assert before.bytes_in == 800


def test_a_scrape_in_the_middle_of_a_deletion_counts_a_topic_once() -> None:
    """M26: nor is it counted twice, from where the sum could only fall."""
    traffic = busy_traffic()
    seen = [whole(traffic)]
    traffic._departed = door = Door({}, lambda: seen.append(whole(traffic)))
    traffic.forget_topic("goes")
    door.visit.join()
    seen.append(whole(traffic))
    assert seen == [seen[0]] * 3


def test_the_last_appends_of_a_deleted_topic_are_in_the_sum() -> None:
    """M26: the fast path tells its counts some milliseconds later; the topic is gone by then."""
    metrics, topics, loop = Metrics(), {"gone", "stays"}, asyncio.new_event_loop()
    counts = Counts(metrics, loop, topics.__contains__)
    counts.note_append("gone", 7, 700)
    counts.note_append("stays", 1, 100)
    counts.note_fetch("gone", 70, 0.001)
    topics.remove("gone")
    metrics.forget_topic("gone")
    counts.tell()
    loop.close()
    every, stays = metrics.traffic.totals()
    assert (every.messages_in, every.bytes_in, every.produce_requests) == (8, 800, 2)
    assert (every.bytes_out, every.fetch_requests) == (70, 1)
    assert (stays.topic, stays.bytes_in) == ("stays", 100)

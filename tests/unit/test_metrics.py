"""Goal: every metric has its name, unit and help, and our partition text equals the library's.
Method: own registry per test; the same facts through prometheus_client and through the renderer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkalog.observe.metrics import (
    PARTITION_FAMILIES,
    SLICE,
    Metrics,
    PartitionRenderer,
    PartitionSample,
)
from kafkalog.observe.reference import metrics_page

ROOT = Path(__file__).resolve().parents[2]

OFFSETS = st.integers(0, 2**63 - 1)
SAMPLES = st.lists(
    st.builds(
        PartitionSample, st.text(max_size=8), st.integers(0, 99), OFFSETS, OFFSETS, OFFSETS,
        OFFSETS, OFFSETS,
    ),
    unique_by=lambda sample: (sample.topic, sample.partition),
    max_size=12,
)  # fmt: skip


def stock_text(samples: list[PartitionSample]) -> str:
    registry = CollectorRegistry()
    for name, field, text in PARTITION_FAMILIES:
        gauge = Gauge(name, text, ["topic", "partition"], registry=registry)
        for sample in samples:
            gauge.labels(sample.topic, str(sample.partition)).set(getattr(sample, field))
    return generate_latest(registry).decode()


@given(SAMPLES)
def test_our_text_equals_the_librarys(samples: list[PartitionSample]) -> None:
    """M26: metrics for logs; also with warm prefixes."""
    renderer = PartitionRenderer()
    for _ in range(2):
        assert renderer.join(renderer.render_slices(samples)) == stock_text(samples)


def test_many_partitions_come_in_slices_and_vanished_ones_go() -> None:
    samples = [PartitionSample("t", number, 1, 2, 3, 4, 5) for number in range(SLICE + 1)]
    renderer = PartitionRenderer()
    slices = list(renderer.render_slices(samples))
    assert len(slices) == 2
    assert renderer.join(slices) == stock_text(samples)
    assert renderer.join(renderer.render_slices(samples[:1])) == stock_text(samples[:1])


def test_the_page_parses_and_holds_what_was_observed() -> None:
    """M26: appends, fetches, HTTP, directories and threads."""
    metrics = Metrics()
    metrics.observe_append("t", 3, 100)
    metrics.observe_fetch("t", 50, records=2)
    metrics.observe_http("/topics/{topic}", "BREW", 418, 0.01)
    metrics.observe_loop_lag(-1.0)
    metrics.beat("writer-0", 1_500)
    metrics.set_log_dir_space("/d", 10, 4)
    page = asyncio.run(metrics.render([PartitionSample("t", 0, 1, 2, 3, 4, 5)])).decode()
    assert 'kafkalog_append_records_total{topic="t"} 3.0' in page
    assert 'kafkalog_fetch_bytes_total{topic="t"} 50.0' in page
    assert 'code="418",method="OTHER",route="/topics/{topic}"} 1.0' in page
    assert 'kafkalog_thread_heartbeat_timestamp_seconds{thread="writer-0"} 1.5' in page
    assert 'kafkalog_log_high_watermark{partition="0",topic="t"} 5.0' in page
    families = list(text_string_to_metric_families(page))
    assert all(family.documentation for family in families)
    assert len({family.name for family in families}) == len(families)
    assert "_created" not in page


def test_a_deleted_topic_loses_its_series() -> None:
    metrics = Metrics()
    metrics.observe_append("gone", 1, 1)
    metrics.forget_topic("gone")
    metrics.forget_topic("never seen")
    assert b"gone" not in asyncio.run(metrics.render([]))


def test_two_instances_share_nothing() -> None:
    one, other = Metrics(), Metrics(with_process=True)
    one.observe_append("t", 1, 1)
    page = asyncio.run(other.render([]))
    assert b'topic="t"' not in page
    assert b"process_cpu_seconds_total" in page


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page(), "run python -m kafkalog.observe.reference"

"""Goal: configs of topics, and those of the broker that change at run time, are validated and
described as Kafka's.
Method: tables of values; descriptions beside the sources of their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import InvalidConfig, InvalidRequest, InvalidTopicConfig
from kafkalog.format.integers import INT64_MAX
from kafkalog.settings.dynamic_configs import DYNAMIC_KEYS
from kafkalog.settings.setting import Scope
from kafkalog.settings.tables import BROKER_LEVEL
from tests.unit.test_settings import load

if TYPE_CHECKING:
    from kafkalog.broker.values import ConfigEntry


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("cleanup.policy", "", True),
        ("cleanup.policy", "Compact", False),
        ("cleanup.policy", "none", False),
        ("cleanup.policy", "compact,compact", True),
        ("segment.bytes", "1000", False),
        ("internal.segment.bytes", "1000", True),
        ("retention.ms", "0", True),
        ("retention.ms", "-1", True),
        ("retention.ms", "-2", False),
        ("retention.bytes", "-5", True),
        ("compression.type", "none", False),
        ("segment.index.bytes", "4", True),
        ("segment.index.bytes", "3", False),
        ("min.compaction.lag.ms", "5", True),
        ("http.produce.acks", "1", True),
        ("message.format.version", "3.0", False),
        ("quota.bytes", "-1", True),
        ("quota.bytes", "-2", False),
        ("quota.bytes", "1e9", False),
        ("quota.bytes", "", False),
    ],
)
def test_topic_config_validation_is_kafkas(key: str, value: str, accepted: bool) -> None:
    """M16: topic level over broker level; the executed rows of Kafka 4.1.0."""
    settings = load()
    if accepted:
        settings.topic_config({key: value})
        return
    with pytest.raises(InvalidTopicConfig, match=key):
        settings.topic_config({key: value})


def test_topic_overrides_lie_over_the_daemons_defaults() -> None:
    settings = load("log.segment.bytes=2097152\nlog.cleanup.policy=compact")
    config = settings.topic_config({"internal.segment.bytes": "700", "retention.bytes": "1400"})
    assert config.max_segment_bytes == 700
    assert config.segment_bytes == 2_097_152
    assert config.cleanup_policy == frozenset({"compact"})
    assert settings.topic_config({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_lags_must_not_cross_and_unknown_names_are_suggested() -> None:
    settings = load()
    crossed = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    with pytest.raises(InvalidTopicConfig, match=r"min.compaction.lag.ms"):
        settings.topic_config(crossed)
    with pytest.raises(InvalidTopicConfig, match=r"did you mean retention.ms"):
        settings.topic_config({"retention.msec": "1"})
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms"):
        load("log.cleaner.min.compaction.lag.ms=6\nlog.cleaner.max.compaction.lag.ms=5")


def chain(entry: ConfigEntry) -> list[tuple[str, str | None, str]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def test_description_has_the_chain_of_sources() -> None:
    """As a Kafka 4.1 broker with these settings prints it."""
    settings = load("log.retention.hours=24\nlog.segment.bytes=2097152\nlog.roll.ms=7000")
    described = {entry.name: entry for entry in settings.describe_topic_config({"flush.ms": "5"})}
    retention, roll = described["retention.ms"], described["segment.ms"]
    assert (retention.value, chain(retention)) == ("86400000", []), "Kafka's: hours stay unsaid"
    assert chain(roll) == [
        ("log.roll.ms", "7000", "STATIC_BROKER_CONFIG"),
        ("log.roll.hours", "168", "DEFAULT_CONFIG"),
    ]
    assert chain(described["segment.bytes"]) == [
        ("log.segment.bytes", "2097152", "STATIC_BROKER_CONFIG"),
        ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
    ]
    assert chain(described["flush.ms"]) == [("flush.ms", "5", "DYNAMIC_TOPIC_CONFIG")]
    assert described["retention.bytes"].is_default
    assert described["http.produce.acks"].value is None
    assert "internal.segment.bytes" not in described


def test_an_internal_config_is_described_where_it_is_set() -> None:
    """As Kafka's ConfigHelper lists it: segments are not of the listed segment.bytes."""
    described = load("").describe_topic_config({"internal.segment.bytes": "18000"})
    (entry,) = [each for each in described if each.name == "internal.segment.bytes"]
    assert (entry.value, entry.default, entry.is_default) == ("18000", None, False)
    assert chain(entry) == [("internal.segment.bytes", "18000", "DYNAMIC_TOPIC_CONFIG")]


def test_dynamic_broker_configs_go_over_the_file() -> None:
    """As a Kafka 4.1 broker prints it; a negative retention is none."""
    settings = load("log.retention.hours=24")
    dynamic = {"log.retention.ms": "-7", "log.flush.interval.ms": "900"}
    described = {entry.name: entry for entry in settings.describe_topic_config({}, dynamic)}
    retention = described["retention.ms"]
    assert (retention.value, retention.source) == ("-1", "DYNAMIC_BROKER_CONFIG")
    assert chain(retention) == [
        ("log.retention.ms", "-7", "DYNAMIC_BROKER_CONFIG"),
        ("log.retention.hours", "24", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    assert chain(described["flush.ms"]) == [
        ("log.flush.interval.ms", "900", "DYNAMIC_BROKER_CONFIG"),
        ("log.flush.scheduler.interval.ms", str(INT64_MAX), "DEFAULT_CONFIG"),
    ]
    config = settings.topic_config({}, dynamic)
    assert (config.retention_ms, config.flush_ms) == (-1, 900)
    assert settings.topic_config({"flush.ms": "7"}, dynamic).flush_ms == 7
    broker = {entry.name: entry for entry in settings.describe_broker_config(dynamic)}
    assert chain(broker["log.retention.ms"]) == chain(retention)
    assert broker["log.retention.ms"].value == "-7"
    assert broker["log.retention.hours"].is_read_only
    assert not broker["log.retention.ms"].is_read_only


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("log.retention.hours", "7", "Cannot update these configs dynamically"),
        ("log.dirs", "/x", "Cannot update these configs dynamically"),
        ("log.retention.ms", "0", "must be unlimited"),
        ("log.segment.bytes", "7", "Invalid value 7 for configuration log.segment.bytes"),
        ("log.retention.msec", "7", "did you mean log.retention.ms"),
    ],
)
def test_what_kafka_does_not_change_at_run_time_is_refused(
    key: str, text: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        load().topic_defaults({key: text})


def test_the_dynamic_broker_keys_are_those_marked_dynamic() -> None:
    """log-lifecycle 13: the first broker synonym of each topic key."""
    marked = {
        setting.key
        for setting in BROKER_LEVEL.values()
        if setting.scope is Scope.TOPIC_DEFAULT and setting.dynamic
    }
    assert set(DYNAMIC_KEYS) == marked

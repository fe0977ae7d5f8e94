"""Goal: configs are described, taken and refused as a Kafka broker with the same settings does it.

Method: kafka-configs on a running broker beside kafkalog's settings and command line, its own
server.properties read by both.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.configs import pairs_of, print_configs
from kafkalog.errors import InvalidRequest
from kafkalog.settings import ConfigEntry, Settings, load_settings
from kafkalog.settings.tables import TOPIC_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.oracle.kafka import Broker, Output

pytestmark = pytest.mark.oracle

STATIC = (
    "log.retention.hours=24",
    "log.roll.ms=7000000",
    "log.roll.hours=3",
    "log.segment.bytes=2097152",
    "log.flush.scheduler.interval.ms=5000000",
    "compression.type=zstd",
)
OVERRIDES = {"cleanup.policy": "compact,delete", "retention.bytes": "5", "preallocate": "TRUE"}
DYNAMIC = {
    "log.retention.ms": "-7",
    "log.segment.bytes": "3145728",
    "log.cleanup.policy": "compact",
}
# Kafka's controller sets it by itself in a fresh cluster (eligible leader replicas).
BY_ITSELF = "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, "

TOPIC_ALTERATIONS = (
    "retention.ms=-1",
    "retention.ms=-2",
    "retention.ms=0",
    "retention.ms=abc",
    "retention.ms=9223372036854775808",
    "segment.bytes=1048575",
    "cleanup.policy=",
    "cleanup.policy=[compact,delete,compact]",
    "cleanup.policy=shred",
    "no.such.key=1",
    "min.compaction.lag.ms=6,max.compaction.lag.ms=5",
    "min.cleanable.dirty.ratio=1.01",
    "compression.gzip.level=0",
    "message.timestamp.type=createtime",
    "preallocate=yes",
    "unclean.leader.election.enable= true ",
)
BROKER_ALTERATIONS = (
    "log.retention.ms=0",
    "log.retention.ms=-5",
    "log.retention.hours=5",
    "log.segment.bytes=7",
    "log.dirs=/x",
    "message.max.bytes=-1",
    "log.cleaner.min.cleanable.ratio=0.1",
    "log.cleaner.delete.retention.ms=-1",
)


def configs(broker: Broker, *arguments: str, check: bool = True) -> Output:
    base = ("configs", "--bootstrap-server", broker.bootstrap)
    return broker.kafka.run(*base, *arguments, check=check)


def settings_of(broker: Broker) -> Settings:
    return load_settings((broker.directory / "server.properties").read_bytes(), {}, {})


def printed(
    entity: str, entries: Sequence[ConfigEntry], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    print_configs(entity, [asdict(entry) for entry in entries], is_all=True)
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def configured(new_broker: Callable[..., Broker]) -> Broker:
    """A broker with static settings and a topic with overrides."""
    broker = new_broker(*STATIC)
    pairs = [word for item in OVERRIDES.items() for word in ("--config", "=".join(item))]
    base = ("topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", "t")
    broker.kafka.run(*base, *pairs)
    return broker


def test_sources_are_described_as_kafka_prints_them(
    configured: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """M13: each topic key with its value and its chain, without and with dynamic broker configs."""
    settings = settings_of(configured)
    own = {key for key, setting in TOPIC_LEVEL.items() if setting.own}
    for dynamic in ({}, DYNAMIC):
        if dynamic:
            pairs = ",".join("=".join(item) for item in dynamic.items())
            entity = ("--entity-type", "brokers", "--entity-name", "1")
            configs(configured, *entity, "--alter", "--add-config", pairs)
        theirs = configs(configured, "--describe", "--all", "--topic", "t").stdout
        entries = [
            entry
            for entry in settings.describe_topic_config(OVERRIDES, dynamic)
            if entry.name not in own
        ]
        ours = printed("topic t", entries, capsys)
        assert ours == theirs.replace(BY_ITSELF, "").splitlines()
        assert len(ours) > 30


def refusal(validate: Callable[[], object]) -> str:
    """Kafka's name of our error, empty when there is none."""
    try:
        validate()
    except InvalidRequest as error:
        return error.kafka_error
    return ""


def test_alterations_are_taken_and_refused_as_by_kafka(configured: Broker) -> None:
    """M13: one by one on a topic and on the broker; the kind of refusal is Kafka's."""
    settings = settings_of(configured)
    refusals: list[str] = []
    for text in TOPIC_ALTERATIONS:
        named = dict(pairs_of("--add-config", (text,)))
        ours = refusal(partial(settings.topic_config, {**OVERRIDES, **named}))
        theirs = configs(configured, "--topic", "t", "--alter", "--add-config", text, check=False)
        assert (theirs.status != 0) == bool(ours), text
        if ours:
            assert ours == "INVALID_CONFIG"
            assert "InvalidConfigurationException" in theirs.stderr, text
            refusals.append(text)
        else:
            names = ",".join(named)
            configs(configured, "--topic", "t", "--alter", "--delete-config", names)
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    for text in BROKER_ALTERATIONS:
        ours = refusal(partial(settings.topic_defaults, dict(pairs_of("--add-config", (text,)))))
        theirs = configs(configured, *entity, "--alter", "--add-config", text, check=False)
        assert (theirs.status != 0) == bool(ours), text
        if ours:
            assert ours == "INVALID_REQUEST"
            assert "InvalidRequestException" in theirs.stderr, text
            refusals.append(text)
    total = len(TOPIC_ALTERATIONS) + len(BROKER_ALTERATIONS)
    assert total / 3 < len(refusals) < total * 4 / 5

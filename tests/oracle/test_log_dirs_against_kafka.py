"""Goal: log directories and configs are described, taken and refused as a Kafka broker with the
same settings does it.
Method: Kafka's own tools at a broker and at a daemon; answers compared.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.configs import pairs_of, print_configs
from kafkalog.errors import InvalidRequest
from kafkalog.settings import Settings, load_settings
from kafkalog.settings.tables import TOPIC_LEVEL
from tests.integration.daemon import Daemon
from tests.integration.http_world import until
from tests.integration.test_cli_over_http import done, run
from tests.oracle.kafka import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalog.broker.values import ConfigEntry
    from tests.oracle.kafka import Broker, Output


pytestmark = pytest.mark.oracle
TOOL = "org.apache.kafka.tools.LogDirsCommand"
OFFLINE_SECONDS = 60


def kafkas_lines(broker: Broker, *options: str) -> list[str]:
    output = broker.kafka.run(
        "java", TOOL, "--bootstrap-server", broker.bootstrap, "--describe", *options
    )
    return output.lines()


def shape(value: Any) -> Any:
    """Keys in their order and the kinds of the values, of lists those of their first entry."""
    if isinstance(value, dict):
        return [(key, shape(each)) for key, each in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def entries(line: str) -> dict[str, dict[str, Any]]:
    """Directories by their last name: error, and the partitions in the order of their names."""
    document = json.loads(line)
    (broker,) = document["brokers"]
    assert (document["version"], broker["broker"]) == (1, 1)
    return {
        entry["logDir"].rpartition("/")[2]: {
            "error": entry["error"],
            "partitions": sorted(entry["partitions"], key=lambda each: str(each["partition"])),
        }
        for entry in broker["logDirs"]
    }


def test_the_same_directory_is_described_alike(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M14: the same lines, keys in the same order, every partition with the same bytes."""
    broker = new_broker()
    broker.create_topic("orders", 2, internal_segment_bytes=3000)
    broker.create_topic("other")
    for number in range(4):
        lines = [record(b"key", b"v" * 400) for _ in range(5)]
        broker.produce("orders", lines, partition=number % 2)
    options: tuple[tuple[str, ...], ...] = (
        (), ("--topic-list", "other"), ("--topic-list", "nope,orders,"), ("--topic-list", "")
    )  # fmt: skip
    theirs = {names: kafkas_lines(broker, *names) for names in options}
    broker.stop()
    shutil.copytree(broker.data, tmp_path / "dir0")
    with Daemon(tmp_path) as daemon:
        for names, lines_of_kafka in theirs.items():
            ours = done(run(daemon, "dirs", "describe", *names)).decode().splitlines()
            assert ours[:-1] == lines_of_kafka[:-1]
            assert shape(json.loads(ours[-1])) == shape(json.loads(lines_of_kafka[-1])), names
            (mine,), (kafkas,) = entries(ours[-1]).values(), entries(lines_of_kafka[-1]).values()
            assert mine == kafkas, names
    assert len(entries(theirs[()][-1])["data"]["partitions"]) == 3
    assert len(entries(theirs[options[2]][-1])["data"]["partitions"]) == 2


def test_an_offline_directory_is_described_alike(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M15: no partitions, and the error that Kafka's tool names; a topic's lines as Kafka's."""
    broker = new_broker(
        f"log.dirs={tmp_path}/dir0,{tmp_path}/dir1",
        f"metadata.log.dir={tmp_path}/dir0",
        "log.flush.offset.checkpoint.interval.ms=500",
    )
    broker.create_topic("t", 4)
    # The tool that creates a topic does not wait for its directories.
    before = kafkas_when(broker, lambda dirs: sum(len(e["partitions"]) for e in dirs.values()) == 4)
    take_away(tmp_path / "dir1")
    theirs = kafkas_when(broker, lambda dirs: dirs["dir1"]["error"] is not None)
    assert theirs["dir0"] == before["dir0"]
    topics = ("topics", "--bootstrap-server", broker.bootstrap)
    described = states(broker.kafka.run(*topics, "--describe", "--topic", "t").lines())

    with Daemon(
        tmp_path / "ours",
        log_dirs=2,
        environment=None,
        log_initial_task_delay_ms="0",
        log_flush_offset_checkpoint_interval_ms="500",
    ) as daemon:
        daemon.create_topic("t", 4)
        take_away(daemon.log_dirs[1])
        until(lambda: daemon.request("GET", "/readyz").json["offline_log_dirs"])
        ours = entries(done(run(daemon, "dirs", "describe")).decode().splitlines()[-1])
        assert ours["dir1"] == theirs["dir1"]
        assert ours["dir0"]["error"] is None
        assert len(ours["dir0"]["partitions"]) == 2
        shown = done(run(daemon, "topics", "describe", "t")).decode().splitlines()
        assert states(shown) == described


def kafkas_when(
    broker: Broker, is_so: Callable[[dict[str, dict[str, Any]]], bool]
) -> dict[str, dict[str, Any]]:
    deadline = time.monotonic() + OFFLINE_SECONDS
    while not is_so(found := entries(kafkas_lines(broker)[-1])):
        assert time.monotonic() < deadline, found
    return found


def states(lines: list[str]) -> list[str]:
    """Of a described topic: what is said of its partitions, without their numbers, sorted."""
    return sorted(line.partition("\tLeader: ")[2] for line in lines[1:])


def take_away(directory: Path) -> None:
    """As a disk that is gone: a file in its place."""
    directory.rename(directory.with_name("gone"))
    directory.write_bytes(b"no directory")


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
    kinds: tuple[tuple[Any, ...], ...] = (
        (TOPIC_ALTERATIONS, ("--topic", "t"), OVERRIDES, settings.topic_config,
         "INVALID_CONFIG", "InvalidConfigurationException"),
        (BROKER_ALTERATIONS, ("--entity-type", "brokers", "--entity-name", "1"), {},
         settings.topic_defaults, "INVALID_REQUEST", "InvalidRequestException"),
    )  # fmt: skip
    refusals: list[str] = []
    for alterations, entity, before, validate, error, exception in kinds:
        for text in alterations:
            named = dict(pairs_of("--add-config", (text,)))
            ours = refusal(partial(validate, {**before, **named}))
            theirs = configs(configured, *entity, "--alter", "--add-config", text, check=False)
            assert (theirs.status != 0) == bool(ours), text
            if ours:
                assert ours == error
                assert exception in theirs.stderr, text
                refusals.append(text)
            elif alterations is TOPIC_ALTERATIONS:
                configs(configured, *entity, "--alter", "--delete-config", ",".join(named))
    total = len(TOPIC_ALTERATIONS) + len(BROKER_ALTERATIONS)
    assert total / 3 < len(refusals) < total * 4 / 5

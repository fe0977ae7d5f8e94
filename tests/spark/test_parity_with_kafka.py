"""Goal: our source and Spark's own Kafka source find the same, and go on from each other's place.
Method: both in one Spark, on logs that a broker wrote: the one in front of a broker that serves
them, ours on their directory and in front of a daemon that adopted a copy. `make spark-parity`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.oracle.kafka import Kafka
from tests.spark import frozen_parity
from tests.spark.kafka_connector import spark_with_connector
from tests.spark.kafka_logs import SHAPES, shapes_in, under_a_broker, written_by_kafka
from tests.spark.parity import (
    BREAKS_IN,
    QUERIES,
    REFUSED,
    STREAMS,
    Source,
    Stream,
    batch,
    is_refused,
    schemas,
    whole_stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.parity import Found

pytestmark = pytest.mark.spark_kafka

OURS = ("path", "url")


@dataclass(frozen=True)
class Logs:
    """The same logs before three sources: kafka, path and url. ``frozen``: what was found once."""

    spark: SparkSession
    sources: dict[str, Source]
    frozen: Found | None


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    """The oracle's kit."""
    return Kafka.ready()


@pytest.fixture(scope="module")
def kafka_spark(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With both sources."""
    with spark_with_connector(kafka, tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module", params=["written now", "frozen"])
def logs(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    kafka_spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Logs]:
    """What a broker writes today, and what one wrote when it was frozen."""
    home = tmp_path_factory.mktemp("logs")
    is_frozen = request.param == "frozen"
    path = frozen_parity.unpack_logs(home) if is_frozen else written_by_kafka(kafka, home)
    assert shapes_in(path) == SHAPES
    shutil.copytree(path, home / "adopted" / "dir0")
    with (
        under_a_broker(kafka, path, home / "reading") as broker,
        Daemon(home / "adopted", log_retention_ms="-1") as daemon,
    ):
        sources = {
            "kafka": Source.kafka(broker.bootstrap),
            "path": Source.directory(path),
            "url": Source.daemon(daemon.port),
        }
        yield Logs(kafka_spark, sources, frozen_parity.expected() if is_frozen else None)


@pytest.fixture(scope="module")
def kafkas_streams(logs: Logs, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Every stream as Kafka's source goes through it."""
    home = tmp_path_factory.mktemp("streams")
    return {
        name: whole_stream(logs.spark, logs.sources["kafka"], name, home / name) for name in STREAMS
    }


def test_schemas(logs: Logs) -> None:
    """The same columns, with headers and without."""
    wanted = schemas(logs.spark, logs.sources["kafka"])
    for ours in OURS:
        assert schemas(logs.spark, logs.sources[ours]) == wanted, ours
    if logs.frozen is not None:
        assert wanted == logs.frozen["schemas"]


@pytest.mark.parametrize("query", QUERIES)
def test_batches(logs: Logs, query: str) -> None:
    """The same rows in the same tasks."""
    wanted = batch(logs.spark, logs.sources["kafka"], query)
    assert wanted["rows"]
    for ours in OURS:
        assert batch(logs.spark, logs.sources[ours], query) == wanted, ours
    if logs.frozen is not None:
        assert wanted == logs.frozen["batches"][query]


@pytest.mark.parametrize("query", REFUSED)
def test_refused(logs: Logs, query: str) -> None:
    """What Kafka's source refuses ours does not guess."""
    assert [
        name for name in logs.sources if not is_refused(logs.spark, logs.sources[name], query)
    ] == []


@pytest.mark.parametrize("name", STREAMS)
def test_streams(logs: Logs, kafkas_streams: Found, tmp_path: Path, name: str) -> None:
    """Each batch ends where Kafka's does and has its rows."""
    wanted = kafkas_streams[name]
    assert len(wanted["batches"]) > 1
    for ours in OURS:
        found = whole_stream(logs.spark, logs.sources[ours], name, tmp_path / ours)
        assert found == wanted, ours
    if logs.frozen is not None:
        assert wanted == logs.frozen["streams"][name]


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("kafkas_first", [True, False], ids=["from kafka", "to kafka"])
def test_checkpoints_change_hands(
    logs: Logs, kafkas_streams: Found, tmp_path: Path, ours: str, kafkas_first: bool
) -> None:
    """A stream changes its format and keeps its checkpoint, in both directions."""
    stream = Stream(logs.spark, tmp_path / "checkpoint", "limited")
    first, second = ("kafka", ours) if kafkas_first else (ours, "kafka")
    stream.run(logs.sources[first], breaks_in=BREAKS_IN)
    stream.run(logs.sources[second])
    assert stream.found() == kafkas_streams["limited"]
    count = len(stream.batches)
    stream.run(logs.sources[first])
    assert not any(stream.batches[number] for number in range(count, len(stream.batches)))

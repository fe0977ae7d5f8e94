"""Goal: our source finds what Spark's own Kafka source finds, and goes on from each other's place.
Method: the same queries on logs that a broker wrote, in their directory and in front of a daemon
that adopted a copy; what Kafka's source found when they were frozen (`make spark-freeze`), and what
it finds today in front of a broker, there and on logs of today (`make spark-parity`).
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.oracle.kafka import Kafka
from tests.spark import frozen_parity
from tests.spark.freeze import all_found
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

FROZEN = pytest.param("frozen", marks=pytest.mark.spark)
FROZEN_AND_SERVED = pytest.param("frozen, a broker", marks=pytest.mark.spark_kafka)
WRITTEN_NOW = pytest.param("written now, a broker", marks=pytest.mark.spark_kafka)
with_a_broker = pytest.mark.parametrize("logs", [FROZEN_AND_SERVED, WRITTEN_NOW], indirect=True)
both_ways = pytest.mark.parametrize("ours", ["path", "url"])


@dataclass(frozen=True)
class Logs:
    """The same logs before our sources, path and url, and Kafka's; ``found``: by that one."""

    spark: SparkSession
    sources: dict[str, Source]
    found: Found


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    return Kafka.ready()


@pytest.fixture(scope="module")
def kafka_spark(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With both sources."""
    with spark_with_connector(kafka, tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module", params=[FROZEN, FROZEN_AND_SERVED, WRITTEN_NOW])
def logs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Logs]:
    home = tmp_path_factory.mktemp("logs")
    if "frozen" in request.param:
        path = frozen_parity.unpack_logs(home)
    else:
        path = written_by_kafka(request.getfixturevalue("kafka"), home)
    assert shapes_in(path) == SHAPES
    shutil.copytree(path, home / "adopted" / "dir0")
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home / "adopted", log_retention_ms="-1"))
        sources = {"path": Source.directory(path), "url": Source.daemon(daemon.port)}
        if "broker" not in request.param:
            yield Logs(request.getfixturevalue("spark"), sources, frozen_parity.expected())
            return
        spark, kafka = map(request.getfixturevalue, ("kafka_spark", "kafka"))
        broker = stack.enter_context(under_a_broker(kafka, path, home / "reading"))
        sources["kafka"] = Source.kafka(broker.bootstrap)
        yield Logs(spark, sources, all_found(spark, sources["kafka"], home / "streams"))


@pytest.mark.parametrize("logs", [FROZEN_AND_SERVED], indirect=True)
def test_kafkas_source_finds_what_was_frozen(logs: Logs) -> None:
    frozen = frozen_parity.expected()
    assert logs.found == {name: frozen[name] for name in logs.found}


@both_ways
def test_schemas(logs: Logs, ours: str) -> None:
    """M27. The same columns, with headers and without."""
    assert schemas(logs.spark, logs.sources[ours]) == logs.found["schemas"]


@both_ways
@pytest.mark.parametrize("query", QUERIES)
def test_batches(logs: Logs, ours: str, query: str) -> None:
    """The same rows in the same tasks."""
    assert batch(logs.spark, logs.sources[ours], query) == logs.found["batches"][query]
    assert logs.found["batches"][query]["rows"]


@both_ways
@pytest.mark.parametrize("query", REFUSED)
def test_refused(logs: Logs, ours: str, query: str) -> None:
    """M27. What Kafka's source refuses ours does not guess."""
    assert is_refused(logs.spark, logs.sources[ours], query)
    assert logs.found["refused"][query]


@both_ways
@pytest.mark.parametrize("name", STREAMS)
def test_streams(logs: Logs, tmp_path: Path, ours: str, name: str) -> None:
    """Each batch ends where Kafka's does and has its rows."""
    found = whole_stream(logs.spark, logs.sources[ours], name, tmp_path / "checkpoint")
    assert found == logs.found["streams"][name]
    assert len(found["batches"]) > 1


@both_ways
@pytest.mark.parametrize("logs", [FROZEN], indirect=True)
def test_a_checkpoint_of_kafkas_goes_on(logs: Logs, tmp_path: Path, ours: str) -> None:
    """A stream changes its format and keeps its checkpoint."""
    stream = Stream(logs.spark, frozen_parity.copy_checkpoint(tmp_path), "limited")
    stream.run(logs.sources[ours])
    wanted = logs.found["streams"]["limited"]
    assert min(stream.batches) == BREAKS_IN
    assert stream.found() == wanted | {"batches": wanted["batches"][BREAKS_IN:]}


@both_ways
@with_a_broker
@pytest.mark.parametrize("kafkas_first", [True, False], ids=["from kafka", "to kafka"])
def test_checkpoints_change_hands(
    logs: Logs, tmp_path: Path, ours: str, kafkas_first: bool
) -> None:
    """In both directions."""
    stream = Stream(logs.spark, tmp_path / "checkpoint", "limited")
    first, second = ("kafka", ours) if kafkas_first else (ours, "kafka")
    stream.run(logs.sources[first], breaks_in=BREAKS_IN)
    stream.run(logs.sources[second])
    assert stream.found() == logs.found["streams"]["limited"]
    count = len(stream.batches)
    stream.run(logs.sources[first])
    assert not any(stream.batches[number] for number in range(count, len(stream.batches)))

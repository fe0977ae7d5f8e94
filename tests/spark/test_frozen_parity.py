"""Goal: our source finds what Spark's Kafka source found, digest for digest and offset for offset.
Method: logs that a real Kafka wrote, read from their directory and from a daemon that adopted them;
the frozen finds of Kafka's source on the same logs (`make spark-freeze`).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.spark import frozen_parity
from tests.spark.kafka_logs import SHAPES, shapes_in
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

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def expected() -> Found:
    """What Kafka's source found."""
    return frozen_parity.expected()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs that it was found in."""
    return frozen_parity.unpack_logs(tmp_path_factory.mktemp("frozen"))


@pytest.fixture(scope="module", params=["path", "url"])
def source(
    request: pytest.FixtureRequest, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    """Our source, both ways."""
    if request.param == "path":
        yield Source.directory(logs)
        return
    root = tmp_path_factory.mktemp("adopted")
    shutil.copytree(logs, root / "dir0")
    with Daemon(root, log_retention_ms="-1") as daemon:
        yield Source.daemon(daemon.port)


def test_the_logs_hold_every_shape(logs: Path) -> None:
    """Codecs, nulls, headers, append times, markers, gaps, a start above 0, emptiness."""
    assert shapes_in(logs) == SHAPES


def test_schemas(spark: SparkSession, source: Source, expected: Found) -> None:
    """M27. The same columns, with headers and without."""
    assert schemas(spark, source) == expected["schemas"]


@pytest.mark.parametrize("query", QUERIES)
def test_batches(spark: SparkSession, source: Source, expected: Found, query: str) -> None:
    """The same rows in the same tasks."""
    assert batch(spark, source, query) == expected["batches"][query]


@pytest.mark.parametrize("query", REFUSED)
def test_refused(spark: SparkSession, source: Source, expected: Found, query: str) -> None:
    """M27. What Kafka's source refuses ours does not guess."""
    assert is_refused(spark, source, query)
    assert expected["refused"][query]


@pytest.mark.parametrize("name", STREAMS)
def test_streams(
    spark: SparkSession, source: Source, expected: Found, tmp_path: Path, name: str
) -> None:
    """Each batch ends where Kafka's does and has its rows."""
    found = whole_stream(spark, source, name, tmp_path / "checkpoint")
    assert found == expected["streams"][name]
    assert len(found["batches"]) > 1


def test_a_checkpoint_of_kafkas_goes_on(
    spark: SparkSession, source: Source, expected: Found, tmp_path: Path
) -> None:
    """A stream changes its format and keeps its checkpoint."""
    stream = Stream(spark, frozen_parity.copy_checkpoint(tmp_path), "limited")
    stream.run(source)
    wanted = expected["streams"]["limited"]
    assert min(stream.batches) == BREAKS_IN
    assert stream.found() == wanted | {"batches": wanted["batches"][BREAKS_IN:]}

"""Goal: queries and streams beside a daemon that rolls, cleans and retains find right records.
Method: a producer that never rests, batch queries again and again, and one stream meanwhile; each
row is what was sent at its offset, and none is missing that had to be there.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access, Logs
from tests.integration.daemon import Daemon
from tests.integration.live_topics import (
    COMPACTED,
    DAEMON_SETTINGS,
    RETAINED,
    TOPICS,
    Producer,
    create_topics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = 5
PAUSE_SECONDS = 0.01
SMALL = {"targetBytes": "100k", "chunkBytes": "30k", "failOnDataLoss": "false"}


@dataclass
class Seen:
    """Rows of the topics, in the order in which they were read."""

    offsets: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in TOPICS})
    batches: int = 0

    def take(self, frame: DataFrame, producer: Producer) -> None:
        """The rows of a frame, each of which must be what was sent."""
        self.batches += 1
        rows = frame.select("topic", "offset", "key", "value").orderBy("offset").collect()
        for topic, offset, key, value in rows:
            found = bytes(key), None if value is None else bytes(value)
            assert found == producer.sent[topic][offset]
            self.offsets[topic].append(offset)

    def check(self, producer: Producer, ends: dict[str, int], logs: Logs) -> None:
        """Against what had to be there when the reading began. ``ends``: of the logs then."""
        for topic in TOPICS:
            offsets = self.offsets[topic]
            assert all(before < behind for before, behind in pairwise(offsets)), topic
        assert producer.kept_by_cleaning(ends[COMPACTED]) <= set(self.offsets[COMPACTED])
        retained = set(range(logs.bounds(RETAINED, 0).log_start_offset, ends[RETAINED]))
        assert retained <= set(self.offsets[RETAINED])


def ends_of(logs: Logs) -> dict[str, int]:
    """Up to where the topics can be read."""
    return {topic: logs.bounds(topic, 0).end_offset for topic in TOPICS}


@contextmanager
def streamed(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, producer: Producer
) -> Iterator[Seen]:
    """What a stream has seen; behind the block, all that was there at its end."""
    seen = Seen()
    query = (
        spark.readStream.format("kafkalog")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="3000")
        .load()
        .writeStream.foreachBatch(lambda frame, _: seen.take(frame, producer))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield seen
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.parametrize("by_path", [True, False], ids=["directory", "daemon"])
def test_reads_beside_a_daemon_at_work(spark: SparkSession, tmp_path: Path, by_path: bool) -> None:
    """No torn batch, no wrong record; only what is below the log start is missing."""
    with Daemon(tmp_path / "daemon", environment=None, log_dirs=1, **DAEMON_SETTINGS) as daemon:
        create_topics(daemon)
        url, path = f"http://127.0.0.1:{daemon.port}", str(daemon.log_dirs[0])
        access = Access(paths=(path,)) if by_path else Access(urls=(url,))
        place = {"path": path} if by_path else {"url": url}
        options = {**SMALL, **place, "subscribe": ",".join(TOPICS)}
        producer = Producer(daemon, pause_seconds=PAUSE_SECONDS)
        with closing(open_logs(access)) as logs:
            with streamed(spark, options, tmp_path / "checkpoint", producer) as stream:
                with producer:
                    queries, is_cleaned, is_retained = 0, False, False
                    while queries < QUERIES or not (is_cleaned and is_retained):
                        ends = ends_of(logs)
                        seen = Seen()
                        seen.take(spark.read.format("kafkalog").options(**options).load(), producer)
                        seen.check(producer, ends, logs)
                        queries += 1
                        is_cleaned |= len(seen.offsets[COMPACTED]) < ends[COMPACTED]
                        is_retained |= logs.bounds(RETAINED, 0).log_start_offset > 0
                ends = ends_of(logs)
            stream.check(producer, ends, logs)
            assert stream.batches > 1

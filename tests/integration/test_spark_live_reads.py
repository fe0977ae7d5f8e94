"""Goal: reading a running daemon's files, or from it, while it rolls, cleans and retains is safe.
Method: a real daemon with tiny segments, a producer that never rests, and a reader that scans its
directory and its port again and again; every record is compared with what was sent.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import Access, DataLost, Logs, OffsetRange, Piece
from kafkalog.spark.reading import record_batches
from tests.integration.daemon import Daemon
from tests.integration.live_topics import (
    COMPACTED,
    DAEMON_SETTINGS,
    RETAINED,
    TOPICS,
    Producer,
    create_topics,
)
from tests.spark_reads import SPARK_SCHEMA, Row, rows_of

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 30_000


class Scan:
    """One look at all of a topic that is readable when it begins."""

    def __init__(self, logs: Logs, access: Access, topic: str) -> None:
        self.wanted = OffsetRange(topic, 0, *logs.bounds(topic, 0))
        self.rows: list[Row] = []
        self.lost: list[OffsetRange] = []
        for piece in logs.pieces(self.wanted, 100_000):
            todo: Piece | None = piece
            while todo is not None:
                todo = self._read(todo, access)

    def _read(self, piece: Piece, access: Access) -> Piece | None:
        """What of a piece is left to read behind records that retention took first."""
        chunks = read_piece(piece, access, chunk_bytes=30_000)
        try:
            for batch in record_batches(chunks, piece.range, SPARK_SCHEMA):
                self.rows += rows_of([batch])
        except DataLost as loss:
            self.lost.append(loss.missing)
            rest = piece.range._replace(from_offset=loss.missing.to_offset)
            return replace(piece, range=rest) if rest.from_offset < rest.to_offset else None
        return None

    def check(self, producer: Producer, log_start_offset: int) -> None:
        """Against what was sent until now."""
        sent = producer.sent[self.wanted.topic]
        offsets = [row["offset"] for row in self.rows]
        assert offsets == sorted(set(offsets))
        for row in self.rows:
            assert (row["key"], row["value"]) == sent[row["offset"]]
        found = set(offsets)
        if self.wanted.topic == RETAINED:
            for missing in self.lost:
                assert missing.to_offset <= log_start_offset
                found |= set(range(missing.from_offset, missing.to_offset))
            assert found == set(range(self.wanted.from_offset, self.wanted.to_offset))
            return
        assert not self.lost, "a cleaning takes no offset below the log start"
        assert producer.kept_by_cleaning(self.wanted.to_offset) <= found


@pytest.mark.parametrize("by_path", [True, False], ids=["directory", "daemon"])
def test_scans_beside_a_daemon_at_work(by_path: bool, tmp_path: Path) -> None:
    """M17 M20 M21: each scan has right records, in order; no key's last version is missing."""
    with Daemon(tmp_path, environment=None, log_dirs=1, **DAEMON_SETTINGS) as daemon:
        create_topics(daemon)
        url = f"http://127.0.0.1:{daemon.port}"
        access = Access(paths=(str(daemon.log_dirs[0]),)) if by_path else Access(urls=(url,))
        seen = dict.fromkeys(TOPICS, 0)
        gaps = starts = 0
        with Producer(daemon, RECORDS) as producer, closing(open_logs(access)) as logs:
            while producer.is_alive() or not all(seen.values()):
                for topic in TOPICS:
                    scan = Scan(logs, access, topic)
                    scan.check(producer, logs.bounds(topic, 0).log_start_offset)
                    seen[topic] += len(scan.rows)
                    gaps += topic == COMPACTED and len(scan.rows) < scan.wanted.to_offset
                    starts += topic == RETAINED and scan.wanted.from_offset > 0
        assert gaps > 3, "it was cleaned meanwhile"
        assert starts > 3, "it was retained meanwhile"

"""Goal: Spark reads over HTTP what it reads from files, safely while the daemon rolls, cleans and
retains, and learns which offsets are gone; so do the jobs that only read.
Method: logs by chance, read from the directory, by a plain loop and through daemons.
"""

from __future__ import annotations

import random
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.records.batch_scan import scan
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.jobs.stats import count_records
from kafkalog.jobs.tasks import InProcess
from kafkalog.jobs.whatif import forecast
from kafkalog.log.log_config import LogConfig
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import (
    Access,
    AmbiguousPartition,
    Chunk,
    DataLost,
    Logs,
    OffsetRange,
    Piece,
)
from kafkalog.spark.reading import record_batches
from tests.fleet_world import COMPACT
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, delete_records
from tests.integration.live_topics import (
    COMPACTED,
    DAEMON_SETTINGS,
    RETAINED,
    TOPICS,
    Producer,
    create_topics,
)
from tests.naive.cleaner import split_batches
from tests.naive.cleaning_logs import make_log
from tests.spark_reads import SPARK_SCHEMA, Row, plain_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEEDS = range(12)
BOTH = pytest.mark.parametrize("read_committed", [False, True], ids=["uncommitted", "committed"])


def name_of(seed: int) -> str:
    return f"made.{seed}"


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon over logs that it found in its directory."""
    daemon = Daemon(tmp_path_factory.mktemp("adopted"))
    for seed in SEEDS:
        directory = daemon.log_dirs[0] / f"{name_of(seed)}-0"
        directory.mkdir(parents=True)
        for segment in make_log(random.Random(seed)).segments:
            (directory / f"{segment.base:020d}.log").write_bytes(b"".join(segment.batches))
    with daemon:
        yield daemon


def access_to(*daemons: Daemon, read_committed: bool = False) -> Access:
    urls = tuple(f"http://127.0.0.1:{daemon.port}" for daemon in daemons)
    return Access(urls=urls, read_committed=read_committed, retry_seconds=20)


def in_files_of(daemon: Daemon) -> Access:
    return Access(paths=(str(daemon.log_dirs[0]),))


def rows(access: Access, topic: str, wanted: tuple[int, int], chunk_bytes: int = 900) -> list[Row]:
    logs = open_logs(access)
    found: list[Row] = []
    for piece in logs.pieces(OffsetRange(topic, 0, *wanted), 2_000):
        chunks = read_piece(piece, access, chunk_bytes=chunk_bytes)
        found += rows_of(record_batches(chunks, piece.range, SPARK_SCHEMA))
    logs.close()
    return found


@BOTH
@pytest.mark.parametrize("seed", SEEDS)
def test_a_daemon_gives_what_its_files_hold(
    seed: int, read_committed: bool, adopted: Daemon
) -> None:
    """M01: topics, bounds, every column of every record, aborted transactions left out."""
    topic, over_http = name_of(seed), access_to(adopted, read_committed=read_committed)
    in_files = Access(paths=(str(adopted.log_dirs[0]),), read_committed=read_committed)
    logs = open_logs(over_http)
    assert logs.topics() == open_logs(in_files).topics()
    assert logs.topics()[topic] == [0]
    bounds = logs.bounds(topic, 0)
    found = rows(over_http, topic, bounds)
    assert found == rows(in_files, topic, bounds)
    batches = [
        batch
        for segment in make_log(random.Random(seed)).segments
        if segment.batches
        for batch in split_batches(b"".join(segment.batches))
    ]
    if not read_committed:
        assert found == plain_rows(batches, OffsetRange(topic, 0, *bounds))
    for stamp_ms in {row["timestamp"] // 1000 for row in found[:: max(len(found) // 4, 1)]}:
        offset = logs.offset_at(topic, 0, stamp_ms)
        assert offset is not None
        assert bounds.log_start_offset <= offset <= max(row["offset"] for row in found)
    assert logs.offset_at(topic, 0, 1 << 60) is None
    logs.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_raw_batches_of_read_committed_hold_no_aborted_ones(seed: int, adopted: Daemon) -> None:
    """M01: the raw route leaves out what its page of records leaves out, and moves on."""
    topic, offset = name_of(seed), 0
    path = f"/v1/topics/{topic}/partitions/0"
    start = adopted.request("GET", f"{path}/offsets?spec=earliest").json["offset"]
    end = adopted.request("GET", f"{path}/offsets?spec=latest&isolation=read_committed")
    data, offset = b"", start
    while offset < end.json["offset"]:
        answer = adopted.request(
            "GET", f"{path}/batches?offset={offset}&isolation=read_committed&max_bytes=500"
        )
        assert answer.status == (200 if answer.body else 204)
        assert int(answer.headers["Kafka-Next-Offset"]) > offset
        offset = int(answer.headers["Kafka-Next-Offset"])
        data += answer.body
    assert scan(data).consumed_bytes == len(data)
    with Client(f"http://127.0.0.1:{adopted.port}") as client:
        tail = client.tail(topic, 0, start="earliest", is_endless=False, isolation="read_committed")
        shown = [record.offset for record in tail]
    batches = split_batches(data) if data else []
    assert shown == [
        record.offset for batch in batches if not batch.is_control for record in batch.records
    ]


def test_a_daemon_that_restarts_is_waited_for(tmp_path: Path) -> None:
    """M01: reading goes on behind what was delivered: nothing twice, nothing missing."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("t")
        for number in range(50):
            append(daemon, "t", batch_of(b"%04d" % number))
        access = access_to(daemon)
        piece = Piece(OffsetRange("t", 0, 0, 50), access.urls[0], None, 0)
        chunks = read_piece(piece, access, chunk_bytes=100)
        values = [row["value"] for row in first_rows(chunks, piece)]
        daemon.kill()
        restart = threading.Thread(target=daemon.start)
        restart.start()
        found = rows_of(record_batches(chunks, piece.range, SPARK_SCHEMA))
        restart.join()
        assert values + [row["value"] for row in found] == [b"%04d" % n for n in range(50)]


def first_rows(chunks: Iterator[Chunk], piece: Piece) -> list[Row]:
    return rows_of(record_batches([next(chunks)], piece.range, SPARK_SCHEMA))


def test_offsets_that_are_gone_are_named(tmp_path: Path) -> None:
    """M02: below the log start, behind the end, a topic that was deleted; from files as well."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("t")
        for number in range(10):
            append(daemon, "t", batch_of(b"%d" % number))
        access = access_to(daemon)
        url = access.urls[0]
        whole = Piece(OffsetRange("t", 0, 0, 10), url, None, 0)
        logs = open_logs(access)
        assert logs.bounds("t", 0) == (0, 10)
        with pytest.raises(DataLost) as lost:
            list(read_piece(Piece(OffsetRange("t", 0, 8, 13), url, None, 0), access))
        assert lost.value.missing == OffsetRange("t", 0, 10, 13)
        delete_records(daemon, ("t", 0, 4))
        with pytest.raises(DataLost, match="starts at 4") as lost:
            list(read_piece(whole, access))
        assert lost.value.missing == OffsetRange("t", 0, 0, 4)
        assert logs.bounds("t", 0) == (4, 10)
        in_files = open_logs(in_files_of(daemon))
        assert in_files.bounds("t", 0).log_start_offset == 4
        for each in (logs, in_files):
            with pytest.raises(UnknownPartition):
                each.bounds("t", 1)
            with pytest.raises(UnknownTopic):
                each.bounds("nowhere", 0)
        logs.close()
        with Client(url) as client:
            client.delete_topic("t")
        for gone in (whole, Piece(whole.range, f"{daemon.log_dirs[0]}/t-0", None, 0)):
            with pytest.raises(DataLost, match="deleted") as lost:
                list(read_piece(gone, access if gone is whole else in_files_of(daemon)))
            assert lost.value.missing == whole.range


def test_a_topic_at_two_daemons_is_no_guess(tmp_path: Path) -> None:
    """M02: each topic is read from the daemon that has it."""
    with Daemon(tmp_path / "a") as one, Daemon(tmp_path / "b") as two:
        for daemon, name in ((one, "first"), (two, "second"), (one, "both"), (two, "both")):
            daemon.create_topic(name, 2)
            append(daemon, name, batch_of(name.encode()))
        access = access_to(one, two)
        logs = open_logs(access)
        assert logs.topics() == {"both": [0, 1], "first": [0, 1], "second": [0, 1]}
        for name in ("first", "second"):
            assert [row["value"] for row in rows(access, name, (0, 1))] == [name.encode()]
        with pytest.raises(AmbiguousPartition, match="both is at"):
            logs.bounds("both", 0)
        logs.close()


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


ROUNDS = 8
ROUNDS_MAX = 400


def config_of(_log_dir: str, topic: str) -> LogConfig:
    """As the command line reads it in the registry."""
    return COMPACT if topic == COMPACTED else LogConfig()


def test_jobs_over_a_daemon_at_work(tmp_path: Path) -> None:
    """No false finding and no failed job while segments are written, rolled, cleaned, deleted."""
    with Daemon(tmp_path, environment=None, log_dirs=1, **DAEMON_SETTINGS) as daemon:
        create_topics(daemon)
        log_dir, rounds, was_cleaned = str(daemon.log_dirs[0]), 0, False
        with Producer(daemon, pause_seconds=0.01):
            while rounds < ROUNDS or not was_cleaned:
                assert rounds < ROUNDS_MAX, "the cleaner does nothing"
                rounds += 1
                partitions = find_partitions([log_dir], SystemFilesystem(), config_of=config_of)
                was_cleaned |= any(each.was_cleaned for each in partitions)
                found = audit_directories(partitions, InProcess(), target_bytes=1 << 16)
                assert [row for row in found.rows if row.severity == "error"] == []
                rows = forecast(partitions, InProcess(), now_ms=0, horizon_ms=0)
                assert {row.topic for row in rows} == set(TOPICS)
                count_records(partitions, InProcess(), width_ms=1_000)
        partitions = find_partitions([log_dir], SystemFilesystem())
        with pytest.raises(UnusableDirectory, match="is served by a daemon"):
            compact_directories(partitions, str(tmp_path / "out"), InProcess(), now_ms=0)
